"""`RedisBackplane`: the logs are in Redis, and its channels connect the nodes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from math import floor, inf
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from pubsub_server.backplanes.redis.availability import available
from pubsub_server.backplanes.redis.deliveries import CatchingUp, Deliveries
from pubsub_server.backplanes.redis.feed import Feeds
from pubsub_server.backplanes.redis.layout import Item, Packer
from pubsub_server.backplanes.redis.lease import Lease
from pubsub_server.backplanes.redis.limits import SharedConnectionLimiter, SharedRateLimiter
from pubsub_server.backplanes.redis.logs import PATIENCE, RedisLogs
from pubsub_server.backplanes.redis.reader import (
    Chosen,
    Reader,
    Wanted,
    choose,
    choose_without_log,
    end_of_lost,
    first_of_next,
    gather,
)
from pubsub_server.backplanes.redis.roster import RedisRoster
from pubsub_server.backplanes.redis.tracks import Tracks
from pubsub_server.backplanes.redis.writer import Memory, Writer
from pubsub_server.backplanes.replay_bounds import REPLAY_TOPICS
from pubsub_server.backplanes.retention import retention
from pubsub_server.instruments import Reading, Timing
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from pubsub_server.backplane import Entry, Origin, Published, Replay
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Link
    from pubsub_server.backplanes.redis.reader import Snapshot
    from pubsub_server.backplanes.redis.redis_clock import RedisClock
    from pubsub_server.backplanes.redis.tracks import Journal
    from pubsub_server.errors import ServiceError
    from pubsub_server.instruments import Instrument
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.requests import Draft

logger = logging.getLogger(__name__)

REMEMBERED_TOPICS: Final = 100_000
SILENCE_MS: Final = 7 * 86_400_000


class _Request:
    """The arguments of `Backplane.replay`."""

    def __init__(
        self,
        topics: Sequence[str],
        patterns: Sequence[str],
        wanted: Wanted,
        allowed: Callable[[str], bool],
    ) -> None:
        self.topics = topics
        self.patterns = patterns
        self.wanted = wanted
        self._allowed = allowed
        self._trie: TopicTrie[None] = TopicTrie()
        for pattern in patterns:
            self._trie.insert(pattern, None)

    def finds(self, topic: str) -> bool:
        """Whether a pattern matches this topic, and the subscriber may read it."""
        return bool(self._trie.match(topic)) and self._allowed(topic)


class RedisBackplane:
    """See `backplane.Backplane`.

    Args:
        link: To Redis.
        layout: Names of keys and channels.
        settings: Those of the server.
        secret: Seals client ids; the same on all nodes.
        opened: Redis time before the first client of this node, ms.
        clock: The time of Redis.

    Attributes:
        logs: The logs in Redis.
        roster: Presence of all nodes.
        connections: Counts connections on all nodes.
        rates: Publish rates.
    """

    lasting = True

    def __init__(
        self,
        link: Link,
        layout: Layout,
        settings: Settings,
        secret: str,
        opened: int,
        clock: RedisClock,
    ) -> None:
        self._link = link
        self._layout = layout
        kept = retention(settings)
        silence = max(SILENCE_MS, 2 * kept.longest)
        memory = Memory(
            ids=settings.ids_max,
            remember=max(settings.ids_max_age * 1000, kept.longest),
            silence=silence,
        )
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._loop, logger, "backplane")
        self._packer = Packer(layout, kept)
        self._writer = Writer(link, layout, memory, PATIENCE)
        self._tracks = Tracks(REMEMBERED_TOPICS)
        self._reader = Reader(link, layout)
        self._deliveries = Deliveries(
            self._tracks,
            self._reader,
            self._tasks,
            self._take_members,
            self._sure,
        )
        self._feed = Feeds(
            link,
            layout,
            self._deliveries.receive,
            self._restored,
            settings.feed_timeout / 1000,
            self._interrupted,
        )
        # Patterns of this node, with the time of the loop at which each was first subscribed to.
        self._patterns: dict[str, float] = {}
        self._trie: TopicTrie[str] = TopicTrie()
        self._settled = 0
        self._grace = settings.presence_grace / 1000
        heartbeat, timeout = settings.node_heartbeat / 1000, settings.node_timeout / 1000
        self._lease = Lease(link, layout, secret, heartbeat, timeout, clock)
        self.roster = RedisRoster(
            link,
            layout,
            self._feed,
            self._lease,
            max_members=settings.presence_max_members,
            secret=secret,
            patience=PATIENCE,
        )
        self._catching_up = CatchingUp(
            layout,
            self._reader,
            self._tracks,
            self._deliveries,
            self._matching,
            self._awaited,
            roster=self.roster,
            lease=self._lease,
            opened=opened,
            silence=silence,
            tasks=self._tasks,
        )
        self.logs = RedisLogs(
            link, layout, self._reader, self._feed, self._catching_up, self._opened, self._tasks
        )
        self.connections = SharedConnectionLimiter(
            link,
            layout,
            self._lease,
            settings.connections_per_user,
            settings.connections_per_org,
            settings.org_limits,
        )
        self.rates = SharedRateLimiter(
            link,
            layout,
            self._lease,
            settings.publish_rate_user,
            settings.publish_rate_service,
            settings.publish_burst,
            settings.publish_rate_bulk,
        )

    # ------------------------------------------------------------ life

    @property
    def node(self) -> str | None:
        """See `backplane.Backplane`; all nodes share the logs."""
        return None

    def now(self) -> int:
        """Unix ms of Redis: nodes share it, and the clocks of their machines may differ."""
        return self._lease.clock.now()

    def start(
        self, deliver: Callable[[Entry], None], on_gap: Callable[[str], None] | None = None
    ) -> None:
        """See `backplane.Backplane`."""
        self._deliveries.start(deliver, on_gap)
        self._feed.start()
        self._lease.start(self.roster, self.connections, left=self.roster.left)

    async def close(self) -> None:
        """See `backplane.Backplane`."""
        # Each step is executed even if an earlier one fails or is cancelled; the last one added is
        # the first one executed.
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._link.close)
            stack.push_async_callback(self._tasks.stop)
            stack.push_async_callback(self._feed.close)
            stack.push_async_callback(self._lease.close, self._grace)
            stack.push_async_callback(self.connections.close)
            stack.push_async_callback(self.roster.close)
            stack.push_async_callback(self._writer.close)

    async def finish_writing(self) -> None:
        """See `backplane.Backplane`."""
        await self._writer.close()

    async def deliver_rest(self) -> None:
        """See `backplane.Backplane`."""
        await self._catching_up.rest()

    @property
    def receiving(self) -> bool:
        """See `backplane.Backplane`."""
        return self._feed.receiving

    def receives(self, pattern: str) -> bool:
        """See `backplane.Backplane`."""
        return self._feed.receives(pattern)

    def settled(self) -> int:
        """See `backplane.Backplane`."""
        self._note_settled()
        return self._settled

    def _note_settled(self) -> None:
        # While messages may be missing, the time stays as it was before.
        if self._catching_up.complete:
            self._settled = self._feed.settled() or self._settled

    def watch(self, changed: Callable[[], None]) -> None:
        """See `backplane.Backplane`."""
        self._feed.watch(changed)

    # ------------------------------------------------------------ what this node's clients want

    def join(self, pattern: str) -> None:
        """See `backplane.Backplane`."""
        # Messages wait while a topic opens, and the time must not be from long before.
        self._note_settled()
        if is_wildcard(pattern):
            self._patterns[pattern] = self._loop.time()
            self._trie.insert(pattern, pattern)
            self._feed.join_pattern()
        else:
            self._tracks.join(pattern)
            self._feed.join(pattern)

    def leave(self, pattern: str) -> None:
        """See `backplane.Backplane`."""
        if is_wildcard(pattern):
            del self._patterns[pattern]
            self._trie.remove(pattern, pattern)
            self._feed.leave_pattern()
            if not self._patterns:
                self._tracks.forget_others()
        else:
            if self._tracks.leave(pattern, keep=bool(self._trie.match(pattern))):
                # Its replay has failed, or its client has left before the answer.
                self._catching_up.opened(pattern, self.now())
            self._feed.leave(pattern)

    # ------------------------------------------------------------ publish and deliver

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        """See `backplane.Backplane`."""
        items: list[Item] = []
        for draft in drafts:
            track = self._tracks.get(draft.topic)
            item = self._packer.pack(draft, sender, (track and track.last) or 0)
            if item.fresh:
                # Without an id of its publisher, a message cannot be repeated.
                origin = None
            items.append(item)
        self._writer.publish(items, done, origin)

    def _take_members(self, payload: bytes) -> None:
        self.roster.receive(payload)

    async def _restored(self, shards: Sequence[int]) -> None:
        await self._catching_up.restored(shards)

    def _interrupted(self, shards: Sequence[int], sent: int) -> None:
        self._catching_up.interrupted(shards, sent)

    def _sure(self, topic: str) -> bool:
        return self._catching_up.sure(topic)

    def _matching(self, topic: str) -> bool:
        return topic in self._tracks or bool(self._trie.match(topic))

    def _awaited(self, topic: str) -> int | None:
        begun = [self._patterns[each] for each in self._trie.match(topic)]
        return round(1000 * (self._loop.time() - min(begun))) if begun else None

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
        request = _Request(topics, patterns, Wanted(since, after, newest), allowed)
        return self._replay(request, self._tracks.begin(), self._loop.time())

    async def _replay(self, request: _Request, journal: Journal, asked: float) -> Replay:
        try:
            while True:
                now, replay = await self._replay_once(request, journal, asked)
                begun = replay.begun or 0
                if request.wanted.since is None or not begun < replay.unbroken <= now:
                    return replay
                # This replay was the first use of a shard that has lost its data, so the reported
                # loss is later than `begun`. A stream that resumes at this time would get the loss
                # again. The journal remains: messages have waited for the subscriber since then.
                asked = self._loop.time()
        finally:
            self._tracks.end(journal)

    async def _replay_once(
        self, request: _Request, journal: Journal, asked: float
    ) -> tuple[int, Replay]:
        """Redis time, ms, and the replay."""
        wanted, names = request.wanted, list(request.topics)
        async with available(
            PATIENCE, "the store cannot be reached, so no messages can be replayed"
        ):
            await asyncio.gather(*self._feed.ready((*names, *request.patterns)))
            if request.patterns:
                names += await self._search(request)
                names += self._lost(request, journal, set(names))
            found = await self._reader.replay(names, wanted)
            begun = await self._begun(asked, found)
            if foreign := self._foreign(request, found, begun):
                found |= await self._reader.replay(foreign, wanted)
            read = {topic: 0 if log is None else log.last for topic, log in found.logs.items()}
            # One repetition is enough: a log that still ends before it has lost messages.
            while unread := self._tracks.unread(journal, read):
                found |= await self._reader.replay(list(unread), wanted)
                for topic in unread:
                    del read[topic]
        return found.now, replace(self._join(journal, found, wanted), begun=begun)

    async def _begun(self, asked: float, read: Snapshot) -> int:
        """Unix ms just before this time of the loop, by the slowest of the clocks of Redis."""
        ahead = read.ahead
        if ahead == inf:
            ahead = await self._link.time(self._layout.nodes) - 1000 * self._loop.time()
        return floor(1000 * asked + ahead) - 1

    def _join(self, journal: Journal, read: Snapshot, wanted: Wanted) -> Replay:
        """The logs as read; the hub adds the messages that are delivered."""
        found: list[Chosen] = []
        ahead: dict[str, int] = {}
        for topic, log in read.logs.items():
            self._opened(topic, None if log is None else log.last, read.now)
            # If a position was requested, messages in transit replace those that the log has lost.
            live_after = self._tracks.live_after(journal, topic) if topic in wanted.after else None
            chosen = (
                choose_without_log(topic, wanted, first_of_next(read.now), live_after)
                if log is None
                else choose(topic, log, wanted, read.now, live_after)
            )
            if chosen is not None:
                found.append(chosen)
            elif topic in wanted.after and (live_after is None or live_after < wanted.after[topic]):
                # The log is lost. Its messages may still be on their way to this node, wait for a
                # search in the log, or have arrived during the replay.
                ahead[topic] = wanted.after[topic]
        replay = gather(found, max(read.unbroken.values(), default=0))
        positions = replay.positions.items()
        late = {topic: end for topic, end in positions if self._tracks.delivers(topic, end)}
        ends = {
            topic: end_of_lost(read.unbroken[topic])
            for topic in wanted.after
            if topic in read.logs and read.logs[topic] is None
        }
        return replace(replay, floors=ahead | late, ends=ends)

    def _opened(self, topic: str, last: int | None, now: int) -> None:
        """The log of a topic has been read; if the topic was opening, it is now open."""
        track = self._tracks.get(topic)
        if track is None:
            return
        if track.last is None and not (last and self._catching_up.opened(topic, now)):
            self._deliveries.release(track, last or None)
        else:
            track.replay(last or 0)

    async def _search(self, request: _Request) -> list[str]:
        known = set(request.topics)
        return await self._reader.topics(
            0, lambda topic: topic not in known and request.finds(topic), REPLAY_TOPICS
        )

    def _lost(self, request: _Request, journal: Journal, known: set[str]) -> list[str]:
        """Topics of which this node has delivered more or less than the subscriber knows.

        A search does not find them if the store has lost their logs.
        """
        tracks = self._tracks
        return [
            topic
            for topic, mark in request.wanted.after.items()
            if topic not in known
            and (tracks.unproven(topic) or tracks.live_after(journal, topic) not in (None, mark))
            and request.finds(topic)
        ]

    def _foreign(self, request: _Request, found: Snapshot, begun: int) -> list[str]:
        """Topics above this time of Redis: if they have no log, a search does not find them."""
        first = first_of_next(begun)
        return [
            topic
            for topic, mark in request.wanted.after.items()
            if mark >= first and topic not in found.logs and request.finds(topic)
        ]

    def instruments(self) -> Sequence[Instrument]:
        """See `backplane.Backplane`."""
        link, feed, writer, deliveries = self._link, self._feed, self._writer, self._deliveries
        return (
            Timing("redis_seconds", "Duration of calls to Redis.", link.round_trips, label="call"),
            Reading(
                "redis_failures",
                "Failed calls to Redis.",
                lambda: link.failures,
                "counter",
            ),
            Reading(
                "feed_up",
                "1 if this node receives the messages of all shards of Redis, otherwise 0.",
                lambda: feed.up and not feed.silent_shards,
            ),
            Reading(
                "feed_silent_shards",
                "Shards of Redis from which this node has received none of its test messages for"
                " `feed_timeout`.",
                lambda: feed.silent_shards,
            ),
            Reading(
                "feed_silences",
                "Number of times that this node received none of its test messages for"
                " `feed_timeout`.",
                lambda: feed.silences,
                "counter",
            ),
            Reading(
                "feed_losses",
                "Number of times that the subscription to Redis failed or was lost.",
                lambda: feed.losses,
                "counter",
            ),
            Reading(
                "healed",
                "Gaps in the messages from Redis that were filled from the log.",
                lambda: deliveries.healed,
                "counter",
            ),
            Reading(
                "publish_queue_messages",
                "Publishes that wait for a call to Redis.",
                lambda: writer.waiting[0],
            ),
            Reading(
                "publish_queue_bytes",
                "Bytes of the publishes that wait for a call to Redis.",
                lambda: writer.waiting[1],
            ),
            Reading(
                "followed_topics",
                "Topics whose position this node tracks.",
                lambda: len(self._tracks),
            ),
        )
