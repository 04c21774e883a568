"""The environment of a client: the clock, randomness, and transports.

A URL ``memory://NAME`` names a server of ``hanzoai.pubsub.testing`` in this process. The client
then uses the server's clock and no socket, so you need not change the program under test.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.settings.options import URL_VARIABLE, read_options
from hanzoai.pubsub.transports import MEMORY_SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.runtime.tokens import TokenSource
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.settings.options import ClientOptions, SendQueue, Settings, TransportChoice
    from hanzoai.pubsub.transports import Transport
    from hanzoai.pubsub.transports.memory import MemoryPeer

_STAND_IN: Final = "ws://127.0.0.1:1/ws"

_OPENED: Final[set[str]] = set()
"""The default environment of this process, for all clients."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment that a client uses.

    Attributes:
        clock: Time and timers.
        random: Numbers from 0 up to 1, for the jitter of retries.
        peer: The server in this process; None for a real one.
        opened: WebSocket URLs that have worked in this process: a later failure there counts as a
            network without WebSockets only after HTTP has answered.
    """

    clock: Clock
    random: Callable[[], float]
    peer: MemoryPeer | None = None
    opened: set[str] = field(default_factory=set[str])

    def read_options(
        self,
        url: str | None,
        token: str | None,
        *,
        get_token: Callable[..., object] | None,
        transport: TransportChoice,
        rest_url: str | None,
        allow_insecure: bool,
        name: str | None,
        echo: bool,
        send_queue: SendQueue | None,
        settings: Mapping[str, object] | Settings,
    ) -> ClientOptions:
        """Read the options of a client; a server in this process has no address."""
        return read_options(
            url if self.peer is None else _STAND_IN,
            token,
            get_token=get_token,
            transport=transport,
            rest_url=rest_url if self.peer is None else None,
            allow_insecure=allow_insecure,
            name=name,
            echo=echo,
            send_queue=send_queue,
            settings=settings,
        )

    def dial(self, name: TransportName, options: ClientOptions, tokens: TokenSource) -> Transport:
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


def surroundings(url: str | None) -> Surroundings:
    """The environment for a URL, or for the URL in the environment variable.

    Raises:
        InvalidOption: It is a server of this process that is not running.
    """
    named = url or os.environ.get(URL_VARIABLE)
    if isinstance(named, str) and named.startswith(MEMORY_SCHEME):
        from hanzoai.pubsub.transports.memory import find

        peer = find(named)
        return Surroundings(peer.clock, peer.random, peer)
    return Surroundings(SystemClock(), random.random, opened=_OPENED)
