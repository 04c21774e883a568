"""Limits of the publish rate (HIP-56 Security 4) and of open connections (Security 7)."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING

from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pubsub_server.auth.identity import Identity

MAX_BUCKETS = 200_000
"""Maximum clients whose bucket is kept; full buckets are removed first."""

BULK = "bulk"
"""The key of a bulk publisher's batches, instead of a connection."""


class Bucket:
    """A token bucket: `rate` per second, at most `burst` at once."""

    __slots__ = ("at", "burst", "level", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self.level = burst
        self.at = now

    def take(self, count: int, now: float) -> tuple[int, float]:
        """Takes up to `count`; returns the number taken, and the seconds until the next one."""
        level = self.level + (now - self.at) * self.rate
        if level > self.burst:
            level = self.burst
        self.at = now
        if count <= level:
            self.level = level - count
            return count, 0.0
        granted = min(count, int(level + 1e-9))
        self.level = level = level - granted
        if granted == count:
            return granted, 0.0
        return granted, max(0.0, (1 - level) / self.rate)

    def full(self, now: float) -> bool:
        """Whether the bucket is full."""
        self.take(0, now)
        return self.level >= self.burst


class RateLimiter:
    """Publishes per second of each client.

    Each connection has its own bucket; REST publishes of one user share one.

    Args:
        user: Publishes per second of users and agents.
        service: Publishes per second of services and admins.
        burst: Size of a burst in milliseconds of the rate; at least one message is allowed.
        clock: Seconds, monotonic.
        bulk: Batch publishes per second of a bulk publisher over REST.
    """

    def __init__(
        self,
        user: float,
        service: float,
        burst: int = 1000,
        clock: Callable[[], float] = time.monotonic,
        bulk: float = 10_000,
    ) -> None:
        self._bulk = bulk
        self._user = user
        self._service = service
        self._burst = burst / 1000
        self._clock = clock
        self._buckets: dict[tuple[str, str, str | None], Bucket] = {}

    def take(
        self, identity: Identity, client_id: str | None, count: int, *, batch: bool = False
    ) -> tuple[int, int]:
        """Takes up to `count` publishes.

        Returns:
            The number of granted messages, and the milliseconds until the next would be granted (0
            if all are).
        """
        now = self._clock()
        key = (identity.kind, identity.user_id, BULK if batch and identity.bulk else client_id)
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._sweep(now)
            bucket = self._buckets[key] = Bucket(*self.bucket(identity, batch=batch), now)
        granted, wait = bucket.take(count, now)
        return granted, math.ceil(wait * 1000) if wait else 0

    async def share(
        self, identity: Identity, count: int, *, batch: bool = False
    ) -> tuple[int, int]:
        """Like `take`, from the bucket of this user's REST publishes or bulk batches."""
        return self.take(identity, None, count, batch=batch)

    def bucket(self, identity: Identity, *, batch: bool = False) -> tuple[float, float]:
        """Publishes per second of this identity, and its burst."""
        rate = self._rate(identity, batch)
        return rate, max(1.0, rate * self._burst)

    def rate(self, identity: Identity, *, batch: bool = False) -> int:
        """Publishes per second, rounded down, at least 1; the value in `auth.ok.limits`."""
        return max(1, int(self._rate(identity, batch)))

    def forget(self, identity: Identity, client_id: str) -> None:
        """The connection is closed: remove its bucket."""
        self._buckets.pop((identity.kind, identity.user_id, client_id), None)

    def _rate(self, identity: Identity, batch: bool) -> float:
        if batch and identity.bulk:
            return self._bulk
        return self._service if identity.service or identity.admin else self._user

    def _sweep(self, now: float) -> None:
        full = [key for key, bucket in self._buckets.items() if bucket.full(now)]
        for key in full:
            del self._buckets[key]
        if len(self._buckets) >= MAX_BUCKETS:
            for key in list(self._buckets)[: MAX_BUCKETS // 2]:
                del self._buckets[key]


class ConnectionLimiter:
    """Open connections per user and per organization, including event streams.

    Args:
        per_user: Maximum connections per user.
        per_org: Maximum connections per organization.
        org_limits: Maximum connections of certain organizations, instead of `per_org`.
    """

    def __init__(
        self, per_user: int, per_org: int, org_limits: Mapping[str, int] | None = None
    ) -> None:
        self._per_user = per_user
        self._per_org = per_org
        self._org_limits = dict(org_limits or {})
        self._counts: Counter[str] = Counter()

    def acquire(self, identity: Identity, held: Identity | None = None) -> Awaitable[None] | None:
        """Counts one connection of the identity, against its user and each organization.

        Args:
            identity: The connection's identity.
            held: The identity under which it is already counted, at a reauthentication.

        Returns:
            An awaitable that grants it, if nodes count together.

        Raises:
            ServiceError: `connection_limit`; then it is not counted.
        """
        limits = self.limits(identity, held)
        for name, (limit, detail) in limits.items():
            if self._counts[name] >= limit:
                raise too_many(detail)
        self._counts.update(limits.keys())
        return None

    def release(self, identity: Identity, kept: Identity | None = None) -> None:
        """Release one connection; ``kept`` is the identity under which it remains counted."""
        for name in self.limits(identity, kept):
            if self._counts[name] > 1:
                self._counts[name] -= 1
            else:
                self._counts.pop(name, None)

    def limits(self, identity: Identity, but: Identity | None = None) -> dict[str, tuple[int, str]]:
        """The counters of this identity's connections, without those of the other identity.

        Returns:
            By name of the counter: the limit, and the error text.
        """
        found: dict[str, tuple[int, str]] = {}
        if but is None or (but.kind, but.user_id) != (identity.kind, identity.user_id):
            detail = (
                f"{identity.user_id} has {self._per_user} connections, which is the maximum "
                "for a user"
            )
            found[f"user {identity.kind} {identity.user_id}"] = (self._per_user, detail)
        for org in identity.orgs:
            if but is None or org not in but.orgs:
                limit = self._org_limits.get(org, self._per_org)
                detail = f"the organization {org} has {limit} connections, which is its maximum"
                found[f"org {org}"] = (limit, detail)
        return found

    def count(self, name: str) -> int:
        """Number of connections of this counter."""
        return self._counts[name]


def too_many(detail: str) -> ServiceError:
    """The error for a connection above the limit."""
    return ServiceError("connection_limit", detail, retry_after_ms=5_000)
