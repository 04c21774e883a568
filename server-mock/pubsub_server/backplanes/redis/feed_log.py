"""What the log says about the connections that listen: one line for each event.

If a server of a cluster fails, the connections of all its shards are lost at the same time. Another
server that fails is another event.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pubsub_server.backplanes.redis.errors import RefusedError, cause
from pubsub_server.backplanes.redis.failure_log import FailureLog

logger = logging.getLogger("pubsub_server.backplanes.redis.feed")

LOSS_EVERY: Final = 10.0
"""Seconds between two log lines about lost connections to a server. After a failover, it may be a
replica, and each write then closes the connection.
"""


class FeedLog:
    """Logs lost connections, and when all of them are back."""

    def __init__(self) -> None:
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
            logger.warning("lost the feed connection to Redis at %s: %s", server, cause(error))
        elif server not in self._logged.values():
            return
        self._logged[feed] = self._unlogged.pop(feed)

    def regained(self, feed: object) -> None:
        """A connection is open again."""
        self._unlogged.pop(feed, None)
        if self._logged.pop(feed, None) and not self._logged:
            logger.warning("reconnected the feed to Redis")
