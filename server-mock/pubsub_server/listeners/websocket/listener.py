"""The WebSocket listener, HIP-56 port 8057, and the shared state of its connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from websockets.protocol import SERVER, Protocol
from websockets.typing import Origin

from pubsub_server.listeners.callers import Callers
from pubsub_server.listeners.large_reads import LargeReads
from pubsub_server.listeners.pre_auth import pre_auth_limiter
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.listeners.websocket.protocol import CLOSE_SECONDS, QUIET, SocketProtocol
from pubsub_server.shared.accepting import stop_accepting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from websockets.http11 import Request, Response
    from websockets.server import ServerProtocol

    from pubsub_server.listeners.endpoints import Endpoint
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.connection import Connection

FRAME_EXTRA: Final = 16_384
"""Maximum bytes of a frame in addition to its payload."""


class WebSocketListener:
    """Sockets on one port.

    Args:
        service: The hub.
        settings: Limits and deadlines.
        endpoints: Endpoints for paths other than `/ws`.
    """

    def __init__(
        self, service: Service, settings: Settings, endpoints: Sequence[Endpoint] = ()
    ) -> None:
        self.service = service
        self.settings = settings
        self._endpoints = endpoints
        self.callers = Callers(settings.trusted_proxies)
        self.pre_auth = pre_auth_limiter(settings)
        self.large_reads = LargeReads()
        self.wheel = service.wheel
        self.clock = service.clock
        service.stats.connections.setdefault(SOCKET.name, 0)
        self.protocols: set[SocketProtocol] = set()
        self.stopped = False
        """Cut connections that were accepted before the stop and arrive here after it."""
        self._parsers: dict[bool, Protocol] = {}
        self._server: asyncio.Server | None = None
        self._empty: asyncio.Future[None] | None = None
        self._before = min(settings.max_frame, settings.max_payload + FRAME_EXTRA)
        self.origins: Sequence[Origin | None] | None = None
        if "*" not in settings.cors_origins:
            self.origins = [*(Origin(each) for each in settings.cors_origins), None]

    async def start(self, tls: ssl.SSLContext | None = None) -> int:
        """Listens, and returns the port.

        Raises:
            OSError: The port is in use, or the address does not belong to this machine.
        """
        deadline = self.settings.auth_deadline / 1000
        self._server = await asyncio.get_running_loop().create_server(
            lambda: SocketProtocol(self),
            self.settings.host,
            self.settings.ws_port,
            ssl=tls,
            backlog=4096,
            reuse_port=self.settings.workers > 1 or None,
            ssl_handshake_timeout=deadline if tls is not None else None,
            ssl_shutdown_timeout=CLOSE_SECONDS if tls is not None else None,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop_listening(self) -> None:
        """Stops accepting connections."""
        await stop_accepting(self._server)

    async def stop(self, seconds: float) -> None:
        """Waits until every connection has closed, for at most this long, and cuts the rest."""
        await self.stop_listening()
        self.stopped = True
        for protocol in list(self.protocols):
            protocol.leave()
        if self.protocols:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)
        for protocol in list(self.protocols):
            protocol.abort()

    # ------------------------------------------------------------ for its connections

    def endpoint(self, request: Request) -> Endpoint | None:
        """The endpoint for this request, if it is not for this listener itself."""
        path = request.path.partition("?")[0]
        return next((each for each in self._endpoints if each.handles(path)), None)

    def respond(self, core: ServerProtocol, request: Request) -> Response:
        """The answer to a request: an upgrade, or an error with a remedy."""
        path = request.path.partition("?")[0]
        if path not in ("/ws", "/ws/", "/"):
            return core.reject(404, "This path does not exist. The WebSocket endpoint is /ws.\n")
        if request.method == "GET" and "Upgrade" not in request.headers:
            response = core.reject(
                426,
                "This is the WebSocket port of Hanzo PubSub: connect to /ws with a WebSocket"
                " client. REST and event streams are on the HTTP port.\n",
            )
            response.headers["Upgrade"] = "websocket"
            return response
        return core.accept(request)

    def max_frame(self, connection: Connection) -> int:
        """Maximum bytes of an inbound message: less before authentication."""
        return self._before if connection.identity is None else self.settings.max_frame

    def take_parser(self, connection: Connection) -> Protocol:
        """A parser at the beginning of a frame."""
        parser = self._parsers.pop(connection.identity is None, None)
        return parser or Protocol(SERVER, max_size=self.max_frame(connection), logger=QUIET)

    def give_parser(self, connection: Connection, parser: Protocol) -> None:
        """Return a parser that is at the beginning of a frame."""
        self._parsers[connection.identity is None] = parser

    def gone(self, protocol: SocketProtocol) -> None:
        """A connection has ended."""
        self.protocols.discard(protocol)
        if not self.protocols and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)
