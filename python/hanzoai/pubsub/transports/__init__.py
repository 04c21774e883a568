"""How frames reach a server: one small protocol for sockets, event streams and tests.

A transport has no cursors and no retries. It opens once, carries frames both ways, and ends once; a
reconnect needs another object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import ClientFrame, Message, ServerFrame

Incoming: TypeAlias = "ServerFrame | list[Message]"
"""A received frame, or the live messages of consecutive frames."""

BURST: Final = 96
"""Maximum live messages in one item; see `Codec.burst`."""

MEMORY_SCHEME: Final = "memory://"
"""Prefix of the URLs of servers in the same process."""


class TransportEnd(Exception):
    """A transport could not be opened, or has ended.

    Attributes:
        code: Close code that determines the next step (`close_codes` of spec/errors.yaml), or None
            for a network failure.
        reason: One sentence for humans, without tokens.
        retry_after: Earliest next attempt, in seconds from now, if the server sent it.
    """

    def __init__(
        self, code: int | None = None, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(code, reason, retry_after)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.reason or f"close code {self.code}"


class TransportFailed(TransportEnd):
    """A transport could not be opened."""


class TransportClosed(TransportEnd):
    """An open transport has ended, by either side or by the network."""


class Transport(Protocol):
    """One connection to a server."""

    incremental: bool
    """Whether a `subscribe` adds subscriptions (socket), or the `subscribe` frames of one loop turn
    replace all of them (event stream)."""

    last_received: float
    """Time, by `Clock.now`, of the last received byte, including pongs, pings and comments."""

    largest: int | None
    """Bytes on the wire of the largest received live message; None if not measured."""

    malformed: Callable[[str], None]
    """Called with the reason when the transport skips received data that is not a frame."""

    async def open(self) -> None:
        """Connect.

        Raises:
            TransportFailed: It could not be opened.
        """

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; the frames of one loop turn leave together.

        Never blocks and never raises; discards frames after the end of the transport.
        """

    async def receive(self) -> Sequence[Incoming]:
        """Wait for frames: one or more, in the order of their arrival. Cancelling it loses nothing.

        Raises:
            TransportClosed: It has ended, and all earlier frames have been returned.
        """
        ...

    async def close(self, code: int = 1000) -> None:
        """End it, within a second even if the server is frozen. Does nothing if it is closed."""


def ignore(reason: str) -> None:
    """Called while nothing is registered."""


__all__ = [
    "BURST",
    "Incoming",
    "Transport",
    "TransportClosed",
    "TransportEnd",
    "TransportFailed",
    "ignore",
]
