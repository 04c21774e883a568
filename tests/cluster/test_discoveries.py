"""Topics that a node knows only by a pattern: the messages before the first one that arrives."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.backplane import Entry
from pubsub_server.backplanes.redis import deliveries as deliveries_module
from pubsub_server.backplanes.redis.deliveries import CatchingUp, Deliveries
from pubsub_server.backplanes.redis.layout import Log
from pubsub_server.backplanes.redis.reader import Sweep
from pubsub_server.backplanes.redis.tracks import Tracks
from pubsub_server.tasks import Tasks
from pubsub_server.testing import running_server
from tests.cluster.fleet import peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

TOPIC = "demo.x"
START = 9_000_000
SINCE = 5


def entry(seq: int) -> Entry:
    return Entry(TOPIC, f"m{seq}", 10, seq, 1_000, b"{}")


class Shelf:
    """Replaces a reader: one log, which contains only the newest messages."""

    def __init__(self) -> None:
        self.log: Log | None = None
        self.since = 0
        self.read_on: Callable[[], None] = lambda: None

    def put(self, first: int, last: int, *, lost: int = 0, since: int = 0) -> None:
        """Store messages; those from the position `since` are as new as a discovery requires."""
        found = [entry(seq) for seq in range(first, last + 1)]
        self.log = Log(START, last, 10, lost, len(found), found)
        self.since = since

    async def one(self, topic: str, mode: str, mark: int = 0, limit: int = 0) -> Log | None:
        await asyncio.sleep(0)
        if mode == "after":
            self.read_on()
        first = self.since if mode == "since" else mark + 1
        log = self.log
        if log is None:
            return None
        return replace(log, entries=[each for each in log.entries if (each.seq or 0) >= first])


class Room:
    """The deliveries of a node, which may have missed messages."""

    def __init__(self, tasks: Tasks) -> None:
        self.sure = False
        self.tasks = tasks
        self.shelf = Shelf()
        self.tracks = Tracks(100)
        self.seen: list[int | str | None] = []
        reader: Any = self.shelf
        self.deliveries = Deliveries(
            self.tracks, reader, tasks, lambda payload: None, lambda topic: self.sure
        )
        self.deliveries.start(
            lambda entry: self.seen.append(entry.seq), lambda topic: self.seen.append(topic)
        )


@asynccontextmanager
async def room() -> AsyncGenerator[Room]:
    tasks = Tasks(asyncio.get_running_loop(), logging.getLogger("test"), "test")
    yield Room(tasks)
    await tasks.wait(5)
    await tasks.stop()


async def test_a_message_published_while_a_node_received_nothing_precedes_the_next() -> None:
    async with room() as node:
        node.shelf.put(START, START + 1)
        node.deliveries.catch_up([entry(START + 1)])
        assert node.seen == []
        assert node.deliveries.unproven == [TOPIC]
        await node.deliveries.discover(TOPIC, SINCE)
        node.deliveries.catch_up([entry(START + 1), entry(START + 2)])
        assert node.seen == [START, START + 1, START + 2]


async def test_a_node_that_has_missed_nothing_asks_no_log() -> None:
    async with room() as node:
        node.sure = True
        node.deliveries.catch_up([entry(START), entry(START + 1)])
        assert node.seen == [START, START + 1]


async def test_a_topic_that_a_node_discovers_too_late_starts_with_a_gap() -> None:
    async with room() as node:
        node.shelf.put(START + 140, START + 142, lost=SINCE + 1)
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [TOPIC, START + 140, START + 141, START + 142]


async def test_a_topic_that_opens_by_name_delivers_first_what_patterns_lack() -> None:
    async with room() as node:
        node.tracks.join(TOPIC)
        node.deliveries.catch_up([entry(START + 2)])
        node.shelf.put(START, START + 1)
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [START, START + 1, START + 2]
        node.deliveries.catch_up([entry(START + 3)])
        node.tracks.leave(TOPIC, keep=True)
        node.deliveries.catch_up([entry(START + 4)])
        assert node.seen[3:] == [START + 3, START + 4]


async def test_a_topic_that_is_discovered_twice_is_delivered_once() -> None:
    async with room() as node:
        node.shelf.put(START, START + 1)
        await asyncio.gather(*(node.deliveries.discover(TOPIC, SINCE) for _ in range(2)))
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [START, START + 1]


async def test_a_topic_that_a_node_discovers_whole_lacks_nothing() -> None:
    async with room() as node:
        # The store has started with empty data, so an earlier numbering may have been lost.
        node.shelf.put(START, START + 1, lost=SINCE + 1)
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [START, START + 1]


@pytest.mark.parametrize("live_after", [0, 7, START + 3], ids=["fresh", "another log", "behind"])
async def test_a_hole_that_the_log_cannot_fill_is_reported_before_the_next_message(
    live_after: int,
) -> None:
    async with room() as node:
        node.tracks.join(TOPIC)
        track = node.tracks.get(TOPIC)
        assert track is not None
        track.last, track.held = live_after, []
        node.shelf.put(START + 140, START + 141)
        node.deliveries.heal(track)
        await node.tasks.wait(5)
        assert node.seen == [TOPIC, START + 140, START + 141]


async def fresh(node: Room) -> None:
    """Open a topic that does not have a log yet."""
    node.tracks.join(TOPIC)
    track = node.tracks.get(TOPIC)
    assert track is not None
    node.deliveries.release(track, None)


async def test_the_first_message_of_a_topic_comes_from_the_log_where_its_channel_lost_it() -> None:
    async with room() as node:
        await fresh(node)
        node.shelf.put(START, START + 1)
        node.deliveries.catch_up([entry(START + 1), entry(START + 2)])
        await node.tasks.wait(5)
        assert node.seen == [START, START + 1, START + 2]


async def test_the_first_message_of_a_topic_without_history_lacks_nothing() -> None:
    async with room() as node:
        await fresh(node)
        node.shelf.log = Log(START, START, 10, 10, 0, [])
        node.deliveries.catch_up([entry(START)])
        await node.tasks.wait(5)
        node.deliveries.catch_up([entry(START + 1)])
        assert node.seen == [START, START + 1]


async def test_what_a_node_holds_and_the_log_has_lost_is_delivered_and_is_no_hole() -> None:
    async with room() as node:
        await fresh(node)
        track = node.tracks.get(TOPIC)
        assert track is not None
        track.last, track.held = START, [entry(START + 1), entry(START + 2)]
        node.shelf.put(START + 2, START + 3)
        node.deliveries.heal(track)
        await node.tasks.wait(5)
        assert node.seen == [START + 1, START + 2, START + 3]


async def test_a_hole_behind_held_messages_is_reported() -> None:
    async with room() as node:
        await fresh(node)
        track = node.tracks.get(TOPIC)
        assert track is not None
        track.last, track.held = START, [entry(START + 1)]
        node.shelf.put(START + 3, START + 3)
        node.deliveries.heal(track)
        await node.tasks.wait(5)
        assert node.seen == [TOPIC, START + 1, START + 3]


async def test_a_hole_in_what_waits_while_a_topic_is_opened_is_filled_from_the_log() -> None:
    async with room() as node:
        node.tracks.join(TOPIC)
        track = node.tracks.get(TOPIC)
        assert track is not None
        journal = node.tracks.begin()
        node.deliveries.catch_up([entry(START + 1), entry(START + 3)])
        node.shelf.put(START, START + 3)
        node.deliveries.release(track, START + 2)
        await node.tasks.wait(5)
        assert node.tracks.live_after(journal, TOPIC) == START
        assert node.seen == [START + 1, START + 2, START + 3]


async def test_a_replay_takes_from_the_log_what_a_node_does_not_deliver_of_it() -> None:
    async with room() as node:
        await fresh(node)
        track, journal = node.tracks.get(TOPIC), node.tracks.begin()
        assert track is not None
        node.tracks.release(track, START + 2)
        assert node.tracks.live_after(journal, TOPIC) == START + 2
        assert node.tracks.unread(journal, {TOPIC: START + 1}) == {TOPIC}
        assert node.tracks.unread(journal, {TOPIC: START + 2, "demo.y": 0}) == set()


async def test_a_replay_takes_from_the_log_what_is_skipped_before_a_held_message() -> None:
    async with room() as node:
        journal = node.tracks.begin()
        track = node.deliveries.doubt(TOPIC)
        node.deliveries.catch_up([entry(START + 3)])
        node.deliveries.release(track, START + 2)
        assert node.seen == [START + 3]
        assert node.tracks.unread(journal, {TOPIC: START + 1}) == {TOPIC}
        assert node.tracks.live_after(journal, TOPIC) == START + 2


@pytest.mark.parametrize("since", [START, START + 2, START + 4])
async def test_a_topic_that_is_discovered_delivers_what_follows_the_replays_of_the_meantime(
    since: int,
) -> None:
    async with room() as node:
        node.shelf.put(START, START + 3, since=since)
        track = node.deliveries.doubt(TOPIC)
        for position in (START + 2, START + 1, START + 2):
            track.replay(position)
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == list(range(min(since, START + 2), START + 4))


async def test_a_replay_that_is_answered_while_more_of_the_log_is_read_is_waited_for() -> None:
    async with room() as node:
        node.shelf.put(START, START + 3, since=START + 4)
        track = node.deliveries.doubt(TOPIC)
        track.replay(START + 2)
        node.shelf.read_on = lambda: track.replay(START)
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [START + 1, START + 2, START + 3]


async def test_a_hole_between_held_messages_is_filled_while_a_topic_is_discovered() -> None:
    async with room() as node:
        node.shelf.put(START, START + 4, since=START + 4)
        node.deliveries.catch_up([entry(START + 1), entry(START + 3)])
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [START + 1, START + 2, START + 3, START + 4]


async def test_a_log_that_begins_while_a_topic_is_discovered_is_delivered_from_its_start() -> None:
    async with room() as node:
        node.deliveries.catch_up([entry(START + 1)])
        discovery = node.deliveries.discover(TOPIC, SINCE)
        discovery.send(None)
        discovery.send(None)
        node.shelf.put(START, START + 1)
        with pytest.raises(StopIteration):
            discovery.send(None)
        assert node.seen == [START, START + 1]


async def test_the_discovery_of_a_track_that_has_ended_leaves_that_of_the_next_one_alone() -> None:
    async with room() as node:
        node.shelf.put(START, START)
        node.tracks.join(TOPIC)
        former = node.deliveries.discover(TOPIC, SINCE)
        former.send(None)
        node.tracks.leave(TOPIC, keep=False)
        node.tracks.join(TOPIC)
        track = node.deliveries.doubt(TOPIC)
        with pytest.raises(StopIteration):
            former.send(None)
        assert node.deliveries.unproven == [TOPIC]
        await node.deliveries.discover(TOPIC, SINCE)
        assert node.seen == [START]
        assert not track.unproven


async def test_a_hole_is_not_filled_for_subscribers_that_came_after_all_others_had_left() -> None:
    async with room() as node:
        await fresh(node)
        node.shelf.put(START, START + 2)
        node.deliveries.catch_up([entry(START + 2)])
        # The node is about to read the log.
        node.tracks.leave(TOPIC, keep=False)
        node.tracks.join(TOPIC)
        track = node.tracks.get(TOPIC)
        assert track is not None
        node.deliveries.release(track, START + 2)
        await node.tasks.wait(5)
        assert node.seen == []
        node.deliveries.catch_up([entry(START + 3)])
        assert node.seen == [START + 3]


async def test_a_complete_log_that_started_again_has_no_hole() -> None:
    async with room() as node:
        node.tracks.join(TOPIC)
        track = node.tracks.get(TOPIC)
        assert track is not None
        track.last, track.held = 7, []
        node.shelf.put(START, START + 1)
        node.deliveries.heal(track)
        await node.tasks.wait(5)
        assert node.seen == [START, START + 1]


async def test_a_hole_disconnects_pattern_subscribers_that_cannot_see_it() -> None:
    async with asyncio.timeout(60), running_server() as server:
        token = server.service_token()
        async with peer(server, token) as wild, peer(server, token) as named:
            await wild.subscribe("demo.*", presence=False)
            await named.subscribe(TOPIC, presence=False)
            server.hub._lacks(TOPIC)
            frame = await wild.until("error")
            assert (frame["code"], frame["topic"]) == ("going_away", TOPIC)
            assert (await named.subscribe(TOPIC, presence=False))["topics"] == [TOPIC]


async def test_many_payloads_that_cannot_be_read_are_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with room() as here:
        for payload in (b"x", b"m", b"pz\n", b"\xff" * 100) * 250:
            here.deliveries.receive(payload)
    assert len(caplog.records) == 1
    assert not here.seen


class TwoShards:
    """Replaces all that a search of two shards needs; the second has the topic."""

    bases = ("{0}", "{1}")

    def __init__(self) -> None:
        self.shard_fails = self.roster_fails = False
        self.held: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.compared: list[dict[str, int]] = []

    def shard(self, topic: str) -> int:
        return 1

    def wants(self, topic: str) -> bool:
        return True

    def awaited(self, topic: str) -> int | None:
        return None

    def interrupted(self, missed: list[int], since: int) -> None: ...

    async def catch_up(self) -> None:
        if self.roster_fails:
            raise ValueError("another program has written this index")

    async def sweep(self, shard: int, since: int, silence: int, least: int = 0) -> Sweep:
        if self.shard_fails and not shard:
            raise ValueError("another program has written this log")
        # The other searches have ended before this one.
        await asyncio.sleep(0)
        if self.held is not None:
            self.begun.set()
            await self.held.wait()
        return Sweep(10, 1, [])

    async def heads(self, known: dict[str, int], silence: int) -> dict[str, int]:
        self.compared.append(known)
        return {}


def searching(node: Room, shards: Any) -> CatchingUp:
    """A search for the topic, of which all messages up to `START` have been delivered."""
    node.tracks.join(TOPIC)
    track = node.tracks.get(TOPIC)
    assert track is not None
    node.tracks.release(track, START)
    return CatchingUp(
        *(shards, shards, node.tracks, node.deliveries, shards.wants, shards.awaited),
        roster=shards,
        lease=shards,
        opened=0,
        silence=0,
        tasks=node.tasks,
    )


@pytest.mark.parametrize("failing", ["shard_fails", "roster_fails"])
async def test_an_unexpected_failure_of_one_search_does_not_end_the_others(failing: str) -> None:
    shards = TwoShards()
    setattr(shards, failing, True)
    async with asyncio.timeout(60), room() as node:
        searches = searching(node, shards)
        with pytest.raises(ValueError, match="another program"):
            await searches.restored([0, 1])
    assert {TOPIC: START} in shards.compared


@pytest.mark.parametrize("failing", ["shard_fails", "roster_fails"])
async def test_a_sweep_searches_every_shard_though_another_search_fails(
    failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliveries_module, "SWEEP_EVERY", 0.01)
    shards = TwoShards()
    setattr(shards, failing, True)
    async with asyncio.timeout(60), room() as node:
        searches = searching(node, shards)
        searches._incomplete.add(1)
        searches.sweep()
    assert {TOPIC: START} in shards.compared
    (record,) = caplog.records
    assert "CatchingUp._sweep of the test failed" in record.getMessage()


async def test_a_search_that_is_cancelled_is_made_again() -> None:
    shards = TwoShards()
    shards.held = asyncio.Event()
    async with asyncio.timeout(60), room() as node:
        searches = searching(node, shards)
        searching_first = node.tasks.spawn(searches.restored([0, 1]))
        await shards.begun.wait()
        await node.tasks.end(searching_first)
        assert shards.compared == []
        shards.held = None
        await searches.rest()
    assert {TOPIC: START} in shards.compared
