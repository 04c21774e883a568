"""A connection of the HTTP port: deadlines, limits, and at most one event stream."""

from __future__ import annotations

import logging
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from pubsub_server.errors import ServiceError
from pubsub_server.listeners.callers import peer
from pubsub_server.listeners.http.problems import problem
from pubsub_server.listeners.http.request_ids import new_request_id
from pubsub_server.listeners.pre_auth import RETRY_SECONDS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage
    from aiohttp.streams import StreamReader

    from pubsub_server.interfaces import Identity
    from pubsub_server.listeners.http.connections import HttpConnections
    from pubsub_server.listeners.http.user_shares import UserShare
    from pubsub_server.listeners.pre_auth import PreAuthSlot
    from pubsub_server.service import Service
    from pubsub_server.shared.connection import Connection

MAX_LINE: Final = 65_536
"""Maximum bytes of a request line: room for several hundred topics."""

MAX_PATH: Final = 1_024
"""Maximum bytes of the path in it, with room for an encoded topic: with 60,000 slashes, aiohttp's
router would take a second."""

MAX_FIELD: Final = 32_768
"""Maximum bytes of a header: room for the largest token."""

SERVER: Final = "hanzo-pubsub"
"""Header `Server`, instead of the versions of Python and aiohttp."""

PIECE: Final = 4_096
"""Maximum bytes that are parsed at once: a millisecond or two, if each is a chunk of its own."""

FRAMING: Final = 65_536
"""Bytes that a body may have in addition to twice its size: those of the sizes of its chunks."""

SMALL: Final = 65_536
"""Maximum bytes of a response that does not count among those of its user."""

_OVERLOADED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_LIMITED: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n" % RETRY_SECONDS
)
_LOG: Final = logging.getLogger("pubsub_server.http")


class HttpConnection(web.RequestHandler):
    """aiohttp's connection with deadlines for head and end, and at most one event stream.

    Args:
        manager: aiohttp's server.
        loop: The event loop.
        shared: What all connections share.

    Attributes:
        version_refused: Whether the current request has an unsupported HTTP version.
        turned_away: Whether the user of the current request has too many connections.
    """

    __slots__ = (
        "_end_timer",
        "_ending",
        "_gone",
        "_head_timer",
        "_ignoring",
        "_parsed",
        "_proxied",
        "_settings",
        "_share",
        "_shared",
        "_slot",
        "_stream",
        "_unparsed",
        "_unversioned",
        "_wire",
        "turned_away",
        "version_refused",
    )

    def __init__(
        self,
        manager: web.Server,
        loop: asyncio.AbstractEventLoop,
        shared: HttpConnections,
    ) -> None:
        settings = shared.settings
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=settings.http_idle_timeout / 1000,
            access_log=None,  # type: ignore[arg-type]
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=settings.max_headers,
            lingering_time=settings.linger_timeout / 1000,
            auto_decompress=False,
            logger=_LOG,
        )
        # aiohttp answers in the version of the request, even if it does not exist.
        assert self._request_factory is not None
        self._unversioned, self._request_factory = self._request_factory, self._versioned
        self.version_refused = False
        self.turned_away = False
        self._settings = settings
        self._shared = shared
        self._stream: tuple[Callable[[], None], Service, Connection] | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._wire: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] | None = None
        # The slot of its address, until a token is accepted; each request of a trusted proxy has
        # its own slot.
        self._slot: PreAuthSlot | None = None
        self._proxied = False
        # Received bytes that wait for their turn; the number of parsed ones since the last request.
        self._unparsed = b""
        self._parsed = 0
        self._ignoring = False
        # The share of the user whose token was accepted last.
        self._share: UserShare | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected: count it, and set the deadline for its first request."""
        super().connection_made(transport)
        self._wire = self.transport
        self._shared.open += 1
        if self._shared.stopped:
            self.force_close()
            return
        if self._shared.open > self._settings.max_connections:
            self._turn_away(_OVERLOADED)
            return
        here = peer(transport)
        self._proxied = self._shared.callers.behind(here)
        if not self._proxied:
            self._slot = self._shared.pre_auth.enter(here)
            if self._slot is None:
                self._turn_away(_LIMITED)
                return
        self._head_timer = self._loop.call_later(
            self._settings.header_timeout / 1000, self.force_close
        )

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._slot is not None and not self._slot.add(len(data)):
            self._turn_away(_LIMITED)
            return
        turns = self._shared.turns
        if self._ignoring:
            return
        if self._unparsed:
            self._wait_to_parse(self._unparsed + data)
        elif not data:
            # aiohttp continues after it has paused.
            super().data_received(data)
        elif turns.free:
            self._parse(data)
        else:
            self._wait_to_parse(data)
            turns.enqueue(self._parse_in_turn)

    def eof_received(self) -> None:
        """The client has closed its side: parse what it sent before."""
        # TLS reports this while reading is paused, too, and leaves no time for another turn.
        data, self._unparsed = self._unparsed, b""
        if data:
            super().data_received(data)
        super().eof_received()

    def _parse(self, data: bytes) -> None:
        """Parse bytes in pieces until the time of the turn is used up; the rest waits."""
        turns = self._shared.turns
        for start in range(0, len(data), PIECE):
            if start and turns.over:
                self._wait_to_parse(data[start:])
                turns.enqueue(self._parse_in_turn)
                return
            piece = data[start : start + PIECE]
            self._parsed += len(piece)
            super().data_received(piece)

    def _parse_in_turn(self) -> None:
        data, self._unparsed = self._unparsed, b""
        wire = self._wire
        if wire is None:
            return
        self._parse(data)
        if not (self._unparsed or wire.is_closing() or self._aiohttp_waits):
            wire.resume_reading()

    @property
    def _aiohttp_waits(self) -> bool:
        return self._reading_paused or getattr(self, "_buffer_paused", False)

    def _wait_to_parse(self, data: bytes) -> None:
        self._unparsed = data
        if self._wire is not None and not self._wire.is_closing():
            self._wire.pause_reading()

    def _versioned(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self.version_refused = message.version not in (HttpVersion10, HttpVersion11)
        if self.version_refused:
            message = message._replace(version=HttpVersion11)
        if len(message.url.raw_path) > MAX_PATH:
            message = message._replace(url=message.url.with_path("/-"))
        return self._unversioned(message, payload, protocol, writer, task)

    def begin_request(self, address: str | None) -> bool:
        """The head of a request has arrived; False if this client has too many."""
        self._parsed = 0
        if self._proxied:
            self._slot = self._shared.pre_auth.enter(address)
            return self._slot is not None
        return True

    def authenticated(self, identity: Identity) -> None:
        """The token of a request has been accepted.

        Raises:
            ServiceError: `connection_limit`, if its user has too many connections.
            ConnectionError: The client has disconnected.
        """
        if self._wire is None:
            raise ConnectionResetError("the connection is closed")
        share = self._share
        if share is None or share.key != (identity.kind, identity.user_id):
            self._leave_share()
            try:
                self._share = self._shared.users.enter(identity)
            except ServiceError:
                self.turned_away = True
                raise
        self._leave_slot()

    def expect_large(self) -> None:
        """A response of this request may be large.

        Raises:
            ServiceError: `connection_limit`, if its user has too many bytes in transit.
        """
        if self._share is not None and self._share.full:
            raise _too_much()

    def receiving(self, size: int, *, more: bool = False) -> None:
        """So many bytes of a body have arrived.

        Args:
            size: Bytes of the body.
            more: Whether more of it follows; otherwise, parsed bytes may be of later requests.

        Raises:
            ServiceError: `connection_limit`, if its user has too many bytes in transit;
                `invalid_frame`, if it arrives in tiny chunks, each of which costs a microsecond.
        """
        if more and self._parsed > 2 * size + FRAMING:
            self._ignoring = self.turned_away = True
            raise ServiceError("invalid_frame", "the body is sent in chunks of a few bytes")
        if self._share is not None and not self._share.hold(size):
            raise _too_much()

    def sending(self, method: str, response: web.StreamResponse) -> None:
        """A response is about to be sent.

        Raises:
            ServiceError: `connection_limit`, if its user has too many bytes in transit. Not for a
                request that may have changed something.
        """
        if not isinstance(response, web.Response) or self._wire is None:
            return
        body = response.body
        if not isinstance(body, bytes) or len(body) <= SMALL:
            return
        if self._share is not None and not self._share.hold(len(body)) and method == "GET":
            self._share.hold(0)
            raise _too_much()
        # aiohttp writes a file in pieces. It would copy bytes to join them with the headers, and a
        # TLS transport takes bytes of any size at once, and does not pause after them.
        response.body = BytesIO(body)

    def _leave_share(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.leave()

    def _leave_slot(self) -> None:
        if self._slot is not None:
            self._slot.leave()
            self._slot = None

    def end_request(self) -> None:
        """A request has been answered."""
        if self._slot is None:
            return
        if self._proxied:
            self._leave_slot()
        else:
            self._slot.hold(0)

    def _turn_away(self, answer: bytes) -> None:
        if self.transport is not None:
            self.transport.write(answer)
        self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has disconnected: its stream ends."""
        self._shared.open -= 1
        self._leave_slot()
        self._leave_share()
        self.head_received()
        self._wire = None
        self._unparsed = b""
        self._cancel_end()
        if self._gone is not None:
            self._gone.set_result(None)
        stream, self._stream = self._stream, None
        super().connection_lost(exc)
        if stream is not None:
            end, service, connection = stream
            service.closed(connection, None)
            end()

    def pause_writing(self) -> None:
        """The transport has too many unsent bytes: the hub queues messages."""
        super().pause_writing()
        if self._stream is not None:
            self._stream[1].pause(self._stream[2])
            return
        if not self._ending:
            self._cut_after(self._settings.body_timeout / 1000)

    def resume_writing(self) -> None:
        """The transport has room again."""
        super().resume_writing()
        if self._stream is not None:
            self._stream[1].resume(self._stream[2])
            return
        if not self._ending:
            self._cancel_end()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends a response; then a connection of a proxy, which all users share, has no user."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(resp, web.Response):
                # aiohttp keeps the response until the next request of the connection.
                resp.body = None
            if self._share is not None:
                self._share.hold(0)
            if self._proxied or self._settings.behind_tls_proxy:
                self._leave_share()

    async def start(self) -> None:
        """Handles requests until the connection ends; then sends the rest within a deadline."""
        try:
            await super().start()
        finally:
            if not self._ending:
                self.expect_end(self._settings.body_timeout / 1000)

    def head_received(self) -> None:
        """A request is complete; the first deadline is met."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @property
    def gone(self) -> asyncio.Future[None]:
        """A future that is done when the client has disconnected; for slow requests."""
        if self._gone is None:
            self._gone = self._loop.create_future()
            if self._wire is None:
                self._gone.set_result(None)
        return self._gone

    def attach(self, end: Callable[[], None], service: Service, connection: Connection) -> None:
        """This connection carries an event stream from now on, which the hub counts.

        Args:
            end: Ends the stream.
            service: The hub.
            connection: The hub's connection of the stream.
        """
        self._leave_share()
        self._stream = (end, service, connection)

    def detach(self) -> None:
        """The event stream has ended."""
        self._stream = None

    def expect_end(self, seconds: float) -> None:
        """Nothing more will be written: cuts the connection if it does not close in time."""
        self._ending = True
        self._cut_after(seconds)

    def _cut_after(self, seconds: float) -> None:
        self._cancel_end()
        if self._wire is not None:
            self._end_timer = self._loop.call_later(seconds, self._wire.abort)

    def _cancel_end(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs a failure, except that the client has disconnected while its body was ignored."""
        if self._wire is not None:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A problem document for invalid HTTP, and for failures outside of a handler."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has started; the connection is closed")
        identifier = new_request_id()
        if status >= 500:
            _LOG.error("request %s failed", identifier, exc_info=exc)
            error = ServiceError("internal", "the server failed to process this request")
            response = problem(error, identifier, status=status)
        else:
            error, remedy = self._invalid(exc)
            response = problem(error, identifier, status=status, remedy=remedy)
        response.headers["Server"] = SERVER
        response.headers["X-Request-Id"] = identifier
        response.force_close()
        return response

    def _invalid(self, exc: BaseException | None) -> tuple[ServiceError, str]:
        if isinstance(exc, LineTooLong) and exc.args[1] == MAX_FIELD:
            detail = f"a header has more than {MAX_FIELD:,} bytes"
            remedy = "Send shorter headers, for example fewer cookies."
        elif isinstance(exc, LineTooLong):
            detail = f"the request line has more than {MAX_LINE:,} bytes"
            remedy = "Send fewer topics, or send them in the body of `POST /v1/subscribe`."
        elif isinstance(exc, BadHttpMessage) and "Too many headers" in exc.message:
            detail = f"the request has more than {self._settings.max_headers} header lines"
            remedy = "Send fewer headers, or raise `max_headers` of the server."
        else:
            detail = "this is not a valid HTTP/1.1 request"
            remedy = "Check the request line, the headers (`Host` is required) and the body length."
        return ServiceError("invalid_frame", detail), remedy


def _too_much() -> ServiceError:
    return ServiceError(
        "connection_limit",
        "the requests and responses of this user that are in transit are too large together",
        retry_after_ms=RETRY_SECONDS * 1000,
    )
