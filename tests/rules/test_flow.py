"""FLOW-1, FLOW-2, ERR-1: user code that is slow, calls the client, or raises an error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import Gap, Message, ReceiveQueue, SlowConsumer

from .help import TOPIC, numbers, read, say, soon, waiting

if TYPE_CHECKING:
    from hanzoai.pubsub import PubSubClient, Subscription
    from hanzoai.pubsub.testing import MemoryServer, VirtualClock


def assert_sums(sub: Subscription) -> None:
    stats = sub.stats
    assert stats.received == stats.handled + stats.dropped + stats.queued


# ---------------------------------------------------------------- FLOW-1


async def test_flow_1_a_slow_reader_costs_only_its_queue_and_gets_a_gap_for_missed_messages(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    slow = await soon(ps.subscribe("a.slow", queue=ReceiveQueue(messages=10)))
    quick = await soon(ps.subscribe("a.quick"))
    for number in range(100):
        await server.publish("a.slow", say(number))
        await server.publish("a.quick", say(number))
        await clock.settle()
        assert slow.stats.queued <= 10
        assert_sums(slow)
    assert numbers(await read(quick, 100)) == list(range(100))
    events = slow.events()
    gap = await soon(anext(events))
    assert isinstance(gap, Gap)
    assert (gap.missed, gap.reason, gap.topic) == (90, "slow_consumer", "a.slow")
    left = [await soon(anext(events)) for _ in range(10)]
    assert numbers([entry for entry in left if isinstance(entry, Message)]) == list(range(90, 100))
    assert slow.stats.dropped == 90
    assert slow.stats.gaps == 1
    assert_sums(slow)
    assert ps.state == "connected"
    await ps.close()


async def test_flow_1_the_bound_in_bytes_holds_and_the_accounts_are_right_at_all_times(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC, queue=ReceiveQueue(messages=1_000, bytes=20_000)))
    for number in range(60):
        await server.publish(TOPIC, {"data": {"n": number, "text": "x" * 2_000}})
        await clock.settle()
        assert sub.stats.queued_bytes <= 20_000
        assert_sums(sub)
        if number % 7 == 0 and sub.stats.queued:
            sub.take_nowait()
    assert sub.stats.dropped > 0
    while sub.stats.queued:
        await soon(anext(sub))
        assert_sums(sub)
    assert sub.stats.queued_bytes == 0
    await ps.close()


async def test_flow_1_several_topics_lose_each_its_own_gap(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe("a.*", queue=ReceiveQueue(messages=4)))
    for number in range(12):
        await server.publish(f"a.{number % 3}", say(number))
        await clock.settle()
    events = sub.events()
    gaps = [await soon(anext(events)) for _ in range(3)]
    assert {gap.topic for gap in gaps} == {"a.0", "a.1", "a.2"}
    assert sum(gap.missed or 0 for gap in gaps if isinstance(gap, Gap)) == 8
    assert numbers(waiting(sub)) == [8, 9, 10, 11]
    await ps.close()


async def test_flow_1_policy_error_ends_the_subscription_after_what_waits(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC, queue=ReceiveQueue(messages=5, policy="error")))
    other = await soon(ps.subscribe("a.b"))
    for number in range(9):
        await server.publish(TOPIC, say(number))
        await clock.settle()
    with pytest.raises(SlowConsumer):
        await read(sub, 9)
    assert not sub.active
    assert_sums(sub)
    await server.publish("a.b", say(1))
    assert numbers(await read(other, 1)) == [1]
    await ps.close()


async def test_flow_1_policy_block_stops_reading_and_loses_nothing(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC, queue=ReceiveQueue(messages=5, policy="block")))
    for number in range(200):
        await server.publish(TOPIC, say(number))
    await clock.settle()
    assert sub.stats.queued <= 6
    await clock.advance(120)
    assert ps.state == "connected"
    assert sub.stats.queued <= 6
    assert numbers(await read(sub, 200)) == list(range(200))
    assert sub.stats.dropped == 0
    await ps.close()


async def test_flow_1_a_burst_drops_nothing_of_a_reader_that_keeps_up(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    got: list[Message] = []
    sub = ps.subscribe(TOPIC, on_message=got.append, queue=ReceiveQueue(messages=8))
    await soon(sub)
    for number in range(3_000):
        await server.publish(TOPIC, say(number))
    await clock.settle()
    assert numbers(got) == list(range(3_000))
    assert sub.stats.dropped == 0
    await ps.close()


async def test_flow_1_a_replay_larger_than_the_queue_is_delivered_whole() -> None:
    from hanzoai.pubsub.testing import MemoryServer

    async with MemoryServer(history_max_messages=3_000) as server:
        for number in range(2_500):
            await server.publish(TOPIC, say(number))
        ps = server.client()
        sub = await soon(ps.subscribe(TOPIC, history=2_500, queue=ReceiveQueue(messages=100)))
        assert numbers(await read(sub, 2_500)) == list(range(2_500))
        assert sub.stats.dropped == 0
        await ps.close()


async def test_flow_1_a_cancelled_wait_loses_nothing(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC))
    seen: list[Message] = []
    for number in range(50):
        wait = asyncio.create_task(sub.__anext__())
        await clock.settle()
        await server.publish(TOPIC, say(number))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        wait.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            seen.append(await wait)
    await clock.settle()
    assert numbers(seen + waiting(sub)) == list(range(50))
    await ps.close()


# ---------------------------------------------------------------- FLOW-2


@pytest.mark.parametrize("operation", ["publish", "subscribe", "unsubscribe", "history", "close"])
@pytest.mark.parametrize("where", ["on_message", "on_presence", "on_gap", "on_state", "on_error"])
async def test_flow_2_a_handler_may_call_the_whole_api(
    operation: str, where: str, server: MemoryServer, clock: VirtualClock
) -> None:
    done = asyncio.Event()
    holder: list[PubSubClient] = []
    busy = False

    async def use(_: object) -> None:
        nonlocal busy
        if busy or not holder or holder[0].state != "connected":
            return
        busy = True
        ps = holder[0]
        async with asyncio.timeout(1):
            match operation:
                case "publish":
                    await ps.publish("b.1", say(1))
                case "subscribe":
                    await (await ps.subscribe("b.2")).unsubscribe()
                case "unsubscribe":
                    await sub.unsubscribe()
                case "history":
                    assert [m.data async for m in ps.history(TOPIC)][:1] == [{"n": 1}]
                case _:
                    await ps.close()
        done.set()

    def fail(_: object) -> None:
        raise ValueError("as the test wants")

    await server.publish(TOPIC, say(1))
    handlers: dict[str, Any] = {"on_message": print}
    if where in ("on_message", "on_presence", "on_gap"):
        handlers[where] = use
    if where == "on_error":
        handlers["on_message"] = fail
    listeners: dict[str, Any] = {where: use} if where in ("on_state", "on_error") else {}
    ps = server.client(None, **listeners)
    holder.append(ps)
    sub = ps.subscribe(TOPIC, **handlers)
    await soon(sub)
    await server.publish(TOPIC, say(1))
    await clock.settle()
    if where == "on_gap":
        with server.refusing():
            await server.publish(TOPIC, say(2))
            server.forget_history()
            await server.publish(TOPIC, say(1))
        await clock.advance(30)
    await soon(done.wait())
    await ps.close()


async def test_flow_2_two_handlers_may_close_the_client_at_the_same_time(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    ended: list[int] = []

    async def end(message: Message) -> None:
        await ps.close()
        ended.append(message.data["n"])

    await soon(ps.subscribe("a.1", on_message=end))
    await soon(ps.subscribe("a.2", on_message=end))
    await server.publish("a.1", say(1))
    await server.publish("a.2", say(2))
    await clock.settle()
    await soon(ps.close())
    await clock.settle()
    assert sorted(ended) == [1, 2]


async def test_flow_2_a_slow_handler_holds_up_neither_others_nor_the_connection(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    release = asyncio.Event()
    slow_got: list[Message] = []
    quick_got: list[Message] = []

    async def slow(message: Message) -> None:
        slow_got.append(message)
        await release.wait()

    await soon(ps.subscribe("a.slow", on_message=slow))
    await soon(ps.subscribe("a.quick", on_message=quick_got.append))
    for number in range(5):
        await server.publish("a.slow", say(number))
        await server.publish("a.quick", say(number))
    await clock.advance(120)
    assert ps.state == "connected"
    assert numbers(slow_got) == [0]
    assert numbers(quick_got) == list(range(5))
    release.set()
    await clock.settle()
    assert numbers(slow_got) == list(range(5))
    await ps.close()


# ---------------------------------------------------------------- ERR-1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_err_1_after_an_error_in_a_handler_the_next_message_arrives_and_on_error_is_called(
    asynchronous: bool, server: MemoryServer, clock: VirtualClock
) -> None:
    got: list[int] = []
    errors: list[Exception] = []

    def handle(message: Message) -> None:
        got.append(message.data["n"])
        if message.data["n"] == 1:
            raise ValueError("bad message")

    async def handle_later(message: Message) -> None:
        handle(message)

    ps = server.client(on_error=errors.append)
    await soon(ps.subscribe(TOPIC, on_message=handle_later if asynchronous else handle))
    for number in range(3):
        await server.publish(TOPIC, say(number))
    await clock.settle()
    assert got == [0, 1, 2]
    (error,) = errors
    assert isinstance(error, ValueError)
    assert any(TOPIC in note for note in error.__notes__)
    await ps.close()


async def test_err_1_without_a_listener_the_exception_is_logged_at_error_with_its_topic(
    server: MemoryServer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> None:
        raise ValueError("bad message")

    ps = server.client()
    await soon(ps.subscribe(TOPIC, on_message=handle))
    with caplog.at_level(logging.ERROR, logger="hanzoai.pubsub"):
        await server.publish(TOPIC, say(1))
        await clock.settle()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert TOPIC in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    await ps.close()


async def test_err_1_an_error_listener_that_raises_ends_nothing(
    server: MemoryServer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ValueError("again")

    got: list[Message] = []
    ps = server.client(on_error=fail, on_state=fail)
    await soon(ps.subscribe(TOPIC, on_message=fail))
    await soon(ps.subscribe(TOPIC, on_message=got.append))
    await server.publish(TOPIC, say(1))
    await server.publish(TOPIC, say(2))
    await clock.settle()
    assert numbers(got) == [1, 2]
    assert ps.state == "connected"
    assert caplog.records
    await ps.close()
