"""What comes from Redis, handed to the hub in order; a hole is filled from the log first.

What was published or changed and did not come is looked for after each break, and periodically.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.redis.layout import PRESENCE, unpack
from pubsub_server.backplanes.redis.reader import CLOCKS_MS
from pubsub_server.backplanes.redis.servers import LINK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.lease import Lease
    from pubsub_server.backplanes.redis.reader import Reader
    from pubsub_server.backplanes.redis.roster import RedisRoster
    from pubsub_server.backplanes.redis.tracks import Track, Tracks
    from pubsub_server.tasks import Tasks

logger = logging.getLogger(__name__)

AGAIN_AFTER: Final = 0.02
AGAIN_AT_MOST: Final = 1.0
"""Seconds; each wait is twice the one before, up to this."""
SWEEP_EVERY: Final = 5.0
"""Seconds."""
SWEEP_MARGIN_MS: Final = 2_000


class Deliveries:
    """The way of the messages of all topics into this node.

    Args:
        tracks: Where each topic stands.
        reader: Of the logs.
        tasks: Keeps what fetches.
        members: Gets the changes of members.
        sure: Whether this node has received all recent messages of a topic's shard.

    Attributes:
        healed: Holes that were filled from a log.
    """

    def __init__(
        self,
        tracks: Tracks,
        reader: Reader,
        tasks: Tasks,
        members: Callable[[bytes], None],
        sure: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self._tracks = tracks
        self._reader = reader
        self._tasks = tasks
        self._members = members
        self._sure = sure
        self._deliver: Callable[[Entry], None] = lambda entry: None
        self._lack: Callable[[str], None] = lambda topic: None
        # Their first messages wait until the log has been asked for what precedes them.
        self._unproven: dict[str, Track] = {}
        self.healed = 0

    def start(
        self, deliver: Callable[[Entry], None], lack: Callable[[str], None] | None = None
    ) -> None:
        """See `backplane.Backplane`."""
        self._deliver = deliver
        self._lack = lack or self._lack

    @property
    def unproven(self) -> list[str]:
        """Topics new to this node, whose first messages wait for `discover`."""
        return list(self._unproven)

    def take(self, payload: bytes) -> None:
        """Take what a channel has brought; never raises."""
        try:
            if payload.startswith(PRESENCE):
                self._members(payload)
                return
            self.catch_up(unpack(payload))
        except Exception:
            # The connection that brought it has other topics to bring.
            logger.exception("cannot deliver a message from Redis")

    def catch_up(self, found: Iterable[Entry]) -> None:
        """Take messages of one topic, oldest first."""
        for entry in found:
            new = entry.seq is not None and entry.topic not in self._tracks
            if new and not self._sure(entry.topic):
                self.doubt(entry.topic)
            deliver, hole = self._tracks.take(entry)
            if deliver:
                self._deliver(entry)
            elif hole is not None:
                self.heal(hole)

    async def discover(self, topic: str, since: int) -> None:
        """Deliver the messages of a topic that is new to this node or opening, oldest first.

        A subscriber by pattern has no position of such a topic, so it cannot see that something
        lacks before the first message that it gets.

        Args:
            topic: One that a pattern matches.
            since: Messages that are not newer than this, Unix ms, are not delivered.
        """
        known = self._tracks.get(topic)
        if known is not None and not known.unproven and known.last is not None:
            return
        track = self.doubt(topic)
        log = await self._reader.one(topic, "since", since)
        if self._unproven.pop(topic, None) is not track or self._tracks.get(topic) is not track:
            return
        found = () if log is None else log.entries
        if log is not None and log.lost > since and not (found and found[0].seq == log.start):
            self._lack(topic)
        self.settle(track, None if log is None else log.last, found)

    def doubt(self, topic: str) -> Track:
        """Let the messages of a topic wait for `discover`: patterns may lack what precedes them."""
        track = self._unproven.get(topic)
        if track is None or self._tracks.get(topic) is not track:
            track = self._unproven[topic] = self._tracks.hold(topic)
        return track

    def settle(self, track: Track, last: int | None, found: Sequence[Entry] = ()) -> None:
        """Deliver what waited while a topic was opening; see `Tracks.settle`."""
        ready, again = self._tracks.settle(track, last, found)
        self._deliver_all(ready)
        if again:
            self.heal(track)

    def heal(self, track: Track) -> None:
        """Deliver what the log has and this node has not, and then what waited for that."""
        self._tasks.spawn(self._heal(track))

    async def _heal(self, track: Track) -> None:
        pause = AGAIN_AFTER
        while track.held is not None and track.last is not None:
            try:
                log = await self._reader.one(track.topic, "after", track.last)
            except LINK_ERRORS:
                # The sooner the better: the log keeps so many messages and no more.
                await asyncio.sleep(pause)
                pause = min(AGAIN_AT_MOST, pause * 2)
                continue
            except Exception:
                # While a hole is open its topic waits.
                logger.exception("cannot read the missing messages of a topic; trying again")
                await asyncio.sleep(AGAIN_AT_MOST)
                continue
            if self._tracks.get(track.topic) is not track:
                # Its last subscriber left, and those who came since have the log from replays.
                return
            self.healed += 1
            found = () if log is None else log.entries
            if log is not None:
                first = max(track.last, log.start - 1) + 1
                known = {entry.seq or 0 for entry in (*found, *(track.held or []))}
                if sum(first <= seq <= log.last for seq in known) <= log.last - first:
                    self._lack(track.topic)
            ready, _ = self._tracks.settle(track, None if log is None else log.last, found)
            self._deliver_all(ready)

    def _deliver_all(self, ready: Iterable[Entry]) -> None:
        for entry in ready:
            self._deliver(entry)


class CatchingUp:
    """Compares where topics stand in Redis with what this node has delivered.

    Args:
        layout: Names of keys.
        reader: Of the logs.
        tracks: Where each topic is here.
        deliveries: Is given what was missed.
        matching: Whether a topic is wanted here.
        awaited: Milliseconds for which a pattern of this node has matched a topic; None if no
            pattern does.
        roster: Looks for changes of members at the same time.
        lease: Gets the losses of Redis.
        silence: Milliseconds after which a log that no one writes is forgotten.
        tasks: Keeps the sweeps.
    """

    def __init__(
        self,
        layout: Layout,
        reader: Reader,
        tracks: Tracks,
        deliveries: Deliveries,
        matching: Callable[[str], bool],
        awaited: Callable[[str], int | None],
        *,
        roster: RedisRoster,
        lease: Lease,
        silence: int,
        tasks: Tasks,
    ) -> None:
        self._layout = layout
        self._reader = reader
        self._tracks = tracks
        self._deliveries = deliveries
        self._matching = matching
        self._awaited = awaited
        self._roster = roster
        self._lease = lease
        self._silence = silence
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        # By shard, its own Redis time up to which everything published is known to have come; and
        # since when it has lost nothing.
        self._caught_up: dict[int, int] = {}
        self._unbroken: dict[int, int] = {}
        # Shards that may have lost something, not yet said.
        self._doubted: set[int] = set()
        # Shards of which messages may not have come.
        self._anew: set[int] = set()
        # By shard, connections to its channels that were begun; and how many of them there were
        # when this node had looked for everything that had not come.
        self._begun: Counter[int] = Counter()
        self._proven: Counter[int] = Counter()
        self._next_sweep = 0.0

    def sweep(self) -> None:
        """Look through all shards, unless that began less than `SWEEP_EVERY` seconds ago."""
        if self._loop.time() >= self._next_sweep:
            self._next_sweep = self._loop.time() + SWEEP_EVERY
            self._tasks.spawn(self._sweep())

    def interrupted(self, shards: Sequence[int]) -> None:
        """A connection to these shards begins; this node may have missed messages before it."""
        self._begun.update(shards)

    def sure(self, topic: str) -> bool:
        """Whether this node has heard all that the topic's shard published up to now."""
        shard = self._layout.shard(topic)
        # No one was subscribed before this node looked for the first time.
        return shard not in self._caught_up or self._begun[shard] == self._proven[shard]

    def opened(self, topic: str, now: int) -> bool:
        """A topic opens, because someone subscribes to it by name; its log has messages.

        If this node did not hear them, subscribers by pattern lack them: the replay goes to the new
        subscriber alone.

        Args:
            topic: Which.
            now: Redis time, Unix ms.

        Returns:
            Whether this call delivers what they lack, and then what waits.
        """
        since = self._owed_since(topic, now)
        if since is None:
            return False
        self._deliveries.doubt(topic)
        self._tasks.spawn(self._discover(topic, since))
        return True

    async def _discover(self, topic: str, since: int) -> None:
        try:
            await self._deliveries.discover(topic, since)
        except LINK_ERRORS as error:
            # The next sweep tries again.
            logger.warning("cannot read missed messages from Redis: %s", type(error).__name__)

    def _owed_since(self, topic: str, now: int) -> int | None:
        """Unix ms from which on patterns may lack messages of an opening topic; None if none do."""
        awaited, shard = self._awaited(topic), self._layout.shard(topic)
        caught_up = self._caught_up.get(shard)
        if awaited is None or not caught_up:
            return None
        return max(self._margin(shard, caught_up), now - awaited)

    def _margin(self, shard: int, caught_up: int) -> int:
        # Another server may have another clock.
        lost = shard in self._anew or self._begun[shard] != self._proven[shard]
        return max(1, caught_up - (CLOCKS_MS if lost else SWEEP_MARGIN_MS))

    async def restored(self, shards: Sequence[int]) -> None:
        """These are heard again, after a time in which they may not have been."""
        self._anew.update(shards)
        self._roster.interrupted(shards)
        pause = AGAIN_AFTER
        # Later the sweeps try again.
        while not await self._catch_up(shards) and pause < AGAIN_AT_MOST:
            await asyncio.sleep(pause)
            pause *= 2

    async def rest(self) -> None:
        """Deliver all that was kept before this call; the caller bounds the time."""
        while True:
            heard = await self._catch_up(range(len(self._layout.bases)))
            # What is held waits for a log that is being read.
            if heard and not self._tracks.waiting:
                return
            await asyncio.sleep(AGAIN_AFTER)

    async def _sweep(self) -> None:
        await self._catch_up(range(len(self._layout.bases)))

    async def _catch_up(self, shards: Iterable[int]) -> bool:
        """Look for what has not come; whether that was possible."""
        members, found = await asyncio.gather(
            self._roster.catch_up(), asyncio.gather(*map(self._catch_up_shard, shards))
        )
        errors = {error for error in found if error is not None}
        if errors:
            logger.warning("cannot read missed messages from Redis: %s", ", ".join(sorted(errors)))
        if self._doubted:
            logger.warning(
                "Redis may have lost its last acknowledged writes in %d of %d shards",
                *(len(self._doubted), len(self._layout.bases)),
            )
            self._doubted.clear()
            # Members and counts may lack there, too.
            self._lease.lose()
        return members and not errors

    async def _catch_up_shard(self, shard: int) -> str | None:
        """The kind of error that kept it from looking; None where it has looked."""
        caught_up, anew = self._caught_up.get(shard, 0), shard in self._anew
        since = self._margin(shard, caught_up) if caught_up else 0
        self._anew.discard(shard)
        begun = self._begun[shard]
        try:
            sweep = await self._reader.sweep(shard, since)
            before = self._unbroken.get(shard, sweep.unbroken)
            anew = anew or before != sweep.unbroken
            moved = set(filter(self._matching, sweep.topics))
            if anew:
                named = (track.topic for track in self._tracks.named)
                moved.update(topic for topic in named if self._layout.shard(topic) == shard)
            moved.update(self._unproven(shard))
            await self._compare(moved, since, sweep.now)
            self._proven[shard] = begun
            # What has come meanwhile waits still, and nothing comes to wait any more.
            await self._compare(self._unproven(shard), since, sweep.now)
        except Exception as error:
            if anew:
                self._anew.add(shard)
            if isinstance(error, LINK_ERRORS):
                return type(error).__name__
            raise
        if before != sweep.unbroken:
            self._doubted.add(shard)
        self._caught_up[shard], self._unbroken[shard] = sweep.now, sweep.unbroken
        return None

    async def _compare(self, moved: Iterable[str], since: int, now: int) -> None:
        known: dict[str, int] = {}
        for topic in moved:
            track = self._tracks.get(topic)
            if track is None or track.unproven:
                await self._deliveries.discover(topic, since)
            elif track.last is not None:
                known[topic] = track.last
            elif (owed := self._owed_since(topic, now)) is not None:
                # Its replay settles what it opens for, and not what patterns lack.
                await self._deliveries.discover(topic, max(owed, since))
        heads = await self._reader.heads(known, self._silence)
        for topic, last in heads.items():
            track = self._tracks.get(topic)
            if track is not None and track.held is None and last > (track.last or 0):
                track.held = []
                self._deliveries.heal(track)

    def _unproven(self, shard: int) -> list[str]:
        return [each for each in self._deliveries.unproven if self._layout.shard(each) == shard]
