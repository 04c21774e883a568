"""Where many logs stand, and which topics patterns match: by few calls, however many there are."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie
from pubsub_server.backplane import Standing
from pubsub_server.backplanes.redis.reader import CLOCKS_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Argument, Link

CALL_TOPICS: Final = 500
"""Topics of one call."""
MARGIN_MS: Final = 2_000
"""Times of messages may run ahead of the clock of Redis by as much, where that was put back."""
ANEW_AFTER: Final = 600.0
"""Seconds after which all names are read again, so that those that are gone are forgotten."""
VIEWS_MAX: Final = 256
"""Sets of patterns whose topics are kept, the least recently asked first to go."""
NAMES_MAX: Final = 1_000_000
"""Maximum topics in all of them together."""


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
        """See `backplane.Backplane.stand`."""
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
        shards: dict[int, list[str]] = {}
        for topic in topics:
            shard = self._layout.shard(topic) if self._link.cluster else 0
            shards.setdefault(shard, []).append(topic)
        for names in shards.values():
            for start in range(0, len(names), CALL_TOPICS):
                yield names[start : start + CALL_TOPICS]


@dataclass(slots=True)
class _View:
    began: float
    names: dict[str, None] = field(default_factory=dict[str, None])
    upto: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Names:
    """Topics with a log that patterns match.

    All names are read the first time; afterwards only those with a message since then.

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
        """Topics that any of the patterns matches; some of them may be gone."""
        wanted = frozenset(patterns)
        view = self._views.get(wanted)
        if view is None or self._loop.time() - view.began > ANEW_AFTER:
            view = self._views[wanted] = _View(self._loop.time())
        self._views.move_to_end(wanted)
        async with view.lock:
            await self._look(view, patterns)
        names = list(view.names)
        self._shrink()
        return names

    async def _look(self, view: _View, patterns: Sequence[str]) -> None:
        trie: TopicTrie[None] = TopicTrie()
        for pattern in patterns:
            trie.insert(pattern, None)
        # Asked before the names are, so that none falls in between.
        now = await self._link.time(self._layout.nodes)
        indices = [self._layout.index(shard) for shard in range(len(self._layout.bases))]
        if view.upto:
            batches = await self._link.topics_of(indices, since=view.upto - self._margin)
            for names in batches:
                _keep(view, trie, names)
        else:
            # As many as there may be: by shard, so that others have their turn in between.
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
