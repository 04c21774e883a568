"""Reads the members of a topic once for all connections that ask for them at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from pubsub_server.shared.encoder import Encoder
    from pubsub_server.shared.roster import Present


class TopicRead:
    """The members of a topic, shared by all who asked for them before the read began.

    Attributes:
        present: What was read.
        snapshots: Encoded for the first connection that needs them.
    """

    __slots__ = ("present", "snapshots")

    def __init__(self, present: Present) -> None:
        self.present = present
        self.snapshots: dict[tuple[str, Encoder], bytes] = {}


class TopicReads:
    """Runs one read of a topic at a time. Callers that ask during a read share the next one.

    A member who has just joined is not in a read that began before.

    Args:
        read: Reads the members of topics.
        spawn: Runs slow work in a task.
    """

    def __init__(
        self,
        read: Callable[[Sequence[str]], Awaitable[Present]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._read = read
        self._spawn = spawn
        # The topics that are being read, with those who wait for the next read.
        self._waiting: dict[str, list[asyncio.Future[TopicRead]]] = {}

    async def read(self, topic: str) -> TopicRead:
        """Read the members of a topic.

        Raises:
            ServiceError: `unavailable`, if the store is.
        """
        done: asyncio.Future[TopicRead] = asyncio.get_running_loop().create_future()
        if topic in self._waiting:
            self._waiting[topic].append(done)
        else:
            self._waiting[topic] = [done]
            self._spawn(self._run(topic))
        return await done

    async def _run(self, topic: str) -> None:
        waiting = self._waiting
        some: list[asyncio.Future[TopicRead]] = []
        try:
            while some := waiting[topic]:
                waiting[topic] = []
                try:
                    found = TopicRead(await self._read([topic]))
                except Exception as error:
                    # The others have waited as long as a read may take.
                    some += waiting[topic]
                    waiting[topic] = []
                    for each in some:
                        if not each.done():
                            each.set_exception(error)
                else:
                    for each in some:
                        if not each.done():
                            each.set_result(found)
        finally:
            for each in (*some, *waiting.pop(topic)):
                each.cancel()
