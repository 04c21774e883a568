"""Writers and readers of streams, with the reference server in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import logging
import math
import re
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, assert_type, cast

import pytest
from pydantic import BaseModel

from hanzoai.pubsub import (
    ClosedError,
    Conflict,
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    Message,
    PayloadTooLarge,
    PermissionDenied,
    PubSub,
    SendQueue,
    Superseded,
    Unavailable,
    UsageError,
)
from hanzoai.pubsub.streams import (
    Aborted,
    BlockingStreamReader,
    BlockingStreamWriter,
    Delta,
    Done,
    Gap,
    Snapshot,
    Stalled,
    Started,
    StreamCancelled,
    StreamEvent,
    StreamReader,
    StreamWriter,
    from_openai,
    partial_json,
    sse,
    stream_reader,
    stream_writer,
)
from hanzoai.pubsub.streams.blocking import driven
from hanzoai.pubsub.testing import MemoryServer, VirtualClock

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Generator,
    )

    from hanzoai.pubsub.testing.threaded import ThreadedServer

T = TypeVar("T")

TOPIC = "chat.session.abc"
SPEC = Path(__file__).parents[2] / "spec"
STREAM_EVENTS = json.loads((SPEC / "stream_events.json").read_text(encoding="utf-8"))
TEXT = "Hello wörld \U0001f468\u200d\U0001f469\u200d\U0001f467 漢字 é " * 12


def words(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def clock_of(server: MemoryServer) -> VirtualClock:
    assert isinstance(server.clock, VirtualClock)
    return server.clock


async def within(server: MemoryServer, awaitable: Awaitable[T], seconds: float = 60) -> T:
    """Return the result of an awaitable while virtual time advances."""
    task = asyncio.ensure_future(awaitable)
    await clock_of(server).advance_until(task.done, seconds)
    return await task


async def collect(reader: StreamReader) -> list[StreamEvent]:
    return [event async for event in reader]


def amount(events: list[StreamEvent]) -> str:
    """Return the text that a program shows after these events."""
    text = ""
    for event in events:
        if isinstance(event, Delta):
            text += event.text
        elif isinstance(event, Snapshot | Done | Aborted):
            text = event.text
    return text


async def model(server: MemoryServer, text: str, pause: float = 1 / 150) -> AsyncIterator[str]:
    for word in words(text):
        await server.clock.sleep(pause)
        yield word


async def test_a_reader_sees_the_answer_grow_and_ends_with_all_of_it(
    pubsub_memory: MemoryServer,
) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(other, TOPIC).open()
    reading = asyncio.ensure_future(collect(reader))
    await clock_of(pubsub_memory).settle()
    writer = stream_writer(ps, TOPIC, id="r1", meta={"model": "m"})
    async with writer:
        await within(pubsub_memory, writer.pipe(model(pubsub_memory, TEXT)))
    events = await within(pubsub_memory, reading)
    assert events[0] == Started({"model": "m"})
    assert isinstance(events[-1], Done)
    assert len([event for event in events if isinstance(event, Delta)]) > 5
    assert amount(events[:-1]) == TEXT == events[-1].text
    final = await reader.final()
    assert (final.status, final.text, final.reason, final.whole) == ("complete", TEXT, "stop", True)
    assert final.count == writer.stats["tokens"]


async def test_the_first_token_is_published_at_once_and_the_rest_by_windows(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    sub = await ps.subscribe(TOPIC)
    clock = clock_of(pubsub_memory)
    async with stream_writer(ps, TOPIC, listen=False) as writer:
        await clock.settle()
        for word in ("a", "b", "c"):
            await writer.write(word)
            await clock.settle()
        assert [message.data.get("content") for message in _waiting(sub)] == [None, "a"]
        await clock.advance(0.039)
        assert _waiting(sub) == []
        await clock.advance(0.002)
        assert [message.data["content"] for message in _waiting(sub)] == ["bc"]


def _waiting(sub: Any) -> list[Any]:
    found = []
    while (message := sub.take_nowait()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
async def test_a_late_reader_begins_with_the_current_text(
    pubsub_memory: MemoryServer, share: float
) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    writer = stream_writer(ps, TOPIC)
    await writer.open()
    long = TEXT * 8
    piping = asyncio.ensure_future(writer.pipe(model(pubsub_memory, long)))
    await clock_of(pubsub_memory).advance(len(words(long)) / 150 * share)
    reader = stream_reader(other, TOPIC).open()
    await clock_of(pubsub_memory).advance(0.2)
    assert long.startswith(reader.text)
    assert not reader.stale
    assert len(reader.text) > len(long) * share * 0.9
    events = asyncio.ensure_future(collect(reader))
    await within(pubsub_memory, piping)
    assert amount((await within(pubsub_memory, events))[:-1]) == long


async def test_a_reader_that_joins_after_the_end_gets_the_whole_answer(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC) as writer:
        await within(pubsub_memory, writer.pipe(model(pubsub_memory, TEXT * 8)))
    final = await within(pubsub_memory, stream_reader(ps, TOPIC).final())
    assert final.text == TEXT * 8


async def test_a_reader_that_is_cut_again_and_again_ends_with_the_same_text(
    pubsub_memory: MemoryServer,
) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    long = TEXT * 8
    reader = stream_reader(other, TOPIC).open()
    reading = asyncio.ensure_future(collect(reader))
    async with stream_writer(ps, TOPIC) as writer:
        piping = asyncio.ensure_future(writer.pipe(model(pubsub_memory, long)))
        for _ in range(6):
            await clock_of(pubsub_memory).advance(1.3)
            pubsub_memory.cut()
        await within(pubsub_memory, piping, 300)
    assert amount((await within(pubsub_memory, reading, 300))[:-1]) == long


async def test_streams_do_not_ask_a_program_to_handle_the_gaps_of_their_own_subscriptions(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(other, TOPIC).open()
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        async with stream_writer(ps, TOPIC) as writer:
            piping = asyncio.ensure_future(writer.pipe(model(pubsub_memory, TEXT)))
            await clock_of(pubsub_memory).advance(0.5)
            pubsub_memory.forget_history(positions=True)
            pubsub_memory.cut()
            await within(pubsub_memory, piping, 300)
        assert (await within(pubsub_memory, reader.final(), 300)).text == TEXT
    assert [text for text in caplog.messages if "on_gap" in text] == []


@pytest.mark.pubsub_server(history_max_messages=5)
async def test_a_snapshot_repairs_what_a_short_history_has_lost(
    pubsub_memory: MemoryServer,
) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client(pubsub_memory.token("other"))
    long = TEXT * 12
    reader = stream_reader(other, TOPIC).open()
    reading = asyncio.ensure_future(collect(reader))
    async with stream_writer(ps, TOPIC, listen=False) as writer:
        piping = asyncio.ensure_future(writer.pipe(model(pubsub_memory, long)))
        await clock_of(pubsub_memory).advance(2)
        pubsub_memory.lose_next("message", 12)
        await within(pubsub_memory, piping, 300)
    events = await within(pubsub_memory, reading, 300)
    assert amount(events[:-1]) == long
    assert any(isinstance(event, Snapshot) for event in events)


async def test_a_reader_cancels_and_all_end_with_the_same_text(
    pubsub_memory: MemoryServer,
) -> None:
    ps, one, two = (pubsub_memory.client(pubsub_memory.token(name)) for name in ("svc", "a", "b"))
    readers = [stream_reader(client, TOPIC).open() for client in (one, two)]
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            for n in range(10_000):
                await pubsub_memory.clock.sleep(0.01)
                yield f"{n} "
        finally:
            closed.set()

    async def write() -> None:
        async with stream_writer(ps, TOPIC) as writer:
            with pytest.raises(StreamCancelled) as caught:
                await writer.pipe(endless())
            assert caught.value.reason == "enough"
            assert caught.value.by == "a"
            assert writer.cancelled

    writing = asyncio.ensure_future(write())
    await clock_of(pubsub_memory).advance(2)
    await within(pubsub_memory, readers[0].cancel("enough"))
    await within(pubsub_memory, writing)
    assert closed.is_set()
    first, second = [await within(pubsub_memory, reader.final()) for reader in readers]
    assert first == second
    assert (first.status, first.reason, first.by) == ("aborted", "enough", "a")
    assert "150 " in first.text


async def test_a_block_that_only_writes_ends_when_a_reader_cancels(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()

    async def write() -> str:
        async with stream_writer(ps, TOPIC) as writer:
            while True:
                await writer.write("x")
                await pubsub_memory.clock.sleep(0.05)
        return "after"

    writing = asyncio.ensure_future(write())
    await clock_of(pubsub_memory).advance(1)
    await within(pubsub_memory, reader.cancel())
    assert await within(pubsub_memory, writing) == "after"
    assert (await within(pubsub_memory, reader.final())).status == "aborted"


async def test_leaving_never_cancels(pubsub_memory: MemoryServer) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    async with stream_writer(ps, TOPIC) as writer:
        piping = asyncio.ensure_future(writer.pipe(model(pubsub_memory, TEXT * 4)))
        reader = stream_reader(other, TOPIC)
        async with reader:
            following = asyncio.ensure_future(anext(reader))
            await within(pubsub_memory, following)
        await other.close()
        await within(pubsub_memory, piping)
    assert not writer.cancelled


async def test_readers_get_the_end_of_an_answer_that_is_too_large_for_their_server() -> None:
    paragraph = "x" * 500

    async def write(server: MemoryServer) -> None:
        async with stream_writer(server.client(), TOPIC) as writer:
            for _ in range(9):
                await writer.write(paragraph)
                await server.clock.sleep(1)

    async with MemoryServer(max_payload=2_000) as server:
        reader = stream_reader(server.client(), TOPIC).open()
        with pytest.raises(PayloadTooLarge):
            await within(server, write(server))
        final = await within(server, reader.final())
    assert (final.status, final.reason, final.whole) == ("aborted", "payload_too_large", True)
    assert final.text == paragraph * final.count
    assert final.count > 2


async def test_a_cancel_that_is_not_allowed_ends_nothing(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("svc"))
    mallory = pubsub_memory.client(pubsub_memory.token("mallory"))
    reader = stream_reader(mallory, TOPIC).open()
    async with stream_writer(ps, TOPIC, allow=lambda by: by == "alice") as writer:
        await writer.write("a")
        await clock_of(pubsub_memory).advance(1)
        await within(pubsub_memory, reader.cancel())
        await clock_of(pubsub_memory).advance(1)
        await writer.write("b")
    assert "mallory may not cancel" in caplog.text
    assert (await within(pubsub_memory, reader.final())).text == "ab"


async def test_allow_also_decides_about_a_cancel_without_a_sender(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def allow(by: str) -> bool:
        asked.append(by)
        return False

    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, allow=allow) as writer:
        cancel = {"stream": writer.id, "reason": "enough"}
        writer._receive(
            Message(topic=TOPIC, id="m1", type="stream.cancel", data=cancel, timestamp=1)
        )
        await writer.write("ok")
    assert asked == [""]
    assert "A reader without an id may not cancel" in caplog.text
    assert (await within(pubsub_memory, stream_reader(ps, TOPIC).final())).text == "ok"


async def awaited(by: str) -> bool:
    return by == "alice"


def unawaited(by: str) -> Any:
    return awaited(by)


def failing(by: str) -> bool:
    raise LookupError(by)


@pytest.mark.parametrize(("allow", "error"), [(unawaited, UsageError), (failing, LookupError)])
async def test_a_sender_for_whom_allow_fails_may_neither_cancel_nor_steer(
    pubsub_memory: MemoryServer, allow: Callable[[str], bool], error: type[Exception]
) -> None:
    received: list[Any] = []
    errors: list[Exception] = []
    ps = pubsub_memory.client(pubsub_memory.token("svc"), on_error=errors.append)
    reader = stream_reader(pubsub_memory.client(pubsub_memory.token("mallory")), TOPIC).open()
    steers = stream_writer(ps, TOPIC, allow=allow, on_steer=lambda data, _: received.append(data))
    async with steers as writer:
        await writer.write("a")
        await clock_of(pubsub_memory).advance(1)
        await within(pubsub_memory, reader.steer("louder"))
        await within(pubsub_memory, reader.cancel())
        await clock_of(pubsub_memory).advance(1)
        await writer.write("b")
    assert (await within(pubsub_memory, reader.final())).text == "ab"
    assert received == []
    assert list(map(type, errors)) == [error, error]


def test_a_reader_of_a_pattern_is_refused(pubsub_memory: MemoryServer) -> None:
    with pytest.raises(InvalidTopic, match="wildcard"):
        stream_reader(pubsub_memory.client(), "chat.*.abc")


def test_allow_may_not_be_a_coroutine_function(pubsub_memory: MemoryServer) -> None:
    with pytest.raises(InvalidOption, match="coroutine function") as caught:
        stream_writer(pubsub_memory.client(), TOPIC, allow=cast("Any", awaited))
    assert caught.value.field == "allow"


async def test_steer_handlers_run_one_at_a_time_in_order(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("svc"))
    reader = stream_reader(pubsub_memory.client(pubsub_memory.token("alice")), TOPIC).open()
    received: list[Any] = []
    go = asyncio.Event()

    async def steer(data: Any, _: str) -> None:
        received.append(data)
        await go.wait()
        received.append(data)

    async with stream_writer(ps, TOPIC, on_steer=steer):
        await clock_of(pubsub_memory).advance(1)
        for data in (1, 2):
            await within(pubsub_memory, reader.steer(data))
        await clock_of(pubsub_memory).advance(1)
        assert received == [1]
        go.set()
        await clock_of(pubsub_memory).advance(1)
        assert received == [1, 1, 2, 2]


RULES = """
rules:
  - pattern: "chat.**"
    require: {authenticated: true}
    publish: {require: {service: true}}
"""


@pytest.mark.parametrize("id", ["r1", "next"])
@pytest.mark.parametrize("how", ["a publish", "a route"])
async def test_a_cancel_before_the_first_event_reaches_the_writer(
    pubsub_memory: MemoryServer, id: str, how: str
) -> None:
    async def route(stream: str, reason: str) -> None:
        assert stream == "r1"
        await writer.cancel(reason, by="route")

    on_cancel = route if how == "a route" else None
    reader = stream_reader(pubsub_memory.client(), TOPIC, id=id, on_cancel=on_cancel)
    cancelling = asyncio.ensure_future(reader.cancel("enough"))
    await clock_of(pubsub_memory).advance(1)
    assert not cancelling.done()
    writer = await stream_writer(pubsub_memory.client(), TOPIC, id="r1").open()
    await within(pubsub_memory, cancelling)
    end = await within(pubsub_memory, reader.final())
    assert (end.status, end.reason) == ("aborted", "enough")


async def test_a_cancel_waits_until_the_reader_knows_whether_there_is_a_stream(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    idle = stream_reader(ps, TOPIC)
    with pytest.raises(UsageError, match="no stream to cancel"):
        await within(pubsub_memory, idle.cancel())
    with pytest.raises(UsageError, match="no stream to cancel"):
        await within(pubsub_memory, idle.steer("shorter"))
    await idle.close()
    writer = await stream_writer(ps, TOPIC).open()
    reader = stream_reader(ps, TOPIC)
    await within(pubsub_memory, reader.cancel())
    assert (await within(pubsub_memory, reader.final())).status == "aborted"
    assert writer.cancelled


async def test_a_cancel_ends_with_a_reader_that_is_closed(pubsub_memory: MemoryServer) -> None:
    reader = stream_reader(pubsub_memory.client(), TOPIC, id="r1")
    cancelling = asyncio.ensure_future(reader.cancel())
    await clock_of(pubsub_memory).advance(1)
    await reader.close()
    with pytest.raises(ClosedError):
        await within(pubsub_memory, cancelling)
    with pytest.raises(ClosedError):
        await within(pubsub_memory, reader.cancel())


async def test_cancelling_without_permission_raises_an_error(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    async with MemoryServer(rules=str(file)) as server:
        service = server.client(server.token("svc", kind="service"))
        await service.publish(TOPIC, {"type": "stream.start", "data": _frame()})
        reader = stream_reader(server.client(server.token()), TOPIC).open()
        await clock_of(server).advance(1)
        with pytest.raises(PermissionDenied):
            await within(server, reader.cancel())
        with pytest.raises(PermissionDenied):
            await within(server, reader.steer({"say": "shorter"}))
        called: list[tuple[str, str]] = []

        async def over_http(stream: str, reason: str) -> None:
            called.append((stream, reason))

        own = stream_reader(server.client(server.token()), TOPIC, on_cancel=over_http).open()
        await clock_of(server).advance(1)
        await own.cancel("stop")
        assert called == [("s", "stop")]


def _frame(**data: Any) -> dict[str, Any]:
    return {"stream": "s", "epoch": 0, "writer": "w", **data}


async def test_a_reader_steers_the_writer(pubsub_memory: MemoryServer) -> None:
    ps, user = (pubsub_memory.client(pubsub_memory.token(name)) for name in ("svc", "u1"))
    received: list[tuple[Any, str]] = []
    reader = stream_reader(user, TOPIC).open()
    async with stream_writer(ps, TOPIC, on_steer=lambda data, by: received.append((data, by))):
        await clock_of(pubsub_memory).advance(0.1)
        await within(pubsub_memory, reader.steer({"say": "shorter"}))
        await clock_of(pubsub_memory).advance(0.1)
    assert received == [({"say": "shorter"}, "u1")]


async def test_the_exception_of_an_asynchronous_steer_handler_is_reported(
    pubsub_memory: MemoryServer,
) -> None:
    reported: list[Exception] = []
    ps = pubsub_memory.client(pubsub_memory.token("svc"), on_error=reported.append)
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()

    async def steer(data: Any, by: str) -> None:
        raise ValueError(data)

    async with stream_writer(ps, TOPIC, on_steer=steer):
        await clock_of(pubsub_memory).advance(0.1)
        await within(pubsub_memory, reader.steer("louder"))
        await clock_of(pubsub_memory).advance(0.1)
    assert [str(error) for error in reported] == ["louder"]


async def test_a_reader_raises_why_it_cannot_read_as_often_as_it_is_asked(
    pubsub_memory: MemoryServer,
) -> None:
    client = pubsub_memory.client()
    await client.close()
    reader = stream_reader(client, TOPIC)
    for _ in range(2):
        with pytest.raises(ClosedError):
            await within(pubsub_memory, collect(reader))
        with pytest.raises(ClosedError):
            await within(pubsub_memory, reader.final())


async def test_a_reader_waits_for_a_server_that_is_not_reachable(
    pubsub_memory: MemoryServer,
) -> None:
    with pubsub_memory.refusing():
        reader = stream_reader(pubsub_memory.client(), TOPIC).open()
        # Longer than the timeout of a subscription.
        await clock_of(pubsub_memory).advance(35)
    async with stream_writer(pubsub_memory.client(), TOPIC) as writer:
        await within(pubsub_memory, writer.write(TEXT))
    final = await within(pubsub_memory, reader.final())
    assert (final.status, final.text) == ("complete", TEXT)


async def test_a_writer_that_begins_while_no_server_is_reachable_can_be_cancelled_later(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    with pubsub_memory.refusing():
        writer = await stream_writer(pubsub_memory.client(), TOPIC).open()
        # Longer than the timeout of a subscription.
        await clock_of(pubsub_memory).advance(35)
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()
    await within(pubsub_memory, anext(aiter(reader)))
    await within(pubsub_memory, reader.cancel())
    await within(pubsub_memory, reader.final())
    assert writer.cancelled
    assert "cannot cancel" not in caplog.text


async def test_a_writer_that_may_not_read_its_topic_says_that_nobody_can_cancel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "rules:\n- pattern: chat.**\n  require: {user_id: bob}\n"
        "  publish: {require: {authenticated: true}}\n"
    )
    async with MemoryServer(rules=str(rules)) as server:
        ps = server.client(server.token("alice"))
        for _ in range(2):
            writer = await stream_writer(ps, TOPIC).open()
            await clock_of(server).advance(1)
            await within(server, writer.complete())
    assert caplog.text.count("Readers cannot cancel or steer the stream") == 1


async def test_a_writer_that_ends_before_its_subscription_is_answered_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "rules:\n- pattern: chat.**\n  require: {user_id: bob}\n"
        "  publish: {require: {authenticated: true}}\n"
    )
    async with MemoryServer(rules=str(rules)) as server:
        writer = await stream_writer(server.client(server.token("alice")), TOPIC).open()
        await within(server, writer.complete())
    assert "cannot cancel" not in caplog.text


async def test_a_writer_that_died_is_taken_over_where_it_stopped(
    pubsub_memory: MemoryServer,
) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(other, TOPIC).open()
    events = asyncio.ensure_future(collect(reader))
    dead = stream_writer(ps, TOPIC, id="r1")
    await dead.open()
    await dead.write(TEXT[:20])
    await clock_of(pubsub_memory).advance(1)
    dead._leave()  # like a killed process
    await clock_of(pubsub_memory).advance(11)
    async with stream_writer(ps, TOPIC, id="r1", take_over=True) as writer:
        assert writer.epoch == 1
        assert writer.text == TEXT[:20]
        await writer.write(TEXT[len(writer.text) :])
        late = {"stream": "r1", "epoch": 0, "writer": "w", "index": 1, "content": "late"}
        await pubsub_memory.publish(TOPIC, {"type": "token", "data": late})
    seen = await within(pubsub_memory, events)
    assert amount(seen) == TEXT
    assert Stalled(10.0) in seen
    with pytest.raises(Conflict, match="has ended"):
        await within(pubsub_memory, stream_writer(ps, TOPIC, id="r1", take_over=True).open())


async def test_a_stalled_reader_requests_the_history_only_while_it_is_connected(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps, clock = pubsub_memory.client(), clock_of(pubsub_memory)
    writer = await stream_writer(pubsub_memory.client(), TOPIC).open()
    await writer.write("The first half, ")
    reader = stream_reader(ps, TOPIC).open()
    await clock.advance(1)
    requests = []
    history = ps.history

    def counted(*arguments: Any, **options: Any) -> Any:
        requests.append(ps.state)
        return history(*arguments, **options)

    monkeypatch.setattr(ps, "history", counted)
    with pubsub_memory.refusing():
        await clock.advance(45)
    assert requests == []
    await writer.write("and the second.")
    await within(pubsub_memory, writer.complete())
    final = await within(pubsub_memory, reader.final())
    assert final.text == "The first half, and the second."
    silent = stream_reader(ps, TOPIC, id="silent").open()
    await clock.advance(1)
    start = {"type": "stream.start", "data": {"stream": silent.id, "epoch": 0, "writer": "w"}}
    await pubsub_memory.publish(TOPIC, start)
    await clock.advance(15)
    assert requests == ["connected"]


async def test_a_takeover_accepts_only_frames_of_its_sender(pubsub_memory: MemoryServer) -> None:
    ps, mallory = (pubsub_memory.client(pubsub_memory.token(name)) for name in ("svc", "mallory"))
    async with stream_writer(mallory, TOPIC, id="r1") as forged:
        await forged.write("forged")
    dead = stream_writer(ps, TOPIC, id="r1")
    await dead.open()
    await dead.write("real ")
    await clock_of(pubsub_memory).advance(1)
    dead._leave()  # like a killed process
    async with stream_writer(ps, TOPIC, id="r1", take_over=True, sender="svc") as writer:
        assert writer.text == "real "


async def test_a_reader_with_the_wrong_sender_logs_once_whose_frames_it_ignores(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("svc"))
    reader = stream_reader(ps, TOPIC, id="r1", sender="chat-backend").open()
    other = stream_reader(ps, TOPIC, id="r1", sender="svc")
    async with stream_writer(ps, TOPIC, id="r1") as writer:
        await writer.write("text")
    assert (await within(pubsub_memory, other.final())).text == "text"
    await reader.close()
    assert [record.getMessage() for record in caplog.records] == [
        "The reader of the stream r1 ignores the frames of svc, because its `sender` is "
        "chat-backend. If they are of the writer, pass the user id in its token as `sender`."
    ]


async def test_no_writer_takes_over_after_the_highest_epoch(pubsub_memory: MemoryServer) -> None:
    ps, mallory = (pubsub_memory.client(pubsub_memory.token(name)) for name in ("svc", "mallory"))
    forged = stream_writer(mallory, TOPIC, id="r1", epoch=2**53 - 1)
    await within(pubsub_memory, forged.open())
    with pytest.raises(Conflict, match=r"highest epoch.*pass `sender`"):
        await within(pubsub_memory, stream_writer(ps, TOPIC, id="r1", take_over=True).open())
    async with stream_writer(ps, TOPIC, id="r1", take_over=True, sender="svc") as writer:
        await writer.write("real")
    reader = stream_reader(ps, TOPIC, id="r1", sender="svc")
    assert (await within(pubsub_memory, reader.final())).text == "real"


async def test_a_cancel_that_no_writer_lived_to_see_ends_the_stream_when_it_is_taken_over(
    pubsub_memory: MemoryServer,
) -> None:
    ps, user = (pubsub_memory.client(pubsub_memory.token(name)) for name in ("svc", "u1"))
    reader = stream_reader(user, TOPIC).open()
    dead = stream_writer(ps, TOPIC, id="r1", listen=False)
    await dead.open()
    await dead.write("one ")
    await clock_of(pubsub_memory).advance(1)
    dead._leave()  # like a killed process
    await within(pubsub_memory, reader.cancel("enough"))
    async with stream_writer(ps, TOPIC, id="r1", take_over=True) as writer:
        with pytest.raises(StreamCancelled):
            await writer.write("two")
    end = await within(pubsub_memory, reader.final())
    assert (end.text, end.reason) == ("one ", "enough")


@pytest.mark.parametrize("what", ["cancel", "steer"])
async def test_a_request_during_a_takeover_reaches_the_new_writer(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ps, user = (pubsub_memory.client(pubsub_memory.token(name)) for name in ("svc", "u1"))
    reader = stream_reader(user, TOPIC).open()
    dead = stream_writer(ps, TOPIC, id="r1", listen=False)
    await dead.open()
    await dead.write("one ")
    await clock_of(pubsub_memory).advance(1)
    dead._leave()  # like a killed process
    history, received = ps.history, list[object]()

    async def slow(*arguments: Any, **options: Any) -> AsyncIterator[Message]:
        assert "joined" in repr(writer._subscription), "the history is read too early"
        messages = [message async for message in history(*arguments, **options)]
        await (reader.cancel("enough") if what == "cancel" else reader.steer("shorter"))
        # Other messages of the topic, more than the history retains, do not take its place.
        for _ in range(101):
            await pubsub_memory.publish(TOPIC, {"type": "note", "data": 1})
        joined = writer._subscription
        assert joined is not None
        for _ in range(1_000):  # turns of the loop
            await asyncio.sleep(0)
        assert joined.stats.handled == 102
        for message in messages:
            yield message

    monkeypatch.setattr(ps, "history", slow)
    writer = stream_writer(
        ps, TOPIC, id="r1", take_over=True, on_steer=lambda data, by: received.append((data, by))
    )
    await within(pubsub_memory, writer.open())
    await clock_of(pubsub_memory).advance(1)
    if what == "steer":
        await within(pubsub_memory, writer.complete())
        assert received == [("shorter", "u1")]
        return
    with pytest.raises(StreamCancelled):
        await writer.write("two")
    end = await within(pubsub_memory, reader.final())
    assert (end.text, end.reason, end.by) == ("one ", "enough", "u1")


async def test_a_takeover_of_a_stream_that_has_not_begun_begins_it(
    pubsub_memory: MemoryServer,
) -> None:
    reader = stream_reader(pubsub_memory.client(), TOPIC, id="r1")
    events = asyncio.ensure_future(collect(reader))
    taking = stream_writer(pubsub_memory.client(), TOPIC, id="r1", take_over=True, meta={"m": 1})
    writer = await within(pubsub_memory, taking.open())
    await within(pubsub_memory, writer.pipe(model(pubsub_memory, "one two")))
    seen = await within(pubsub_memory, events)
    assert seen[0] == Started({"m": 1})


async def test_a_cancel_that_comes_after_the_end_of_the_answer_does_not_change_it(
    pubsub_memory: MemoryServer,
) -> None:
    writer = await stream_writer(pubsub_memory.client(), TOPIC).open()
    await writer.write("all of it")
    completing = asyncio.ensure_future(writer.complete())
    await asyncio.sleep(0)
    await writer.cancel("too late")
    await within(pubsub_memory, completing)
    final = await within(pubsub_memory, stream_reader(pubsub_memory.client(), TOPIC).final())
    assert (final.status, final.text, writer.cancelled) == ("complete", "all of it", False)


async def test_a_writer_without_a_block_leaves_the_topic_when_a_reader_cancels(
    pubsub_memory: MemoryServer,
) -> None:
    writer = await stream_writer(pubsub_memory.client(), TOPIC).open()
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()
    await clock_of(pubsub_memory).advance(1)
    await within(pubsub_memory, reader.cancel())
    await within(pubsub_memory, reader.final())
    with pytest.raises(StreamCancelled):
        await writer.write("more")
    assert writer._subscription is not None
    assert not writer._subscription.active


async def test_an_id_of_an_earlier_answer_is_a_conflict(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, id="r1") as first:
        await first.write("one ")
    with pytest.raises(
        Conflict, match=r"another writer with this epoch.*another `id` for another answer"
    ):
        async with stream_writer(ps, TOPIC, id="r1") as second:
            await second.write("two ")


async def test_a_writer_without_a_block_leaves_the_topic_after_an_error(
    pubsub_memory: MemoryServer,
) -> None:
    writer = await stream_writer(pubsub_memory.client(), TOPIC).open()
    with pytest.raises(InvalidPayload):
        await writer.write("\ude00")
    await within(pubsub_memory, writer.abort())
    assert writer._subscription is not None
    assert not writer._subscription.active
    final = await within(pubsub_memory, stream_reader(pubsub_memory.client(), TOPIC).final())
    assert (final.status, final.reason) == ("aborted", "invalid_payload")


async def test_a_writer_that_cannot_take_over_leaves_the_topic(pubsub_memory: MemoryServer) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    async with stream_writer(ps, TOPIC, id="r1", listen=False):
        pass
    late = stream_writer(other, TOPIC, id="r1", take_over=True)
    with pytest.raises(Conflict, match="has ended"):
        await within(pubsub_memory, late.open())
    assert late._subscription is not None
    assert not late._subscription.active


async def test_a_writer_that_was_thought_dead_stops_when_another_has_taken_over(
    pubsub_memory: MemoryServer,
) -> None:
    one, two = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(two, TOPIC).open()
    old = stream_writer(one, TOPIC, id="r1")
    await old.open()
    await old.write("one ")
    await clock_of(pubsub_memory).advance(1)
    async with stream_writer(two, TOPIC, id="r1", take_over=True) as new:
        await clock_of(pubsub_memory).advance(1)
        with pytest.raises(Conflict, match="another writer"):
            await old.write("never")
        await new.write("two")
    assert (await within(pubsub_memory, reader.final())).text == "one two"


async def test_two_writers_of_one_epoch_are_never_mixed(pubsub_memory: MemoryServer) -> None:
    one, two = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(one, TOPIC).open()
    first = stream_writer(one, TOPIC, id="r1", listen=False)
    second = stream_writer(two, TOPIC, id="r1", listen=False)
    await first.open()
    await first.write("first")
    await clock_of(pubsub_memory).advance(0.1)
    await second.open()
    await second.write("second")
    await clock_of(pubsub_memory).advance(0.1)
    with pytest.raises(Conflict):
        await second.write("more")
    await within(pubsub_memory, first.complete())
    assert (await within(pubsub_memory, reader.final())).text == "first"


async def test_a_takeover_that_meets_an_attempt_with_its_epoch_leaves_it_to_the_first_writer(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(one, TOPIC, id="r1").open()
    dead = stream_writer(one, TOPIC, id="r1", listen=False)
    await dead.open()
    await dead.write("dead")
    await clock_of(pubsub_memory).advance(1)
    first = stream_writer(one, TOPIC, id="r1", epoch=1)
    second = stream_writer(two, TOPIC, id="r1", take_over=True)
    read_before = second._read_before

    async def read_and_be_overtaken() -> Any:
        found = await read_before()
        await first.open()
        return found

    monkeypatch.setattr(second, "_read_before", read_and_be_overtaken)
    await within(pubsub_memory, second.open())
    await clock_of(pubsub_memory).advance(1)
    assert second.epoch == first.epoch
    with pytest.raises(Conflict, match="another writer"):
        await second.write("second")
    await first.write("first")
    await within(pubsub_memory, first.complete())
    assert (await within(pubsub_memory, reader.final())).text == "first"


async def test_a_model_that_raises_aborts_the_stream(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()

    async def broken() -> AsyncIterator[str]:
        yield "half of "
        raise RuntimeError("out of tokens")

    async def write() -> None:
        async with stream_writer(ps, TOPIC) as writer:
            await writer.pipe(broken())

    with pytest.raises(RuntimeError, match="out of tokens"):
        await within(pubsub_memory, write())
    final = await within(pubsub_memory, reader.final())
    assert (final.status, final.reason, final.text) == ("aborted", "error", "half of ")


async def test_what_a_model_raises_after_the_end_of_its_stream_is_raised(
    pubsub_memory: MemoryServer,
) -> None:
    ended = asyncio.Event()

    async def broken() -> AsyncIterator[str]:
        yield "half"
        await ended.wait()
        raise ZeroDivisionError

    async with stream_writer(pubsub_memory.client(), TOPIC) as writer:
        piping = asyncio.ensure_future(writer.pipe(broken()))
        await clock_of(pubsub_memory).advance(1)
        await writer.abort("enough")
        ended.set()
        with pytest.raises(ZeroDivisionError):
            await piping


async def test_a_model_may_hold_a_timeout_over_several_pieces(pubsub_memory: MemoryServer) -> None:
    expired = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        try:
            async with asyncio.timeout(0.05):
                yield "half"
                await asyncio.Event().wait()
        except TimeoutError:
            expired.set()
            raise

    async with stream_writer(pubsub_memory.client(), TOPIC) as writer:
        piping = asyncio.ensure_future(writer.pipe(slow()))
        await asyncio.wait({piping}, timeout=30)
        assert expired.is_set()
        with pytest.raises(TimeoutError):
            await piping


async def test_a_task_that_is_cancelled_while_a_cancelled_model_closes_ends_as_cancelled(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()
    closing = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            yield "half"
            await asyncio.Event().wait()
        finally:
            closing.set()
            await asyncio.Event().wait()

    async def write() -> None:
        async with stream_writer(ps, TOPIC) as writer:
            await writer.pipe(endless())

    writing = asyncio.ensure_future(write())
    await clock_of(pubsub_memory).advance(1)
    await within(pubsub_memory, reader.cancel())
    await clock_of(pubsub_memory).advance_until(closing.is_set, 60)
    writing.cancel()
    await clock_of(pubsub_memory).advance_until(writing.done, 60)
    assert writing.cancelled()


async def assert_left(
    server: MemoryServer, writer: StreamWriter, write: Coroutine[Any, Any, None]
) -> None:
    """Cancel a writer while the server refuses everything: its subscription ends all the same."""
    with server.refusing():
        writing = asyncio.ensure_future(write)
        await clock_of(server).settle()
        writing.cancel()
        await asyncio.wait({writing}, timeout=30)
        assert writing.cancelled()
    assert writer._subscription is not None
    assert not writer._subscription.active


async def test_an_interrupted_writer_leaves_the_topic_without_a_server(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanzoai.pubsub.streams.writer._PARTING", 0.01)
    writer = stream_writer(pubsub_memory.client(), TOPIC)

    async def write() -> None:
        async with writer:
            await asyncio.Event().wait()

    await assert_left(pubsub_memory, writer, write())


async def test_a_block_that_is_cancelled_at_its_end_leaves_the_topic(
    pubsub_memory: MemoryServer,
) -> None:
    writer = stream_writer(pubsub_memory.client(), TOPIC)

    async def write() -> None:
        async with writer:
            await writer.write("half")

    await assert_left(pubsub_memory, writer, write())


async def test_a_stream_that_is_cancelled_before_it_is_open_ends_when_it_opens(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    writer = stream_writer(ps, TOPIC)
    await writer.cancel("enough", by="u1")
    async with writer:
        with pytest.raises(StreamCancelled):
            await writer.write("never shown")
        assert writer.cancelled
    final = await within(pubsub_memory, stream_reader(ps, TOPIC).final())
    assert (final.status, final.reason, final.by, final.text) == ("aborted", "enough", "u1", "")


async def test_the_cancel_of_a_user_whom_allow_rejects_returns_at_once(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, allow=lambda by: by == "alice") as writer:
        cancelling = asyncio.ensure_future(writer.cancel("enough", by="mallory"))
        await clock_of(pubsub_memory).settle()
        assert cancelling.done()
        await writer.write("ok")
    assert (await within(pubsub_memory, stream_reader(ps, TOPIC).final())).text == "ok"


async def test_a_cancel_stays_inside_the_block_although_the_abort_cannot_be_published(
    pubsub_memory: MemoryServer,
) -> None:
    writer = stream_writer(pubsub_memory.client(), TOPIC)

    async def write() -> str:
        async with writer:
            while True:
                await writer.write("x")
                await pubsub_memory.clock.sleep(0.05)
        return "after"

    writing = asyncio.ensure_future(write())
    await clock_of(pubsub_memory).advance(1)
    with pubsub_memory.refusing():
        pubsub_memory.cut()
        cancelling = asyncio.ensure_future(writer.cancel("enough"))
        await clock_of(pubsub_memory).advance(120)
    await cancelling
    assert await writing == "after"
    assert writer.cancelled


@pytest.mark.parametrize("wrong", [math.inf, math.nan, -1, "1"])
async def test_a_window_that_is_no_time_is_refused(wrong: Any) -> None:
    async with MemoryServer() as server, server.client() as ps:
        with pytest.raises(InvalidOption) as caught:
            stream_writer(ps, TOPIC, window=wrong)
        assert caught.value.field == "window"


async def test_a_block_that_handles_a_refused_piece_waits_until_the_abort_is_published(
    pubsub_memory: MemoryServer,
) -> None:
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()

    async def write() -> None:
        async with pubsub_memory.client() as ps, stream_writer(ps, TOPIC) as writer:
            await writer.write("ok")
            with contextlib.suppress(InvalidPayload):
                await writer.write(cast("Any", None))

    with pytest.raises(InvalidPayload):
        await within(pubsub_memory, write())
    final = await within(pubsub_memory, reader.final())
    assert (final.reason, final.text) == ("invalid_payload", "ok")


async def test_a_plain_generator_is_closed_after_its_current_item_when_a_reader_cancels(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    waiting, go, closed = threading.Event(), threading.Event(), threading.Event()

    def endless() -> Generator[str]:
        try:
            yield "one"
            waiting.set()
            go.wait(60)
            yield "two"
        finally:
            closed.set()

    source = endless()  # this reference keeps it from the garbage collector
    async with stream_writer(ps, TOPIC) as writer:
        piping = asyncio.ensure_future(writer.pipe(source))
        await asyncio.to_thread(waiting.wait, 60)
        await within(pubsub_memory, writer.cancel("enough"))
        with pytest.raises(StreamCancelled):
            await within(pubsub_memory, piping)
        assert not closed.is_set()
        go.set()
        assert await asyncio.to_thread(closed.wait, 60)


async def test_a_part_that_the_program_changes_is_published_as_it_was_written(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    call = {"type": "tool-call", "id": "c1", "name": "weather", "text": ""}
    async with stream_writer(ps, TOPIC) as writer:
        await writer.write(call)
        call["text"] += "{}"
        await writer.write({"text": "{}"})
    final = await within(pubsub_memory, stream_reader(ps, TOPIC).final())
    assert final.parts == [call]


async def test_a_program_that_is_interrupted_aborts_the_stream(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()

    async def write() -> None:
        async with stream_writer(ps, TOPIC) as writer:
            await writer.write("half")
            await asyncio.Event().wait()

    writing = asyncio.ensure_future(write())
    await clock_of(pubsub_memory).advance(1)
    writing.cancel()
    final = await within(pubsub_memory, reader.final())
    assert (final.reason, final.text) == ("interrupted", "half")


async def test_ten_megabytes_end_in_an_error_and_an_abort(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()

    async def write() -> None:
        async with stream_writer(ps, TOPIC) as writer:
            for _ in range(10_000):
                await writer.write("x" * 1024)

    with pytest.raises(PayloadTooLarge):
        await within(pubsub_memory, write())
    final = await within(pubsub_memory, reader.final())
    assert (final.status, final.reason) == ("aborted", "payload_too_large")
    assert 190_000 < len(final.text) <= 196_608
    assert set(final.text) == {"x"}


@pytest.mark.parametrize(
    ("bad", "problem", "remedy"),
    [
        ("\ude00", "half of a surrogate pair", "Decode"),
        ({"text": "\ude00"}, "half of a surrogate pair", "Decode"),
        ({"content": "x"}, "neither a `type` nor a `text`", '{"type": ...}'),
        (5, "is int, not text", "Write its text"),
        (object(), "is object, not text", "from_openai"),
        (None, "is None, not text", "Skip it"),
        (b"x", "is bytes, not text", "Decode"),
        ({"type": "chart", "at": datetime.now(UTC)}, "`piece.at` is of type datetime", "iso"),
        ({"type": "chart", "sum": Decimal(1)}, "`piece.sum` is of type Decimal", "str(value)"),
        ({"type": "chart", "sums": [2**64]}, "`piece.sums[0]` does not fit", "string"),
        ({"type": "note", "text": "\ude00"}, "`piece.text` has an unpaired surrogate", "Clean"),
    ],
)
async def test_a_piece_that_is_not_text_raises_an_error_and_aborts_the_stream(
    pubsub_memory: MemoryServer, bad: Any, problem: str, remedy: str
) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()

    async def write() -> None:
        async with stream_writer(ps, TOPIC) as writer:
            await writer.write("ok")
            await writer.write(bad)

    with pytest.raises(InvalidPayload) as caught:
        await within(pubsub_memory, write())
    assert problem in caught.value.message
    assert remedy in (caught.value.remedy or "")
    final = await within(pubsub_memory, reader.final())
    assert (final.reason, final.text) == ("invalid_payload", "ok")


async def end_with_usage(writer: StreamWriter, usage: object) -> None:
    await writer.complete(usage=usage)


@pytest.mark.parametrize(
    ("use", "bad"),
    [
        (StreamWriter.write, {"type": "chart", "mean": float("nan")}),
        (StreamWriter.write, {"type": "reasoning", "text": "\ud83d"}),
        (end_with_usage, object()),
        (StreamWriter.abort, "\ud83d"),
    ],
    ids=["a part with NaN", "a part with half a character", "usage", "a reason"],
)
async def test_content_that_no_frame_can_carry_ends_the_stream_for_its_readers(
    pubsub_memory: MemoryServer, use: Callable[[StreamWriter, Any], Awaitable[None]], bad: object
) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()
    writer = await stream_writer(ps, TOPIC).open()
    await writer.write("ok")
    await clock_of(pubsub_memory).advance(1)
    with contextlib.suppress(InvalidPayload):
        await within(pubsub_memory, use(writer, bad))
    final = await within(pubsub_memory, reader.final())
    assert (final.status, final.text) == ("aborted", "ok")
    with pytest.raises((InvalidPayload, UsageError)):
        await writer.write("more")


async def test_a_write_to_a_writer_that_is_not_open_names_what_to_do(
    pubsub_memory: MemoryServer,
) -> None:
    writer = stream_writer(pubsub_memory.client(), TOPIC)
    with pytest.raises(UsageError, match="is not open") as error:
        await writer.write("x")
    assert error.value.remedy == "Write inside `async with`."
    async with writer:
        await within(pubsub_memory, writer.complete())
    with pytest.raises(UsageError, match="has ended") as error:
        await writer.write("x")
    assert error.value.remedy == "Write the next answer with a new writer."


async def test_a_reader_of_an_ended_stream_leaves_its_topic(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, id="r1", listen=False) as writer:
        await writer.write("ok")
    reader = stream_reader(ps, TOPIC, id="r1")
    assert (await within(pubsub_memory, reader.final())).text == "ok"
    await clock_of(pubsub_memory).advance(1)
    assert reader._pump is not None
    assert reader._pump.done()


class Completion(BaseModel):
    """An answer of a model that was requested without streaming."""

    choices: list[str] = []


async def test_a_source_that_is_no_iterator_is_rejected_with_what_to_pass(
    pubsub_memory: MemoryServer,
) -> None:
    async def generate() -> AsyncIterator[str]:
        yield "x"

    async def create() -> AsyncIterator[str]:
        return generate()

    async def pipe(source: Any) -> None:
        async with stream_writer(pubsub_memory.client(), TOPIC) as writer:
            await writer.pipe(source)

    forgotten = create()
    wrong: list[tuple[Any, str]] = [
        (forgotten, "Await it"),
        (generate, "Call it"),
        (None, "Pass the stream"),
        (contextlib.nullcontext(), "enter it first"),
        # These are iterable, too.
        (Completion(), "`stream=True`"),
        ({"choices": []}, "`stream=True`"),
        (b"text", "Decode it"),
    ]
    for source, remedy in wrong:
        with pytest.raises(InvalidOption) as caught:
            await within(pubsub_memory, pipe(source))
        assert caught.value.field == "source"
        assert remedy in (caught.value.remedy or "")
        with pytest.raises(InvalidOption) as caught:
            from_openai(source)
        assert caught.value.field == "stream"
    forgotten.close()
    with pytest.raises(InvalidOption, match="stream=True"):
        from_openai("text")


async def test_a_writer_without_permission_to_publish_gets_an_error(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    async with MemoryServer(rules=str(file)) as server:
        writer = stream_writer(server.client(server.token()), TOPIC)
        await writer.open()
        await clock_of(server).advance(1)
        with pytest.raises(PermissionDenied):
            await writer.write("x")


async def test_repeated_calls_do_not_lengthen_the_traceback_of_an_error(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text('rules: [{pattern: "other", require: {admin: true}}]')
    async with MemoryServer(rules=str(file)) as server:
        ps = server.client(server.token())
        writer = await stream_writer(ps, TOPIC).open()
        reader = stream_reader(ps, TOPIC).open()
        await clock_of(server).advance(1)
        calls = (lambda: writer.write("x"), reader.final, lambda: anext(reader))
        for call in calls:
            frames: list[int] = []
            for _ in range(3):
                with pytest.raises(PermissionDenied) as caught:
                    await call()
                frames.append(len(caught.traceback))
            assert frames[0] == frames[2]


async def test_a_writer_gives_up_after_a_minute_without_a_server(
    pubsub_memory: MemoryServer,
) -> None:
    writer = stream_writer(pubsub_memory.client(), TOPIC)
    with pubsub_memory.refusing():
        await writer.open()
        await clock_of(pubsub_memory).advance(90)
        with pytest.raises(TimeoutError):
            await writer.write("x")


async def test_a_write_waits_while_too_much_waits_to_be_sent(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps, may_publish = pubsub_memory.client(), asyncio.Event()
    publish = ps.publish

    async def slow(*arguments: Any, **options: Any) -> Any:
        await may_publish.wait()
        return await publish(*arguments, **options)

    monkeypatch.setattr(ps, "publish", slow)
    writer = await stream_writer(ps, TOPIC).open()
    writing = asyncio.ensure_future(writer.write("x" * 65_536))
    await clock_of(pubsub_memory).settle()
    assert not writing.done()
    may_publish.set()
    await within(pubsub_memory, writing)
    await writer.write("more")


async def test_a_publish_that_the_server_rejects_for_a_time_is_repeated_after_it(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps, clock = pubsub_memory.client(), clock_of(pubsub_memory)
    publish, times = ps.publish, list[float]()

    async def busy(*arguments: Any, **options: Any) -> Any:
        times.append(clock.now())
        if len(times) == 1:
            raise Unavailable("later", retry_after=5.0)
        return await publish(*arguments, **options)

    monkeypatch.setattr(ps, "publish", busy)
    writer = await stream_writer(ps, TOPIC).open()
    await within(pubsub_memory, writer.complete())
    assert times[1] - times[0] >= 5


@pytest.mark.parametrize(("limited", "count"), [(0, 1), (1, 0)])
async def test_slow_publishes_are_logged_once_unless_the_client_logs_their_cause(
    pubsub_memory: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limited: int,
    count: int,
) -> None:
    ps, clock = pubsub_memory.client(), clock_of(pubsub_memory)
    publish = ps.publish

    async def slow(*arguments: Any, **options: Any) -> Any:
        await clock.sleep(1.5)
        return await publish(*arguments, **options)

    monkeypatch.setattr(ps, "publish", slow)
    monkeypatch.setattr(type(ps), "slowed", limited)
    for id in "ab":
        writer = await stream_writer(ps, TOPIC, id=id).open()
        await within(pubsub_memory, writer.complete())
        assert writer.stats["slowed"] == 2
    assert caplog.text.count("A publish of the stream") == count


async def test_a_stream_recovers_from_an_outage_of_seconds(pubsub_memory: MemoryServer) -> None:
    ps, other = pubsub_memory.client(), pubsub_memory.client()
    reader = stream_reader(other, TOPIC).open()
    async with stream_writer(ps, TOPIC) as writer:
        piping = asyncio.ensure_future(writer.pipe(model(pubsub_memory, TEXT * 8)))
        await clock_of(pubsub_memory).advance(2)
        with pubsub_memory.refusing():
            pubsub_memory.cut()
            await clock_of(pubsub_memory).advance(25)
        await within(pubsub_memory, piping, 300)
    assert (await within(pubsub_memory, reader.final(), 300)).text == TEXT * 8


async def test_frames_that_lie_are_not_shown(pubsub_memory: MemoryServer) -> None:
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()
    reading = asyncio.ensure_future(collect(reader))
    clock = clock_of(pubsub_memory)
    await clock.settle()

    async def say(type: str, **data: Any) -> None:
        await pubsub_memory.publish(TOPIC, {"type": type, "data": _frame(**data)})
        await clock.settle()

    await say("token", index=0, content="a")
    await say("token", index=9_000, content="LIE")
    await say("token", index=-1, content="LIE")
    await say("token", index=1, content=["LIE"])
    await say("token.snapshot", upto=7)
    await say("token", index=1, content="b", epoch=-4)
    await say("token", index=1, content="b")
    await clock.advance(1)
    assert reader.text == "ab"
    assert reader.stale
    assert reader.ignored == 4
    await say("message.complete", count=2, text="ab")
    events = await within(pubsub_memory, reading)
    assert Gap(1, 8_999) in events
    assert amount(events) == "ab"


async def test_plain_tokens_of_hip_56_are_readable(pubsub_memory: MemoryServer) -> None:
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()
    await clock_of(pubsub_memory).settle()
    for index, word in enumerate(words(TEXT)):
        data = {"content": word, "index": index}
        await pubsub_memory.publish(TOPIC, {"type": "token", "data": data})
    await pubsub_memory.publish(TOPIC, {"type": "message.complete", "data": {}})
    final = await within(pubsub_memory, reader.final())
    assert (final.text, final.whole) == (TEXT, True)
    with pytest.raises(UsageError):
        await reader.cancel()


async def test_parts_come_in_order_with_the_text(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()
    call = {"type": "tool-call", "id": "c1", "name": "weather", "text": ""}
    arguments = '{"city": "Köln", "days": [1, 2], "unit": "C"}'
    values: list[Any] = []
    async with stream_writer(ps, TOPIC) as writer:
        await writer.write({"type": "reasoning", "text": "Hm."})
        await writer.write("Look: ")
        await writer.write(call)
        for piece in words(arguments):
            await writer.write({"text": piece})
            await clock_of(pubsub_memory).advance(0.1)
            values.append(partial_json(reader.parts[-1]["text"]))
        await writer.write({"type": "citation", "url": "https://a.example"})
        await writer.write("Rain.")
    final = await within(pubsub_memory, reader.final())
    assert final.text == "Look: Rain."
    assert [part["type"] for part in final.parts] == [
        *("reasoning", "text", "tool-call", "citation", "text")
    ]
    assert final.parts[2] == {**call, "text": arguments}
    assert values[-1] == json.loads(arguments)
    assert {"city": "Kö"} in values
    assert {"city": "Köln", "days": [1]} in values


PARTIAL = json.loads((SPEC / "partial_json.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", PARTIAL, ids=lambda case: case["text"])
def test_partial_json_returns_the_best_value_of_json_that_is_still_being_written(
    case: dict[str, Any],
) -> None:
    assert partial_json(case["text"]) == case.get("value")


def test_partial_json_of_a_value_that_is_nested_too_deeply_is_none() -> None:
    assert partial_json("[" * 20_000) is None


async def test_a_slow_program_gets_deltas_joined(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()
    await clock_of(pubsub_memory).settle()
    async with stream_writer(ps, TOPIC) as writer:
        await within(pubsub_memory, writer.pipe(model(pubsub_memory, TEXT)))
    events = await within(pubsub_memory, collect(reader))
    assert [type(event) for event in events] == [Started, Delta, Done]
    assert amount(events[:-1]) == TEXT


async def test_a_snapshot_replaces_the_events_that_a_slow_program_has_not_read(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC, id="r1").open()
    old = await stream_writer(ps, TOPIC, id="r1", listen=False).open()
    await old.write("an attempt that failed")
    await clock_of(pubsub_memory).advance(1)
    async with stream_writer(ps, TOPIC, id="r1", epoch=1) as writer:
        await writer.write("all of it")
        await clock_of(pubsub_memory).advance(1)
    await within(pubsub_memory, reader.final())
    events = await within(pubsub_memory, collect(reader))
    assert [type(event) for event in events] == [Snapshot, Started, Delta, Done]
    assert amount(events[:-1]) == "all of it"


async def test_a_late_reader_shows_the_tokens_after_a_snapshot_once(
    pubsub_memory: MemoryServer,
) -> None:
    writer = await stream_writer(pubsub_memory.client(), TOPIC).open()
    await writer.write("one ")
    await clock_of(pubsub_memory).advance(0.5)
    pubsub_memory.forget_history(TOPIC)
    await clock_of(pubsub_memory).advance(2)
    for piece in ("two ", "three "):
        await writer.write(piece)
        await clock_of(pubsub_memory).advance(0.2)
    reader = stream_reader(pubsub_memory.client(), TOPIC).open()
    await clock_of(pubsub_memory).advance(0.2)
    await within(pubsub_memory, writer.complete())
    events = await within(pubsub_memory, collect(reader))
    assert [type(event) for event in events] == [Snapshot, Done]
    assert amount(events[:-1]) == "one two three "


async def test_a_reader_that_finds_the_end_in_the_history_leaves_its_topic(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps, data = pubsub_memory.client(), {"stream": "r1", "epoch": 0, "writer": "w"}
    reader = stream_reader(ps, TOPIC, id="r1").open()
    await clock_of(pubsub_memory).advance(1)
    await pubsub_memory.publish(TOPIC, {"type": "stream.start", "data": data})
    history = ps.history

    async def with_end(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        async for message in history(*arguments, **options):
            end = {**data, "count": 0, "text": ""}
            yield SimpleNamespace(type="message.complete", data=end, sender=message.sender)

    monkeypatch.setattr(ps, "history", with_end)
    # A silent stream makes the reader request the history.
    await clock_of(pubsub_memory).advance(11)
    assert (await reader.final()).status == "complete"
    assert reader._pump is not None
    assert reader._pump.done()


async def test_a_reader_whose_client_closes_reports_it(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    reader = stream_reader(ps, TOPIC).open()
    await clock_of(pubsub_memory).settle()
    waiting = asyncio.ensure_future(reader.final())
    await clock_of(pubsub_memory).settle()
    await ps.close()
    with pytest.raises(ClosedError):
        await within(pubsub_memory, waiting)
    assert await within(pubsub_memory, collect(reader)) == []


async def test_many_streams_share_the_rate_of_one_token_without_an_error(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("gateway", kind="service"))
    other = pubsub_memory.client()
    clock = clock_of(pubsub_memory)
    texts = {f"chat.session.{n}": f"{n} {TEXT}" * 3 for n in range(12)}
    readers = {topic: stream_reader(other, topic).open() for topic in texts}
    await clock.settle()

    async def write(topic: str, text: str) -> int:
        async with stream_writer(ps, topic) as writer:
            await writer.pipe(model(pubsub_memory, text))
        return writer.stats["retries"]

    began = clock.now()
    writing = asyncio.gather(*(write(topic, text) for topic, text in texts.items()))
    assert await within(pubsub_memory, writing) == [0] * 12
    assert clock.now() - began < len(words(texts["chat.session.1"])) / 150 + 1
    for topic, text in texts.items():
        assert (await within(pubsub_memory, readers[topic].final())).text == text


async def test_beside_a_stream_a_cursor_stays_fresh_and_chat_does_not_wait() -> None:
    async with MemoryServer(publish_rate_user=10, history_max_messages=1_000) as server:
        clock = clock_of(server)
        ps = server.client(server.token("alice"), send_queue=SendQueue(policy="latest"))
        other = server.client(server.token("bob"))
        await within(server, ps.connect())
        came: dict[str, list[tuple[float, float]]] = {"cursor": [], "chat": []}

        def arrive(message: Message) -> None:
            if message.type in came:
                came[message.type].append((clock.now(), message.data))

        await other.subscribe(TOPIC, on_message=arrive)

        async def say(kind: str, key: str | None = None) -> None:
            with contextlib.suppress(Superseded):
                await ps.publish(TOPIC, {"type": kind, "data": clock.now()}, key=key)

        async def write(topic: str) -> None:
            async with stream_writer(ps, topic) as writer:
                await writer.pipe(model(server, TEXT * 6))

        busy = [asyncio.create_task(write(f"chat.session.{n}")) for n in range(3)]
        await clock.advance(1)  # the burst of the rate limit is used up
        began = clock.now()
        for n in range(480):
            busy.append(asyncio.create_task(say("cursor", "cursor")))
            if n % 47 == 46:
                busy.append(asyncio.create_task(say("chat")))
            await clock.advance(1 / 60)
        ended = clock.now()
        times = [began, *(at for at, _ in came["cursor"] if at <= ended), ended]
        assert max(b - a for a, b in itertools.pairwise(times)) <= 0.31
        assert max(at - sent for at, sent in came["cursor"]) <= 0.31
        assert len(came["chat"]) >= 9
        assert max(at - sent for at, sent in came["chat"]) <= 0.12
        await within(server, asyncio.gather(*busy))
        assert server.stats.refused.get("rate_limited", 0) == 0


@pytest.mark.parametrize("answer", STREAM_EVENTS, ids=lambda answer: answer["title"])
async def test_a_stream_is_the_body_of_an_http_response(
    pubsub_memory: MemoryServer, answer: dict[str, Any]
) -> None:
    ps = pubsub_memory.client()
    frames = asyncio.ensure_future(_all(sse(stream_reader(ps, TOPIC, id="r1"))))
    await clock_of(pubsub_memory).settle()
    for step in answer["steps"]:
        if "pause" in step:
            await clock_of(pubsub_memory).advance(step["pause"])
        else:
            data = {"stream": "r1", "epoch": 0, "writer": "w", **step["data"]}
            await ps.publish(TOPIC, {"type": step["type"], "data": data})
            await clock_of(pubsub_memory).settle()
    parsed = [re.fullmatch(r"event: (\w+)\ndata: (.*)\n\n", frame) for frame in await frames]
    assert [[frame[1], json.loads(frame[2])] for frame in parsed if frame] == answer["events"]
    assert None not in parsed


async def test_the_end_of_a_response_closes_its_reader_and_the_stream_continues(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with stream_writer(ps, TOPIC, id="r1") as writer:
        reader = stream_reader(ps, TOPIC, id="r1")
        body = cast("AsyncGenerator[str]", sse(reader))
        await writer.write("one")
        assert (await within(pubsub_memory, anext(body))).startswith("event: started")
        await body.aclose()
        with pytest.raises(ClosedError):
            await reader.final()
    final = await within(pubsub_memory, stream_reader(ps, TOPIC, id="r1").final())
    assert final.text == "one"


async def test_a_response_ends_with_the_client(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    frames = asyncio.ensure_future(_all(sse(stream_reader(ps, TOPIC))))
    await clock_of(pubsub_memory).settle()
    await ps.close()
    assert await frames == []


@pytest.mark.parametrize("keepalive", [0, math.nan, None])
async def test_the_time_between_comments_of_a_response_is_checked(
    pubsub_memory: MemoryServer, keepalive: Any
) -> None:
    with pytest.raises(InvalidOption) as error:
        sse(stream_reader(pubsub_memory.client(), TOPIC), keepalive=keepalive)
    assert error.value.field == "keepalive"


def test_a_stream_is_the_body_of_an_http_response_of_a_blocking_program(
    pubsub_server: ThreadedServer,
) -> None:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        with stream_writer(ps, TOPIC, id="r1") as writer:
            writer.write("a\nb")
        assert [event.split("\n")[0] for event in sse(stream_reader(ps, TOPIC, id="r1"))] == [
            *("event: started", "event: delta", "event: done")
        ]


def test_a_blocking_response_sends_comments_while_the_answer_pauses(
    pubsub_server: ThreadedServer,
) -> None:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        body = sse(stream_reader(ps, TOPIC), keepalive=timedelta(milliseconds=10))
        assert next(body) == ": keepalive\n\n"


def test_the_end_of_a_blocking_response_waits_until_the_reader_is_closed(
    pubsub_server: ThreadedServer,
) -> None:
    bodies: list[object] = []  # without this reference, the garbage collector would end it
    closed: list[bool] = []

    async def body(reader: StreamReader) -> AsyncGenerator[str]:
        try:
            yield "first"
        finally:
            await reader.close()
            closed.append(True)

    def make(reader: StreamReader) -> AsyncGenerator[str]:
        bodies.append(made := body(reader))
        return made

    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        events = driven(stream_reader(ps, TOPIC), make)
        next(events)
        events.close()
        assert closed


def test_a_blocking_response_that_the_loop_itself_collects_ends_its_source(
    pubsub_server: ThreadedServer,
) -> None:
    closed = threading.Event()

    async def body(reader: StreamReader) -> AsyncGenerator[str]:
        try:
            yield "first"
        finally:
            await reader.close()
            closed.set()

    events: list[Generator[str]] = []

    async def collect() -> None:
        events.pop().close()

    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        events.append(driven(stream_reader(ps, TOPIC), body))
        next(events[0])
        ps._call(collect)
        assert closed.wait(60)


def test_a_blocking_response_ends_with_the_client(pubsub_server: ThreadedServer) -> None:
    ps = PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)
    body = sse(stream_reader(ps, TOPIC), keepalive=0.01)
    next(body)
    ps.close()
    assert set(body) <= {": keepalive\n\n"}


async def _all(source: AsyncIterator[str]) -> list[str]:
    return [line async for line in source]


def test_arguments_are_checked(pubsub_server: ThreadedServer) -> None:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        with pytest.raises(InvalidOption):
            stream_writer(ps, TOPIC, epoch=-1)
        for id in ("", "latest", "next", "x" * 101):
            with pytest.raises(InvalidOption, match="id of a stream") as error:
                stream_writer(ps, TOPIC, id=id)
            assert error.value.field == "id"
        with pytest.raises(UsageError):
            stream_writer(ps, TOPIC, take_over=True)


def test_the_blocking_client_writes_and_reads(pubsub_server: ThreadedServer) -> None:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        with stream_writer(ps, TOPIC, meta={"model": "m"}) as writer:
            writer.pipe(iter(words(TEXT)))
        with stream_reader(ps, TOPIC) as reader:
            events = list(reader)
            assert amount(events) == TEXT == reader.text
            assert reader.final().text == TEXT
            assert reader.meta == {"model": "m"}
            assert reader.id == writer.id


def test_the_blocking_client_learns_of_a_cancel(pubsub_server: ThreadedServer) -> None:
    with (
        PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps,
        stream_reader(ps, TOPIC) as reader,
    ):
        with stream_writer(ps, TOPIC) as writer:
            writer.write("x")
            next(iter(reader))
            reader.cancel("enough")
            while True:
                writer.write("y")
        assert reader.final().reason == "enough"


def test_the_blocking_client_closes_a_generator_when_a_reader_cancels(
    pubsub_server: ThreadedServer,
) -> None:
    closed: list[bool] = []

    def endless() -> Generator[str]:
        try:
            yield "one"
            writer.cancel("enough")
            yield "two"
        finally:
            closed.append(True)

    source = endless()  # this reference keeps it from the garbage collector
    with (
        PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps,
        stream_writer(ps, TOPIC) as writer,
    ):
        writer.pipe(source)
    assert closed == [True]


def test_the_client_decides_what_a_stream_is_made_of_and_options_are_the_same(
    pubsub_server: ThreadedServer,
) -> None:
    window = timedelta(milliseconds=20)
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        writer = stream_writer(ps, TOPIC, id="st_1", window=window)
        reader = stream_reader(ps, TOPIC, id="st_1")
        assert_type(writer, BlockingStreamWriter)
        assert_type(reader, BlockingStreamReader)
        assert (type(writer), type(reader)) == (BlockingStreamWriter, BlockingStreamReader)
        with reader:
            with writer as answer:
                answer.write(TEXT)
            assert reader.final().text == TEXT
        with pytest.raises(TypeError, match="windows"):
            stream_writer(ps, TOPIC, windows=1)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]


async def test_a_stream_of_the_asyncio_client_is_for_asyncio() -> None:
    async with MemoryServer() as server, server.client() as ps:
        assert_type(stream_writer(ps, TOPIC), StreamWriter)
        assert_type(stream_reader(ps, TOPIC), StreamReader)
        assert isinstance(stream_writer(ps, TOPIC, window=timedelta(seconds=1)), StreamWriter)
    assert list(inspect.signature(stream_reader).parameters)[:3] == ["client", "topic", "id"]
