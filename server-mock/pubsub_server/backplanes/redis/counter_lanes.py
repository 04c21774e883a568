"""Counters that are written to Redis: the claims of new connections, and the counts of this node.

In a cluster each shard has its own lane, so an unavailable server delays only its own counters.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub_server.backoff import Backoff
from pubsub_server.backplanes.redis.servers import LINK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pubsub_server.tasks import Tasks

logger = logging.getLogger(__name__)

CALL_COUNTERS: Final = 500


class Row(NamedTuple):
    """One counter of a call of `counts.lua`.

    Attributes:
        name: Name of the counter.
        connections: Those of this node.
        most: Maximum on all nodes; -1 for none.
    """

    name: str
    connections: int
    most: int


class Claim:
    """A connection that waits for the counters of all nodes.

    Args:
        names: Its counters.

    Attributes:
        done: The counter that is full, or None.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting = set(names)

    def settle(self, name: str, *, full: bool) -> None:
        """The answer for one counter."""
        self._waiting.discard(name)
        if (full or not self._waiting) and not self.done.done():
            self.done.set_result(name if full else None)


class CounterLane:
    """The counters of all shards, or of one shard of a cluster.

    Args:
        call: Writes counters, and returns their sums; -1 for a full one.
        count: Connections of this node, by name of the counter.
        tasks: Runs the writes.

    Attributes:
        failing: Whether the last call had no answer.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Row]], Awaitable[Sequence[int]]],
        count: Callable[[str], int],
        tasks: Tasks,
    ) -> None:
        self._call = call
        self._count = count
        self._tasks = tasks
        self._claims: deque[tuple[Claim, Row]] = deque()
        # Counters that differ between Redis and this node.
        self._changed: dict[str, None] = {}
        self._renewed: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.failing = False

    def claim(self, claim: Claim, row: Row) -> None:
        """Ask for one more connection of a counter."""
        self._claims.append((claim, row))
        self._run()

    def change(self, name: str) -> None:
        """Write a counter."""
        self._changed[name] = None
        self._run()

    def renewed(self) -> asyncio.Future[None]:
        """An awaitable until all changed counters are written."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._renewed.append(done)
        self._run()
        return done

    async def close(self) -> None:
        """Stop writing."""
        self._closed = True
        if self._task is not None:
            await self._task

    # ------------------------------------------------------------ inside

    def _run(self) -> None:
        if self._task is None and not self._closed:
            # The task starts after this loop turn, and so writes all its changes together.
            self._task = self._tasks.spawn(self._write())

    async def _write(self) -> None:
        backoff = Backoff()
        try:
            while (self._claims or self._changed or self._renewed) and not self._closed:
                try:
                    await self._write_some()
                    self.failing = False
                    backoff.reset()
                except LINK_ERRORS:
                    self.failing = True
                    await backoff.wait()
        except Exception:
            logger.exception("cannot count connections in Redis")
        finally:
            self._task = None

    async def _write_some(self) -> None:
        claims: list[tuple[Claim, Row]] = []
        while self._claims and len(claims) < CALL_COUNTERS:
            claim, row = self._claims.popleft()
            if not claim.done.done():
                claims.append((claim, row))
        changed = list(self._changed)[:CALL_COUNTERS]
        for name in changed:
            del self._changed[name]
        rows = [row for _, row in claims]
        rows += (Row(name, self._count(name), -1) for name in changed)
        try:
            totals = await self._call(rows) if rows else ()
        except BaseException:
            # While Redis is unavailable, only the counts of this node are known.
            for claim, row in claims:
                self._changed[row.name] = None
                claim.settle(row.name, full=False)
            self._changed.update(dict.fromkeys(changed))
            raise
        for (claim, row), total in zip(claims, totals, strict=False):
            claim.settle(row.name, full=total < 0)
        if not self._changed:
            for done in self._renewed:
                done.set_result(None)
            self._renewed.clear()
