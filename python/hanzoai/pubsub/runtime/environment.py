"""The environment of a client: the clock, randomness, and transports.

A URL ``memory://NAME`` names a server of ``hanzoai.pubsub.testing`` in this process. The client
then uses the server's clock and no socket, so you need not change the program under test.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.randomness import RANDOM
from hanzoai.pubsub.settings.options import URL_VARIABLE
from hanzoai.pubsub.transports import MEMORY_SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports import Transport
    from hanzoai.pubsub.transports.memory import MemoryPeer

_STAND_IN: Final = "ws://127.0.0.1:1/ws"

_OPENED: Final[set[str]] = set()
"""WebSocket URLs that have worked in this process, for all clients."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment that a client uses."""

    clock: Clock
    random: Callable[[], float]  # from 0 inclusive to 1 exclusive, for the jitter of retries
    peer: MemoryPeer | None = None  # the server in this process; None for a real one
    # WebSocket URLs that have worked in this process: a later failure there counts as a network
    # without WebSockets only after HTTP has answered.
    opened: set[str] = field(default_factory=set[str])

    def urls(self, url: str | None, rest_url: str | None) -> tuple[str | None, str | None]:
        """The addresses for the options; a server in this process has none."""
        return (url, rest_url) if self.peer is None else (_STAND_IN, None)

    def dial(self, name: TransportName, options: ClientOptions) -> Transport:
        """Create a transport that is not open yet."""
        # Imported when first dialed: a client usually needs only one of them.
        if self.peer is not None:
            from hanzoai.pubsub.transports.memory import MemoryTransport

            return MemoryTransport(self.peer, name)
        if name == "sse":
            from hanzoai.pubsub.transports.sse import SseTransport

            return SseTransport(options, self.clock)
        from hanzoai.pubsub.transports.websocket import WebSocketTransport

        return WebSocketTransport(options, self.clock)

    def http_transport(self) -> httpx.AsyncBaseTransport | None:
        """The transport of HTTP requests, if it is not the network."""
        return None if self.peer is None else self.peer.http_transport()


def environment_for(url: str | None) -> Environment:
    """The environment for a URL, or for the URL in the environment variable."""
    named = url or os.environ.get(URL_VARIABLE)
    if isinstance(named, str) and named.startswith(MEMORY_SCHEME):
        from hanzoai.pubsub.transports.memory import find

        peer = find(named)
        return Environment(peer.clock, peer.random, peer)
    return Environment(SystemClock(), RANDOM.random, opened=_OPENED)
