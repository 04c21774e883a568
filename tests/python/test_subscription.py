"""The subscription object of a program."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from hanzoai.pubsub import (
    ClosedError,
    ConnectionFailed,
    Gap,
    InvalidOption,
    InvalidTopic,
    Message,
    OperationTimeout,
    PermissionDenied,
    PresenceChange,
    PubSubClient,
    PubSubError,
    ReceiveQueue,
    UsageError,
)
from hanzoai.pubsub.runtime.inbox import Inbox
from hanzoai.pubsub.testing import MemoryServer, VirtualClock
from hanzoai.pubsub.wire.runs import Run

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

RULES = """
rules:
  - pattern: "open.**"
    require: {authenticated: true}
    publish: true
"""


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(60):
        return await awaitable


def clock_of(server: MemoryServer) -> VirtualClock:
    assert isinstance(server.clock, VirtualClock)
    return server.clock


@pytest.fixture
def rules(tmp_path: Path) -> str:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return str(file)


async def test_an_iteration_subscribes_automatically_and_reads_in_order(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    seen: list[int] = []

    async def read() -> None:
        async for message in ps.subscribe("a.**"):
            seen.append(message.data)
            if len(seen) == 5:
                break

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        reading = asyncio.create_task(read())
        await clock_of(pubsub_memory).settle()
        for number in range(5):
            await pubsub_memory.publish("a.b", {"data": number})
        await soon(reading)
        gc.collect()
    assert seen == list(range(5))


async def test_leaving_a_loop_by_break_unsubscribes_with_a_hint_when_nothing_holds_it(
    pubsub_memory: MemoryServer,
) -> None:
    ps = PubSubClient(pubsub_memory.url, pubsub_memory.token())
    await pubsub_memory.publish("a.b", {"data": 1})

    async def take_one() -> None:
        async for _ in ps.subscribe("a.b", history=1):
            break

    with pytest.warns(ResourceWarning, match="without unsubscribe"):
        await take_one()
    await clock_of(pubsub_memory).settle()
    assert pubsub_memory.received[-1]["type"] == "unsubscribe"
    await ps.close()


async def test_a_subscription_whose_wait_was_cancelled_ends_when_nothing_holds_it(
    pubsub_memory: MemoryServer, recwarn: pytest.WarningsRecorder
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    seen: list[object] = []
    changes: list[object] = []

    async def subscribe(**handlers: Any) -> None:
        await ps.subscribe("a.b", **handlers)

    for handlers in ({"on_message": seen.append}, {"on_presence": changes.append}, {}):
        pubsub_memory.lose_next("subscribed")
        waiting = asyncio.create_task(subscribe(**handlers))
        await clock_of(pubsub_memory).settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del waiting
        gc.collect()
        await clock_of(pubsub_memory).settle()
        assert pubsub_memory.received[-1]["type"] == "unsubscribe"
    await pubsub_memory.publish("a.b", {"data": 1})
    await clock_of(pubsub_memory).settle()
    assert not seen
    assert not recwarn.list
    await ps.close()


async def test_a_subscription_that_another_thread_drops_ends_its_waits_in_the_loop(
    pubsub_memory: MemoryServer, recwarn: pytest.WarningsRecorder
) -> None:
    # In debug mode, the loop refuses calls from other threads.
    asyncio.get_running_loop().set_debug(True)
    ps = pubsub_memory.client()
    await ps.connect()
    pubsub_memory.lose_next("subscribed")
    kept = [ps.subscribe("a.b", presence={"status": "typing"})]
    waiting = asyncio.ensure_future(kept[0])
    await clock_of(pubsub_memory).settle()
    waiting.cancel()
    await asyncio.wait({waiting})
    del waiting
    gc.collect()

    def drop() -> None:
        kept.clear()
        gc.collect()

    dropping = threading.Thread(target=drop)
    dropping.start()
    dropping.join()
    await clock_of(pubsub_memory).settle()
    assert pubsub_memory.received[-1]["type"] == "unsubscribe"
    assert not recwarn.list


async def test_a_subscription_with_own_presence_can_end_before_the_server_has_answered(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    pubsub_memory.lose_next("subscribed")
    sub = ps.subscribe("a.b", presence={"status": "typing"})
    await clock_of(pubsub_memory).settle()
    await soon(sub.unsubscribe())
    await clock_of(pubsub_memory).settle()
    assert pubsub_memory.received[-1]["type"] == "unsubscribe"
    await soon(ps.close())
    assert not caplog.records


async def test_a_subscription_that_ends_with_the_answer_of_the_server_sets_no_presence(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b", presence={"status": "typing"}):
        pass
    await clock_of(pubsub_memory).settle()
    assert pubsub_memory.received[-1]["type"] == "unsubscribe"
    await soon(ps.close())
    assert not caplog.records


async def test_a_subscription_with_a_handler_goes_on_after_a_cancelled_wait_while_it_is_held(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    seen: list[object] = []
    sub = ps.subscribe("a.b", on_message=lambda message: seen.append(message.data))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await sub
    await soon(sub)
    del sub
    gc.collect()
    await pubsub_memory.publish("a.b", {"data": 1})
    await clock_of(pubsub_memory).settle()
    assert seen == [1]
    await ps.close()


async def test_a_subscription_with_a_handler_goes_on_after_one_of_two_waits_was_cancelled(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    seen: list[object] = []

    async def subscribe() -> None:
        sub = ps.subscribe("a.b", on_message=lambda message: seen.append(message.data))

        async def wait() -> None:
            await sub

        waits = [asyncio.create_task(wait()) for _ in range(2)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await soon(waits[1])

    await subscribe()
    gc.collect()
    await pubsub_memory.publish("a.b", {"data": 1})
    await clock_of(pubsub_memory).settle()
    assert seen == [1]
    await ps.close()


async def test_a_subscription_that_is_collected_while_the_client_ends_disturbs_nothing(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps = pubsub_memory.client()
    kept = await soon(ps.subscribe("a"))
    cycle: list[object] = [await soon(ps.subscribe("b"))]
    cycle.append(cycle)
    finish = Inbox.finish

    def finish_and_collect(inbox: Inbox, error: PubSubError | None = None) -> None:
        gc.collect()
        finish(inbox, error)

    monkeypatch.setattr(Inbox, "finish", finish_and_collect)
    del cycle
    await soon(ps.close())
    assert not kept.active


async def test_a_subscription_with_handlers_stays_active_without_a_reference(
    pubsub_memory: MemoryServer,
) -> None:
    got: list[Message] = []
    ps = pubsub_memory.client()
    await soon(ps.subscribe("a.b", on_message=got.append))
    gc.collect()
    await pubsub_memory.publish("a.b", {"data": 1})
    await clock_of(pubsub_memory).settle()
    assert [message.data for message in got] == [1]


async def test_a_subscription_with_only_a_presence_handler_needs_no_reference(
    pubsub_memory: MemoryServer,
) -> None:
    seen: list[str] = []
    ps = pubsub_memory.client()
    await soon(ps.subscribe("a.b", on_presence=lambda change: seen.append(change.change)))
    gc.collect()
    other = pubsub_memory.client(pubsub_memory.token("other"))
    await soon(other.subscribe("a.b", on_message=print))
    await clock_of(pubsub_memory).settle()
    assert seen == ["snapshot", "join"]


async def test_a_context_waits_for_the_answer_and_unsubscribes(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with asyncio.timeout(60):
        async with ps.subscribe(["a.b", "c.*"]) as sub:
            was_active = sub.active
            assert sub.topics == ("a.b", "c.*")
            assert "joined" in repr(sub)
    assert (was_active, sub.active) == (True, False)
    await sub.unsubscribe()
    await clock_of(pubsub_memory).settle()
    left = [frame for frame in pubsub_memory.received if frame["type"] == "unsubscribe"]
    assert [sorted(frame["topics"]) for frame in left] == [["a.b", "c.*"]]


async def test_an_iteration_ends_cleanly_with_unsubscribe_and_with_close(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    first, second = await soon(ps.subscribe("a.1")), await soon(ps.subscribe("a.2"))
    reading = [asyncio.create_task(_all(sub)) for sub in (first, second)]
    await clock_of(pubsub_memory).settle()
    await pubsub_memory.publish("a.2", {"data": 1})
    await first.unsubscribe()
    await clock_of(pubsub_memory).settle()
    await soon(ps.close())
    assert await soon(asyncio.gather(*reading)) == [[], [1]]


async def _all(sub: object) -> list[object]:
    return [message.data async for message in sub]  # type: ignore[attr-defined]


async def test_a_subscription_whose_topics_are_all_denied_raises_and_ends(rules: str) -> None:
    async with MemoryServer(rules=rules) as server:
        ps = server.client(server.token("alice"))
        sub = ps.subscribe("secret.a")
        with pytest.raises(PermissionDenied) as caught:
            await soon(sub)
        assert caught.value.topic == "secret.a"
        with pytest.raises(PermissionDenied):
            await soon(anext(sub))
        with pytest.raises(PermissionDenied):
            async with ps.subscribe("secret.b"):
                pytest.fail("it was let in")
        assert not sub.active


async def test_a_partly_denied_subscription_continues_and_lists_the_denied_topics(
    rules: str,
) -> None:
    async with MemoryServer(rules=rules) as server:
        ps = server.client(server.token("alice"))
        sub = await soon(ps.subscribe(["open.a", "secret.a"]))
        assert [(denial.topic, denial.code) for denial in sub.denied] == [("secret.a", "forbidden")]
        await server.publish("open.a", {"data": 1})
        assert (await soon(anext(sub))).data == 1
        await sub.unsubscribe()


async def test_an_answer_that_does_not_come_is_a_timeout_and_the_subscription_stays(
    pubsub_memory: MemoryServer,
) -> None:
    clock = clock_of(pubsub_memory)
    ps = pubsub_memory.client(operation_timeout=3)
    await soon(ps.connect())
    with pubsub_memory.refusing():
        sub = ps.subscribe("a.b")
        joining = asyncio.ensure_future(_join(sub))
        await clock.advance(3)
        with pytest.raises(OperationTimeout):
            await soon(joining)
    await clock.advance_until(lambda: ps.state == "connected")
    await clock.settle()
    await pubsub_memory.publish("a.b", {"data": 1})
    assert (await soon(anext(sub))).data == 1
    await sub.unsubscribe()


async def _join(sub: Awaitable[object]) -> None:
    await sub


async def test_a_subscription_made_outside_of_a_loop_begins_when_it_is_read() -> None:
    async with MemoryServer() as server:
        token = server.token("tests", kind="service")

        def build() -> tuple[object, object]:
            from hanzoai.pubsub import PubSubClient

            client = PubSubClient(server.url, token)
            return client, client.subscribe("a.b", since=0)

        ps, sub = await asyncio.to_thread(build)
        assert server.connections == 0
        await server.publish("a.b", {"data": 1})
        assert (await soon(anext(sub))).data == 1  # type: ignore[call-overload]
        await sub.unsubscribe()  # type: ignore[attr-defined]
        await ps.close()  # type: ignore[attr-defined]


async def test_events_are_messages_gaps_and_presence_in_one_order(
    pubsub_memory: MemoryServer,
) -> None:
    clock = clock_of(pubsub_memory)
    ps = pubsub_memory.client()
    sub = await soon(ps.subscribe("a.b", presence=True))
    await pubsub_memory.publish("a.b", {"data": 1})
    await clock.settle()
    with pubsub_memory.refusing():
        await pubsub_memory.publish("a.b", {"data": 2})
        pubsub_memory.forget_history()
    await clock.advance_until(lambda: ps.state == "connected")
    await pubsub_memory.publish("a.b", {"data": 3})
    await clock.settle()
    kinds: list[str] = []
    events = sub.events()
    while "3" not in kinds:
        event = await soon(anext(events))
        match event:
            case Gap(missed=missed):
                kinds.append(f"gap {missed}")
            case PresenceChange(change=change):
                kinds.append(change)
            case _:
                kinds.append(str(event.data))
    assert [kind for kind in kinds if kind in "123" or "gap" in kind] == ["1", "gap 1", "3"]
    assert "snapshot" in kinds
    await sub.unsubscribe()


async def test_presence_handlers_run_beside_an_iteration(pubsub_memory: MemoryServer) -> None:
    clock = clock_of(pubsub_memory)
    seen: list[tuple[str, int]] = []
    ps = pubsub_memory.client()
    sub = ps.subscribe(
        "a.b", on_presence=lambda change: seen.append((change.change, len(change.members)))
    )
    await soon(sub)
    other = pubsub_memory.client(pubsub_memory.token("bob"))
    joined = await soon(other.subscribe("a.b"))
    await soon(other.update_presence("a.b", {"status": "typing"}))
    await clock.settle()
    await joined.unsubscribe()
    await clock.settle()
    assert seen[0] == ("snapshot", 1)
    assert [change for change, _ in seen[1:]] == ["join", "update", "leave"]
    assert sub.take_nowait() is None
    await sub.unsubscribe()


@pytest.mark.parametrize("policy", ["gap", "block", "error"])
async def test_a_slow_presence_handler_beside_an_iteration_gets_the_newest_change(
    pubsub_memory: MemoryServer, policy: Literal["gap", "block", "error"]
) -> None:
    seen: list[str] = []
    sub = pubsub_memory.client().subscribe(
        "a.b",
        on_presence=lambda change: seen.append(change.change),
        queue=ReceiveQueue(messages=2, policy=policy),
    )
    inbox = sub._inbox.presence
    assert inbox is not None
    for kind in ("join", "update", "disconnect", "connect", "leave"):
        inbox.put_other(PresenceChange("a.b", (), kind))
    await soon(sub)
    await clock_of(pubsub_memory).settle()
    assert seen == ["disconnect", "connect", "leave", "snapshot"]
    await sub.unsubscribe()


async def test_a_subscription_with_a_message_handler_cannot_be_iterated_too(
    pubsub_memory: MemoryServer,
) -> None:
    sub = pubsub_memory.client().subscribe("a.b", on_message=print)
    with pytest.raises(UsageError, match="on_message"):
        aiter(sub)
    with pytest.raises(UsageError, match="on_message"):
        sub.events()


async def test_a_run_of_messages_is_read_and_counted_one_by_one(
    pubsub_memory: MemoryServer,
) -> None:
    sub = await soon(pubsub_memory.client().subscribe("a.b"))
    messages = [
        Message(id=f"m{n}", topic="a.b", type="t", data=n, timestamp=1, seq=n) for n in range(1, 7)
    ]
    sub._inbox.put(Run(messages, 1))
    assert sub.positions == {}
    assert await anext(sub) == messages[0]
    assert sub.take_nowait() == messages[1]
    assert await anext(sub) == messages[2]
    assert (sub.stats.handled, sub.stats.queued) == (3, 3)
    assert sub.positions == {"a.b": 3}
    sub._inbox.put([messages[0]])
    entries = sub.events()
    assert [await anext(entries) for _ in range(3)] == messages[3:]
    assert sub.positions == {"a.b": 6}
    assert (sub.stats.handled, sub.stats.queued) == (6, 1)
    await sub.unsubscribe()
    assert (sub.stats.dropped, sub.stats.queued) == (1, 0)


async def test_a_run_of_messages_is_parsed_and_passed_to_handlers(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    read: list[Message] = []
    handled = await soon(ps.subscribe("a.b", on_message=read.append))
    typed = await soon(ps.topic("a.b", model=int, on_invalid="skip").subscribe())
    messages = [
        Message(id=f"m{n}", topic="a.b", type="t", data=data, timestamp=1, seq=n)
        for n, data in enumerate([1, "not a number", 2])
    ]
    for sub in (handled, typed):
        sub._inbox.put(Run(messages, 0))
    assert [(await soon(anext(typed))).data for _ in range(2)] == [1, 2]
    await clock_of(pubsub_memory).settle()
    assert read == messages
    with pytest.raises(UsageError, match="on_message"):
        await anext(handled)


async def test_positions_are_of_what_was_taken_and_carry_on_in_another_client(
    pubsub_memory: MemoryServer,
) -> None:
    first = pubsub_memory.client()
    sub = await soon(first.subscribe("a.*"))
    for number in range(4):
        await pubsub_memory.publish("a.b", {"data": number})
    assert sub.positions == {}
    assert [(await soon(anext(sub))).data for _ in range(2)] == [0, 1]
    positions = sub.positions
    await soon(first.close())
    second = pubsub_memory.client()
    resumed = await soon(second.subscribe("a.*", after=positions))
    assert resumed.positions == positions
    assert [(await soon(anext(resumed))).data for _ in range(2)] == [2, 3]
    await resumed.unsubscribe()


async def test_a_failed_client_raises_its_error_from_the_iteration_after_what_waits(
    pubsub_memory: MemoryServer,
) -> None:
    clock = clock_of(pubsub_memory)
    ps = pubsub_memory.client()
    sub = await soon(ps.subscribe("a.b"))
    await pubsub_memory.publish("a.b", {"data": 1})
    await clock.settle()
    pubsub_memory.cut(4403, "not you")
    await clock.settle()
    assert (await soon(anext(sub))).data == 1
    for _ in range(2):
        with pytest.raises(PubSubError, match="not you"):
            await soon(anext(sub))


async def test_several_tasks_may_read_one_subscription(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    sub = await soon(ps.subscribe("a.b"))
    readers = [asyncio.create_task(sub.__anext__()) for _ in range(5)]
    await clock_of(pubsub_memory).settle()
    for number in range(5):
        await pubsub_memory.publish("a.b", {"data": number})
    got = await soon(asyncio.gather(*readers))
    assert sorted(message.data for message in got) == list(range(5))
    await sub.unsubscribe()


@pytest.mark.parametrize(
    ("arguments", "error", "field"),
    [
        ({"topics": "a..b"}, InvalidTopic, None),
        ({"topics": ["a.b", "c.d*"]}, InvalidTopic, None),
        ({"topics": []}, InvalidOption, "topics"),
        ({"topics": 7}, InvalidOption, "topics"),
        ({"topics": ["a"] * 1_001}, InvalidOption, "topics"),
        ({"topics": "a", "since": "yesterday"}, InvalidOption, "since"),
        ({"topics": "a", "types": b"order"}, InvalidOption, "types"),
        ({"topics": "a", "types": set()}, InvalidOption, "types"),
        ({"topics": "a", "types": ["", "order"]}, InvalidOption, "types"),
        ({"topics": "a", "types": list(map(str, range(1_001)))}, InvalidOption, "types"),
        ({"topics": "a", "history": -1}, InvalidOption, "history"),
        ({"topics": "a", "history": 10_001}, InvalidOption, "history"),
        ({"topics": "a", "after": [1]}, InvalidOption, "after"),
        ({"topics": "a", "after": {"a": -1}}, InvalidOption, "after[a]"),
        ({"topics": "a", "after": {"*": 1}}, InvalidTopic, None),
        ({"topics": "a", "on_message": 7}, InvalidOption, "on_message"),
        ({"topics": "a", "queue": 7}, InvalidOption, "queue"),
    ],
)
async def test_bad_arguments_are_named(
    arguments: dict[str, object], error: type[PubSubError], field: str | None
) -> None:
    async with MemoryServer() as server:
        ps = server.client()
        with pytest.raises(error) as caught:
            ps.subscribe(**arguments)  # type: ignore[arg-type]
        assert caught.value.field == field
        assert server.connections == 0


async def test_a_closed_client_takes_no_subscription(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    sub = await soon(ps.subscribe("a.b"))
    await soon(ps.close())
    with pytest.raises(ClosedError):
        ps.subscribe("a.b")
    assert [message async for message in sub] == []
    assert issubclass(ConnectionFailed, ConnectionError)
    assert ReceiveQueue().policy == "gap"
