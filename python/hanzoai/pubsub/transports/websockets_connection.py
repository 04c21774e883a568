"""The connection of the library `websockets`, with its own input and output of data frames.

The library dials, performs the handshake, parses, and answers pings. A subclass of its connection
replaces three steps. It reads messages of one frame without the library's parser (see `frames`). It
passes all messages of one read on in one call. It sends all messages of one loop turn in one write.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidProxyStatus,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)
from websockets.frames import Frame, Opcode
from websockets.protocol import CLOSED, OPEN

from hanzoai.pubsub.http.status import why_no_proxy, why_refused, why_unreachable
from hanzoai.pubsub.network.dialing import open_socket
from hanzoai.pubsub.network.receiving import BufferedReads
from hanzoai.pubsub.settings.proxies import host_of, socket_proxy
from hanzoai.pubsub.transports import TransportFailed
from hanzoai.pubsub.transports.connection import (
    CLOSE_TIMEOUT,
    ending,
    no_answer,
    no_websocket,
    port_of,
    refusal,
)
from hanzoai.pubsub.transports.frames import WholeFrames, text_frames
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    from websockets.client import ClientProtocol

    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports.connection import Owner

_HEAD_END: Final = b"\r\n\r\n"

_RESOLVED_HERE: Final = ("socks5:", "socks4:")
"""Schemes of proxies that get the address of the host, which this machine looks up."""

_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

# The library logs whole frames at DEBUG, and the first one contains the token: use a silent logger.
# It is outside of the logger tree, so a logging configuration cannot enable it.
_silent: Final = logging.Logger("silent", logging.CRITICAL + 1)  # noqa: LOG001


async def dial(owner: Owner, options: ClientOptions) -> WebsocketsConnection:
    """Dial and shake hands.

    Args:
        owner: The transport.
        options: `socket_url`, `open_timeout`, `max_frame`, `compression`, `proxy`, `ssl_context`
            and `transport` are used.

    Raises:
        TransportFailed: See `WebSocketTransport.open`.
    """
    url = options.socket_url
    parts, proxy = urlsplit(url), socket_proxy(options)
    host = parts.hostname or ""
    more: dict[str, Any] = {}
    if url.startswith("wss:") and options.ssl_context is not None:
        more["ssl"] = options.ssl_context

    def make_connection(protocol: ClientProtocol, **kwargs: Any) -> WebsocketsConnection:
        return WebsocketsConnection(owner, protocol, **kwargs)

    try:
        async with asyncio.timeout(options.open_timeout):
            if proxy is None:
                more["sock"] = await open_socket(host, port_of(parts))
            dialed = await _Connect(
                url,
                create_connection=make_connection,  # type: ignore[arg-type]
                compression="deflate" if options.compression else None,
                user_agent_header=USER_AGENT,
                proxy=proxy,
                open_timeout=None,
                ping_interval=None,
                close_timeout=CLOSE_TIMEOUT,
                max_size=options.max_frame,
                logger=_silent,
                **more,
            )
    except InvalidStatus as error:
        answer = error.response
        raise refusal(options, answer.status_code, answer.headers.get("Retry-After")) from error
    except ProxyError as error:
        status = error.response.status_code if isinstance(error, InvalidProxyStatus) else None
        raise TransportFailed(None, why_refused(status, host, host_of(proxy))) from error
    except (InvalidHandshake, InvalidURI, EOFError) as error:
        if isinstance(error.__cause__ or error, EOFError):
            raise no_answer(parts) from error
        raise no_websocket(host, error) from error
    except (OSError, ssl.SSLError, TimeoutError, UnicodeError) as error:
        raise TransportFailed(None, _why(error, parts, proxy)) from error
    except (InvalidProxy, ImportError, ValueError) as error:
        raise TransportFailed(None, why_no_proxy(error)) from None
    assert isinstance(dialed, WebsocketsConnection)
    return dialed


def _why(error: BaseException, url: SplitResult, proxy: str | None) -> str:
    named = None if isinstance(error, UnicodeError) else host_of(proxy)
    resolved = named is not None and not (proxy or "").startswith(_RESOLVED_HERE)
    host, port = url.hostname or "", url.port
    return why_unreachable(error, host, named, port=port, proxy_resolves=resolved)


class _Connect(connect):
    """The library's dialer, without redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebsocketsConnection(BufferedReads, ClientConnection):
    """See `Connection`."""

    def __init__(self, owner: Owner, protocol: ClientProtocol, **kwargs: Any) -> None:
        super().__init__(protocol, **kwargs)
        self._owner = owner
        self.outgoing: list[bytes] = []
        self.arrived: list[bytes] = []
        self.sent = 0
        self.at_once = False
        self.ended = False
        self._parts: list[bytes] = []
        self._frames: WholeFrames | None = None
        self._failure: Exception | None = None

    async def handshake(self, *args: Any, **kwargs: Any) -> None:
        """Shake hands; raise an error of TLS itself, which the library leaves out."""
        try:
            await super().handshake(*args, **kwargs)
        except (InvalidMessage, EOFError):
            if isinstance(self._failure, ssl.SSLError):
                raise self._failure from None
            raise

    # -------------------------------------------------------------- in

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        data = bytes(self._buffer[:nbytes])
        owner = self._owner
        owner.last_received = owner.now()
        self.at_once = self.sent == 1
        self.sent = 0
        if self._frames is None:
            self._parse(data)
        else:
            rest = self._frames.feed(data)
            if rest is not None:
                self._frames = None
                self._parse(rest)
        owner.pass_on(self, nbytes)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived in a loop that has its own buffer, such as that of uvloop."""
        self._buffer = data
        self.buffer_updated(len(data))
        self._buffer = b""

    def _parse(self, data: bytes) -> None:
        """Pass data to the library's parser: the handshake, and frames outside of the fast path."""
        shaken = self.response is not None
        super().data_received(data)
        if self.response is None and self.protocol.handshake_exc is not None:
            # The library would read a head that is too long or not HTTP until its end.
            self.transport.abort()
        if self.response is not None and self.protocol.state is not OPEN:
            self._end()
        elif not shaken and not self.protocol.extensions and _ends_a_head(data):
            # Otherwise, the library may have the beginning of a frame.
            self._frames = WholeFrames(self.arrived, self._parse_frame, self._owner.max_frame)

    def _parse_frame(self, data: bytes) -> bool:
        self._parse(data)
        return not self._parts and self.protocol.state is OPEN

    def process_event(self, event: Any) -> None:
        """The library has parsed a frame."""
        if isinstance(event, Frame) and event.opcode in _DATA:
            self._parts.append(bytes(event.data))
            if event.fin:
                self.arrived.append(b"".join(self._parts))
                self._parts.clear()
        else:
            super().process_event(event)

    def eof_received(self) -> None:
        """The server sends no more data."""
        # An incomplete frame now violates the protocol; the library reports it.
        if self._frames is not None:
            rest, self._frames = self._frames.rest(), None
            self._parse(rest)
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The network connection has ended."""
        self._failure = exc
        super().connection_lost(exc)
        self._end()
        self._owner.pass_on(self)

    def hold(self, on: bool) -> None:
        """See `Connection`."""
        if on:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def end(self) -> tuple[int | None, str]:
        """See `Connection`."""
        close = self.protocol.close_rcvd or self.protocol.close_sent
        return ending(None, "") if close is None else ending(close.code, close.reason)

    def abort(self) -> None:
        """See `Connection`."""
        self.transport.abort()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        if self.protocol.state is not CLOSED:
            # The closing handshake is done; do not wait for a peer that leaves TCP open.
            self.loop.call_later(CLOSE_TIMEOUT, self.transport.abort)

    # -------------------------------------------------------------- out

    def write_all(self) -> None:
        """See `Connection`."""
        messages, self.outgoing = self.outgoing, []
        protocol = self.protocol
        if not messages or protocol.state is not OPEN:
            return
        if not protocol.extensions:
            self.transport.write(text_frames(messages))
            return
        for message in messages:
            protocol.send_text(message)
        self.transport.write(b"".join(protocol.data_to_send()))


def _ends_a_head(data: bytes) -> bool:
    """Whether the server's answer consists of its head only."""
    return data.find(_HEAD_END) == len(data) - len(_HEAD_END)
