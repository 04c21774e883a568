"""`RedisBackplane`: the logs in Redis, the nodes joined by its channels."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from hanzoai.pubsub.wire.ids import message_id
from pubsub_server.backplanes.redis.feeds import Feeds
from pubsub_server.backplanes.redis.life import Life
from pubsub_server.backplanes.redis.limits import SharedConnectionLimiter, SharedRateLimiter
from pubsub_server.backplanes.redis.positions import Names, Positions
from pubsub_server.backplanes.redis.reader import CLOCKS_MS, Chosen, Reader, Wanted, choose, gather
from pubsub_server.backplanes.redis.records import split, unpack
from pubsub_server.backplanes.redis.roster import RedisRoster
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.backplanes.redis.told import MARK
from pubsub_server.backplanes.redis.tracks import Tracks
from pubsub_server.backplanes.redis.writer import REFUSED_FOR, Item, Memory, Writer
from pubsub_server.backplanes.replay_bounds import REPLAY_TOPICS
from pubsub_server.errors import ServiceError
from pubsub_server.instruments import Reading, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Any

    from pubsub_server.backplane import Entry, Replay, Standing
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Link
    from pubsub_server.backplanes.redis.records import Log
    from pubsub_server.backplanes.redis.tracks import Journal, Track
    from pubsub_server.backplanes.retention import Retention
    from pubsub_server.hub.requests import Draft
    from pubsub_server.hub.topic_index import Survey
    from pubsub_server.instruments import Instrument
    from pubsub_server.interfaces import Page, Published, TopicReport

logger = logging.getLogger(__name__)

PATIENCE: Final = 5.0
"""Seconds that a publish or a replay waits for Redis before it is refused."""
AGAIN_AFTER: Final = 0.02
AGAIN_AT_MOST: Final = 1.0
REMEMBERED_TOPICS: Final = 100_000
SILENCE_MS: Final = 7 * 86_400_000
SWEEP_EVERY: Final = 5.0
SWEEP_MARGIN_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Community:
    """What the nodes share beside the logs.

    Attributes:
        heartbeat: Seconds between two beats of a node.
        timeout: Seconds without a beat after which a node is given up.
        grace: Seconds that the members of a node that was stopped have to go to another.
        max_members: Of one topic.
        per_user: Open connections of one user.
        per_org: Of one organization.
        org_limits: Of certain organizations, in place of ``per_org``.
        rate_user: Publishes a second of a user over REST.
        rate_service: Of a service.
        rate_burst: Milliseconds of the rate that may come at once.
        rate_bulk: Publishes a second of who publishes in bulk, by batches over REST.
    """

    heartbeat: float
    timeout: float
    grace: float
    max_members: int
    per_user: int
    per_org: int
    org_limits: Mapping[str, int]
    rate_user: float
    rate_service: float
    rate_burst: int
    rate_bulk: float


class RedisBackplane:
    """See `backplane.Backplane`.

    Args:
        link: To Redis.
        layout: Names of keys and channels.
        retention: What each log keeps.
        ids: Remembered of each shard, and as many again.
        remember: Seconds ids are remembered, as far as there is room.
        community: What the nodes share beside the logs.
        secret: Seals client ids; the same on all nodes.

    Attributes:
        healed: Holes that were filled from a log.
        roster: Presence of all nodes.
        connections: Counts connections on all nodes.
        rates: Publish rates.
    """

    lasting = True

    def __init__(
        self,
        link: Link,
        layout: Layout,
        *,
        retention: Retention,
        ids: int,
        remember: int,
        community: Community,
        secret: str,
    ) -> None:
        self._link = link
        self._layout = layout
        self._silence = max(SILENCE_MS, 2 * retention.longest)
        memory = Memory(
            ids=ids, remember=max(remember * 1000, retention.longest), silence=self._silence
        )
        self._writer = Writer(link, layout, retention, memory, PATIENCE)
        self._feed = Feeds(link, layout, self._take, self._restored)
        self._tracks = Tracks(REMEMBERED_TOPICS)
        self._reader = Reader(link, layout)
        self._positions = Positions(link, layout)
        self._names = Names(link, layout)
        self._patterns = 0
        self._trie: TopicTrie[None] = TopicTrie()
        self._deliver: Callable[[Entry], None] = lambda entry: None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # By shard, its own Redis time up to which everything published is known to have come; and
        # since when it has lost nothing.
        self._caught_up: dict[int, int] = {}
        self._unbroken: dict[int, int] = {}
        # Shards that may have lost something, not yet said.
        self._doubted: set[int] = set()
        # Shards of which messages may not have come.
        self._anew: set[int] = set()
        self._next_sweep = 0.0
        self.healed = 0
        self._grace = community.grace
        self._life = Life(link, layout, community.heartbeat, community.timeout)
        self.roster = RedisRoster(
            link,
            layout,
            self._feed,
            self._life,
            max_members=community.max_members,
            secret=secret,
            patience=PATIENCE,
        )
        self.connections = SharedConnectionLimiter(
            link, layout, self._life, community.per_user, community.per_org, community.org_limits
        )
        self.rates = SharedRateLimiter(
            link,
            layout,
            self._life,
            community.rate_user,
            community.rate_service,
            community.rate_burst,
            community.rate_bulk,
        )

    # ------------------------------------------------------------ life

    def start(self, deliver: Callable[[Entry], None]) -> None:
        """See `backplane.Backplane`."""
        self._deliver = deliver
        self._feed.start()
        self._life.start(self.roster, self.connections)

    async def close(self) -> None:
        """See `backplane.Backplane`."""
        await self._writer.close()
        await self.roster.close()
        await self.connections.close()
        await self._life.close(self._grace)
        await self._feed.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    @property
    def up(self) -> bool:
        """Whether this node hears what is published."""
        return self._feed.up

    def expire(self) -> None:
        """See `backplane.Backplane`: Redis lets go by itself; what was missed is looked for."""
        if self._feed.up and self._loop.time() >= self._next_sweep:
            self._next_sweep = self._loop.time() + SWEEP_EVERY
            self._spawn(self._sweep())

    # ------------------------------------------------------------ what this node's clients want

    def join(self, pattern: str) -> None:
        """See `backplane.Backplane`."""
        if is_wildcard(pattern):
            self._patterns += 1
            self._trie.insert(pattern, None)
            self._feed.join_pattern()
        else:
            self._tracks.join(pattern)
            self._feed.join(pattern)

    def leave(self, pattern: str) -> None:
        """See `backplane.Backplane`."""
        if is_wildcard(pattern):
            self._patterns -= 1
            self._trie.remove(pattern, None)
            self._feed.leave_pattern()
            if not self._patterns:
                self._tracks.forget_others()
        else:
            self._tracks.leave(pattern, keep=self._patterns > 0)
            self._feed.leave(pattern)

    # ------------------------------------------------------------ publish and deliver

    def publish(
        self, drafts: Sequence[Draft], sender: tuple[str, str]
    ) -> asyncio.Future[list[Published | ServiceError]]:
        """See `backplane.Backplane`."""
        items: list[Item] = []
        for draft in drafts:
            id = draft.id or message_id()
            track = self._tracks.get(draft.topic)
            floor = (track and track.last) or 0
            ttl = -1 if draft.ttl is None else draft.ttl * 1000
            items.append(Item(draft.topic, id, ttl, split(draft, id, sender), floor))
        return self._writer.publish(items)

    def _take(self, payload: bytes) -> None:
        try:
            if payload.startswith(MARK):
                self.roster.take(payload)
                return
            for entry in unpack(payload):
                deliver, hole = self._tracks.take(entry)
                if deliver:
                    self._deliver(entry)
                elif hole is not None:
                    self._spawn(self._heal(hole))
        except ValueError:
            logger.exception("what came from Redis cannot be read")

    async def _heal(self, track: Track) -> None:
        """Deliver what the log has and this node has not, and then what waited for that."""
        pause = AGAIN_AFTER
        while track.held is not None and track.last is not None:
            try:
                log = await self._reader.one(track.topic, "after", track.last)
            except LINK_ERRORS:
                # The sooner the better: the log keeps so many messages and no more.
                await asyncio.sleep(pause)
                pause = min(AGAIN_AT_MOST, pause * 2)
                continue
            self.healed += 1
            found = () if log is None else log.entries
            self._pass_on(track, None if log is None else log.last, found)

    def _pass_on(self, track: Track, last: int | None, found: Sequence[Entry] = ()) -> bool:
        ready, again = self._tracks.settle(track, last, found)
        for entry in ready:
            self._deliver(entry)
        return again

    async def _restored(self, shards: Sequence[int]) -> None:
        self._anew.update(shards)
        self.roster.interrupted(shards)
        pause = AGAIN_AFTER
        # Later the sweeps try again.
        while not await self._catch_up(shards) and pause < AGAIN_AT_MOST:
            await asyncio.sleep(pause)
            pause *= 2

    async def _catch_up(self, shards: Iterable[int]) -> bool:
        """Look for what was published or changed and has not come; whether that was possible."""
        members, found = await asyncio.gather(
            self.roster.catch_up(), asyncio.gather(*map(self._catch_up_shard, shards))
        )
        errors = {error for error in found if error is not None}
        if errors:
            logger.warning("looking for what was missed failed: %s", ", ".join(sorted(errors)))
        if self._doubted:
            logger.warning(
                "Redis may have lost what it had acknowledged last, in %d of %d shards",
                *(len(self._doubted), len(self._layout.bases)),
            )
            self._doubted.clear()
            # Members and counts may lack there, too.
            self._life.lose()
        return members and not errors

    async def _sweep(self) -> None:
        await self._catch_up(range(len(self._layout.bases)))

    async def _catch_up_shard(self, shard: int) -> str | None:
        """The kind of error that kept it from looking; None where it has looked."""
        caught_up, anew = self._caught_up.get(shard, 0), shard in self._anew
        # Another server may have another clock.
        since = max(1, caught_up - (CLOCKS_MS if anew else SWEEP_MARGIN_MS)) if caught_up else 0
        self._anew.discard(shard)
        try:
            sweep = await self._reader.sweep(shard, since)
            before = self._unbroken.get(shard, sweep.unbroken)
            anew = anew or before != sweep.unbroken
            moved = set(filter(self._matching, sweep.topics))
            if anew:
                named = (track.topic for track in self._tracks.named)
                moved.update(topic for topic in named if self._layout.shard(topic) == shard)
            await self._compare(moved, since)
        except LINK_ERRORS as error:
            if anew:
                self._anew.add(shard)
            return type(error).__name__
        if before != sweep.unbroken:
            self._doubted.add(shard)
        self._caught_up[shard], self._unbroken[shard] = sweep.now, sweep.unbroken
        return None

    async def _compare(self, moved: Iterable[str], since: int) -> None:
        known: dict[str, int] = {}
        for topic in moved:
            track = self._tracks.get(topic)
            if track is None:
                await self._discover(topic, since)
            elif track.last is not None:
                known[topic] = track.last
        stands = await self._reader.stands(known, self._silence)
        for topic, last in stands.items():
            track = self._tracks.get(topic)
            if track is not None and track.held is None and last > (track.last or 0):
                track.held = []
                self._spawn(self._heal(track))

    async def _discover(self, topic: str, since: int) -> None:
        """A topic that a pattern matches has begun, and this node has heard nothing of it."""
        log = await self._reader.one(topic, "since", since)
        for entry in () if log is None else log.entries:
            deliver, hole = self._tracks.take(entry)
            if deliver:
                self._deliver(entry)
            elif hole is not None:
                self._spawn(self._heal(hole))

    def _matching(self, topic: str) -> bool:
        return topic in self._tracks or bool(self._trie.match(topic))

    # ------------------------------------------------------------ read

    def replay(
        self,
        topics: Sequence[str],
        patterns: Sequence[str],
        *,
        since: int | None,
        after: Mapping[str, int],
        newest: int | None,
        allowed: Callable[[str], bool],
    ) -> Coroutine[Any, Any, Replay]:
        """See `backplane.Backplane`."""
        wanted = Wanted(since, after, newest)
        # From this moment on the subscriber is told what is delivered.
        journal = self._tracks.begin()
        return self._replay(journal, topics, patterns, wanted, allowed)

    async def _replay(
        self,
        journal: Journal,
        topics: Sequence[str],
        patterns: Sequence[str],
        wanted: Wanted,
        allowed: Callable[[str], bool],
    ) -> Replay:
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*self._feed.ready((*topics, *patterns)))
                names = list(topics)
                if patterns:
                    names += await self._search(patterns, set(topics), allowed)
                now, logs = await self._reader.replay(names, wanted)
        except (TimeoutError, *LINK_ERRORS):
            said = "the store cannot be reached, so nothing can be replayed"
            raise ServiceError("unavailable", said, retry_after_ms=REFUSED_FOR) from None
        else:
            return self._join(journal, logs, wanted, now)
        finally:
            self._tracks.end(journal)

    def _join(
        self, journal: Journal, logs: Mapping[str, Log | None], wanted: Wanted, now: int
    ) -> Replay:
        """The logs up to where the live messages go on."""
        found: list[Chosen] = []
        for topic, log in logs.items():
            stood = self._tracks.stood(journal, topic)
            track = self._tracks.get(topic)
            if track is not None and track.last is None:
                last = None if log is None else log.last or None
                if self._pass_on(track, last):
                    self._spawn(self._heal(track))
            if log is not None:
                found.append(choose(topic, log, wanted, now, stood))
        return gather(found)

    async def _search(
        self, patterns: Sequence[str], known: set[str], allowed: Callable[[str], bool]
    ) -> list[str]:
        trie: TopicTrie[None] = TopicTrie()
        for pattern in patterns:
            trie.insert(pattern, None)
        names = await self._reader.topics(
            0, lambda topic: topic not in known and bool(trie.match(topic)) and allowed(topic)
        )
        return names[:REPLAY_TOPICS]

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """See `backplane.Backplane`."""
        return None

    async def names(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Sequence[str]:
        """See `backplane.Backplane`."""
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._names.matching(patterns)
        except (TimeoutError, *LINK_ERRORS):
            raise _away() from None
        return [topic for topic in found if allowed(topic)]

    async def stand(
        self, topics: Sequence[str], at: int | None, *, hear: Sequence[str]
    ) -> tuple[int, Sequence[Standing]]:
        """See `backplane.Backplane`."""
        try:
            async with asyncio.timeout(PATIENCE):
                if hear:
                    await asyncio.gather(*self._feed.ready(hear))
                now, found = await self._positions.read(topics, at)
        except (TimeoutError, *LINK_ERRORS):
            raise _away() from None
        if hear:
            lasts = {each.topic: each.last for each in found}
            for topic in topics:
                track = self._tracks.get(topic)
                opening = track is not None and track.last is None
                if track is not None and opening and self._pass_on(track, lasts.get(topic)):
                    self._spawn(self._heal(track))
        return now, found

    async def page(
        self,
        topic: str,
        *,
        since: int | None,
        before: str | None,
        after: int | None,
        limit: int,
    ) -> Page:
        """See `backplane.Backplane`."""
        try:
            return await self._reader.page(
                topic, since=since, before=before, after=after, limit=limit
            )
        except LINK_ERRORS:
            raise _away() from None

    async def reports(self, prefix: str, limit: int) -> list[TopicReport]:
        """See `backplane.Backplane`."""
        try:
            return await self._reader.reports(prefix, limit)
        except LINK_ERRORS:
            raise _away() from None

    def evict(self, topic: str | None, *, log_too: bool) -> None:
        """See `backplane.Backplane`."""
        self._spawn(self._reader.evict(topic, log_too=log_too))

    def instruments(self) -> Sequence[Instrument]:
        """See `backplane.Backplane`."""
        link, feed, writer = self._link, self._feed, self._writer
        return (
            Timing(
                "redis_seconds", "Round trips of calls to Redis.", link.round_trips, label="call"
            ),
            Reading(
                "redis_failures",
                "Calls that Redis did not answer.",
                lambda: link.failures,
                "counter",
            ),
            Reading(
                "feed_up", "Whether this node hears what is published: 1 or 0.", lambda: feed.up
            ),
            Reading(
                "feed_losses",
                "Times that the connection that listens to Redis was lost or not made.",
                lambda: feed.losses,
                "counter",
            ),
            Reading(
                "healed",
                "Holes in what Redis sent that were filled from a log.",
                lambda: self.healed,
                "counter",
            ),
            Reading(
                "publish_queue_messages",
                "Publishes that wait for a call to Redis.",
                lambda: writer.waiting[0],
            ),
            Reading("publish_queue_bytes", "Bytes of those.", lambda: writer.waiting[1]),
            Reading(
                "followed_topics", "Topics whose position is known here.", lambda: len(self._tracks)
            ),
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the backplane failed", exc_info=error)


def _away() -> ServiceError:
    said = "the store cannot be reached"
    return ServiceError("unavailable", said, retry_after_ms=REFUSED_FOR)
