"""Gaps in a program that does not handle them: they are logged or raised."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
from typing import TYPE_CHECKING, TypeVar

import pytest

from hanzoai.pubsub import (
    Gap,
    InvalidOption,
    Message,
    MessagesMissed,
    PubSubClient,
    ReceiveQueue,
    Subscription,
)
from hanzoai.pubsub.runtime.handlers import describe_gap, warn
from hanzoai.pubsub.testing import MemoryServer, VirtualClock
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

T = TypeVar("T")

SMALL = ReceiveQueue(messages=10)


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(60):
        return await awaitable


async def flood(server: MemoryServer, *topics: str, count: int = 100) -> None:
    """Publish more messages than a small queue can hold."""
    clock = server.clock
    assert isinstance(clock, VirtualClock)
    for number in range(count):
        for topic in topics:
            await server.publish(topic, {"data": number})
    await clock.settle()


async def drain(sub: Subscription) -> list[Message]:
    """Read the waiting messages."""
    found: list[Message] = []
    while sub.stats.queued:
        found.append(await soon(anext(sub)))
    return found


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


async def test_a_gap_that_no_handler_sees_is_logged_with_what_was_missed_why_and_what_to_do(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    sub = await soon(pubsub_memory.client().subscribe("a.slow", queue=SMALL))
    await flood(pubsub_memory, "a.slow")
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        assert len(await drain(sub)) == 10
    (text,) = warnings_of(caplog)
    assert re.match(r"90 messages of topic a\.slow \(positions \d+ to \d+\) were missed: ", text)
    assert "reads too slowly" in text
    for advice in ('`on_gap` (a function, or "raise")', "`state_loader`", "`sub.events()`"):
        assert advice in text


async def test_gaps_are_logged_once_for_each_topic_of_each_subscription(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    subs = [await soon(ps.subscribe("a.*", queue=SMALL)) for _ in range(2)]
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        for _ in range(3):
            await flood(pubsub_memory, "a.one", "a.two")
            for sub in subs:
                await drain(sub)
    topics = [re.findall(r"topic (\S+)", text)[0] for text in warnings_of(caplog)]
    assert sorted(topics) == ["a.one", "a.one", "a.two", "a.two"]
    assert subs[0].stats.gaps == 6


@pytest.mark.parametrize("handled", ["on_gap", "state_loader", "events"])
async def test_a_gap_that_the_program_sees_is_not_logged(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture, handled: str
) -> None:
    seen: list[Gap] = []
    ps = pubsub_memory.client()
    sub = await soon(
        ps.subscribe(
            "a.slow",
            queue=SMALL,
            on_gap=seen.append if handled == "on_gap" else None,
            state_loader=(lambda gap, _: seen.append(gap)) if handled == "state_loader" else None,
        )
    )
    await flood(pubsub_memory, "a.slow")
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        if handled == "events":
            event = await soon(anext(sub.events()))
            assert isinstance(event, Gap)
            seen.append(event)
        await drain(sub)
    assert [gap.missed for gap in seen] == [90]
    assert warnings_of(caplog) == []


async def test_a_gap_between_the_messages_of_a_handler_is_logged(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    may_go_on = asyncio.Event()
    sub = await soon(
        pubsub_memory.client().subscribe(
            "a.slow", queue=SMALL, on_message=lambda _: may_go_on.wait()
        )
    )
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        await flood(pubsub_memory, "a.slow")
        may_go_on.set()
        clock = pubsub_memory.clock
        assert isinstance(clock, VirtualClock)
        await clock.settle()
    assert sub.stats.handled == 11
    assert len(warnings_of(caplog)) == 1


class SlowLoader:
    """A `state_loader` that ends when the test sets `loaded`."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()
        self.calls: list[object] = []
        self._begun = asyncio.Event()

    async def __call__(self, gap: Gap, positions: object) -> None:
        self._begun.set()
        await self.loaded.wait()
        self.calls.append(self)

    async def interrupt(self, iteration: AsyncIterator[object]) -> None:
        """Cancel a wait for the next entry during the call."""
        wait = asyncio.ensure_future(anext(iteration))
        await soon(self._begun.wait())
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait


@pytest.mark.parametrize("iterated", ["messages", "events"])
async def test_a_cancelled_wait_does_not_cancel_the_handlers_of_a_gap(
    pubsub_memory: MemoryServer, iterated: str
) -> None:
    load = SlowLoader()
    ps = pubsub_memory.client()
    sub = ps.subscribe("a.b", state_loader=load, on_gap=load.calls.append, queue=SMALL)
    await sub
    await flood(pubsub_memory, "a.b")
    entries = sub if iterated == "messages" else sub.events()
    await load.interrupt(entries)
    assert sub.take_nowait() is None
    load.loaded.set()
    first = await soon(anext(entries))
    gap = first if iterated == "events" else load.calls[1]
    assert isinstance(gap, Gap)
    assert load.calls == [load, gap]
    following = await soon(anext(entries)) if iterated == "events" else first
    assert isinstance(following, Message)
    assert following.data == 90


async def test_messages_that_arrive_after_a_cancelled_wait_wait_for_the_handlers_of_the_gap(
    pubsub_memory: MemoryServer,
) -> None:
    load = SlowLoader()
    sub = await pubsub_memory.client().subscribe("a.b", state_loader=load, on_gap=lambda _: None)
    sub._inbox.put_other(Gap("a.b", 1, 4, 4, "log_reset"))
    await load.interrupt(sub)
    message = Message(id="m5", topic="a.b", type="t", data=None, timestamp=1, seq=5)
    sub._inbox.put(Run([message], 5))
    wait = asyncio.ensure_future(anext(sub))
    await asyncio.sleep(0)
    assert not wait.done()
    load.loaded.set()
    assert await soon(wait) == message


async def test_an_unsubscribed_iteration_does_not_return_to_the_gap_of_a_cancelled_wait(
    pubsub_memory: MemoryServer,
) -> None:
    load = SlowLoader()
    ps = pubsub_memory.client()
    sub = await soon(ps.subscribe("a.b", state_loader=load, queue=SMALL))
    await flood(pubsub_memory, "a.b")
    await load.interrupt(sub.events())
    await sub.unsubscribe()
    with pytest.raises(StopAsyncIteration):
        await soon(anext(sub.events()))
    load.loaded.set()


async def test_closing_the_client_ends_the_handlers_of_a_gap_and_then_the_iteration(
    pubsub_memory: MemoryServer,
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def load(gap: Gap, positions: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ps = pubsub_memory.client()
    sub = await soon(ps.subscribe("a.b", state_loader=load, queue=SMALL))
    await flood(pubsub_memory, "a.b")
    reading = asyncio.ensure_future(anext(sub))
    await soon(begun.wait())
    closing = asyncio.ensure_future(ps.close())
    await pubsub_memory.clock.advance_until(closing.done)
    assert ended.is_set()
    assert (await soon(reading)).data == 90


async def test_raise_makes_the_iteration_raise_at_the_gap_and_continue_after_it(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    sub = await soon(pubsub_memory.client().subscribe("a.slow", queue=SMALL, on_gap="raise"))
    await flood(pubsub_memory, "a.slow")
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"), pytest.raises(MessagesMissed) as got:
        await drain(sub)
    error = got.value
    assert error.gap is not None
    assert (error.gap.missed, error.gap.reason) == (90, "slow_consumer")
    assert (error.code, error.topic) == ("messages_missed", "a.slow")
    assert "90 messages of topic a.slow" in str(error)
    assert pickle.loads(pickle.dumps(error)).gap == error.gap
    assert [message.data for message in await drain(sub)] == list(range(90, 100))
    assert warnings_of(caplog) == []


async def test_raise_holds_for_events_too(pubsub_memory: MemoryServer) -> None:
    sub = await soon(pubsub_memory.client().subscribe("a.slow", queue=SMALL, on_gap="raise"))
    await flood(pubsub_memory, "a.slow")
    with pytest.raises(MessagesMissed):
        await soon(anext(sub.events()))
    event = await soon(anext(sub.events()))
    assert isinstance(event, Message)
    assert event.data == 90


async def test_raise_needs_an_iteration() -> None:
    ps = PubSubClient("ws://127.0.0.1:1/ws", "x")
    with pytest.raises(InvalidOption, match="leaves no iteration") as refused:
        ps.subscribe("a.b", on_message=print, on_gap="raise")
    assert refused.value.field == "on_gap"
    with pytest.raises(InvalidOption, match="on_gap") as refused:
        ps.subscribe("a.b", on_gap="throw")  # type: ignore[arg-type]
    assert '"raise"' in refused.value.remedy


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (
            Gap("a.b", 3, 3, 1, "history_trimmed"),
            "1 message of topic a.b (positions 3 to 3) was missed: the history of the server no",
        ),
        (
            Gap("a.b", 3, 9, None, "log_reset"),
            "Messages of topic a.b were missed: the server lost its history, or messages of other"
            " nodes.",
        ),
        (
            Gap("a.b", None, None, None, "node_changed"),
            "Perhaps messages of topic a.b were missed: the client moved to a node that has its own"
            " history.",
        ),
        (Gap("a.b", None, None, None, "unproven"), "Perhaps messages of topic a.b were missed: "),
    ],
)
def test_a_gap_in_words(gap: Gap, words: str) -> None:
    assert describe_gap(gap).startswith(words)


def test_the_number_of_topics_remembered_as_logged_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logged: dict[str, None] = {}
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        for number in range(1_001):
            warn(Gap(f"a.{number}", 1, 1, 1, "log_reset"), logged)
        warn(Gap("a.1000", 2, 2, 1, "log_reset"), logged)
        warn(Gap("a.0", 2, 2, 1, "log_reset"), logged)
    assert len(warnings_of(caplog)) == 1_002


async def test_what_one_replay_cannot_contain_is_a_gap_and_in_the_history() -> None:
    topics = "demo.orders.1", "demo.orders.2"
    async with MemoryServer(history_max_messages=10_000) as server:
        ps = server.client()
        sub = await ps.subscribe("demo.orders.*", queue=ReceiveQueue(messages=50_000))
        await flood(server, *topics, count=1)
        positions = {one.topic: one.seq or 0 for one in await drain(sub)}
        server.cut()
        await flood(server, *topics, count=6_000)
        await server.clock.advance_until(lambda: ps.state == "connected" and sub.stats.queued > 0)
        copied: dict[str, list[int]] = {topic: [] for topic in topics}
        gaps: list[Gap] = []
        while sub.stats.queued:
            event = await soon(anext(sub.events()))
            if isinstance(event, Gap):
                gaps.append(event)
                found = [one async for one in ps.history(event.topic, after=positions[event.topic])]
            else:
                assert isinstance(event, Message)
                found = [event]
            for message in found:
                assert message.seq is not None
                if message.seq > positions[message.topic]:
                    positions[message.topic] = message.seq
                    copied[message.topic].append(message.data)
    assert {gap.reason for gap in gaps} == {"history_trimmed"}
    assert sum(gap.missed or 0 for gap in gaps) == 2_000
    assert copied == {topic: [*range(6_000)] for topic in topics}
