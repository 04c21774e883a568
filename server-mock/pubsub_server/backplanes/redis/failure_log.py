"""Log lines about failures that repeat: one for each event, or one per minute."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.redis.errors import ForbiddenError, RefusedError, cause
from pubsub_server.shared.wall_clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.backplanes.redis.redis_clock import RedisClock

LOG_EVERY: Final = 60.0
"""Seconds between two lines with the same text."""
LOSS_EVERY: Final = 10.0
"""Seconds between two log lines about lost connections to a server, or about lost data. After a
failover, the server may be a replica, and each write then closes the connection. A server that
evicts keys loses data several times a second.
"""
CLOCKS_APART_MS: Final = 2_000
"""Milliseconds by which the clocks of this machine and of Redis may differ without a warning."""


class FailureLog:
    """Log lines about one task that tries again until it succeeds.

    Args:
        logger: Writes the lines.
        level: Level of the lines.
        every: Seconds between two lines with the same text.
    """

    def __init__(
        self, logger: logging.Logger, level: int = logging.WARNING, every: float = LOG_EVERY
    ) -> None:
        self._logger = logger
        self._level = level
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._again_at: dict[str, float] = {}

    def note(self, line: str) -> bool:
        """Log a failure, unless the same line was logged shortly before.

        Returns:
            Whether it was logged.
        """
        now = self._loop.time()
        if now < self._again_at.get(line, now):
            return False
        self._again_at[line] = now + self._every
        self._logger.log(self._level, "%s", line)
        return True

    def failed(self, task: str, *errors: Exception) -> None:
        """Log why a task failed, except for lack of a permission, which `link` logs.

        Args:
            task: As in "cannot read".
            errors: Of the calls of the task.
        """
        causes = {cause(each) for each in errors if not isinstance(each, ForbiddenError)}
        if causes:
            self.note(f"{task}: {', '.join(sorted(causes))}")

    def succeeded(self) -> None:
        """Log the next failure in any case."""
        self._again_at.clear()


class PublishLog:
    """Logs that Redis rejects publishes, and that it accepts all of them again.

    If a server of a cluster fails, it rejects those of all its shards at the same time. A shard
    that rejects no publish for `LOG_EVERY` counts as recovered, because it may get no further one.

    Args:
        logger: Writes the lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._failures = FailureLog(logger, logging.ERROR)
        self._loop = asyncio.get_running_loop()
        # Lanes whose rejections are logged, with the time of the last one.
        self._refused_at: dict[object, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, lane: object, line: str | None) -> None:
        """Publishes of a lane are rejected.

        Args:
            lane: The queue of a shard, or of all shards.
            line: States the cause; None if another log has it.
        """
        if line is None or self._failures.note(line) or self._refused_at:
            self._refused_at[lane] = self._loop.time()

    def accepted(self, lane: object) -> None:
        """Redis accepts the publishes of a lane again."""
        if self._refused_at.pop(lane, None) is not None:
            self._note_recovery()

    def close(self) -> None:
        """Log no recovery any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _note_recovery(self) -> None:
        """Log it, or wait for the lanes that rejected publishes shortly before."""
        self.close()
        until = max(self._refused_at.values(), default=0.0) + LOG_EVERY
        if self._refused_at and self._loop.time() < until:
            self._timer = self._loop.call_at(until, self._note_recovery)
            return
        self._refused_at.clear()
        self._logger.warning("Redis accepts publishes again")


class FeedLog:
    """Logs lost connections that listen, and when all of them are back: one line for each event.

    If a server of a cluster fails, the connections of all its shards are lost at the same time.
    Another server that fails is another event.

    Args:
        logger: Writes the lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        # By connection: the server whose loss is not logged yet, or is logged.
        self._unlogged: dict[object, str] = {}
        self._logged: dict[object, str] = {}
        self._losses_again_at: dict[str, float] = {}
        self._refusals = FailureLog(logger, logging.ERROR)

    def lost(self, feed: object, server: str) -> None:
        """An open connection to this server is lost; `failed` receives the reason."""
        self._unlogged[feed] = server

    def failed(self, feed: object, error: Exception) -> None:
        """A connection ended, or cannot be opened."""
        server = self._unlogged.get(feed)
        if server is None:
            if isinstance(error, RefusedError):
                self._refusals.note(f"cannot receive messages from Redis: {cause(error)}")
            return
        now = self._loop.time()
        if now >= self._losses_again_at.get(server, now):
            self._losses_again_at[server] = now + LOSS_EVERY
            self._logger.warning(
                "lost the feed connection to Redis at %s: %s", server, cause(error)
            )
        elif server not in self._logged.values():
            return
        self._logged[feed] = self._unlogged.pop(feed)

    def regained(self, feed: object) -> None:
        """A connection is open again."""
        self._unlogged.pop(feed, None)
        if self._logged.pop(feed, None) and not self._logged:
            self._logger.warning("reconnected the feed to Redis")


class ClockLog:
    """Logs that the clocks of this machine and of Redis differ, and when they agree again.

    Args:
        logger: Writes the lines.
        clock: The time of Redis.
        wall: Unix ms of this machine.
    """

    def __init__(
        self, logger: logging.Logger, clock: RedisClock, wall: Callable[[], int] = now_ms
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._wall = wall
        self._differ = False

    def compare(self) -> None:
        """Compare them, just after an answer of Redis with its time."""
        apart = self._clock.apart(self._wall())
        if self._differ:
            # Less than for a warning, so that a difference near the limit is logged once.
            if abs(apart) < CLOCKS_APART_MS / 2:
                self._differ = False
                self._logger.warning("the clocks of this machine and of Redis agree again")
        elif abs(apart) > CLOCKS_APART_MS:
            self._differ = True
            self._logger.warning(
                "the clock of this machine is %.0f s %s the clock of Redis. Messages and presence"
                " have the time of Redis, but tokens expire and webhooks are signed at the time of"
                " this machine. Synchronize both with NTP",
                *(abs(apart) / 1000, "ahead of" if apart > 0 else "behind"),
            )
