"""What all connections of the HTTP port share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pubsub_server.listeners.callers import Callers
from pubsub_server.listeners.http.user_shares import user_shares
from pubsub_server.listeners.pre_auth import pre_auth_limiter
from pubsub_server.shared.turns import Turns

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings


class HttpConnections:
    """The connections of one listener, and what they need from the server.

    Args:
        settings: Limits and deadlines.

    Attributes:
        handshakes: TLS handshakes by address.
        open: Number of open connections.
        stopped: Cut connections that were accepted before the stop and arrive here after it.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.callers = Callers(settings.trusted_proxies)
        self.pre_auth = pre_auth_limiter(settings)
        self.handshakes = pre_auth_limiter(settings)
        self.users = user_shares(settings)
        self.turns = Turns(asyncio.get_running_loop())
        self.open = 0
        self.stopped = False
