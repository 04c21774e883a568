"""A subscriber that counts how often it received each row."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hanzoai.pubsub import Gap, Message, PubSubClient, ReceiveQueue, RetryOptions
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hanzoai.pubsub import Subscription

SETTLED_BOUND = 120
END = "end"


class Audience:
    """Counts the rows that one subscriber receives.

    Args:
        ps: The client.
        topics: All topics to which rows are published.
    """

    def __init__(self, ps: PubSubClient, topics: Sequence[str]) -> None:
        self._ps = ps
        self._topics = topics
        self._ended: set[str] = set()
        self.received: Counter[int] = Counter()
        self.gaps: list[Gap] = []

    async def listen(self, sub: Subscription) -> None:
        """Count until the task is cancelled."""
        async for event in sub.events():
            if isinstance(event, Gap):
                self.gaps.append(event)
            elif isinstance(event, Message):
                if event.type == END:
                    self._ended.add(event.topic)
                else:
                    self.received[event.data["n"]] += 1

    async def receive_all(self) -> None:
        """Wait until it has received all messages that are published so far."""
        for topic in self._topics:
            await self._ps.publish(topic, {"type": END, "data": None})
        async with asyncio.timeout(SETTLED_BOUND):
            await until(lambda: self._ended == set(self._topics))

    def lost(self, rows: int) -> int:
        """Number of rows that never arrived."""
        return len(set(range(rows)).difference(self.received))

    def twice(self) -> int:
        """Number of repeated deliveries."""
        return self.received.total() - len(self.received)


@asynccontextmanager
async def audience(
    url: str, http: str, token: str, topics: Sequence[str]
) -> AsyncGenerator[Audience]:
    """Run a subscriber of these topics."""
    retry = RetryOptions(base=0.1, cap=1.0)
    async with PubSubClient(url, token, rest_url=http, retry=retry) as ps:
        queue = ReceiveQueue(messages=1_000_000, bytes=1 << 30)
        made = Audience(ps, topics)
        async with await ps.subscribe(list(topics), queue=queue) as sub:
            task = asyncio.create_task(made.listen(sub))
            try:
                yield made
            finally:
                task.cancel()
