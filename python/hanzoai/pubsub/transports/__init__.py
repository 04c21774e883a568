"""How frames reach a server: one small protocol for sockets, event streams and tests.

A transport has no cursors and no retries. It opens once, carries frames both ways, and ends once; a
reconnect needs another object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.generated.wire import ClientFrame, Message
    from hanzoai.pubsub.wire.codec import Decoded

Incoming: TypeAlias = "Decoded | list[Message]"
"""What is read from a frame, or the live messages of consecutive frames."""

BURST: Final = 192
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


class Receiver(Protocol):
    """Receives the events of a transport; may pause it meanwhile."""

    def frames(self, frames: Sequence[Incoming], /) -> None:
        """Receive frames: one or more, in the order of their arrival."""

    def ended(self, end: TransportEnd, /) -> None:
        """The transport has ended, and all earlier frames were passed on. It is the last call."""


class Transport(Protocol):
    """One connection to a server."""

    incremental: bool
    """Whether a `subscribe` adds subscriptions (socket), or the `subscribe` frames of one loop turn
    replace all of them (event stream)."""

    last_received: float
    """Time, by `Clock.now`, of the last received byte, including pongs, pings and comments."""

    largest: float
    """Bytes on the wire of the largest received live message; infinite if not measured."""

    async def open(self, receiver: Receiver) -> None:
        """Connect. The transport is paused until the first `resume`.

        Args:
            receiver: Called from the event loop, never within another call of the transport than
                `resume`.

        Raises:
            TransportFailed: It could not be opened.
        """

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; the frames of one loop turn leave together.

        Never blocks and never raises; discards frames after the end of the transport.
        """

    def pause(self) -> None:
        """Keep what arrives until `resume`; when that is much, stop reading from the network."""

    def resume(self) -> None:
        """Pass on what has arrived, and from now on what arrives."""

    async def close(self, code: int = 1000) -> None:
        """End it within a second, even if the server is frozen. From now on, it is silent."""


__all__ = [
    "BURST",
    "Incoming",
    "Receiver",
    "Transport",
    "TransportClosed",
    "TransportEnd",
    "TransportFailed",
]
