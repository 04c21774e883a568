"""What all WebSocket connections share."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from websockets.protocol import SERVER
from websockets.protocol import Protocol as Parser

from pubsub_server.listeners.callers import Callers
from pubsub_server.listeners.pre_auth import pre_auth_limiter
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.shared.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from websockets.http11 import Request, Response
    from websockets.server import ServerProtocol

    from pubsub_server.listeners.endpoints import Endpoint
    from pubsub_server.listeners.origins import Origins
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.connection import Connection

QUIET: Final = logging.getLogger("pubsub_server.websocket.protocol")
QUIET.setLevel(logging.WARNING)

FRAME_EXTRA: Final = 16_384
"""Maximum bytes of a frame in addition to its payload."""


class Open(Protocol):
    """An open connection."""

    def leave(self) -> None:
        """Close it, unless the hub does."""
        ...

    def abort(self) -> None:
        """See `interfaces.Sink`."""
        ...


class SocketConnections:
    """The connections of one listener, and what they need from the server.

    Args:
        service: The hub.
        settings: Limits and deadlines.
        origins: The pages that may use it.
        endpoints: Endpoints for paths other than `/ws`.

    Attributes:
        handshakes: TLS handshakes by address.
        open: The open connections.
        stopped: Cut connections that were accepted before the stop and arrive here after it.
    """

    def __init__(
        self,
        service: Service,
        settings: Settings,
        origins: Origins,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        self.service = service
        self.settings = settings
        self.callers = Callers(settings.trusted_proxies)
        self.pre_auth = pre_auth_limiter(settings)
        self.handshakes = pre_auth_limiter(settings)
        self.turns = Turns(asyncio.get_running_loop())
        self.wheel = service.wheel
        self.clock = service.clock
        service.stats.connections.setdefault(SOCKET.name, 0)
        self.open: set[Open] = set()
        self.stopped = False
        self._origins = origins
        self._endpoints = endpoints
        self._parsers: dict[bool, Parser] = {}
        self._empty: asyncio.Future[None] | None = None
        self._before = min(settings.max_frame, settings.max_payload + FRAME_EXTRA)

    def endpoint(self, request: Request) -> Endpoint | None:
        """The endpoint for this request, if it is not for this listener itself."""
        path = request.path.partition("?")[0]
        return next((each for each in self._endpoints if each.handles(path)), None)

    def respond(self, core: ServerProtocol, request: Request) -> Response:
        """The answer to a request: an upgrade, or an error with a remedy."""
        path = request.path.partition("?")[0]
        if path not in ("/ws", "/ws/", "/"):
            return _misdirected(core, request)
        if request.method == "GET" and "Upgrade" not in request.headers:
            response = core.reject(
                426,
                "This is the WebSocket port of Hanzo PubSub: connect to /ws with a WebSocket"
                " client. REST and event streams are on the HTTP port.\n",
            )
            response.headers["Upgrade"] = "websocket"
            return response
        return self.accept(core, request)

    def accept(self, core: ServerProtocol, request: Request) -> Response:
        """The upgrade, unless the request is invalid or from a page that may not use the server."""
        found = request.headers.get_all("Origin")
        if len(found) == 1 and not self._origins.allows(found[0]):
            return core.reject(403, "The origin of this page is not in cors_origins.\n")
        return core.accept(request)

    def max_frame(self, connection: Connection) -> int:
        """Maximum bytes of an inbound message: less before authentication."""
        return self._before if connection.identity is None else self.settings.max_frame

    def take_parser(self, connection: Connection) -> Parser:
        """A parser at the beginning of a frame."""
        parser = self._parsers.pop(connection.identity is None, None)
        return parser or Parser(SERVER, max_size=self.max_frame(connection), logger=QUIET)

    def give_parser(self, connection: Connection, parser: Parser) -> None:
        """Return a parser that is at the beginning of a frame."""
        self._parsers[connection.identity is None] = parser

    def gone(self, connection: Open) -> None:
        """A connection has ended."""
        self.open.discard(connection)
        if not self.open and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def end(self, seconds: float) -> None:
        """Wait until every connection has closed, for at most this long, and cut the rest."""
        self.stopped = True
        for each in list(self.open):
            each.leave()
        if self.open:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)
        for each in list(self.open):
            each.abort()


def _misdirected(core: ServerProtocol, request: Request) -> Response:
    """The answer to a request for the HTTP port.

    Its CORS headers let a page read it. Otherwise, the browser would report an error of CORS
    instead of the wrong port.
    """
    is_preflight = request.method == "OPTIONS"
    text = "" if is_preflight else "This path does not exist. The WebSocket endpoint is /ws.\n"
    response = core.reject(200 if is_preflight else 404, text)
    response.headers["Access-Control-Allow-Origin"] = "*"
    for asked, allowed in (("Method", "Methods"), ("Headers", "Headers")):
        values = request.headers.get_all(f"Access-Control-Request-{asked}")
        response.headers[f"Access-Control-Allow-{allowed}"] = ", ".join(values)
    return response
