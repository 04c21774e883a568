"""Requests and replies over topics, with the hub in memory and in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from unittest.mock import Mock

import pytest

from hanzoai.pubsub import (
    ClosedError,
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    Message,
    OperationTimeout,
    PermissionDenied,
    PubSub,
    ReplyError,
    RequestTimeout,
    UsageError,
)
from hanzoai.pubsub.durations import Duration, seconds_of
from hanzoai.pubsub.request_reply.requester import Requester
from hanzoai.pubsub.runtime import inbox
from hanzoai.pubsub.testing import MemoryServer, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path
    from types import TracebackType

    from hanzoai.pubsub.request_reply.blocking import BlockingResponder
    from hanzoai.pubsub.testing.threaded import ThreadedServer

T = TypeVar("T")

TOPIC = "demo.sum"


def clock_of(server: MemoryServer) -> VirtualClock:
    assert isinstance(server.clock, VirtualClock)
    return server.clock


async def within(server: MemoryServer, awaitable: Awaitable[T], seconds: float = 60) -> T:
    """Return the result of an awaitable while virtual time advances."""
    task = asyncio.ensure_future(awaitable)
    await clock_of(server).advance_until(task.done, seconds)
    return await task


def add(request: Message) -> int:
    return sum(request.data)


async def test_a_request_returns_what_the_handler_returns(pubsub_memory: MemoryServer) -> None:
    seen: list[Message] = []

    async def handle(request: Message) -> int:
        seen.append(request)
        return sum(request.data)

    asking = pubsub_memory.client()
    async with pubsub_memory.client().respond(TOPIC, handle):
        reply = await asking.request(TOPIC, [1, 2, 3], id="order-7")
    assert reply.data == 6
    assert reply.sender is not None
    assert [(one.id, one.type, one.data) for one in seen] == [("order-7", "request", [1, 2, 3])]
    assert seen[0].ttl == 10
    assert (seen[0].meta or {})["reply_to"] == reply.topic
    assert reply.meta == {"in_reply_to": "order-7"}


async def test_concurrent_requests_get_their_own_replies_over_one_subscription(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    async with answering.respond(TOPIC, add):
        replies = await asyncio.gather(*(asking.request(TOPIC, [n, n]) for n in range(50)))
    assert [reply.data for reply in replies] == [2 * n for n in range(50)]
    assert len({reply.topic for reply in replies}) == 1


async def test_without_a_responder_a_request_times_out_and_names_itself(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(RequestTimeout, match="has no reply within 3 s") as caught:
        await within(pubsub_memory, ps.request(TOPIC, None, timeout=3, id="r1"))
    error = caught.value
    assert (error.code, error.id, error.topic, error.retryable) == (
        "request_timeout",
        "r1",
        TOPIC,
        True,
    )
    assert isinstance(error, OperationTimeout | TimeoutError)


async def test_a_request_that_cannot_be_sent_times_out_too(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    with pubsub_memory.refusing():
        for timeout in (3, None):
            with pytest.raises(RequestTimeout, match="could not be sent") as caught:
                await within(pubsub_memory, ps.request(TOPIC, None, timeout=timeout, id="r1"))
            assert (caught.value.id, caught.value.outcome_unknown) == ("r1", False)


async def test_the_error_of_a_responder_comes_back_with_code_and_data(
    pubsub_memory: MemoryServer,
) -> None:
    def refuse(_: Message) -> None:
        raise ReplyError("Sold out.", code="out_of_stock", data={"left": 0})

    ps = pubsub_memory.client()
    async with ps.respond(TOPIC, refuse):
        with pytest.raises(ReplyError, match="Sold out") as caught:
            await ps.request(TOPIC, None)
    assert (caught.value.code, caught.value.data) == ("out_of_stock", {"left": 0})


@pytest.mark.parametrize("result", [object(), "x" * 300_000], ids=["no JSON", "too large"])
async def test_a_result_that_cannot_be_sent_is_reported_and_answered(
    pubsub_memory: MemoryServer, result: Any
) -> None:
    reported: list[Exception] = []
    answering = pubsub_memory.client(on_error=reported.append)
    async with answering.respond(TOPIC, lambda _: result):
        with pytest.raises(ReplyError) as caught:
            await pubsub_memory.client().request(TOPIC, None)
    assert caught.value.code == "responder_failed"
    assert len(reported) == 1
    assert isinstance(reported[0], ValueError)


async def test_any_other_exception_is_reported_and_its_text_stays_with_the_responder(
    pubsub_memory: MemoryServer,
) -> None:
    def fail(_: Message) -> None:
        raise KeyError("secret")

    reported: list[Exception] = []
    answering = pubsub_memory.client(on_error=reported.append)
    async with answering.respond(TOPIC, fail):
        with pytest.raises(ReplyError) as caught:
            await pubsub_memory.client().request(TOPIC, None, id="r1")
    assert caught.value.code == "responder_failed"
    assert "secret" not in str(caught.value)
    assert [type(error) for error in reported] == [KeyError]
    assert "request: r1" in reported[0].__notes__


async def test_a_reply_survives_a_connection_of_either_side(pubsub_memory: MemoryServer) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    go = asyncio.Event()

    async def handle(request: Message) -> int:
        await go.wait()
        return sum(request.data)

    async with answering.respond(TOPIC, handle):
        request = asyncio.ensure_future(asking.request(TOPIC, [4, 5], timeout=60))
        await clock_of(pubsub_memory).advance(1)
        pubsub_memory.cut()
        go.set()
        reply = await within(pubsub_memory, request)
    assert reply.data == 9


async def test_a_request_waits_for_a_responder_that_is_reconnecting(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    async with answering.respond(TOPIC, add):
        await asking.connect()
        pubsub_memory.cut()
        reply = await within(pubsub_memory, asking.request(TOPIC, [1], timeout=60))
    assert reply.data == 1


async def test_expired_requests_and_replies_are_not_logged_as_gaps_of_a_subscription(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryServer(history_max_messages=1) as server:
        asking, answering = server.client(), server.client()
        async with answering.respond(TOPIC, add):
            reply = await within(server, asking.request(TOPIC, [1], timeout=5))
            for _ in range(2):
                server.cut()
                for n in range(3):
                    await server.publish(TOPIC, {"data": n})
                    await server.publish(reply.topic, {"data": n})
                assert (await within(server, asking.request(TOPIC, [2], timeout=60))).data == 2
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text for text in logged if "missed" in text] == [
        f"A responder may have missed requests on topic {TOPIC} (history_trimmed). Their senders "
        "get RequestTimeout. Further gaps of this responder are not logged."
    ]


async def test_a_retry_gets_the_reply_that_came_too_late(pubsub_memory: MemoryServer) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    go, calls = asyncio.Event(), 0

    async def handle(_: Message) -> str:
        nonlocal calls
        calls += 1
        await go.wait()
        return "done"

    async with answering.respond(TOPIC, handle):
        with pytest.raises(RequestTimeout):
            await within(pubsub_memory, asking.request(TOPIC, 1, timeout=1, id="r1"))
        retry = asyncio.ensure_future(asking.request(TOPIC, 1, timeout=30, id="r1"))
        await clock_of(pubsub_memory).advance(1)
        go.set()
        assert (await within(pubsub_memory, retry)).data == "done"
        go.clear()
        with pytest.raises(RequestTimeout):
            await within(pubsub_memory, asking.request(TOPIC, 2, timeout=1, id="r2"))
        go.set()
        await clock_of(pubsub_memory).advance(1)
        assert (await asking.request(TOPIC, 2, id="r2")).data == "done"
    assert calls == 2


async def test_a_late_reply_does_not_answer_a_request_on_another_topic(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    go = asyncio.Event()

    async def reserve(_: Message) -> str:
        await go.wait()
        return "reserved"

    async with (
        answering.respond("demo.reserve", reserve),
        answering.respond("demo.charge", lambda _: "charged"),
    ):
        with pytest.raises(RequestTimeout):
            await within(pubsub_memory, asking.request("demo.reserve", 1, timeout=1, id="order-7"))
        go.set()
        await clock_of(pubsub_memory).advance(1)
        assert (await asking.request("demo.charge", 1, id="order-7")).data == "charged"
        assert (await asking.request("demo.reserve", 1, id="order-7")).data == "reserved"


async def test_a_request_waits_longer_than_other_operations_for_a_connection(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(operation_timeout=1), pubsub_memory.client()
    async with answering.respond(TOPIC, add):
        with pubsub_memory.refusing():
            request = asyncio.ensure_future(asking.request(TOPIC, [1, 2], timeout=60))
            await clock_of(pubsub_memory).advance(10)
        assert (await within(pubsub_memory, request)).data == 3


class _CountedTimeout(OperationTimeout):
    """Ends a loop that raises it forever, because no timeout of asyncio could."""

    raised = 0

    def with_traceback(self, tb: TracebackType | None, /) -> Self:
        self.raised += 1
        assert self.raised < 10
        return super().with_traceback(tb)


async def test_a_request_ends_when_the_server_rejects_its_reply_topic_for_lack_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"rules: [{{pattern: {TOPIC}, require: {{authenticated: true}}}}]")
    error = _CountedTimeout("The server could not look it up in time.")
    monkeypatch.setattr(inbox, "denial_error", Mock(return_value=error))
    async with MemoryServer(rules=str(rules)) as server, asyncio.timeout(60):
        client = server.client(server.token("alice"))
        with pytest.raises(RequestTimeout, match="could not be sent") as caught:
            await client.request(TOPIC, [1])
    assert caught.value.__cause__ is error
    assert error.raised < 10


async def test_a_retry_gets_the_reply_to_a_call_that_was_cancelled(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    go, calls = asyncio.Event(), 0

    async def handle(_: Message) -> str:
        nonlocal calls
        calls += 1
        await go.wait()
        return "done"

    async with answering.respond(TOPIC, handle):
        first = asyncio.ensure_future(asking.request(TOPIC, 1, timeout=30, id="r1"))
        await clock_of(pubsub_memory).advance(1)
        first.cancel()
        await asyncio.wait({first})
        go.set()
        await clock_of(pubsub_memory).advance(1)
        retry = asking.request(TOPIC, 1, timeout=30, id="r1")
        assert (await within(pubsub_memory, retry)).data == "done"
    assert calls == 1


async def test_a_retry_gets_the_reply_that_came_as_the_call_was_cancelled(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    calls: list[asyncio.Future[Message]] = []
    receive = Requester._receive

    def receive_and_cancel(*given: Any) -> None:
        receive(*given)
        calls[0].cancel()

    monkeypatch.setattr(Requester, "_receive", receive_and_cancel)
    async with answering.respond(TOPIC, add):
        calls.append(asyncio.ensure_future(asking.request(TOPIC, [1, 2], id="r1")))
        await clock_of(pubsub_memory).advance(1)
        assert calls[0].cancelled()
        assert (await within(pubsub_memory, asking.request(TOPIC, [1, 2], id="r1"))).data == 3


def _constant(number: int, _: Message) -> int:
    return number


async def test_of_several_responders_the_first_reply_counts(pubsub_memory: MemoryServer) -> None:
    asking = pubsub_memory.client()
    reported: list[Exception] = []
    answering = [pubsub_memory.client(on_error=reported.append) for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for number, ps in enumerate(answering):
            handler = partial(_constant, number)
            await stack.enter_async_context(ps.respond(TOPIC, handler))
        reply = await asking.request(TOPIC, None)
        async with asking.subscribe(reply.topic, history=10) as replies:
            await clock_of(pubsub_memory).advance(1)
            assert replies.stats.queued == 1
    assert reply.data in (0, 1, 2)
    assert reported == []


async def test_a_responder_answers_nowhere_but_below_its_topic_or_the_sender(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    async with answering.respond(TOPIC, add), asking.subscribe("demo.victim") as victim:
        with caplog.at_level(logging.WARNING), pytest.raises(RequestTimeout):
            await within(
                pubsub_memory, asking.request(TOPIC, [1], reply_to="demo.victim", timeout=1)
            )
        assert victim.stats.received == 0
    assert "asks for its reply on demo.victim" in caplog.text
    async with answering.respond("demo.open", add, allow=lambda _, name: name == "demo.chosen"):
        reply = await asking.request("demo.open", [1], reply_to="demo.chosen")
    assert reply.topic == "demo.chosen"


async def test_a_user_whose_id_has_a_dot_gets_no_reply_on_topics_of_another_user(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    service = pubsub_memory.client(pubsub_memory.token("sums", kind="service"))
    ann = pubsub_memory.client(pubsub_memory.token("ann"))
    lee = pubsub_memory.client(pubsub_memory.token("ann.lee"))
    request = {"type": "request", "data": [1], "meta": {"reply_to": "user.ann.lee.replies"}}
    async with service.respond(TOPIC, add), ann.subscribe("user.ann.**") as victim:
        with caplog.at_level(logging.WARNING):
            await lee.publish(TOPIC, request)
            await clock_of(pubsub_memory).advance(1)
        assert victim.stats.received == 0
        assert (
            await ann.request(TOPIC, [1, 2], reply_to="user.ann.replies")
        ).topic == "user.ann.replies"
    assert "asks for its reply on user.ann.lee.replies" in caplog.text


async def test_a_responder_that_cannot_decide_where_to_reply_publishes_nothing(
    pubsub_memory: MemoryServer,
) -> None:
    reported: list[Exception] = []
    asking, answering = pubsub_memory.client(), pubsub_memory.client(on_error=reported.append)

    def allow(_: Message, reply_to: str) -> bool:
        return {"demo.chosen": True}[reply_to]

    async with (
        answering.respond(TOPIC, add, allow=allow),
        asking.subscribe("demo.victim") as victim,
    ):
        with pytest.raises(RequestTimeout):
            await within(
                pubsub_memory, asking.request(TOPIC, [1], reply_to="demo.victim", timeout=1)
            )
        assert victim.stats.received == 0
        assert (await asking.request(TOPIC, [1], reply_to="demo.chosen")).data == 1
    assert [type(error) for error in reported] == [KeyError]


@pytest.mark.parametrize("reply_to", ["demo.sum.replies.*", "user.eve.a b"])
async def test_a_request_whose_reply_topic_is_not_valid_is_reported_once(
    pubsub_memory: MemoryServer, reply_to: str
) -> None:
    asking = pubsub_memory.client(pubsub_memory.token("eve"))
    reported: list[Exception] = []
    answering = pubsub_memory.client(on_error=reported.append)
    async with answering.respond(TOPIC, add):
        request = {"type": "request", "data": [1], "meta": {"reply_to": reply_to}}
        await asking.publish(TOPIC, request)
        await clock_of(pubsub_memory).advance(1)
        assert (await asking.request(TOPIC, [1, 2])).data == 3
    assert [type(error) for error in reported] == [InvalidTopic]


async def test_other_messages_of_the_topic_are_not_requests(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    calls: list[str] = []
    async with ps.respond("demo.**", lambda request: calls.append(request.type), type="sum"):
        await ps.publish(TOPIC, {"type": "sum", "data": 1})
        await ps.publish(TOPIC, {"type": "request", "data": 1, "meta": {"reply_to": TOPIC}})
        await ps.request(TOPIC, 1, type="sum")
    assert calls == ["sum"]


async def test_allow_of_a_responder_may_not_be_asynchronous(pubsub_memory: MemoryServer) -> None:
    async def allow(_request: Message, _reply_to: str) -> bool:
        return True

    errors: list[Exception] = []
    ps = pubsub_memory.client(on_error=errors.append)
    with pytest.raises(InvalidOption, match="coroutine function"):
        ps.respond(TOPIC, lambda _: 1, allow=cast("Any", allow))

    def hidden(request: Message, reply_to: str) -> Any:
        return allow(request, reply_to)

    async with ps.respond(TOPIC, lambda _: 1, allow=hidden):
        asking = asyncio.ensure_future(ps.request(TOPIC, 1, timeout=1))
        await clock_of(pubsub_memory).advance(2)
        with pytest.raises(RequestTimeout):
            await within(pubsub_memory, asking)
    assert [type(error) for error in errors] == [UsageError]


async def test_a_responder_handles_as_many_requests_at_once_as_allowed(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    go, running, most = asyncio.Event(), 0, 0

    async def handle(_: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    async with answering.respond(TOPIC, handle, concurrency=2):
        requests = [asyncio.ensure_future(asking.request(TOPIC, n, timeout=60)) for n in range(6)]
        await clock_of(pubsub_memory).advance(1)
        assert running == 2
        go.set()
        await within(pubsub_memory, asyncio.gather(*requests))
    assert most == 2


@pytest.mark.parametrize("ending", [asyncio.CancelledError, OperationTimeout])
async def test_a_responder_whose_wait_has_failed_answers_nothing(
    pubsub_memory: MemoryServer, ending: type[BaseException]
) -> None:
    ps = pubsub_memory.client(operation_timeout=2)
    await ps.connect()
    before = asyncio.all_tasks()
    pubsub_memory.lose_next("subscribed")

    async def respond() -> None:
        await ps.respond(TOPIC, add)

    waiting = asyncio.create_task(respond())
    await clock_of(pubsub_memory).settle()
    if ending is asyncio.CancelledError:
        waiting.cancel()
    else:
        await clock_of(pubsub_memory).advance(2)
    with pytest.raises(ending):
        await waiting
    await clock_of(pubsub_memory).settle()
    assert pubsub_memory.received[-1]["type"] == "unsubscribe"
    assert asyncio.all_tasks() == before


async def test_closing_a_responder_waits_for_its_handlers_within_the_timeout(
    pubsub_memory: MemoryServer,
) -> None:
    asking, answering = pubsub_memory.client(), pubsub_memory.client()
    go, started = asyncio.Event(), asyncio.Event()

    async def handle(_: Message) -> str:
        started.set()
        await go.wait()
        return "done"

    responder = await answering.respond(TOPIC, handle)
    request = asyncio.ensure_future(asking.request(TOPIC, 1, timeout=60))
    await within(pubsub_memory, started.wait())
    closing = asyncio.ensure_future(responder.close())
    await clock_of(pubsub_memory).advance(1)
    assert not closing.done()
    assert not responder.active
    go.set()
    assert (await within(pubsub_memory, request)).data == "done"
    await within(pubsub_memory, closing)

    go.clear()
    started.clear()
    responder = await answering.respond(TOPIC, handle)
    request = asyncio.ensure_future(asking.request(TOPIC, 1, timeout=20))
    await within(pubsub_memory, started.wait())
    await within(pubsub_memory, responder.close(1), 2)
    with pytest.raises(RequestTimeout):
        await within(pubsub_memory, request)


async def test_closing_the_client_ends_its_requests(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    request = asyncio.ensure_future(ps.request(TOPIC, 1, timeout=60))
    await clock_of(pubsub_memory).advance(1)
    await ps.close()
    with pytest.raises(ClosedError):
        await within(pubsub_memory, request)


async def test_refusals_of_the_server_reach_the_call(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        'rules:\n  - {pattern: "read.**", require: {authenticated: true}}\n'
        '  - {pattern: "demo.**", require: {authenticated: true}, publish: true}\n'
    )
    async with MemoryServer(rules=str(rules)) as server:
        ps = server.client(server.token("eve"))
        for topic in ("read.sum", "hidden.sum"):
            with pytest.raises(PermissionDenied, match=topic):
                await ps.request(topic, 1)
        with pytest.raises(PermissionDenied, match="hidden"):
            await ps.respond("hidden.sum", add)
        with pytest.raises(PermissionDenied, match="hidden"):
            await ps.request(TOPIC, 1, reply_to="hidden.replies")


async def test_arguments_are_checked(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    with pytest.raises(InvalidTopic):
        await ps.request("demo.*", 1)
    with pytest.raises(InvalidPayload):
        await ps.request(TOPIC, object())
    for id in ("", "x" * 126, 7):
        with pytest.raises(InvalidOption, match="`id`"):
            await ps.request(TOPIC, 1, id=id)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOption, match="too long"):
        await ps.request("demo." + "x" * 249, 1)
    with pytest.raises(InvalidOption, match="concurrency"):
        ps.respond(TOPIC, add, concurrency=0)
    first = asyncio.ensure_future(ps.request(TOPIC, 1, id="r1"))
    await clock_of(pubsub_memory).advance(1)
    with pytest.raises(InvalidOption, match="still waits"):
        await ps.request(TOPIC, 1, id="r1")
    first.cancel()


async def test_a_client_leaves_the_reply_topics_it_used_least_recently(
    pubsub_memory: MemoryServer,
) -> None:
    asking = pubsub_memory.client()
    async with pubsub_memory.client().respond("demo.**", add):
        for number in range(105):
            await asking.request(f"demo.sum.n{number}", [number])
        assert (await asking.request("demo.sum.n0", [7])).data == 7


def test_the_blocking_client_asks_and_answers(pubsub_server: ThreadedServer) -> None:
    with PubSub(token=pubsub_server.service_token(), **pubsub_server.options) as ps:

        def handle(request: Message) -> int:
            ps.publish("demo.log", {"type": "asked", "data": request.id})
            return sum(request.data)

        with ps.respond(TOPIC, handle) as responder:
            assert responder.active
            assert ps.request(TOPIC, [2, 3]).data == 5
        assert not responder.active


def test_a_blocking_responder_does_not_wait_for_its_handlers_after_an_exception(
    pubsub_server: ThreadedServer,
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    async def handle(_: Message) -> None:
        begun.set()
        try:
            # Longer than the test, shorter than forever.
            await asyncio.sleep(600)
        finally:
            stopped.set()

    def ask_and_fail(ps: PubSub, responder: BlockingResponder) -> None:
        request = {"type": "request", "data": 1, "meta": {"reply_to": f"{TOPIC}.replies.a"}}
        with responder:
            ps.publish(TOPIC, request)
            assert begun.wait(60)
            raise LookupError

    with PubSub(token=pubsub_server.service_token(), **pubsub_server.options) as ps:
        responder = ps.respond(TOPIC, handle)
        waits: list[float] = []
        close = responder._responder.close

        async def noted(timeout: Duration = 5.0) -> None:
            waits.append(seconds_of(timeout))
            await close(timeout)

        responder._responder.close = noted  # type: ignore[method-assign]
        with pytest.raises(LookupError):
            ask_and_fail(ps, responder)
        assert stopped.wait(60)
    assert waits == [0]


def test_a_handler_that_closes_its_blocking_client_sends_no_reply(
    pubsub_server: ThreadedServer,
) -> None:
    closed, reply_to = threading.Event(), f"{TOPIC}.replies.a"

    def handle(_: Message) -> int:
        ps.close()
        closed.set()
        return 5

    with PubSub(token=pubsub_server.service_token(), **pubsub_server.options) as other:
        replies = other.subscribe(reply_to).wait()
        ps = PubSub(token=pubsub_server.service_token(), **pubsub_server.options)
        ps.respond(TOPIC, handle).wait()
        other.publish(TOPIC, {"type": "request", "data": 1, "meta": {"reply_to": reply_to}})
        assert closed.wait(60)
        other.publish(reply_to, {"type": "later", "data": 1})
        assert replies.next(60).type == "later"


async def test_a_request_whose_reply_topic_is_not_granted_in_time_was_not_sent() -> None:
    async with MemoryServer() as server:
        client = server.client(operation_timeout=1)
        await client.connect()
        with server.frozen(), pytest.raises(RequestTimeout) as caught:
            await within(server, client.request(TOPIC, [1], timeout=5))
        assert not caught.value.outcome_unknown
