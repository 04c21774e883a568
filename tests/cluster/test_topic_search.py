"""Searches among many topics let other work continue."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.backplanes.redis.topic_search import AT_ONCE
from pubsub_server.testing import running_server
from tests.cluster.fleet import BOUND

if TYPE_CHECKING:
    from tests.cluster.store import Store

NAMES = [f"demo.t{number:04}" for number in range(5_000)]


class Search:
    """Compares names that end with 7, and counts how many in each turn of the loop."""

    def __init__(self) -> None:
        self.compared = Counter[int]()
        self._loop = asyncio.get_running_loop()
        self._turns = itertools.count()
        self._take_turn()

    def _take_turn(self) -> None:
        self._turn = next(self._turns)
        if self.compared.total() < len(NAMES):
            self._loop.call_soon(self._take_turn)

    def __call__(self, topic: str) -> bool:
        self.compared[self._turn] += 1
        return topic.endswith("7")


@pytest.mark.parametrize("index", ["logs", "members"])
async def test_a_search_among_many_topics_lets_other_work_continue(
    index: str, store: Store
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        backplane: Any = node.hub.core.backplane
        roster: Any = node.hub.core.roster
        layout = backplane._layout
        async with store.client() as redis:
            now = int(time.time() * 1000)
            key = layout.index if index == "logs" else layout.attended
            shards = defaultdict[int, dict[str, int]](dict)
            for name in NAMES:
                shards[layout.shard(name)][name] = now
            for shard, names in shards.items():
                await redis.zadd(key(shard), names)
        find = partial(backplane._reader.topics, 0) if index == "logs" else roster.matching
        search = Search()
        found = await find(search, len(NAMES))
        assert sorted(found) == [name for name in NAMES if name.endswith("7")]
        assert max(search.compared.values()) <= AT_ONCE
        assert await find(Search(), 10) == found[:10]
