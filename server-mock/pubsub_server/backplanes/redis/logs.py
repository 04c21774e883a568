"""The logs in Redis: positions, pages, reports."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie
from pubsub_server.backplane import Standing
from pubsub_server.backplanes.redis.availability import available
from pubsub_server.backplanes.redis.reader import CLOCKS_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pubsub_server.backplane import Page, TopicReport
    from pubsub_server.backplanes.redis.deliveries import CatchingUp
    from pubsub_server.backplanes.redis.feed import Feeds
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Argument, Link
    from pubsub_server.backplanes.redis.reader import Reader
    from pubsub_server.shared.topic_index import Survey
    from pubsub_server.tasks import Tasks

PATIENCE: Final = 5.0
"""Seconds that a publish or a read waits for Redis before it is rejected."""
CALL_TOPICS: Final = 500
"""Maximum topics of one call."""
MARGIN_MS: Final = 2_000
"""Maximum milliseconds by which a message's time may exceed the clock of Redis, if that was set
back.
"""
ANEW_AFTER: Final = 600.0
"""Seconds after which all names are read again, to remove those that are gone."""
VIEWS_MAX: Final = 256
"""Maximum sets of patterns whose topics are cached; the least recently used are removed first."""
NAMES_MAX: Final = 1_000_000
"""Maximum topics in all of them together."""


class RedisLogs:
    """See `backplane.Logs`.

    Args:
        link: To Redis.
        layout: Names of keys.
        reader: Of the logs.
        feed: Brings the messages of topics that are joined.
        catching_up: Searches for missed messages.
        opened: Called with a topic whose log was read while it opened, the position of its newest
            message and the time of Redis.
        tasks: Runs calls for which no caller waits.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        reader: Reader,
        feed: Feeds,
        catching_up: CatchingUp,
        opened: Callable[[str, int | None, int], None],
        tasks: Tasks,
    ) -> None:
        self._reader = reader
        self._feed = feed
        self._catching_up = catching_up
        self._opened = opened
        self._tasks = tasks
        self._positions = Positions(link, layout)
        self._names = Names(link, layout)

    def expire(self) -> None:
        """See `backplane.Logs`: Redis expires keys itself; this searches for missed messages."""
        if self._feed.up:
            self._catching_up.sweep()

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """See `backplane.Logs`."""
        return None

    async def names(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Sequence[str]:
        """See `backplane.Logs`."""
        async with available(PATIENCE):
            found = await self._names.matching(patterns)
        return [topic for topic in found if allowed(topic)]

    async def positions(
        self, topics: Sequence[str], at: int | None, *, joined: Sequence[str]
    ) -> tuple[int, Sequence[Standing]]:
        """See `backplane.Logs`."""
        async with available(PATIENCE):
            if joined:
                await asyncio.gather(*self._feed.ready(joined))
            now, found = await self._positions.read(topics, at)
        if joined:
            lasts = {each.topic: each.last for each in found}
            for topic in topics:
                self._opened(topic, lasts.get(topic), now)
        return now, found

    async def page(
        self,
        topic: str,
        *,
        since: int | None,
        before: str | int | None,
        after: int | None,
        limit: int,
    ) -> Page:
        """See `backplane.Logs`."""
        async with available(PATIENCE):
            return await self._reader.page(
                topic, since=since, before=before, after=after, limit=limit
            )

    async def reports(self, prefix: str, limit: int) -> list[TopicReport]:
        """See `backplane.Logs`."""
        async with available(PATIENCE):
            return await self._reader.reports(prefix, limit)

    def evict(self, topic: str | None, *, log_too: bool) -> None:
        """See `backplane.Logs`."""
        self._tasks.spawn(self._reader.evict(topic, log_too=log_too))


class Positions:
    """Reads positions.

    Args:
        link: To Redis.
        layout: Names of keys.
    """

    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def read(self, topics: Sequence[str], at: int | None) -> tuple[int, list[Standing]]:
        """See `backplane.Logs.positions`."""
        now: int | None = None
        found: list[Standing] = []
        for some in self._pieces(topics):
            bases: dict[str, int] = {}
            arguments: list[Argument] = [-1 if at is None else at]
            for topic in some:
                base = self._layout.bases[self._layout.shard(topic)]
                arguments += (bases.setdefault(base, len(bases) + 1), topic)
            clock, *answers = await self._link.call("positions.lua", list(bases), arguments)
            now = int(clock) if now is None else min(now, int(clock))
            for topic, answer in zip(some, answers, strict=True):
                if answer:
                    first, last, mark = map(int, answer.split(b" "))
                    found.append(Standing(topic, first, last, None if at is None else mark))
        return (await self._link.time(self._layout.nodes) if now is None else now), found

    def _pieces(self, topics: Sequence[str]) -> Iterator[Sequence[str]]:
        lanes: dict[int, list[str]] = {}
        for topic in topics:
            lanes.setdefault(self._layout.lane(topic), []).append(topic)
        for names in lanes.values():
            for start in range(0, len(names), CALL_TOPICS):
                yield names[start : start + CALL_TOPICS]


@dataclass(slots=True)
class _View:
    began: float
    names: dict[str, None] = field(default_factory=dict[str, None])
    upto: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Names:
    """Finds topics with a log that match patterns.

    It reads all names the first time, then only those with a message since.

    Args:
        link: To Redis.
        layout: Names of keys.
    """

    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout
        self._margin = CLOCKS_MS if link.cluster else MARGIN_MS
        self._loop = asyncio.get_running_loop()
        self._views: OrderedDict[frozenset[str], _View] = OrderedDict()

    async def matching(self, patterns: Sequence[str]) -> list[str]:
        """Topics that match any of the patterns; some of them may be gone."""
        wanted = frozenset(patterns)
        view = self._views.get(wanted)
        if view is None or self._loop.time() - view.began > ANEW_AFTER:
            view = self._views[wanted] = _View(self._loop.time())
        self._views.move_to_end(wanted)
        async with view.lock:
            await self._refresh(view, patterns)
        names = list(view.names)
        self._shrink()
        return names

    async def _refresh(self, view: _View, patterns: Sequence[str]) -> None:
        trie: TopicTrie[None] = TopicTrie()
        for pattern in patterns:
            trie.insert(pattern, None)
        # Read the time before the names, so that no topic is missed in between.
        now = await self._link.time(self._layout.nodes)
        indices = [self._layout.index(shard) for shard in range(len(self._layout.bases))]
        if view.upto:
            batches = await self._link.topics_of(indices, since=view.upto - self._margin)
            for names in batches:
                _keep(view, trie, names)
        else:
            # There may be many: read shard by shard, so that other tasks can run in between.
            for index in indices:
                _keep(view, trie, await self._link.topics(index))
        view.upto = now

    def _shrink(self) -> None:
        held = sum(len(view.names) for view in self._views.values())
        while self._views and (len(self._views) > VIEWS_MAX or held > NAMES_MAX):
            _, view = self._views.popitem(last=False)
            held -= len(view.names)


def _keep(view: _View, trie: TopicTrie[None], names: Sequence[bytes]) -> None:
    for name in names:
        topic = name.decode()
        if topic not in view.names and trie.match(topic):
            view.names[topic] = None
