"""One WebSocket connection: handshake, frames, closing.

The protocol itself (handshake, parsing, fragments, pings, closing) is the sans-I/O core of the
`websockets` library; only whole text messages are read without it, by `text_frames`. Two measures
keep a connection small: it drops its handshake when it is open, and all connections that are
between two frames share one parser; a connection has its own only while a frame is half read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from websockets.exceptions import InvalidMessage, PayloadTooBig
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN, Protocol
from websockets.server import ServerProtocol

from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Caller
from pubsub_server.listeners.callers import FORWARDED, peer
from pubsub_server.listeners.endpoints import RefusedError, Visit
from pubsub_server.listeners.pre_auth import RETRY_SECONDS, TOO_MANY, TOO_MUCH
from pubsub_server.listeners.websocket.connections import QUIET
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.listeners.websocket.text_frames import MOST, text_frames

if TYPE_CHECKING:
    from websockets.http11 import Response

    from pubsub_server.listeners.endpoints import Answer, Endpoint, Receiver
    from pubsub_server.listeners.pre_auth import PreAuthSlot
    from pubsub_server.listeners.websocket.connections import SocketConnections
    from pubsub_server.shared.connection import Connection

PONG: Final = b"\x8a\x80"
"""Begins a masked pong without payload, RFC 6455 5.5.3; its mask follows."""
PONG_BYTES: Final = 6
HANDSHAKE_BYTES: Final = 32_768
"""Maximum bytes of a request for the upgrade."""
SOFT_BYTES: Final = 262_144
"""Maximum unsent bytes in a transport; beyond that, the hub queues messages."""
MEDIUM: Final = 2_048
"""Bytes of a read that can take milliseconds, and that waits for its turn."""
PIECE: Final = 4_096
"""Maximum bytes that the parser gets at once: a few milliseconds, if they are tiny frames."""
WAITING: Final = 256
"""Reads that wait with their bytes; further ones are handled immediately, to use no more memory."""
HELD: Final = 1
FROZEN: Final = 2
QUEUED: Final = 4
CLOSE_SECONDS: Final = 1.0
"""Seconds for a closing handshake, or for sending written bytes; then the connection is cut."""
FRAGMENTS: Final = 16_384
"""Maximum fragments of one message; empty ones count, because they also use memory."""
FRAGMENT_EXTRA: Final = 64
"""Bytes of a fragment in addition to its payload."""


class SocketProtocol(asyncio.Protocol):
    """One WebSocket connection; the hub's `interfaces.Sink`.

    Args:
        shared: What all connections share.
    """

    __slots__ = (
        "_closing",
        "_connection",
        "_deadline",
        "_forwarded",
        "_fragments",
        "_head",
        "_parser",
        "_queued",
        "_receiver",
        "_shared",
        "_slot",
        "_transport",
        "_unread",
        "_unwilling",
    )

    def __init__(self, shared: SocketConnections) -> None:
        self._shared = shared
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        # Received bytes of the request for the upgrade, until it is complete.
        self._head: bytearray | None = bytearray()
        # Its own parser, while a frame or a fragmented message is half read.
        self._parser: Protocol | None = None
        self._unread = 0
        # A read that waits for its turn.
        self._queued = b""
        # Reasons not to read: HELD, FROZEN, QUEUED, or 0.
        self._unwilling = 0
        self._fragments: list[bytes] | None = None
        self._closing = False
        self._deadline = 0.0
        # The client's address, from a trusted proxy.
        self._forwarded: str | None = None
        # Handles messages on a path other than /ws.
        self._receiver: Receiver | None = None
        # The slot of its address, until its token is accepted.
        self._slot: PreAuthSlot | None = None

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; it has `handshake` seconds for its request."""
        # uvloop's transport does not derive from asyncio's.
        socket = self._transport = cast("asyncio.Transport", transport)
        shared = self._shared
        shared.open.add(self)
        if shared.stopped:
            self.abort()
            return
        if len(shared.open) > shared.settings.max_connections or shared.service.refusing:
            self._answer_plainly(503, "Too many connections, or shutting down. Try again later.\n")
            return
        here = peer(socket)
        # Behind a trusted proxy, only the request contains the client's address.
        if not shared.callers.behind(here) and not self._enter(here):
            return
        socket.set_write_buffer_limits(high=SOFT_BYTES)
        self._expire_in(shared.settings.auth_deadline / 1000)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._head is not None:
            self._shake_hands(data)
        elif (connection := self._connection) is not None:
            if len(data) < MEDIUM or self._shared.turns.free:
                self._read(connection, data)
            else:
                self._read_later(connection, data)
        if self._slot is not None:
            self._account()

    def _read_later(self, connection: Connection, data: bytes) -> None:
        turns = self._shared.turns
        self._read_unless(QUEUED, True)
        if turns.waiting >= WAITING:
            self._read(connection, data)
        else:
            self._queued = data
        turns.enqueue(self._go_on)

    def _go_on(self) -> None:
        data, self._queued = self._queued, b""
        connection = self._connection
        if connection is None:
            return
        try:
            self._read(connection, data)
        except Exception:
            # As a transport does that gets the error.
            self.abort()
            raise
        if self._slot is not None:
            self._account()
        if not self._queued:
            self._read_unless(QUEUED, False)

    def _read(self, connection: Connection, data: bytes) -> None:
        shared = self._shared
        connection.last_received = shared.clock()
        while self._parser is None and not self._closing:
            # A pong between two frames: idle connections send nothing else.
            if len(data) == PONG_BYTES and data.startswith(PONG):
                return
            messages, at = text_frames(data, shared.max_frame(connection))
            for message in messages:
                self._take_text(connection, message)
            if at == len(data):
                return
            data = data[at:]
            if len(messages) < MOST:
                break
            if self._is_turn_over:
                self._read_later(connection, data)
                return
        rest = self._parse(connection, data)
        if rest:
            self._read_later(connection, rest)

    @property
    def _is_turn_over(self) -> bool:
        """Whether the rest of a read must wait for another turn."""
        turns = self._shared.turns
        return turns.over and turns.waiting < WAITING

    def eof_received(self) -> bool:
        """The client has closed its side: close ours."""
        while self._queued:
            # TLS reports this while reading is paused, too, and leaves no time for another turn.
            self._go_on()
        return False

    def pause_writing(self) -> None:
        """The transport has too many unsent bytes."""
        if self._connection is not None:
            self._shared.service.pause(self._connection)

    def resume_writing(self) -> None:
        """The transport has room again."""
        if self._connection is not None:
            self._shared.service.resume(self._connection)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        connection, self._connection = self._connection, None
        self._transport = self._parser = self._fragments = self._head = None
        self._closing = True
        self._leave_slot()
        self._shared.gone(self)
        if connection is not None:
            self._left(connection, None)
        self._receiver = None

    def _left(self, connection: Connection, code: int | None) -> None:
        """The client has closed."""
        if self._receiver is None:
            self._shared.service.closed(connection, code)
        else:
            self._receiver.gone()

    # ------------------------------------------------------------ Sink

    @property
    def caller(self) -> Caller:
        """See `interfaces.Sink`."""
        if self._forwarded is not None:
            return Caller(self._forwarded)
        return Caller(self._shared.callers.address(peer(self._transport), ()))

    def write(self, data: bytes) -> None:
        """See `interfaces.Sink`."""
        transport = self._transport
        if transport is not None and not self._closing:
            transport.write(data)

    def buffered(self) -> int:
        """See `interfaces.Sink`."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """See `interfaces.Sink`: the client has a second to answer, then the connection is cut."""
        transport = self._transport
        if transport is None or self._closing:
            return
        if self._connection is None:
            # The upgrade has not been answered yet.
            self._answer_plainly(503, f"{reason}\n")
            return
        self._closing = True
        frame = Frame(Opcode.CLOSE, Close(code, reason[:120]).serialize())
        transport.write(frame.serialize(mask=False))
        # Read, to receive the client's answer.
        self._read_unless(HELD, False)
        self._expire_in(CLOSE_SECONDS)

    def abort(self) -> None:
        """See `interfaces.Sink`."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def hold(self, on: bool) -> None:
        """See `interfaces.Sink`."""
        if self._connection is not None and self._connection.identity is not None:
            self._leave_slot()
        self._read_unless(HELD, on)

    def freeze(self, frozen: bool) -> None:
        """Stop reading, for tests; or continue."""
        self._read_unless(FROZEN, frozen)

    def _read_unless(self, why: int, on: bool) -> None:
        before = self._unwilling
        self._unwilling = before | why if on else before & ~why
        transport = self._transport
        if transport is None or transport.is_closing() or bool(before) is bool(self._unwilling):
            return
        (transport.pause_reading if self._unwilling else transport.resume_reading)()

    # ------------------------------------------------------------ the wheel

    def due(self, now: float) -> float | None:
        """See `wheel.Waiting`: a handshake or a close took too long."""
        transport = self._transport
        if transport is None or not (self._closing or self._head is not None):
            return None
        if now < self._deadline:
            return self._deadline
        transport.abort()
        return None

    def _expire_in(self, seconds: float) -> None:
        wheel = self._shared.wheel
        self._deadline = wheel.now() + seconds
        wheel.add(self, self._deadline)

    # ------------------------------------------------------------ before authentication

    def _enter(self, address: str | None) -> bool:
        """Take a slot of the address; if there is none, send an error and close."""
        self._slot = self._shared.pre_auth.enter(address)
        if self._slot is None:
            self._answer_plainly(429, f"{TOO_MANY.capitalize()}. Try again later.\n")
            return False
        return True

    def _account(self) -> None:
        """Report the bytes held for this connection, and close it if there are too many."""
        slot, connection = self._slot, self._connection
        if slot is None or self._closing:
            return
        held = self._unread + len(self._head or b"") + len(self._queued)
        if self._fragments is not None:
            gathered = None if self._parser is None else self._parser.current_size
            held += (gathered or 0) + FRAGMENT_EXTRA * len(self._fragments)
        if connection is not None and connection.waiting is not None:
            held += sum(len(each) for each in connection.waiting if isinstance(each, str | bytes))
        if slot.hold(held):
            return
        if connection is None:
            self._answer_plainly(429, f"{TOO_MUCH.capitalize()}. Try again later.\n")
        else:
            error = ServiceError("connection_limit", TOO_MUCH, retry_after_ms=RETRY_SECONDS * 1000)
            self._shared.service.end(connection, error)

    def _leave_slot(self) -> None:
        if self._slot is not None:
            self._slot.leave()
            self._slot = None

    # ------------------------------------------------------------ opening

    def _shake_hands(self, data: bytes) -> None:
        head = self._head
        if head is None or self._closing:
            return
        begin = max(0, len(head) - 3)
        head += data
        if not head[:1].isalpha():
            # Plain text makes a client of TLS, or of another protocol, fail at once.
            self._answer_plainly(400, "Not an HTTP request. This port accepts WebSockets.\n")
            return
        end = head.find(b"\r\n\r\n", begin)
        if end < 0 or end > HANDSHAKE_BYTES:
            if len(head) > HANDSHAKE_BYTES:
                self._answer_plainly(431, "The request is too large.\n")
            return
        core = ServerProtocol(max_size=None, logger=QUIET)
        core.receive_data(bytes(head[: end + 4]))
        events = core.events_received()
        if not events:
            if isinstance(core.handshake_exc, InvalidMessage):
                # Not HTTP, or a request with a body: the library writes no answer.
                text = "Not a request for a WebSocket. REST is on the HTTP port.\n"
                self._answer_plainly(400, text)
            else:
                self._finish(core)
            return
        request = events[0]
        assert isinstance(request, Request)
        callers, here = self._shared.callers, peer(self._transport)
        if callers.behind(here):
            self._forwarded = callers.address(here, request.headers.get_all(FORWARDED))
            if not self._enter(self._forwarded):
                return
        endpoint = self._shared.endpoint(request)
        if endpoint is not None:
            self._visit(endpoint, core, request, bytes(head[end + 4 :]))
            return
        response = self._shared.respond(core, request)
        core.send_response(response)
        if response.status_code != 101:
            self._finish(core)
            return
        try:
            self._connection = self._shared.service.open(self, SOCKET)
        except ServiceError as error:
            self._answer_plainly(503, f"{error.message}\n")
            return
        rest = bytes(head[end + 4 :])
        self._head = None
        self.write(b"".join(core.data_to_send()))
        if rest:
            self.data_received(rest)

    def _visit(
        self, endpoint: Endpoint, core: ServerProtocol, request: Request, rest: bytes
    ) -> None:
        """Pass a request to an endpoint."""
        path, _, query = request.path.partition("?")
        headers = {name.lower(): value for name, value in request.headers.raw_items()}
        visit = Visit(path, query, headers)
        if "upgrade" not in headers:
            self._answer(core, endpoint.get(visit))
            return
        response = self._shared.accept(core, request)
        if response.status_code != 101:
            core.send_response(response)
            self._finish(core)
            return
        self._head = None
        self._read_unless(HELD, True)
        endpoint.spawn(self._join(endpoint, core, response, visit, rest))

    async def _join(
        self,
        endpoint: Endpoint,
        core: ServerProtocol,
        response: Response,
        visit: Visit,
        rest: bytes,
    ) -> None:
        try:
            receiver = await endpoint.join(visit, self)
        except RefusedError as error:
            self._read_unless(HELD, False)
            if not self._closing:
                self._answer(core, error.answer)
            return
        if self._transport is None or self._closing:
            receiver.gone()
            return
        core.send_response(response)
        self._receiver, self._connection = receiver, receiver.connection
        self._leave_slot()
        self.write(b"".join(core.data_to_send()))
        receiver.begin()
        self._read_unless(HELD, False)
        if rest:
            self.data_received(rest)

    def _answer(self, core: ServerProtocol, answer: Answer) -> None:
        response = core.reject(answer.status, answer.body.decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json; charset=utf-8"
        if answer.status == 426:
            response.headers["Upgrade"] = "websocket"
        core.send_response(response)
        self._finish(core)

    def leave(self) -> None:
        """The server stops."""
        if self._head is not None and not self._closing:
            self._answer_plainly(503, "The server is shutting down.\n")
        else:
            self.close(1001, "going_away")

    def _answer_plainly(self, status: int, text: str) -> None:
        core = ServerProtocol(logger=QUIET)
        response = core.reject(status, text)
        response.headers["Access-Control-Allow-Origin"] = "*"  # so that a page can read the reason
        if status == 429:
            response.headers["Retry-After"] = str(RETRY_SECONDS)
        core.send_response(response)
        self._finish(core)

    def _finish(self, core: Protocol) -> None:
        """Write the library's remaining bytes and close."""
        transport = self._transport
        if transport is None:
            return
        self._closing = True
        transport.write(b"".join(core.data_to_send()))
        transport.close()
        self._expire_in(CLOSE_SECONDS)

    # ------------------------------------------------------------ frames

    def _parse(self, connection: Connection, data: bytes) -> bytes:
        """Parse bytes in pieces, and return those that must wait for another turn."""
        shared = self._shared
        parser = self._parser
        borrowed = parser is None
        if parser is None:
            parser = shared.take_parser(connection)
        unread, at = self._unread, 0
        while at < len(data) and parser.parser_exc is None and parser.state is OPEN:
            piece = data[at : at + PIECE]
            at += len(piece)
            parser.receive_data(piece)
            unread += len(piece)
            frames = parser.events_received()
            for frame in frames:
                assert isinstance(frame, Frame)
                unread -= _wire_size(frame)
                self._handle(connection, parser, frame)
            if frames and self._is_turn_over:
                break
        if parser.parser_exc is not None:
            self._parser = None
            self._fail(connection, parser)
            return b""
        if parser.state is not OPEN:
            self._parser = None
            return b""
        if unread == 0 and self._fragments is None:
            # Between two frames the parser has no state, so any connection can use it.
            self._answer_pings(parser)
            if borrowed:
                shared.give_parser(connection, parser)
            self._parser, self._unread = None, 0
        else:
            self._answer_pings(parser)
            self._parser, self._unread = parser, unread
        return data[at:]

    def _handle(self, connection: Connection, parser: Protocol, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.PING or opcode is Opcode.PONG:
            return
        if opcode is Opcode.CLOSE:
            self._closed_by_client(connection, parser)
            return
        data = bytes(frame.data)
        if self._fragments is not None or not frame.fin:
            if self._fragments is None:
                self._fragments = []
                if opcode is Opcode.TEXT:
                    self._fragments.append(b"")
            self._fragments.append(data)
            if len(self._fragments) > FRAGMENTS:
                self._refuse_fragments(connection)
                return
            if not frame.fin:
                return
            pieces, self._fragments = self._fragments, None
            text = pieces[0] == b""
            data = b"".join(pieces)
        else:
            text = opcode is Opcode.TEXT
        if text:
            self._take_text(connection, data)
        elif self._receiver is not None:
            self._receiver.receive(data)
        elif not self._closing:
            self._shared.service.receive(connection, data)

    def _take_text(self, connection: Connection, data: bytes) -> None:
        if self._closing:
            return
        if self._receiver is not None:
            self._receiver.receive(data)
            return
        try:
            decoded = data.decode()
        except UnicodeDecodeError:
            self._shared.service.closed(connection, 1007)
            self.close(1007, "the text is not valid UTF-8")
            return
        self._shared.service.receive(connection, decoded)

    def _refuse_fragments(self, connection: Connection) -> None:
        self._fragments = []
        self._shared.service.end(
            connection,
            ServiceError("payload_too_large", f"a message has at most {FRAGMENTS:,} fragments"),
        )

    def _answer_pings(self, parser: Protocol) -> None:
        """Write the pongs, except for a client that does not read: they would accumulate."""
        writes = parser.data_to_send()
        if writes and self.buffered() < SOFT_BYTES:
            self.write(b"".join(writes))

    def _closed_by_client(self, connection: Connection, parser: Protocol) -> None:
        code = None if parser.close_rcvd is None else parser.close_rcvd.code
        self._left(connection, 1000 if code == 1005 else code)
        transport = self._transport
        if transport is None:
            return
        if not self._closing:
            transport.write(b"".join(parser.data_to_send()))
        self._closing = True
        transport.close()
        self._expire_in(CLOSE_SECONDS)

    def _fail(self, connection: Connection, parser: Protocol) -> None:
        if isinstance(parser.parser_exc, PayloadTooBig):
            limit = self._shared.max_frame(connection)
            self._shared.service.end(
                connection,
                ServiceError("payload_too_large", f"a frame has at most {limit:,} bytes"),
            )
            return
        close = parser.close_sent
        self._shared.service.closed(connection, None)
        self.close(1002 if close is None else close.code, "" if close is None else close.reason)


def _wire_size(frame: Frame) -> int:
    """Bytes of a masked frame, with its length in the shortest form, as every client sends it.

    A client with a longer form counts as in the middle of a frame, which only costs a separate
    parser.
    """
    length = len(frame.data)
    return length + (6 if length < 126 else 8 if length < 65_536 else 14)
