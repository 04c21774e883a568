"""The connection of the library `picows`, of the extra `speed`: reads and writes frames in C.

The core of picows handles frames, not messages. This module joins fragments, answers pings, and
performs the closing handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import urlsplit

from picows import (
    WSCloseCode,
    WSError,
    WSFrame,
    WSHandshakeError,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    ws_connect,  # pyright: ignore[reportUnknownVariableType]
)

from hanzoai.pubsub.http.status import why_unreachable
from hanzoai.pubsub.network.dialing import open_socket
from hanzoai.pubsub.transports import TransportFailed
from hanzoai.pubsub.transports.connection import (
    CLOSE_TIMEOUT,
    ending,
    no_answer,
    no_websocket,
    port_of,
    refusal,
)
from hanzoai.pubsub.transports.frames import text_frames
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    import socket

    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports.connection import Owner

_READ: Final = 1 << 16
"""Bytes of the receive buffer; it grows when it is full."""

_MOST_READ: Final = 1 << 19
"""Maximum bytes of one read. Without it, each read that fills the buffer would double it.

Measured: half of it costs 3 % of the receive rate, and twice as much gains 1 %.
"""

_FRAME: Final = b'{"type":"'
"""First bytes of a canonical frame."""

_CONTROL: Final = 125
"""Maximum bytes of the payload of a control frame (RFC 6455, 5.5)."""

_NO_CODE: Final = 1005
"""Code of a close frame without a code (RFC 6455, 7.4.1); picows reports 0."""

# It logs received data at its lowest level; see `websockets_connection`.
_silent: Final = logging.Logger("silent", logging.CRITICAL + 1)  # noqa: LOG001


async def dial(owner: Owner, options: ClientOptions) -> PicowsConnection:
    """Dial and shake hands.

    Args:
        owner: The transport.
        options: `socket_url`, `open_timeout`, `max_frame`, `ssl_context` and `transport` are used.

    Raises:
        TransportFailed: See `WebSocketTransport.open`.
    """
    url = options.socket_url
    parts = urlsplit(url)
    host = parts.hostname or ""
    dialed = PicowsConnection(owner)

    async def connect(_: object) -> socket.socket:
        dialed.network = await open_socket(host, port_of(parts))
        return dialed.network

    try:
        async with asyncio.timeout(options.open_timeout):
            _, connection = await ws_connect(
                lambda: dialed,
                url,
                ssl_context=options.ssl_context,
                # Otherwise, the socket of a cancelled dial waits for an answer forever.
                websocket_handshake_timeout=options.open_timeout,
                logger_name=_silent,
                enable_auto_pong=False,
                max_frame_size=options.max_frame,
                read_buffer_init_size=_READ,
                extra_headers={"User-Agent": USER_AGENT},
                max_redirects=0,
                socket_factory=connect,
            )
    except WSHandshakeError as error:
        answer = error.response
        if answer is None or answer.status == 101:
            raise no_websocket(host, error) from error
        raise refusal(options, int(answer.status), answer.headers.get("Retry-After")) from error
    except (OSError, ssl.SSLError, TimeoutError, UnicodeError) as error:
        dialed.give_up()
        raise TransportFailed(None, why_unreachable(error, host, port=parts.port)) from error
    except (WSError, ValueError, EOFError) as error:
        raise no_websocket(host, error) from error
    except asyncio.CancelledError:
        dialed.give_up()
        raise
    if not isinstance(connection, PicowsConnection):
        raise no_answer(parts)
    return connection


class PicowsConnection(WSListener):
    """See `Connection`."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.loop = asyncio.get_running_loop()
        self.outgoing: list[bytes] = []
        self.arrived: list[bytes] = []
        self.sent = 0
        self.at_once = False
        self.ended = False
        self.network: socket.socket | None = None
        self._unwanted = False
        self._leaving = False
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._on_frame = _frame_handler(self.arrived, self._other)
        self._pass_frames_to(self._on_frame)
        self._socket: WSTransport
        self._outlasting: asyncio.Task[None]

    # -------------------------------------------------------------- in

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The handshake is done."""
        self._socket = transport
        if self._unwanted:
            self.abort()
            return
        self._outlasting = self.loop.create_task(_outlast(transport))
        self._owner.last_received = self._owner.now()
        network = transport.underlying_transport
        inner = cast("asyncio.BufferedProtocol", network.get_protocol())
        network.set_protocol(_Reads(self, inner))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection has ended."""
        self._end()
        self._owner.pass_on(self)

    def begin_read(self) -> None:
        """Prepare for the frames of one read."""
        if self._socket.is_close_frame_sent:
            # The library continues to read after a frame that violates the protocol.
            self._pass_frames_to(self._leave_out)

    def end_read(self, size: int) -> None:
        """All whole frames of a read of so many bytes have been handled."""
        # The library returns whole frames only. The time of each read shows that the server is not
        # silent while a large frame arrives over a slow network.
        self._owner.last_received = self._owner.now()
        self.at_once = self.sent == 1
        self.sent = 0
        self._owner.pass_on(self, size)

    def _pass_frames_to(self, on_frame: _OnFrame) -> None:
        """Choose the function that handles frames, instead of the method of the library."""
        self.on_ws_frame = on_frame  # type: ignore[method-assign]

    def _leave_out(self, transport: WSTransport, frame: WSFrame) -> None:
        """Handle a frame after a close frame: only the answer to ours counts."""
        if self._leaving and not self.ended and frame.msg_type is WSMsgType.CLOSE:
            self._closed(transport, frame)

    def _other(self, transport: WSTransport, frame: WSFrame) -> None:
        """Handle a control frame, a short message, or a part of a message."""
        kind = frame.msg_type
        if kind is WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
        elif kind is WSMsgType.CLOSE:
            self._closed(transport, frame)
        elif kind is not WSMsgType.PONG:
            self._fragment(kind, frame)

    def _fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        """Handle a short message, or a part of one."""
        if (kind is WSMsgType.CONTINUATION) != bool(self._parts):
            self._pass_frames_to(self._leave_out)
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "a fragment out of place")
        data = frame.get_payload_as_bytes()
        self._parts.append(data)
        self._parts_bytes += len(data)
        if self._parts_bytes > self._owner.max_frame:
            self._pass_frames_to(self._leave_out)
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, "")
        if not frame.fin:
            self._pass_frames_to(self._other)
            return
        self._pass_frames_to(self._on_frame)
        self.arrived.append(b"".join(self._parts))
        self._parts.clear()
        self._parts_bytes = 0

    def _closed(self, transport: WSTransport, frame: WSFrame) -> None:
        """Answer the close frame of the server, which then closes the connection."""
        if not transport.is_close_frame_sent:
            code = frame.get_close_code()
            transport.send_close(WSCloseCode.OK if code == WSCloseCode.NO_INFO else code, b"")
        self._end()

    def give_up(self) -> None:
        """Cut the connection of a cancelled dial, also one whose handshake was just answered."""
        self._unwanted = True
        if self.network is not None:
            with contextlib.suppress(OSError):  # it is closed
                self.network.shutdown(SHUT_RDWR)
        if hasattr(self, "_socket"):
            # A loop that ends does not wait for a task that began after it cancelled all others.
            self._outlasting.cancel()
            self.abort()

    def hold(self, on: bool) -> None:
        """See `Connection`."""
        network = self._socket.underlying_transport
        if on:
            network.pause_reading()
        else:
            network.resume_reading()

    def end(self) -> tuple[int | None, str]:
        """See `Connection`."""
        shaken: Any = self._socket.close_handshake
        close = None if shaken is None else shaken.recv or shaken.sent
        if close is None:
            return ending(None, "")
        return ending(int(close.code) or _NO_CODE, close.reason)

    def abort(self) -> None:
        """See `Connection`."""
        self._socket.disconnect(graceful=False)

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._pass_frames_to(self._leave_out)
        if not self._socket.is_disconnected:
            # The closing handshake is done; do not wait for a peer that leaves TCP open.
            self.loop.call_later(CLOSE_TIMEOUT, self.abort)

    # -------------------------------------------------------------- out

    def write_all(self) -> None:
        """See `Connection`."""
        messages, self.outgoing = self.outgoing, []
        socket = self._socket
        if not messages or self.ended or socket.is_close_frame_sent:
            return
        # picows makes one write per frame, and masks with the predictable `rand` of C
        # (RFC 6455, 5.3).
        socket.underlying_transport.write(text_frames(messages))

    async def close(self, code: int = 1000) -> None:
        """See `Connection`."""
        socket = self._socket
        if not self.ended and not socket.is_close_frame_sent:
            self._leaving = True
            self._pass_frames_to(self._leave_out)
            socket.send_close(cast("WSCloseCode", code), b"")
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """See `Connection`."""
        await asyncio.shield(self._outlasting)

    def pause_writing(self) -> None:
        """The network accepts no more data for now: buffer it."""

    def resume_writing(self) -> None:
        """The network accepts data again."""


class _OnFrame(Protocol):
    def __call__(self, transport: WSTransport, frame: WSFrame) -> None: ...


def _frame_handler(arrived: list[bytes], other: _OnFrame) -> _OnFrame:
    """Return a function that adds each message of one frame to `arrived`.

    It is not a method because reading attributes of a connection would double its time.

    Args:
        arrived: Receives the messages.
        other: Called with any other frame.
    """

    def on_frame(transport: WSTransport, frame: WSFrame) -> None:
        data = frame.get_payload_as_bytes()
        # Reading the type of a frame is slow, too. A control frame is short, and does not begin
        # like a frame of the protocol.
        if (len(data) > _CONTROL or data.startswith(_FRAME)) and frame.fin:
            arrived.append(data)
        else:
            other(transport, frame)

    return on_frame


class _Reads(asyncio.BufferedProtocol):
    """The library's protocol, which also reports the end of each read."""

    def __init__(self, connection: PicowsConnection, inner: asyncio.BufferedProtocol) -> None:
        self._connection = connection
        self._inner = inner

    def get_buffer(self, sizehint: int) -> Any:
        return cast("memoryview", self._inner.get_buffer(sizehint))[:_MOST_READ]

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.begin_read()
        self._inner.buffer_updated(nbytes)
        self._connection.end_read(nbytes)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


async def _outlast(socket: WSTransport) -> None:
    """Wait for the end of the network connection; the close frames have the reason."""
    with contextlib.suppress(Exception):
        await socket.wait_disconnected()
