"""Operations in their event loop: cases that occur only there."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from hanzoai.pubsub import (
    AuthError,
    ClosedError,
    ConnectionFailed,
    InvalidPayload,
    NotFound,
    OperationTimeout,
    Published,
    SendQueue,
    Subscription,
    TokenContext,
)
from hanzoai.pubsub.testing import MemoryServer, VirtualClock


def clock_of(server: MemoryServer) -> VirtualClock:
    assert isinstance(server.clock, VirtualClock)
    return server.clock


async def test_publishes_that_wait_for_room_fail_at_the_end(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client(send_queue=SendQueue(messages=1, policy="block"))
    with pubsub_memory.refusing():
        tasks = [asyncio.create_task(ps.publish("a.b", {"data": n})) for n in range(4)]
        await clock_of(pubsub_memory).settle()
        await ps.close(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClosedError] * 4


async def test_closing_sends_the_publishes_that_wait_for_room(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client(send_queue=SendQueue(messages=1, policy="block"))
    await ps.connect()
    *published, _ = await asyncio.gather(
        *(ps.publish("a.b", {"data": n}) for n in range(4)), ps.close()
    )
    messages = [message async for message in pubsub_memory.client().history("a.b")]
    assert [message.data for message in messages] == [0, 1, 2, 3]
    assert [one.id for one in published if one] == [message.id for message in messages]


async def test_a_publish_that_is_cancelled_while_it_waits_for_room_is_never_sent(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(send_queue=SendQueue(messages=1, policy="block"))
    with pubsub_memory.refusing():
        first, *others = [asyncio.create_task(ps.publish("a.b", {"data": n})) for n in range(4)]
        await clock_of(pubsub_memory).settle()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    await clock_of(pubsub_memory).advance(5)
    published = await asyncio.gather(*others)
    messages = [message async for message in ps.history("a.b")]
    assert [message.data for message in messages] == [1, 2, 3]
    assert [one.id for one in published] == [message.id for message in messages]


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_publishes_that_are_given_up_together_do_not_take_the_place_of_each_other(
    pubsub_memory: MemoryServer, how: str
) -> None:
    clock = clock_of(pubsub_memory)
    ps = pubsub_memory.client(send_queue=SendQueue(messages=1, policy="block"))
    await ps.connect()
    pubsub_memory.lose_next("published", 3)
    calls = [asyncio.create_task(ps.publish("a.b", {"data": n}, timeout=2)) for n in range(3)]
    await clock.settle()
    if how == "cancel":
        for call in calls:
            call.cancel()
    else:
        await clock.advance(3)
    await asyncio.gather(*calls, return_exceptions=True)
    messages = [message async for message in pubsub_memory.client().history("a.b")]
    assert [message.data for message in messages] == [0]


async def test_the_work_of_cancelling_publishes_one_by_one_grows_with_their_number(
    pubsub_memory: MemoryServer,
) -> None:
    clock, ps = clock_of(pubsub_memory), pubsub_memory.client()
    await ps.connect()

    async def work(count: int) -> int:
        pubsub_memory.lose_next("published", count)
        calls = [asyncio.create_task(ps.publish("a.b", {"data": n})) for n in range(count)]
        await clock.settle()
        events = 0

        def record(*_: object) -> None:
            nonlocal events
            events += 1

        sys.setprofile(record)
        try:
            for call in calls:
                call.cancel()
                await asyncio.wait([call])
        finally:
            sys.setprofile(None)
        return events

    few, many = await work(100), await work(400)
    assert many < 5 * few


async def test_the_room_of_a_cancelled_publish_is_free_for_the_next_call(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(send_queue=SendQueue(messages=1))

    async def publish_again() -> Published:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ps.publish("a.b", {"data": 1})
        return await ps.publish("a.b", {"data": 2})

    with pubsub_memory.refusing():
        again = asyncio.create_task(publish_again())
        await clock_of(pubsub_memory).settle()
    await clock_of(pubsub_memory).advance(5)
    assert (await again).seq is not None
    messages = [message async for message in ps.history("a.b")]
    assert [message.data for message in messages] == [2]


async def test_a_presence_update_without_a_connection_times_out_with_the_reason(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    with pubsub_memory.refusing(1013, "busy"):
        task = asyncio.create_task(ps.update_presence("a.b", {"status": "idle"}, timeout=2))
        await clock_of(pubsub_memory).advance(2)
        with pytest.raises(ConnectionFailed, match="busy") as caught:
            await task
    assert caught.value.code == "not_connected"


async def test_a_cancelled_presence_update_is_still_sent(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b"):
        with pubsub_memory.refusing(1013, "busy"):
            pubsub_memory.cut()
            task = asyncio.create_task(ps.update_presence("a.b", {"status": "away"}))
            await clock_of(pubsub_memory).settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await clock_of(pubsub_memory).advance_until(lambda: ps.state == "connected")
        await clock_of(pubsub_memory).settle()
        (member,) = await ps.presence("a.b")
    assert member.status == "away"


async def test_a_presence_update_in_a_cleanup_after_a_cancellation_times_out_as_usual(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(ConnectionFailed, match="busy"):
                await ps.update_presence("a.b", {"status": "away"}, timeout=2)
            raise

    with pubsub_memory.refusing(1013, "busy"):
        task = asyncio.create_task(work())
        await clock_of(pubsub_memory).settle()
        task.cancel()
        await clock_of(pubsub_memory).settle()
        await clock_of(pubsub_memory).advance(2)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_publish_that_could_not_be_sent_in_time_says_why(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    with pubsub_memory.refusing(1013, "busy"):
        task = asyncio.create_task(ps.publish("a.b", {"data": 1}, timeout=2))
        await clock_of(pubsub_memory).advance(2)
        with pytest.raises(OperationTimeout) as caught:
            await task
    assert caught.value.message == (
        "The message could not be sent within 2 s. State: reconnecting, no connection for 2.0 s. "
        "Last failure: busy (1013)."
    )
    assert not caught.value.outcome_unknown


async def test_publishes_with_different_timeouts_end_each_at_its_own_time(
    pubsub_memory: MemoryServer,
) -> None:
    clock = clock_of(pubsub_memory)
    ps = pubsub_memory.client()
    await ps.publish("a.b", {"data": 0}, timeout=5)  # its timer fires for the next ones
    pubsub_memory.lose_next("published", 3)
    publishes = [
        asyncio.create_task(ps.publish("a.b", {"data": 1}, timeout=seconds))
        for seconds in (30, 10, 20)
    ]
    await clock.settle()
    ended: list[list[bool]] = []
    for seconds in (9.9, 0.1, 9.9, 0.1, 9.9, 0.1):
        await clock.advance(seconds)
        ended.append([publish.done() for publish in publishes])
    assert ended == [
        [False, False, False],
        [False, True, False],
        [False, True, False],
        [False, True, True],
        [False, True, True],
        [True, True, True],
    ]
    assert {type(publish.exception()) for publish in publishes} == {OperationTimeout}
    await ps.close()


async def test_a_client_without_a_token_reports_the_exception_of_the_callback(
    pubsub_memory: MemoryServer,
) -> None:
    async def broken(_: TokenContext) -> str:
        raise OSError("a secret")

    ps = pubsub_memory.client(get_token=broken)
    task = asyncio.create_task(ps.connect(timeout=2))
    await clock_of(pubsub_memory).advance(2)
    with pytest.raises(
        AuthError, match=r"get_token raised OSError in .*\(token_unavailable\)"
    ) as caught:
        await task
    assert caught.value.code == "token_unavailable"
    assert isinstance(caught.value.__cause__, OSError)


async def test_many_updates_of_presence_end_with_the_last_one(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b", presence=True):
        typing = [ps.update_presence("a.b", {"status": f"at {n}"}) for n in range(200)]
        task = asyncio.gather(*typing)
        await clock_of(pubsub_memory).advance(5)
        await task
        assert [member.status for member in await ps.presence("a.b")] == ["at 199"]


async def test_an_update_of_presence_that_is_refused_raises_in_its_own_call(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(NotFound, match="not a member") as caught:
        await ps.update_presence("a.b", {"status": "x"})
    assert caught.value.topic == "a.b"
    async with ps.subscribe("a.b", presence=True):
        with pytest.raises(InvalidPayload, match="must be a string"):
            await ps.update_presence("a.b", {"status": 5})
        await ps.update_presence("a.b", {"status": "fine"})


async def test_an_update_of_presence_that_is_refused_after_its_call_ended_is_an_error(
    pubsub_memory: MemoryServer,
) -> None:
    errors: list[Exception] = []
    ps = pubsub_memory.client(on_error=errors.append)
    with pubsub_memory.refusing():
        task = asyncio.create_task(ps.update_presence("a.b", {"status": "x"}, timeout=2))
        await clock_of(pubsub_memory).advance(2)
        with pytest.raises(ConnectionFailed):
            await task
    await clock_of(pubsub_memory).advance_until(lambda: bool(errors))
    (error,) = errors
    assert isinstance(error, NotFound)
    assert error.topic == "a.b"


async def test_an_update_of_presence_that_is_refused_after_its_call_was_cancelled_is_an_error(
    pubsub_memory: MemoryServer,
) -> None:
    errors: list[Exception] = []
    ps = pubsub_memory.client(on_error=errors.append)
    with pubsub_memory.refusing():
        task = asyncio.create_task(ps.update_presence("a.b", {"status": "x"}))
        await clock_of(pubsub_memory).settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await clock_of(pubsub_memory).advance_until(lambda: bool(errors))
    (error,) = errors
    assert isinstance(error, NotFound)
    assert error.topic == "a.b"


async def test_unsubscribe_discards_waiting_messages(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    sub = await ps.subscribe("a.b")
    for number in range(3):
        await pubsub_memory.publish("a.b", {"data": number})
    await clock_of(pubsub_memory).settle()
    await sub.unsubscribe()
    assert [message async for message in sub] == []
    stats = sub.stats
    assert (stats.queued, stats.dropped) == (0, 3)


async def test_results_of_the_first_messages_are_reported_if_the_client_ends_before_the_rest(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    pubsub_memory.lose_next("published", 2)
    items = [("a.b", {"data": n}) for n in range(1_500)]
    task = asyncio.create_task(ps.publish_many(items))
    await clock_of(pubsub_memory).settle()
    await ps.close(0)
    codes = [getattr(result, "code", None) for result in await task]
    assert codes == ["outcome_unknown"] * 1_000 + ["closed"] * 500


async def test_a_client_without_a_connection_reports_the_last_failure(
    pubsub_memory: MemoryServer,
) -> None:
    async def get_token(context: TokenContext) -> str:
        return await asyncio.Future[str]()

    ps = pubsub_memory.client(get_token=get_token, fetch_timeout=1, operation_timeout=60)
    task = asyncio.create_task(ps.connect(timeout=8))
    await clock_of(pubsub_memory).advance(8)
    with pytest.raises(ConnectionFailed, match="token callback did not answer"):
        await task


async def test_a_restart_of_the_server_is_logged_as_information_and_other_failures_as_errors(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    with caplog.at_level(logging.INFO, logger="hanzoai.pubsub"):
        ps._ready().driver.listeners.report(
            ConnectionFailed("It is shutting down.", code="going_away"), None
        )
        ps._ready().driver.listeners.report(ConnectionFailed("Nobody answers."), None)
    lines = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    assert lines == [("INFO", "going_away"), ("ERROR", "connection_failed")]


@pytest.mark.parametrize("state", ["connecting", "authenticating", "connected"])
async def test_a_logging_handler_may_use_the_client(
    pubsub_memory: MemoryServer, state: str
) -> None:
    ps = pubsub_memory.client()
    subscriptions: list[Subscription] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if f"-> {state}" in record.getMessage():
                subscriptions.append(ps.subscribe("a.b"))

    log, handler = logging.getLogger("hanzoai.pubsub"), Handler()
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    try:
        await ps.connect()
        (subscription,) = subscriptions
        await subscription
        await ps.publish("a.b", {"data": 1})
        assert (await anext(subscription)).data == 1
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        await ps.close()
