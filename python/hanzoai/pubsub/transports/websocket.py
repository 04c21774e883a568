"""Frames over a WebSocket (HIP-56 WebSocket; RFC 6455), on the library `websockets`.

The library dials, shakes hands, parses and answers pings. Three things are done here in its place,
as a subclass of its connection: messages that come in one frame each are read without its parser
(see `frames`); what arrives in one read is handed over as one list, with one wake-up of the reader;
and what is sent in one turn of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    InvalidHandshake,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)
from websockets.frames import Frame, Opcode
from websockets.protocol import CLOSED, OPEN

from hanzoai.pubsub.generated.wire import MessageFrame
from hanzoai.pubsub.http.status import close_code_for, retry_after_of, why_unreachable
from hanzoai.pubsub.settings.urls import is_loopback
from hanzoai.pubsub.transports import TransportClosed, TransportFailed, ignore
from hanzoai.pubsub.transports.frames import WholeFrames
from hanzoai.pubsub.version import USER_AGENT
from hanzoai.pubsub.wire.codec import (
    MESSAGE,
    Malformed,
    Unknown,
    decode,
    encode,
    message_validator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from websockets.client import ClientProtocol
    from websockets.http11 import Response

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import ClientFrame, ServerFrame
    from hanzoai.pubsub.settings.options import ClientOptions

logger = logging.getLogger("hanzoai.pubsub")

_QUEUED_BYTES: Final = 1 << 20
"""Reading from the network stops while so much has arrived and was not taken."""

_BURST: Final = 32
"""Frames handed over at once; measured: fewer pay for wake-ups, more for cold memory."""

_CLOSE_TIMEOUT: Final = 1.0

_HEAD_END: Final = b"\r\n\r\n"

_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

# The library logs whole frames at DEBUG, and the first one holds the token: it gets no logger.
# Not one of the tree, which a program's logging configuration could wake.
_silent: Final = logging.Logger("silent", logging.CRITICAL + 1)  # noqa: LOG001


class WebSocketTransport:
    """One WebSocket.

    The token travels in the `auth` frame, never in the URL or a header.

    Args:
        options: `socket_url`, `open_timeout`, `max_frame`, `compression`, `proxy`, `ssl_context`
            and `transport` are used. Connections to this machine never go through a proxy.
        clock: For `last_heard`.
    """

    incremental: bool = True

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self._options = options
        self._connection: _Connection | None = None
        self._closed = False
        self.now = clock.now
        self.last_heard: float = clock.now()
        self.largest: int | None = 0
        self.malformed: Callable[[str], None] = ignore
        self.max_frame: int = options.max_frame

    async def open(self) -> None:
        """Dial and shake hands.

        Raises:
            TransportFailed: The host is not found, refuses, does not speak TLS or WebSocket, or did
                not answer in `open_timeout`; `reason` says which.
        """
        options = self._options
        url = options.socket_url
        host = urlsplit(url).hostname or ""
        more: dict[str, Any] = {}
        if url.startswith("wss:") and options.ssl_context is not None:
            more["ssl"] = options.ssl_context
        try:
            dialed = await _Connect(
                url,
                create_connection=self._make_connection,  # type: ignore[arg-type]
                compression="deflate" if options.compression else None,
                user_agent_header=USER_AGENT,
                proxy=None if is_loopback(host) else options.proxy or None,
                open_timeout=options.open_timeout,
                ping_interval=None,
                close_timeout=_CLOSE_TIMEOUT,
                max_size=options.max_frame,
                logger=_silent,
                **more,
            )
        except InvalidStatus as error:
            raise self._refused(error.response) from error
        except (ProxyError, InvalidProxy) as error:
            raise TransportFailed(None, "The proxy did not let the connection through.") from error
        except (InvalidHandshake, InvalidURI, EOFError) as error:
            raise TransportFailed(
                None, f"{host} did not answer as a WebSocket server ({type(error).__name__})."
            ) from error
        except (OSError, ssl.SSLError, TimeoutError) as error:
            raise TransportFailed(None, why_unreachable(error, host)) from error
        assert isinstance(dialed, _Connection)
        self._connection = dialed
        if self._closed:
            dialed.transport.abort()

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; those of one loop turn leave in one write. Ignored once closed."""
        connection = self._connection
        if connection is None or self._closed:
            return
        outgoing = connection.outgoing
        if not outgoing:
            connection.loop.call_soon(connection.write_all)
        try:
            outgoing.append(encode(frame))
        except ValueError:
            # Payloads are checked when they are published; this one changed since. The exception
            # is left out: it would show the payload.
            logger.error("a frame of type %s cannot be written as JSON", frame.type)  # noqa: TRY400

    async def receive(self) -> Sequence[ServerFrame]:
        """Wait for frames: what has arrived, at most 32, in order.

        Raises:
            TransportClosed: The socket is closed and everything that came was handed out.
        """
        connection = self._connection
        if connection is None:
            raise TransportClosed(None, "The connection was never opened.")
        # One function from the socket to the frame: each message comes through here.
        validate_message = message_validator()
        while True:
            while not connection.arrived:
                if connection.ended:
                    raise TransportClosed(*connection.end())
                await connection.more()
            raw = connection.arrived[:_BURST]
            del connection.arrived[:_BURST]
            connection.arrived_bytes -= sum(map(len, raw))
            if connection.paused:
                connection.resume()
            frames: list[ServerFrame] = []
            largest = self.largest or 0
            for data in raw:
                if data.startswith(MESSAGE):
                    try:
                        frames.append(validate_message(data))
                    except ValidationError:
                        pass
                    else:
                        if len(data) > largest:
                            self.largest = largest = len(data)
                        continue
                frame = decode(data)
                if isinstance(frame, Malformed):
                    self.malformed(frame.reason)
                elif isinstance(frame, Unknown):
                    logger.debug("a frame of unknown type %r was ignored", frame.type)
                else:
                    if len(data) > largest and type(frame) is MessageFrame:
                        self.largest = largest = len(data)
                    frames.append(frame)
            if frames:
                return frames

    async def close(self, code: int = 1000) -> None:
        """Say goodbye, wait at most a second for the answer, then cut."""
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        if connection is None:
            return
        connection.write_all()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await connection.close(code)
        except TimeoutError:
            pass
        finally:
            connection.transport.abort()

    def _make_connection(self, protocol: ClientProtocol, **kwargs: Any) -> _Connection:
        return _Connection(self, protocol, **kwargs)

    def _refused(self, response: Response) -> TransportFailed:
        status = response.status_code
        headers = response.headers
        # No token was shown yet: where a fallback is left, a refusal says that something on the way
        # does not let WebSockets through, and nothing about this identity.
        code = close_code_for(status)
        if self._options.transport == "auto" and status in (401, 403):
            code = None
        reason = f"The server answered HTTP {status} where a WebSocket was asked for."
        if 300 <= status < 400:
            reason = f"{reason} Redirects are not followed: they would carry the token away."
        return TransportFailed(code, reason, retry_after_of(headers.get("Retry-After")))


class _Connect(connect):
    """The library's dialer, which follows no redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _Connection(ClientConnection):
    """The library's connection, with an own way in and out for data frames."""

    def __init__(self, owner: WebSocketTransport, protocol: ClientProtocol, **kwargs: Any) -> None:
        super().__init__(protocol, **kwargs)
        self._owner = owner
        self.outgoing: list[bytes] = []
        self.arrived: list[bytes] = []
        self.arrived_bytes = 0
        self.paused = False
        self.ended = False
        self._parts: list[bytes] = []
        self._frames: WholeFrames | None = None
        self._reader: asyncio.Future[None] | None = None

    # -------------------------------------------------------------- in

    def data_received(self, data: bytes) -> None:
        owner = self._owner
        owner.last_heard = owner.now()
        waiting = len(self.arrived)
        if self._frames is None:
            self._parse(data)
        else:
            rest = self._frames.feed(data)
            if rest is not None:
                self._frames = None
                self._parse(rest)
        self.arrived_bytes += sum(map(len, self.arrived[waiting:]))
        if self.arrived:
            if self._reader is not None and not self._reader.done():
                self._reader.set_result(None)
            if not self.paused and self.arrived_bytes > _QUEUED_BYTES:
                self.paused = True
                self.transport.pause_reading()

    def _parse(self, data: bytes) -> None:
        """Have the library parse it: the handshake, and what the fast way leaves to it."""
        shaken = self.response is not None
        super().data_received(data)
        if self.response is None and self.protocol.handshake_exc is not None:
            # The library reads on until the server ends a head that is too long, or no HTTP.
            self.transport.abort()
        if self.response is not None and self.protocol.state is not OPEN:
            self._end()
        elif not shaken and not self.protocol.extensions and _ends_a_head(data):
            # Otherwise the library may hold the beginning of a frame.
            self._frames = WholeFrames(self.arrived, self._parse_frame, self._owner.max_frame)

    def _parse_frame(self, data: bytes) -> bool:
        self._parse(data)
        return not self._parts and self.protocol.state is OPEN

    def process_event(self, event: Any) -> None:
        if isinstance(event, Frame) and event.opcode in _DATA:
            self._parts.append(bytes(event.data))
            if event.fin:
                self.arrived.append(b"".join(self._parts))
                self._parts.clear()
        else:
            super().process_event(event)

    def eof_received(self) -> None:
        # What has begun is against the protocol now, which is for the library to say.
        if self._frames is not None:
            rest, self._frames = self._frames.rest(), None
            self._parse(rest)
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end()

    def more(self) -> asyncio.Future[None]:
        """Wait for messages, or for the end."""
        self._reader = self.loop.create_future()
        return self._reader

    def resume(self) -> None:
        """Read from the network again, if little enough waits."""
        if self.arrived_bytes <= _QUEUED_BYTES and not self.ended:
            self.paused = False
            self.transport.resume_reading()

    def end(self) -> tuple[int | None, str]:
        """How it ended: close code, or None where there was none, and why."""
        told = self.protocol.close_rcvd or self.protocol.close_sent
        if told is None:
            return None, "The connection was lost."
        return told.code, told.reason or f"The connection was closed with code {told.code}."

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._wake()
        if self.protocol.state is not CLOSED:
            # The closing handshake is done; a peer that leaves TCP open must not hold it.
            self.loop.call_later(_CLOSE_TIMEOUT, self.transport.abort)

    # -------------------------------------------------------------- out

    def write_all(self) -> None:
        """Write what waits in `outgoing`, at once. What the network cannot take is buffered."""
        messages, self.outgoing = self.outgoing, []
        protocol = self.protocol
        if not messages or protocol.state is not OPEN:
            return
        for message in messages:
            protocol.send_text(message)
        self.transport.write(b"".join(protocol.data_to_send()))


def _ends_a_head(data: bytes) -> bool:
    """Whether nothing follows the head of the server's answer."""
    return data.find(_HEAD_END) == len(data) - len(_HEAD_END)
