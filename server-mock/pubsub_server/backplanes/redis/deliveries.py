"""Passes messages from Redis to the hub in order, and first fills gaps from the log.

It searches for missed messages and changes after each disconnection, and periodically.
"""

from __future__ import annotations

import asyncio
import logging
from operator import gt
from typing import TYPE_CHECKING, Final

from pubsub_server.backoff import Backoff
from pubsub_server.backplanes.redis.failure_log import LOSS_EVERY, FailureLog
from pubsub_server.backplanes.redis.layout import PRESENCE, unpack
from pubsub_server.backplanes.redis.reader import CLOCKS_MS
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.tasks import run_all

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

READ_AGAIN_AFTER: Final = 0.02
READ_AGAIN_AT_MOST: Final = 1.0
"""Seconds of the first and of the longest wait before a log is read again."""
SWEEP_EVERY: Final = 5.0
"""Seconds."""
SWEEP_MARGIN_MS: Final = 2_000
TELL_LOSSES_WITHIN: Final = 0.5
"""Maximum seconds that the report of a loss waits for the search in other shards."""
LOG_EVERY: Final = 10.0
"""Seconds between two log lines about payloads that cannot be read: others may send them, too."""
_UNREAD: Final = "cannot read missed messages from Redis"


class Deliveries:
    """Delivers the messages of all topics on this node.

    Args:
        tracks: The position of each topic.
        reader: Reads the logs.
        tasks: Runs the reads.
        members: Receives the changes of members.
        sure: Whether this node has received all recent messages of a topic's shard.

    Attributes:
        healed: Number of gaps that were filled from a log.
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
        self._on_gap: Callable[[str], None] = lambda topic: None
        # Topics whose first messages wait until the log has been read for earlier ones.
        self._unproven: dict[str, Track] = {}
        # Failures since the last log line, and when to log the next one.
        self._failed = 0
        self._log_again_at = 0.0
        self.healed = 0

    def start(
        self, deliver: Callable[[Entry], None], on_gap: Callable[[str], None] | None = None
    ) -> None:
        """See `backplane.Backplane`."""
        self._deliver = deliver
        self._on_gap = on_gap or self._on_gap

    @property
    def unproven(self) -> list[str]:
        """Topics that are new to this node, whose first messages wait for `discover`."""
        return list(self._unproven)

    def receive(self, payload: bytes) -> None:
        """Process a payload from a channel; never raises."""
        try:
            if payload.startswith(PRESENCE):
                self._members(payload)
                return
            self.catch_up(unpack(payload))
        except Exception:
            # Other topics use the same connection, so an error must not end it.
            self._failed += 1
            now = asyncio.get_running_loop().time()
            if now >= self._log_again_at:
                self._log_again_at = now + LOG_EVERY
                logger.exception("cannot deliver messages from Redis: %d", self._failed)
                self._failed = 0

    def catch_up(self, found: Iterable[Entry]) -> None:
        """Process messages of one topic, oldest first."""
        for entry in found:
            new = entry.seq is not None and entry.topic not in self._tracks
            if new and not self._sure(entry.topic):
                self.doubt(entry.topic)
            deliver, hole = self._tracks.receive(entry)
            if deliver:
                self._deliver(entry)
            elif hole is not None:
                self.heal(hole)

    async def discover(self, topic: str, since: int) -> None:
        """Deliver the messages of a topic that is new to this node or opening, oldest first.

        A subscriber by pattern has no position of such a topic, so it cannot detect a gap before
        the first message that it receives.

        Args:
            topic: One that a pattern matches.
            since: Deliver only messages newer than this, Unix ms.
        """
        known = self._tracks.get(topic)
        if known is not None and not known.unproven and known.last is not None:
            return
        track = self.doubt(topic)
        log = await self._reader.one(topic, "since", since)
        if log is None and track.held:
            # The log may have begun since then, with messages that did not arrive.
            log = await self._reader.one(topic, "since", since)
        lacks = False
        if log is not None:
            first = log.entries[0].seq if log.entries else None
            lacks = log.lost > since and first != log.start
            complete_after = log.last if first is None else first - 1
            # Subscribers may be owed older messages, too.
            while log is not None and track.owed is not None and track.owed < complete_after:
                complete_after = track.owed
                log = await self._reader.one(topic, "after", complete_after)
        if self._unproven.get(topic) is not track:
            return
        del self._unproven[topic]
        if self._tracks.get(topic) is not track:
            return
        if lacks:
            self._on_gap(topic)
        self.release(track, None if log is None else log.last, () if log is None else log.entries)

    def doubt(self, topic: str) -> Track:
        """Hold the messages of a topic until `discover`: patterns may miss earlier messages."""
        track = self._unproven.get(topic)
        if track is None or self._tracks.get(topic) is not track:
            track = self._unproven[topic] = self._tracks.hold(topic)
        return track

    def release(self, track: Track, last: int | None, found: Sequence[Entry] = ()) -> None:
        """Deliver the messages that waited while a topic was opening; see `Tracks.release`."""
        ready, again = self._tracks.release(track, last, found)
        self._deliver_all(ready)
        if again:
            self.heal(track)

    def heal(self, track: Track) -> None:
        """Deliver missed messages from the log, then the messages that waited for them."""
        self._tasks.spawn(self._heal(track))

    async def _heal(self, track: Track) -> None:
        backoff = Backoff(READ_AGAIN_AFTER, READ_AGAIN_AT_MOST)
        while track.held is not None and track.last is not None:
            try:
                log = await self._reader.one(track.topic, "after", track.last)
            except LINK_ERRORS:
                # Read as early as possible: the log keeps a limited number of messages.
                await backoff.wait()
                continue
            except Exception:
                # The messages of a topic wait until its gap is filled.
                logger.exception("cannot read the missing messages of a topic; trying again")
                await asyncio.sleep(READ_AGAIN_AT_MOST)
                continue
            if self._tracks.get(track.topic) is not track:
                # Its last subscriber left, and newer subscribers have the log from replays.
                return
            self.healed += 1
            found = () if log is None else log.entries
            if log is not None:
                first = max(track.last, log.start - 1) + 1
                known = {entry.seq or 0 for entry in (*found, *(track.held or []))}
                if sum(first <= seq <= log.last for seq in known) <= log.last - first:
                    self._on_gap(track.topic)
            ready, _ = self._tracks.release(track, None if log is None else log.last, found)
            self._deliver_all(ready)

    def _deliver_all(self, ready: Iterable[Entry]) -> None:
        for entry in ready:
            self._deliver(entry)


class CatchingUp:
    """Compares the positions in Redis with those that this node has delivered.

    Args:
        layout: Names of keys.
        reader: Of the logs.
        tracks: The position of each topic on this node.
        deliveries: Receives the missed messages.
        matching: Whether a topic is wanted on this node.
        awaited: Milliseconds for which a pattern of this node has matched a topic; None if no
            pattern does.
        roster: Searches for changes of members at the same time.
        lease: Receives the losses of Redis.
        opened: Redis time before the first client of this node, ms.
        silence: Milliseconds without a write after which a log is removed.
        tasks: Runs the sweeps.
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
        opened: int,
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
        self._failures = FailureLog(logger)
        self._losses = FailureLog(logger, every=LOSS_EVERY)
        self._loop = asyncio.get_running_loop()
        # Per shard: the Redis time up to which all published messages have arrived, and the time
        # since which it has lost nothing.
        self._caught_up = [opened] * len(layout.bases)
        self._unbroken: dict[int, int] = {}
        # Shards that may have lost data, not reported yet.
        self._doubted: set[int] = set()
        # Shards of which messages may be missing.
        self._incomplete: set[int] = set()
        # Per shard: the number of connections to its channels, and this number at the last complete
        # search for missed messages. The first connection needs none: no client was subscribed
        # before.
        self._begun = [0] * len(layout.bases)
        self._proven = [1] * len(layout.bases)
        # Per shard: the last time that Redis has sent on the connection before the current one.
        self._sent = [0] * len(layout.bases)
        self._next_sweep = 0.0

    def sweep(self) -> None:
        """Search all shards in the next `SWEEP_EVERY` seconds, unless a search is under way."""
        if self._loop.time() >= self._next_sweep:
            self._next_sweep = self._loop.time() + SWEEP_EVERY
            self._tasks.spawn(self._sweep())

    def interrupted(self, shards: Sequence[int], sent: int) -> None:
        """A connection to these shards begins; this node may have missed earlier messages.

        Args:
            shards: Which.
            sent: See `Feed`.
        """
        for shard in shards:
            self._begun[shard] += 1
            self._sent[shard] = sent or self._sent[shard]

    def sure(self, topic: str) -> bool:
        """Whether this node has received all messages that the topic's shard has published."""
        shard = self._layout.shard(topic)
        return self._begun[shard] == self._proven[shard]

    @property
    def complete(self) -> bool:
        """Whether this node has delivered all wanted messages that have arrived, or should have."""
        lost = self._begun != self._proven and any(map(gt, self._begun, self._proven))
        return not lost and not self._tracks.waiting

    def opened(self, topic: str, now: int) -> bool:
        """A topic opens because of its first subscriber by name, and its log has messages.

        If this node missed them, subscribers by pattern need them: only the new subscriber receives
        the replay. They also need those that have waited, if it has left before.

        Args:
            topic: Its name.
            now: Redis time, Unix ms.

        Returns:
            Whether this call delivers the missed messages, and then the waiting ones.
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
            # The next sweep repeats it.
            self._failures.failed(_UNREAD, error)

    def _owed_since(self, topic: str, now: int) -> int | None:
        """Unix ms from which patterns may miss messages of an opening topic; None if none do."""
        awaited, since = self._awaited(topic), self._missed_since(self._layout.shard(topic))
        return None if awaited is None else max(since, now - awaited)

    def _missed_since(self, shard: int) -> int:
        """Redis time since which messages of a shard may be missing, ms."""
        # The clock of another server may differ.
        lost = shard in self._incomplete or self._begun[shard] != self._proven[shard]
        return max(1, self._caught_up[shard] - (CLOCKS_MS if lost else SWEEP_MARGIN_MS))

    async def restored(self, shards: Sequence[int]) -> None:
        """These shards are connected again; messages may have been missed in the meantime."""
        lost = (shard for shard in shards if self._begun[shard] != self._proven[shard])
        self._incomplete.update(lost)
        self._roster.interrupted(shards, min(map(self._missed_since, shards)))
        backoff = Backoff(READ_AGAIN_AFTER, READ_AGAIN_AT_MOST)
        # Later sweeps repeat it.
        while not await self._catch_up(shards) and backoff.pause < READ_AGAIN_AT_MOST:
            await backoff.wait()

    async def rest(self) -> None:
        """Deliver everything that was stored before this call; the caller limits the time."""
        while True:
            complete = await self._catch_up(range(len(self._layout.bases)))
            # Held messages wait for a log that is being read.
            if complete and not self._tracks.waiting:
                return
            await asyncio.sleep(READ_AGAIN_AFTER)

    async def _sweep(self) -> None:
        """Search one shard at a time: messages have to wait for a search of all at once."""
        shards = range(len(self._layout.bases))
        searches = [self._tasks.spawn(self._catch_up_members())]
        for shard in shards:
            searches.append(self._tasks.spawn(self._catch_up_shard(shard)))
            await asyncio.sleep(SWEEP_EVERY / len(shards))
        self._report(await asyncio.gather(*searches))

    async def _catch_up(self, shards: Iterable[int]) -> bool:
        """Search for missed messages; whether the search succeeded."""
        searches = (self._catch_up_members(), *map(self._catch_up_shard, shards))
        return self._report(await run_all(searches))

    def _report(self, found: Iterable[Exception | None]) -> bool:
        """Log the results of searches; whether all succeeded.

        Raises:
            Exception: One failed unexpectedly.
        """
        errors = [error for error in found if error is not None]
        self._failures.failed(_UNREAD, *(each for each in errors if isinstance(each, LINK_ERRORS)))
        for error in errors:
            if not isinstance(error, LINK_ERRORS):
                raise error
        if not errors:
            self._failures.succeeded()
        return not errors

    async def _tell_losses(self) -> None:
        """Report the shards that may have lost data, once for all shards of a server."""
        others = self._unbroken.keys() - self._doubted
        searches = [self._tasks.spawn(self._catch_up_shard(shard)) for shard in others]
        if searches:
            await asyncio.wait(searches, timeout=TELL_LOSSES_WITHIN)
        self._losses.note(
            f"Redis may have lost its last acknowledged writes in {len(self._doubted)} of"
            f" {len(self._layout.bases)} shards"
        )
        self._doubted.clear()
        # Members and counts may also be missing.
        self._lease.lose("Redis may have lost members and counts of this node")

    async def _catch_up_members(self) -> Exception | None:
        """The error that prevented the search for changes of members; None on success."""
        try:
            await self._roster.catch_up()
        except Exception as error:
            return error
        return None

    async def _catch_up_shard(self, shard: int) -> Exception | None:
        """The error that prevented the search; None on success.

        An unexpected one must not end the searches of other shards, whose messages users wait for.
        """
        since, incomplete = self._missed_since(shard), shard in self._incomplete
        self._incomplete.discard(shard)
        begun, known = self._begun[shard], self._unbroken.get(shard)
        try:
            sweep = await self._reader.sweep(shard, since, self._silence)
            before, sent = sweep.unbroken if known is None else known, self._sent[shard]
            if before != sweep.unbroken <= sent < sweep.now + CLOCKS_MS:
                # The clock of the new server is behind. Clients that resume by a time of the former
                # one must get later messages, and the gap before them.
                sweep = await self._reader.sweep(shard, since, self._silence, sent + 1)
            incomplete = incomplete or before != sweep.unbroken
            moved = set(filter(self._matching, sweep.topics))
            if incomplete:
                named = (track.topic for track in self._tracks.named)
                moved.update(topic for topic in named if self._layout.shard(topic) == shard)
            moved.update(self._unproven(shard))
            await self._compare(moved, since, sweep.now)
            self._proven[shard] = begun
            # Messages that arrived in the meantime still wait, and no more are added.
            await self._compare(self._unproven(shard), since, sweep.now)
        except BaseException as error:
            if incomplete:
                self._incomplete.add(shard)
            if isinstance(error, Exception):
                return error
            raise
        if self._unbroken.get(shard) != known:
            return None  # another search has reported the loss, and may have begun later
        if before != sweep.unbroken:
            if not self._doubted:
                self._tasks.spawn(self._tell_losses())
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
                # Its replay serves the new subscriber, but not the patterns.
                await self._deliveries.discover(topic, max(owed, since))
        heads = await self._reader.heads(known, self._silence)
        for topic, last in heads.items():
            track = self._tracks.get(topic)
            if track is not None and track.held is None and last > (track.last or 0):
                self._tracks.wait(track)
                self._deliveries.heal(track)

    def _unproven(self, shard: int) -> list[str]:
        return [each for each in self._deliveries.unproven if self._layout.shard(each) == shard]
