"""Limits across all nodes: open connections, and publishes over REST.

While Redis is unavailable, each node uses its own counts, so that no client is rejected without
need.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pubsub_server.backoff import Backoff
from pubsub_server.backplanes.redis.lease import REMOVED, REVOKED_MS
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.shared.limits import BULK, ConnectionLimiter, RateLimiter, too_many
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.lease import Lease
    from pubsub_server.backplanes.redis.link import Argument, Link
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.roster import Change

logger = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Maximum seconds that a connection or a publish waits for the counts of the other nodes."""
CALL_COUNTERS: Final = 500


@dataclass(frozen=True, slots=True)
class _Claim:
    """A connection that waits for Redis: per counter, this node's count and the limit."""

    counters: Mapping[str, tuple[int, int]]
    done: asyncio.Future[str | None]


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
        self._loop = asyncio.get_running_loop()
        self._claims: deque[_Claim] = deque()
        # Counters that differ between Redis and this node.
        self._changed: dict[str, None] = {}
        self._former = ""
        # The number of the last call of `counts.lua`.
        self._number = 0
        self._renewed: list[asyncio.Future[None]] = []
        self._tasks = Tasks(self._loop, logger, "connection counters")
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def acquire(self, identity: Identity, held: Identity | None = None) -> Awaitable[None] | None:
        """See `hub.limits.ConnectionLimiter`."""
        super().acquire(identity, held)
        limits = self.limits(identity, held)
        if not limits:
            return None
        if not self._lease.up:
            self._change(limits)
            return None
        counters = {name: (self.count(name), limit) for name, (limit, _) in limits.items()}
        claim = _Claim(counters, self._loop.create_future())
        self._claims.append(claim)
        self._run()
        return self._granted(claim, identity, held)

    def release(self, identity: Identity, kept: Identity | None = None) -> None:
        """See `hub.limits.ConnectionLimiter`."""
        super().release(identity, kept)
        self._change(self.limits(identity, kept))

    async def _granted(self, claim: _Claim, identity: Identity, held: Identity | None) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                full = await claim.done
        except TimeoutError:
            # While Redis is unavailable, only the counts of this node are known.
            self._change(claim.counters)
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
        done: asyncio.Future[None] = self._loop.create_future()
        self._renewed.append(done)
        self._change(self._counts)
        return done

    def recorded(self, change: Change, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """See `lease.Tenant`."""

    async def close(self) -> None:
        """Stop writing."""
        self._closed = True
        if self._task is not None:
            await self._task

    # ------------------------------------------------------------ inside

    def _change(self, names: Mapping[str, object]) -> None:
        self._changed.update(dict.fromkeys(names))
        self._run()

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
                    backoff.reset()
                except LINK_ERRORS:
                    await backoff.wait()
        except Exception:
            logger.exception("cannot count connections in Redis")
        finally:
            self._task = None

    async def _write_some(self) -> None:
        claims: list[_Claim] = []
        rows: list[tuple[str, int, int]] = []
        while self._claims and len(rows) < CALL_COUNTERS:
            claim = self._claims.popleft()
            if not claim.done.done():
                claims.append(claim)
                rows += ((name, *numbers) for name, numbers in claim.counters.items())
        changed = list(self._changed)[:CALL_COUNTERS]
        for name in changed:
            del self._changed[name]
        rows += ((name, self.count(name), -1) for name in changed)
        try:
            totals = await self._call(rows)
        except BaseException:
            for claim in claims:
                self._changed.update(dict.fromkeys(claim.counters))
                _resolve(claim, None)
            self._changed.update(dict.fromkeys(changed))
            raise
        answers = iter(totals)
        for claim in claims:
            refused = [name for name in claim.counters if next(answers) < 0]
            _resolve(claim, refused[0] if refused else None)
        if not self._changed:
            for done in self._renewed:
                done.set_result(None)
            self._renewed.clear()

    async def _call(self, rows: Sequence[tuple[str, int, int]]) -> list[int]:
        """The answers of `counts.lua`."""
        groups: dict[int, list[int]] = {}
        for number, (name, _, _) in enumerate(rows):
            shard = self._layout.shard(name) if self._link.cluster else 0
            groups.setdefault(shard, []).append(number)
        totals = [0] * len(rows)
        for numbers in groups.values():
            bases: dict[str, int] = {}
            node = self._lease.node
            self._number += 1
            arguments: list[Argument] = [node, self._number, REVOKED_MS, self._former]
            for number in numbers:
                name, count, most = rows[number]
                base = self._layout.bases[self._layout.shard(name)]
                arguments += (bases.setdefault(base, len(bases) + 1), name, count, most)
            outcome, *answers = await self._link.call("counts.lua", list(bases), arguments)
            if outcome == b"dead":
                # Everything is written again when the node has a new lease.
                if node == self._lease.node:
                    self._lease.lose(REMOVED)
                return totals
            for number, answer in zip(numbers, answers, strict=True):
                totals[number] = int(answer)
        return totals


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

    async def share(
        self, identity: Identity, count: int, *, batch: bool = False
    ) -> tuple[int, int]:
        """See `hub.limits.RateLimiter`."""
        if not self._lease.up:
            return await super().share(identity, count, batch=batch)
        bulk = f" {BULK}" if batch and identity.bulk else ""
        key = self._layout.bucket(f"{identity.kind} {identity.user_id}{bulk}")
        rate, most = self.bucket(identity, batch=batch)
        try:
            async with asyncio.timeout(PATIENCE):
                granted, wait = await self._link.call(
                    "bucket.lua", [key], [repr(rate), repr(most), count]
                )
        except (TimeoutError, *LINK_ERRORS):
            return self.take(identity, None, count, batch=batch)
        return int(granted), int(wait)


def _resolve(claim: _Claim, refused: str | None) -> None:
    if not claim.done.done():
        claim.done.set_result(refused)
