"""Concurrent replays to several subscribers, while the log changes between their reads."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from pubsub_server.backplanes.redis import backplane as redis_backplane
from tests.cluster.fleet import BOUND, SHARDS, nodes, peer, stream
from tests.cluster.test_failed_replays import publish as publish_to
from tests.cluster.test_failed_replays import replayed, resumed
from tests.cluster.test_fresh_topics import later
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from pubsub_server.backplane import Entry
    from pubsub_server.backplanes.redis.backplane import RedisBackplane
    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store
    from tests.interop.peer import Event, Socket

TOPIC = "demo.x"
FIRST = "demo.first"
ANSWER_MS = 300
"""Longer than an answer of Redis takes."""


class SlowRead:
    """Delays the first replay before or after it reads the logs."""

    def __init__(self, node: RunningServer, patch: pytest.MonkeyPatch) -> None:
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        self._replay = backplane._reader.replay
        self._delayed = False
        self.asked, self.may_read = asyncio.Event(), asyncio.Event()
        self.read, self.may_end = asyncio.Event(), asyncio.Event()
        patch.setattr(backplane._reader, "replay", self._first)
        # The test alone decides how long the replay takes.
        patch.setattr(redis_backplane, "PATIENCE", BOUND)

    async def _first(self, *given: Any) -> Any:
        if self._delayed:
            return await self._replay(*given)
        self._delayed = True
        self.asked.set()
        await self.may_read.wait()
        found = await self._replay(*given)
        self.read.set()
        await self.may_end.wait()
        return found


class SlowLog:
    """Delays the first read of the log of one topic, after the data is read."""

    def __init__(self, node: RunningServer, patch: pytest.MonkeyPatch) -> None:
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        self._one = backplane._reader.one
        self.read, self.may_end = asyncio.Event(), asyncio.Event()
        patch.setattr(backplane._reader, "one", self._delayed)

    async def _delayed(self, *given: Any) -> Any:
        found = await self._one(*given)
        self.read.set()
        await self.may_end.wait()
        return found


@asynccontextmanager
async def audience(store: Store) -> AsyncGenerator[tuple[RunningServer, Socket, Socket, Socket]]:
    """Two nodes: yield one of them, two readers that are connected to it, and a publisher."""
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as first,
        peer(node, node.token("bob")) as second,
        peer(other, other.token("carol")) as publisher,
    ):
        yield node, first, second, publisher


async def publish(publisher: Socket, data: int) -> int:
    """Publish, and return the position."""
    message = {"topic": TOPIC, "type": "token", "data": data}
    await publisher.send({"type": "publish", "message": message, "ref": "p"})
    seq: int = (await publisher.until("published"))["seq"]
    return seq


async def test_a_subscriber_whose_log_was_read_before_that_of_another_lacks_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audience(store) as (node, early, late, publisher):
        first = await publish(publisher, 1)
        slow = SlowRead(node, monkeypatch)
        slow.may_read.set()
        await early.send({"type": "subscribe", "topics": [TOPIC], "after": {TOPIC: first - 1}})
        await slow.read.wait()
        second = await publish(publisher, 2)
        answer = await late.subscribe(TOPIC, history=10)
        assert [each["seq"] for each in answer["history"]] == [first, second]
        slow.may_end.set()
        answer = await early.until("subscribed")
        received = [each["seq"] for each in answer["history"]]
        received += [each["seq"] for each in await early.messages()]
        assert received == [first, second]
        assert "truncated" not in answer
        assert "reset" not in answer


@pytest.mark.parametrize("known", [False, True])
async def test_a_message_during_the_opening_of_a_topic_reaches_pattern_subscribers(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    async with audience(store) as (node, named, matching, publisher):
        before = [await publish(publisher, 1)] if known else []
        await matching.subscribe("demo.*")
        slow = SlowRead(node, monkeypatch)
        await named.send({"type": "subscribe", "topics": [TOPIC], "history": 10})
        await slow.asked.wait()
        seq = await publish(publisher, 2)
        # The node has received it, and delivers it after it has read the log.
        tracks = cast("RedisBackplane", node.hub.core.backplane)._tracks  # pyright: ignore[reportPrivateUsage]
        await until(lambda: tracks.waiting)
        slow.may_read.set()
        slow.may_end.set()
        answer = await named.until("subscribed")
        received = [each["seq"] for each in answer["history"]]
        received += [each["seq"] for each in await named.messages()]
        assert received == [*before, seq]
        assert [each["seq"] for each in await matching.messages()] == [seq]


async def test_a_message_during_an_opening_that_fails_reaches_pattern_subscribers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, fail = asyncio.Event(), asyncio.Event()

    async def away(*_: Any) -> Any:
        reading.set()
        await fail.wait()
        raise RedisConnectionError

    async with audience(store) as (node, named, matching, publisher):
        await matching.subscribe("demo.*")
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        with monkeypatch.context() as patch:
            patch.setattr(backplane._reader, "replay", away)
            await named.send({"type": "subscribe", "topics": [TOPIC]})
            await reading.wait()
            seq = await publish(publisher, 1)
            await until(lambda: backplane._tracks.waiting)
            fail.set()
            assert (await named.until("error"))["code"] == "unavailable"
        last = await publish(publisher, 2)
        assert await received(matching, last) == [seq, last]
        await until(lambda: not backplane._tracks.waiting)


@contextmanager
def receiving_nothing(node: RunningServer) -> Generator[list[Entry]]:
    """Make a node ignore messages from Redis in this context; yield the ignored ones."""
    backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
    gone: list[Entry] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backplane._deliveries, "catch_up", gone.extend)
        yield gone


async def find(node: RunningServer) -> None:
    """Make a node look for missed messages."""
    backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
    await backplane._catching_up.restored(range(SHARDS))


async def received(socket: Socket, last: int) -> list[int]:
    """Return the positions of the messages since the last call, up to the position `last`."""
    found: list[int] = []
    while last not in found:
        found += [each["seq"] for each in await socket.messages()]
    return found


async def test_messages_found_in_a_log_reach_only_subscribers_without_a_replay_of_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as early,
        peer(node, node.token("bob")) as matching,
        peer(node, node.token("dave")) as named,
        peer(other, other.token("carol")) as publisher,
    ):
        await early.subscribe("demo.*")
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, 1), await publish(publisher, 2)]
            await until(lambda: len(gone), 2)
        slow = SlowLog(node, monkeypatch)
        finding = asyncio.create_task(find(node))
        await slow.read.wait()
        # They subscribe while the node is about to deliver the messages that it has found.
        assert (await matching.subscribe("demo.*"))["positions"] == {TOPIC: missed[1]}
        answer = await named.subscribe(TOPIC, history=10)
        assert [each["seq"] for each in answer["history"]] == missed
        slow.may_end.set()
        await finding
        last = await publish(publisher, 3)
        assert await received(early, last) == [*missed, last]
        assert await received(matching, last) == [last]
        assert await received(named, last) == [last]
        assert node.hub.core.floors.idle


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
@pytest.mark.parametrize("history", [0, 10])
@pytest.mark.parametrize("early", [False, True], ids=["published first", "log read first"])
async def test_what_a_node_finds_in_a_log_during_a_replay_comes_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, pattern: str, history: int, *, early: bool
) -> None:
    async with audience(store) as (node, there, coming, publisher):
        await there.subscribe("demo.*")
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, 1)]
            await until(lambda: len(gone), 1)
        if pattern == TOPIC:
            # The node is still discovering the topic when the message arrives.
            backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
            backplane._deliveries.doubt(TOPIC)
        slow = SlowRead(node, monkeypatch)
        await coming.send({"type": "subscribe", "topics": [pattern], "history": history})
        await slow.asked.wait()
        if early:
            slow.may_read.set()
            await slow.read.wait()
        with receiving_nothing(node) as gone:
            missed.append(await publish(publisher, 2))
            await until(lambda: len(gone), 1)
        await find(node)
        slow.may_read.set()
        slow.may_end.set()
        answer = await coming.until("subscribed")
        read = missed[:1] if early else missed
        assert [each["seq"] for each in answer["history"]] == (read if history else [])
        assert answer["positions"] == {TOPIC: read[-1]}
        last = await publish(publisher, 3)
        assert await received(there, last) == [*missed, last]
        assert await received(coming, last) == [*missed[len(read) :], last]


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
@pytest.mark.parametrize("early", [False, True], ids=["found first", "log read first"])
async def test_messages_found_in_a_log_do_not_reach_subscribers_that_resume_behind_them(
    store: Store, monkeypatch: pytest.MonkeyPatch, pattern: str, *, early: bool
) -> None:
    async with audience(store) as (node, there, coming, publisher):
        await there.subscribe("demo.*")
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, number) for number in (1, 2, 3)]
            await until(lambda: len(gone), 3)
        if pattern == TOPIC:
            # The node is still discovering the topic when the message arrives.
            backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
            backplane._deliveries.doubt(TOPIC)
        slow = SlowRead(node, monkeypatch)
        frame = {"type": "subscribe", "topics": [pattern], "after": {TOPIC: missed[1]}}
        await coming.send(frame)
        await slow.asked.wait()
        if early:
            slow.may_read.set()
            await slow.read.wait()
        await find(node)
        slow.may_read.set()
        slow.may_end.set()
        answer = await coming.until("subscribed")
        last = await publish(publisher, 4)
        assert await received(there, last) == [*missed, last]
        seqs = [each["seq"] for each in answer["history"]]
        assert [*seqs, *await received(coming, last)] == [missed[2], last]


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_late_messages_of_a_lost_log_do_not_reach_subscribers_that_have_them(
    store: Store, pattern: str
) -> None:
    async with audience(store) as (node, there, coming, publisher):
        await there.subscribe("demo.*")
        first = await publish(publisher, 0)
        assert await received(there, first) == [first]
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, number) for number in (1, 2, 3)]
            await until(lambda: len(gone), 3)
        await store.command("FLUSHALL")
        frame = {"type": "subscribe", "topics": [pattern], "after": {TOPIC: missed[1]}}
        await coming.send(frame)
        answer = await coming.until("subscribed")
        assert not answer.get("history")
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        backplane._deliveries.catch_up(gone)
        last = await publish(publisher, 4)
        assert await received(there, last) == [*missed, last]
        assert await received(coming, last) == [missed[2], last]


@pytest.mark.parametrize("known", [2, 3])
async def test_late_messages_that_arrive_during_a_replay_that_finds_a_loss_come_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    async with audience(store) as (node, there, coming, publisher):
        await there.subscribe(TOPIC)
        first = await publish(publisher, 0)
        assert await received(there, first) == [first]
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, number) for number in (1, 2, 3)]
            await until(lambda: len(gone), 3)
        await store.command("FLUSHALL")
        slow = SlowRead(node, monkeypatch)
        slow.may_read.set()
        after = {TOPIC: missed[known - 1]}
        await coming.send({"type": "subscribe", "topics": [TOPIC], "after": after, "since": 1})
        await slow.read.wait()
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        backplane._deliveries.catch_up(gone)
        slow.may_end.set()
        answer = await coming.until("subscribed")
        assert not answer["history"]
        assert "truncated" not in answer
        last = await publish(publisher, 4)
        assert await received(there, last) == [*missed, last]
        assert await received(coming, last) == [*missed[known:], last]


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_messages_of_a_lost_log_that_wait_do_not_reach_subscribers_that_have_them(
    store: Store, pattern: str
) -> None:
    async with audience(store) as (node, there, coming, publisher):
        await there.subscribe("demo.*")
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        await until(lambda: len(backplane._catching_up._unbroken), SHARDS)
        # The node does not know whether it has missed earlier messages of the topic.
        backplane._catching_up.interrupted(range(SHARDS), 0)
        first = await publish(publisher, 0)
        await until(lambda: backplane._deliveries.unproven, [TOPIC])
        await store.command("FLUSHALL")
        frame = {"type": "subscribe", "topics": [pattern], "after": {TOPIC: first}}
        await coming.send(frame)
        answer = await coming.until("subscribed")
        assert not answer.get("history")
        await find(node)
        last = await publish(publisher, 1)
        assert await received(there, last) == [first, last]
        assert await received(coming, last) == [last]


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_replay_to_one_hides_nothing_that_a_partitioned_node_owes_to_patterns(
    store: Store, *, noticed: bool
) -> None:
    async with audience(store) as (node, matching, named, publisher):
        await matching.subscribe("demo.*")
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        # The node knows the time up to which it has delivered everything.
        await until(lambda: len(backplane._catching_up._unbroken), SHARDS)
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, 1), await publish(publisher, 2)]
            await until(lambda: len(gone), 2)
            if noticed:
                backplane._catching_up.interrupted(range(SHARDS), 0)
            answer = await named.subscribe(TOPIC)
        assert answer["positions"] == {TOPIC: missed[1]}
        last = await publish(publisher, 3)
        assert await received(matching, last) == [*missed, last]
        assert await received(named, last) == [last]


@pytest.mark.parametrize("opened", [False, True])
async def test_a_sweep_finds_what_patterns_lack_of_a_topic_that_is_being_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, opened: bool
) -> None:
    async with audience(store) as (node, matching, named, publisher):
        await matching.subscribe("demo.*")
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, 1), await publish(publisher, 2)]
            await until(lambda: len(gone), 2)
        slow = SlowRead(node, monkeypatch)
        await named.send({"type": "subscribe", "topics": [TOPIC]})
        await slow.asked.wait()
        slow.may_end.set()
        if opened:
            slow.may_read.set()
            await slow.read.wait()
        await find(node)
        # Later searches start where this one ended.
        caught_up = cast("Any", node.hub.core.backplane)._catching_up._caught_up
        caught_up[:] = [at + 10_000 for at in caught_up]
        slow.may_read.set()
        assert (await named.until("subscribed"))["positions"] == {TOPIC: missed[1]}
        last = await publish(publisher, 3)
        assert await received(matching, last) == [*missed, last]
        assert await received(named, last) == [last]


async def test_a_topic_that_is_opened_and_discovered_at_once_loses_nothing_behind_a_replay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audience(store) as (node, named, matching, publisher):
        first = await publish(publisher, 1)
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        await until(lambda: len(backplane._catching_up._unbroken), SHARDS)
        # The pattern is so new that it is owed nothing that the log has.
        monkeypatch.setattr(backplane._catching_up, "_awaited", {TOPIC: 0}.get)
        replay = SlowRead(node, monkeypatch)
        replay.may_read.set()
        await named.send({"type": "subscribe", "topics": [TOPIC]})
        await replay.read.wait()
        with receiving_nothing(node) as gone:
            missed = [await publish(publisher, 2), await publish(publisher, 3)]
            await until(lambda: len(gone), 2)
        other_replay = SlowRead(node, monkeypatch)
        await matching.send({"type": "subscribe", "topics": ["demo.*"]})
        await other_replay.asked.wait()
        slow = SlowLog(node, monkeypatch)
        finding = asyncio.create_task(find(node))
        await slow.read.wait()
        replay.may_end.set()
        assert (await named.until("subscribed"))["positions"] == {TOPIC: first}
        slow.may_end.set()
        await finding
        other_replay.may_read.set()
        other_replay.may_end.set()
        assert (await matching.until("subscribed"))["positions"] == {TOPIC: missed[1]}
        last = await publish(publisher, 4)
        assert await received(named, last) == [*missed, last]
        assert await received(matching, last) == [last]
        assert node.hub.core.floors.idle


async def test_the_time_of_an_answer_is_earlier_than_that_of_every_message_behind_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as reader,
        peer(other, other.token("carol")) as publisher,
    ):
        slow = SlowRead(node, monkeypatch)
        slow.may_read.set()
        await reader.send({"type": "subscribe", "topics": [TOPIC]})
        await slow.read.wait()
        for data in range(3):
            await publish(publisher, data)
        slow.may_end.set()
        answer = await reader.until("subscribed")
        assert answer["timestamp"] < (await reader.message())["timestamp"]


async def test_the_time_of_an_answer_is_that_of_the_slowest_clock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1) as (node,):
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        read = backplane._link.read

        async def read_fast(base: str, arguments: Any) -> Any:
            now, *rest = await read(base, arguments)
            fast = base == backplane._layout.bases[backplane._layout.shard(FIRST)]
            return [int(now) + 60_000 * fast, *rest]

        assert backplane._layout.shard(FIRST) != backplane._layout.shard(TOPIC)
        monkeypatch.setattr(backplane._link, "read", read_fast)
        for names in ((FIRST, TOPIC), (TOPIC, FIRST)):
            async with (
                peer(node, node.token("alice")) as reader,
                peer(node, node.token("carol")) as publisher,
            ):
                answer = await reader.subscribe(*names)
                await publish(publisher, 1)
                assert answer["timestamp"] < (await reader.message())["timestamp"]


async def test_a_subscriber_receives_nothing_that_was_published_before_it_connected(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audience(store) as (node, there, coming, publisher):
        await there.subscribe(TOPIC)
        seqs = [await publish(publisher, 1)]
        assert await received(there, seqs[0]) == seqs
        # Another message is still in transit from Redis.
        with receiving_nothing(node) as gone:
            seqs.append(await publish(publisher, 2))
            await until(lambda: len(gone), 1)
        assert (await coming.subscribe(TOPIC))["positions"] == {TOPIC: seqs[1]}
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        backplane._deliveries.catch_up(gone)
        seqs.append(await publish(publisher, 3))
        assert await received(there, seqs[2]) == seqs[1:]
        assert await received(coming, seqs[2]) == seqs[2:]


async def test_an_older_subscription_of_a_connection_gets_what_a_newer_one_has_from_its_replay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as reader,
        peer(other, other.token("carol")) as publisher,
    ):
        await reader.subscribe("demo.*")
        with receiving_nothing(node) as gone:
            missed = await publish(publisher, 1)
            await until(lambda: len(gone), 1)
        slow = SlowLog(node, monkeypatch)
        finding = asyncio.create_task(find(node))
        await slow.read.wait()
        answer = await reader.subscribe(TOPIC, history=10)
        assert [each["seq"] for each in answer["history"]] == [missed]
        slow.may_end.set()
        await finding
        assert await received(reader, missed) == [missed]


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_the_loss_of_a_delivered_numbering_is_reported_to_subscribers_of_the_one_before(
    store: Store, pattern: str
) -> None:
    async with audience(store) as (_, reader, late, publisher):
        await reader.subscribe(pattern)
        known = await publish(publisher, 1)
        await store.command("FLUSHALL")
        seq = await publish(publisher, 2)
        assert await received(reader, seq) == [known, seq]
        await store.command("FLUSHALL")
        answer = await late.subscribe(pattern, after={TOPIC: known})
        assert (answer.get("reset"), answer["positions"]) == ([TOPIC], {TOPIC: seq})


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_what_was_delivered_and_is_lost_with_the_log_is_counted_as_missing(
    store: Store, pattern: str
) -> None:
    async with audience(store) as (_, reader, late, publisher):
        await reader.subscribe(pattern)
        known = await publish(publisher, 1)
        await publish(publisher, 2)
        seq = await publish(publisher, 3)
        assert await received(reader, seq) == [known, known + 1, seq]
        await store.command("FLUSHALL")
        # This does not require a later message.
        answer = await late.subscribe(pattern, after={TOPIC: known})
        assert (answer.get("truncated"), answer["positions"]) == ([TOPIC], {TOPIC: seq})


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_a_position_that_redis_has_not_reached_is_reset_and_the_next_messages_arrive(
    store: Store, pattern: str
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as reader,
        peer(other, other.token("carol")) as publisher,
    ):
        answer = await reader.subscribe(pattern, after={TOPIC: 2**53 - 1})
        assert answer["reset"] == [TOPIC]
        seq = await publish(publisher, 1)
        assert await received(reader, seq) == [seq]


async def test_a_stream_that_reported_a_loss_skips_late_messages_of_the_lost_log(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as there,
        peer(other, other.token("carol")) as publisher,
    ):
        await there.subscribe(TOPIC)
        async with resumed(node) as stream:
            await stream.event("subscribed")
            known = await publish(publisher, 1)
            mark = (await stream.event("message")).id
        assert await received(there, known) == [known]
        with receiving_nothing(node) as gone:
            late = await publish(publisher, 2)
            await until(lambda: len(gone), 1)
        await store.command("FLUSHALL")
        async with resumed(node, mark) as stream:
            assert (await stream.event("subscribed")).json["reset"] == [TOPIC]
            # The second message has been in transit from Redis since before the loss.
            backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
            backplane._deliveries.catch_up(gone)
            first = await publish(publisher, 3)
            message = await stream.event("message")
        # The other subscriber gets the late message, and sees the loss behind it.
        assert await received(there, first) == [late, first]
        assert message.json["seq"] == first
        async with resumed(node, message.id) as stream:
            assert "reset" not in (await stream.event("subscribed")).json


async def test_a_stream_that_resumes_while_a_message_is_in_transit_gets_it_once(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as there,
        peer(other, other.token("carol")) as publisher,
    ):
        await there.subscribe(TOPIC)
        await publish_to(other, 0, topic=FIRST)
        async with resumed(node, None, FIRST, TOPIC) as stream:
            await stream.event("subscribed")
            known = await publish(publisher, 1)
            mark = (await stream.event("message")).id
        assert await received(there, known) == [known]
        with receiving_nothing(node) as gone:
            late = await publish(publisher, 2)
            await until(lambda: len(gone), 1)
        # The time of an id is earlier than the request by as much as Redis takes to answer, and
        # messages since then come twice.
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        link = backplane._link
        until_then = await link.time("hp") + ANSWER_MS
        await until(lambda: later(link, until_then))
        # The id of an event has a position of one topic; the others resume by time.
        async with resumed(node, mark, FIRST, TOPIC) as stream:
            first = await stream.event("subscribed")
        async with resumed(node, first.id, FIRST, TOPIC) as stream:
            second = await stream.event("subscribed")
            backplane._deliveries.catch_up(gone)
            assert await received(there, late) == [late]
            await publish(publisher, 3)
            message = await stream.event("message")
        assert first.id is not None
        assert f"-{FIRST}@" in first.id
        assert [*replayed(first), *replayed(second), message.json["data"]] == [2, 3]


@pytest.mark.parametrize("messages", [0, 1])
async def test_a_loss_that_a_stream_knows_of_is_not_reported_again_after_the_next_message(
    store: Store, messages: int
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (node,),
        peer(node, node.token("sam")) as sam,
    ):
        # The node knows a position of the lost numbering.
        await sam.subscribe(TOPIC)
        for number in range(messages):
            await publish(sam, number)
        mark = (await _begin(node, None)).id
        await store.command("FLUSHALL")
        event = await _begin(node, mark)
        assert event.json["reset"] == [TOPIC]
        await publish(sam, 11)
        event = await _begin(node, event.id)
        assert replayed(event) == [11]
        assert not {"reset", "truncated"} & set(event.json)


async def _begin(node: RunningServer, mark: str | None) -> Event:
    async with stream(node, node.token("ann"), mark, topics=TOPIC) as events:
        return await events.event("subscribed")
