"""Listening to all shards: over one connection, or in a cluster over one for each shard.

With a connection of its own a shard that moves to another server, or whose server fails, is lost
and restored by itself, and the others go on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.topics import is_wildcard
from pubsub_server.backplanes.redis.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Link


class Feeds:
    """What this node's clients need to hear.

    Args:
        link: To Redis.
        layout: Names of channels.
        take: Given each payload.
        restored: Awaited with the shards whenever a connection stands and all its channels are
            confirmed.
        timeout: Seconds without hearing its own node after which a connection counts as silent.
        begun: Called with the shards before a new connection hears the first of their messages.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        take: Callable[[bytes], None],
        restored: Callable[[Sequence[int]], Coroutine[Any, Any, None]],
        timeout: float,
        begun: Callable[[Sequence[int]], None] = lambda shards: None,
    ) -> None:
        self._layout = layout
        self._watcher: Callable[[bool], None] = lambda hears: None
        self._heard = True
        shards = range(len(layout.bases))
        lanes = [(shard,) for shard in shards] if link.cluster else [tuple(shards)]
        self._lanes = [
            Feed(
                link,
                [layout.bases[shard] for shard in lane],
                take,
                partial(restored, lane),
                timeout,
                self._look,
                partial(begun, lane),
            )
            for lane in lanes
        ]

    def start(self) -> None:
        """Begin, unless it has."""
        for feed in self._lanes:
            feed.start()

    async def close(self) -> None:
        """End."""
        await asyncio.gather(*(feed.close() for feed in self._lanes))

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call this with `hears` whenever it changes."""
        self._watcher = changed

    @property
    def up(self) -> bool:
        """Whether every connection stands."""
        return all(feed.up for feed in self._lanes)

    @property
    def hears(self) -> bool:
        """Whether every connection has heard its node within the timeout."""
        return all(feed.hears for feed in self._lanes)

    @property
    def silences(self) -> int:
        """Times that a connection had not."""
        return sum(feed.silences for feed in self._lanes)

    @property
    def losses(self) -> int:
        """Times that a connection was lost or not made."""
        return sum(feed.losses for feed in self._lanes)

    def join(self, topic: str) -> None:
        """Listen to a topic."""
        self._of(topic).join(self._channel(topic))

    def leave(self, topic: str) -> None:
        """Listen to a topic no more."""
        self._of(topic).leave(self._channel(topic))

    def join_pattern(self) -> None:
        """Listen to everything; called once for each pattern."""
        for feed in self._lanes:
            feed.join_pattern()

    def leave_pattern(self) -> None:
        """One pattern less."""
        for feed in self._lanes:
            feed.leave_pattern()

    def ready(self, patterns: Iterable[str]) -> list[asyncio.Future[None]]:
        """What to await until messages of these topics and patterns come."""
        waiting: list[asyncio.Future[None]] = []
        for pattern in patterns:
            if is_wildcard(pattern):
                for feed in self._lanes:
                    waiting += feed.ready(None)
            else:
                waiting += self._of(pattern).ready(self._channel(pattern))
        return waiting

    def _look(self) -> None:
        hears = self.hears
        if hears != self._heard:
            self._heard = hears
            self._watcher(hears)

    def _of(self, topic: str) -> Feed:
        return self._lanes[self._layout.shard(topic) % len(self._lanes)]

    def _channel(self, topic: str) -> str:
        return self._layout.channel(topic)
