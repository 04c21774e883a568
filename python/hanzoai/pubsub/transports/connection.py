"""Interface between a WebSocket transport and a library: a connection, and a function to dial one.

`websockets_connection` and `picows_connection` implement it. A connection collects the messages of
one read in `arrived`, and writes all messages of `outgoing` in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from hanzoai.pubsub.http.status import close_code_for, retry_after_of, why_no_upgrade
from hanzoai.pubsub.transports import TransportFailed

if TYPE_CHECKING:
    import asyncio
    from urllib.parse import SplitResult

    from hanzoai.pubsub.settings.options import ClientOptions

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the closing handshake may take."""


class Owner(Protocol):
    """The transport that a connection belongs to."""

    last_received: float
    """Time of the last received byte; the connection sets it."""

    max_frame: int
    """Maximum bytes of a message."""

    def now(self) -> float:
        """The time, by `Clock.now`."""
        ...

    def pass_on(self, connection: Connection, size: int = 0) -> None:
        """Take `arrived`, after a read of so many bytes, or at the end of the connection.

        Args:
            connection: The connection, which may still be opening: a loop may read many messages in
                the turn of the handshake.
            size: Bytes of the read.
        """


class Connection(Protocol):
    """One open WebSocket."""

    loop: asyncio.AbstractEventLoop
    outgoing: list[bytes]
    """Messages to be written, as JSON."""
    sent: int
    """Frames sent since the last received bytes; the transport counts them."""
    at_once: bool
    """Whether the next frame is probably the only one: one frame was sent between the last two
    arrivals."""
    arrived: list[bytes]
    """Received and unread messages, in order."""
    ended: bool
    """Whether the connection has ended: no more messages arrive."""

    def hold(self, on: bool) -> None:
        """Stop reading from the network, or read again."""

    def write_all(self) -> None:
        """Write `outgoing` immediately. Buffers what the network cannot accept yet."""

    def end(self) -> tuple[int | None, str]:
        """Return the close code, or None if there was none, and the reason."""
        ...

    async def close(self, code: int = 1000) -> None:
        """Send a close frame and wait for the answer."""

    async def wait_closed(self) -> None:
        """Wait until the network connection is gone."""

    def abort(self) -> None:
        """Cut the connection."""


def refusal(options: ClientOptions, status: int, retry_after: str | None) -> TransportFailed:
    """Return the error of a handshake whose HTTP status is not 101."""
    # No token was sent yet. If a fallback is left, a rejection means that a proxy blocks
    # WebSockets; it does not concern this identity.
    code = close_code_for(status)
    if options.transport == "auto" and status in (401, 403):
        code = None
    return TransportFailed(code, why_no_upgrade(status), retry_after_of(retry_after))


def port_of(url: SplitResult) -> int:
    """The port of a WebSocket URL."""
    return url.port or (443 if url.scheme == "wss" else 80)


def no_websocket(host: str, error: Exception) -> TransportFailed:
    """Return the error of an answer that is not a handshake."""
    return TransportFailed(
        None, f"{host} did not answer as a WebSocket server ({type(error).__name__})."
    )


def no_answer(url: SplitResult) -> TransportFailed:
    """Return the error of a connection that ended during the handshake."""
    reason = f"{url.hostname} closed the connection without an answer to the WebSocket handshake."
    if url.scheme == "wss":
        # With TLS 1.3, a server rejects the client's certificate when the client is connected.
        reason = f"{reason} If it requires a client certificate, load one into `ssl_context`."
    return TransportFailed(None, reason)


def ending(code: int | None, reason: str) -> tuple[int | None, str]:
    """Describe the end of a connection, by the received or sent close frame."""
    if code is None:
        return None, "The connection was lost."
    return code, reason or "The connection was closed."
