"""What the log says about the connections that listen: one line for each event.

If a server of a cluster fails, the connections of all its shards are lost at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pubsub_server.backplanes.redis.errors import RefusedError, cause

logger = logging.getLogger("pubsub_server.backplanes.redis.feed")

REFUSED_EVERY: Final = 60.0
"""Seconds between two log lines about Redis refusing a subscription."""
LOSS_EVERY: Final = 10.0
"""Seconds between two log lines about a lost connection. After a failover, Redis may be a replica,
and each write then closes the connection.
"""


class FeedLog:
    """Logs lost connections, and when all of them are back."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Connections whose loss the log does not tell yet, and those whose loss it tells.
        self._untold: set[object] = set()
        self._told: set[object] = set()
        self._losses_again_at = 0.0
        self._refusals_again_at: dict[str, float] = {}

    def lost(self, feed: object) -> None:
        """An open connection is lost; `failed` tells why."""
        self._untold.add(feed)

    def failed(self, feed: object, error: Exception) -> None:
        """A connection ended, or cannot be opened."""
        if feed not in self._untold:
            if isinstance(error, RefusedError):
                self._refused(cause(error))
            return
        now = self._loop.time()
        if now >= self._losses_again_at:
            self._losses_again_at = now + LOSS_EVERY
            logger.warning("lost the feed connection to Redis: %s", cause(error))
        elif not self._told:
            return
        self._told |= self._untold
        self._untold.clear()

    def regained(self, feed: object) -> None:
        """A connection is open again."""
        self._untold.discard(feed)
        if feed in self._told:
            self._told.remove(feed)
            if not self._told:
                logger.warning("reconnected the feed to Redis")

    # ------------------------------------------------------------ inside

    def _refused(self, why: str) -> None:
        now = self._loop.time()
        if now >= self._refusals_again_at.get(why, now):
            self._refusals_again_at[why] = now + REFUSED_EVERY
            logger.error("cannot receive messages from Redis: %s", why)
