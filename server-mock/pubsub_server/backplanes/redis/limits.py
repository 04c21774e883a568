"""Limits across all nodes: open connections, and publishes over REST.

While Redis is unavailable, each node uses its own counts, so that no client is rejected without
need.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub_server.backoff import Backoff
from pubsub_server.backplanes.redis.lease import REMOVED, REVOKED_MS
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.shared.limits import BULK, ConnectionLimiter, RateLimiter, too_many
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.lease import Lease
    from pubsub_server.backplanes.redis.link import Argument, Link
    from pubsub_server.interfaces import Identity

logger = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Maximum seconds that a connection or a publish waits for the counts of the other nodes."""
ASK_AGAIN_AFTER: Final = 5.0
"""Seconds for which a node uses its own count after Redis did not answer."""
CALL_COUNTERS: Final = 500
"""Maximum counters of one call."""


class SharedConnectionLimiter(ConnectionLimiter):
    """See `hub.limits.ConnectionLimiter`; it counts this node's connections, Redis all others.

    Args:
        link: To Redis.
        layout: Names of keys.
        lease: The name of this node.
        per_user: Maximum connections per user.
        per_org: Maximum connections per organization.
        org_limits: Maximum connections of certain organizations, instead of `per_org`.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        lease: Lease,
        per_user: int,
        per_org: int,
        org_limits: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(per_user, per_org, org_limits)
        self._link = link
        self._layout = layout
        self._lease = lease
        self._former = ""
        self._numbers = count(1)
        tasks = Tasks(asyncio.get_running_loop(), logger, "connection counters")
        self._lanes = [CounterLane(self._call, self.count, tasks) for _ in layout.lanes]

    def acquire(self, identity: Identity, held: Identity | None = None) -> Awaitable[None] | None:
        """See `hub.limits.ConnectionLimiter`."""
        super().acquire(identity, held)
        limits = self.limits(identity, held)
        if not limits:
            return None
        if not (self._lease.up or self._link.cluster):
            self._change(limits)
            return None
        claimed: list[str] = []
        for name in limits:
            if self._lane(name).failing:
                self._change([name])
            else:
                claimed.append(name)
        if not claimed:
            return None
        claim = Claim(claimed)
        for name in claimed:
            self._lane(name).claim(claim, Row(name, self.count(name), limits[name][0]))
        return self._granted(claim, claimed, identity, held)

    def release(self, identity: Identity, kept: Identity | None = None) -> None:
        """See `hub.limits.ConnectionLimiter`."""
        super().release(identity, kept)
        self._change(self.limits(identity, kept))

    async def _granted(
        self, claim: Claim, names: Sequence[str], identity: Identity, held: Identity | None
    ) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                full = await claim.done
        except TimeoutError:
            # While Redis is unavailable, only the counts of this node are known.
            self._change(names)
            return
        except asyncio.CancelledError:
            self.release(identity, held)
            raise
        if full is not None:
            self.release(identity, held)
            raise too_many(self.limits(identity, held)[full][1])

    def renew(self, former: Sequence[str]) -> asyncio.Future[None]:
        """See `lease.Tenant`."""
        self._former = f",{','.join(former)},"
        self._change(self._counts)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written = asyncio.gather(*(lane.renewed() for lane in self._lanes))
        written.add_done_callback(lambda _: done.set_result(None))
        return done

    async def close(self) -> None:
        """Stop writing."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))

    # ------------------------------------------------------------ inside

    def _lane(self, name: str) -> CounterLane:
        return self._lanes[self._layout.lane(name)]

    def _change(self, names: Iterable[str]) -> None:
        for name in names:
            self._lane(name).change(name)

    async def _call(self, rows: Sequence[Row]) -> list[int]:
        """The answers of `counts.lua`."""
        bases: dict[str, int] = {}
        node = self._lease.node
        arguments: list[Argument] = [node, next(self._numbers), REVOKED_MS, self._former]
        for name, connections, most in rows:
            base = self._layout.bases[self._layout.shard(name)]
            arguments += (bases.setdefault(base, len(bases) + 1), name, connections, most)
        outcome, *answers = await self._link.call("counts.lua", list(bases), arguments)
        if outcome == b"dead" and node == self._lease.node:
            # Everything is written again when the node has a new lease.
            self._lease.lose(REMOVED)
        return [int(each) for each in answers] if outcome == b"ok" else [0] * len(rows)


class SharedRateLimiter(RateLimiter):
    """See `hub.limits.RateLimiter`; publishes of a user over REST share a bucket in Redis.

    Args:
        link: To Redis.
        layout: Names of keys.
        lease: Knows whether Redis is available.
        user: Publishes per second of users and agents.
        service: Publishes per second of services and admins.
        burst: Size of a burst in milliseconds of the rate; at least one message is allowed.
        bulk: Batch publishes per second of a bulk publisher over REST.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        lease: Lease,
        user: float,
        service: float,
        burst: int,
        bulk: float,
    ) -> None:
        super().__init__(user, service, burst, bulk=bulk)
        self._link = link
        self._layout = layout
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        # By shard that did not answer: when to ask it again.
        self._ask_again_at: dict[int, float] = {}

    async def share(
        self, identity: Identity, count: int, *, batch: bool = False
    ) -> tuple[int, int]:
        """See `hub.limits.RateLimiter`."""
        if not (self._lease.up or self._link.cluster):
            return await super().share(identity, count, batch=batch)
        bulk = f" {BULK}" if batch and identity.bulk else ""
        name = f"{identity.kind} {identity.user_id}{bulk}"
        shard = self._layout.shard(name)
        if self._loop.time() < self._ask_again_at.get(shard, 0):
            return self.take(identity, None, count, batch=batch)
        rate, most = self.bucket(identity, batch=batch)
        try:
            async with asyncio.timeout(PATIENCE):
                granted, wait = await self._link.call(
                    "bucket.lua",
                    [self._layout.bucket(name)],
                    [repr(rate), repr(most), count],
                )
        except (TimeoutError, *LINK_ERRORS):
            self._ask_again_at[shard] = self._loop.time() + ASK_AGAIN_AFTER
            return self.take(identity, None, count, batch=batch)
        return int(granted), int(wait)


# ---------------------------------------------------------------- counters


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
