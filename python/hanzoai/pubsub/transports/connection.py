"""What a WebSocket transport needs of a library: a connection, and a function that dials one.

`websockets_connection` and `picows_connection` implement it. A connection collects messages that
arrive in `arrived`, and writes those of `outgoing` in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from hanzoai.pubsub.http.status import close_code_for, retry_after_of
from hanzoai.pubsub.transports import TransportFailed

if TYPE_CHECKING:
    import asyncio

    from hanzoai.pubsub.settings.options import ClientOptions

QUEUED_BYTES: Final = 1 << 20
"""Reading from the network stops while so much has arrived and was not taken."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the closing handshake may take."""


class Owner(Protocol):
    """The transport that a connection belongs to."""

    last_heard: float
    """Time of the last byte; the connection sets it."""

    max_frame: int
    """Bytes that a message may have."""

    def now(self) -> float:
        """The time, by `Clock.now`."""
        ...


class Connection(Protocol):
    """One open WebSocket."""

    loop: asyncio.AbstractEventLoop
    outgoing: list[bytes]
    """Messages to be written, as JSON."""
    sent: int
    """Frames since bytes came last; the transport counts them."""
    at_once: bool
    """Whether the next frame is likely to be the only one: there was one between the last two
    arrivals."""
    arrived: list[bytes]
    """Messages that came and were not taken, in order."""
    arrived_bytes: int
    """Their size."""
    paused: bool
    """Whether reading from the network has stopped; `resume` continues it."""
    ended: bool
    """Whether nothing comes any more."""

    def more(self) -> asyncio.Future[None]:
        """Wait for messages, or for the end."""
        ...

    def resume(self) -> None:
        """Read from the network again, if little enough waits."""

    def write_all(self) -> None:
        """Write what waits in `outgoing`, at once. What the network cannot take is buffered."""

    def end(self) -> tuple[int | None, str]:
        """How it ended: close code, or None where there was none, and why."""
        ...

    async def close(self, code: int = 1000) -> None:
        """Send a close frame and wait for the answer."""

    async def wait_closed(self) -> None:
        """Wait until the network connection is gone."""

    def abort(self) -> None:
        """Cut the connection."""


def refusal(options: ClientOptions, status: int, retry_after: str | None) -> TransportFailed:
    """The error of a handshake that was answered with another HTTP status than 101."""
    # No token was shown yet: where a fallback is left, a refusal says that something on the way
    # does not let WebSockets through, and nothing about this identity.
    code = close_code_for(status)
    if options.transport == "auto" and status in (401, 403):
        code = None
    reason = f"The server answered HTTP {status} where a WebSocket was asked for."
    if 300 <= status < 400:
        reason = f"{reason} Redirects are not followed: they would carry the token away."
    return TransportFailed(code, reason, retry_after_of(retry_after))


def no_websocket(host: str, error: Exception) -> TransportFailed:
    """The error of an answer that is not a handshake."""
    return TransportFailed(
        None, f"{host} did not answer as a WebSocket server ({type(error).__name__})."
    )


def ending(code: int | None, reason: str) -> tuple[int | None, str]:
    """How a connection ended, in words, by the close frame that came or was sent."""
    if code is None:
        return None, "The connection was lost."
    return code, reason or f"The connection was closed with code {code}."
