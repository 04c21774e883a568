"""How frames reach a server: one small protocol for sockets, event streams and tests.

A transport knows nothing of cursors or retries. It opens once, carries frames both ways, and ends
once; a reconnect takes another object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import ClientFrame, Envelope, ServerFrame

Incoming: TypeAlias = "ServerFrame | Envelope"
"""What a transport hands out. A live message may come without the frame around it."""

MEMORY_SCHEME: Final = "memory://"
"""URLs of servers in the same process begin so."""


class TransportFailed(Exception):
    """A transport could not be opened.

    Attributes:
        code: Close code that says what to do (`close_codes` of spec/errors.yaml), or None for a
            failure of the network.
        reason: One sentence for humans, without tokens.
        retry_after: Earliest next attempt in seconds from now, where the server said it.
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


class TransportClosed(Exception):
    """An open transport has ended, by either side or by the network.

    Attributes:
        code: Close code, or None where the connection was lost without one.
        reason: One sentence for humans, without tokens.
        retry_after: Earliest next attempt in seconds from now, where the server said it.
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


class Transport(Protocol):
    """One connection to a server."""

    incremental: bool
    """Whether a `subscribe` adds to what is subscribed (socket), or all those of one loop turn
    replace it (event stream)."""

    last_heard: float
    """Time, by `Clock.now`, of the last byte that came in: pongs, pings and comments included."""

    largest: int | None
    """Bytes on the wire of the largest live message that came in; None where no one looked."""

    malformed: Callable[[str], None]
    """Called with the reason, where something that is not a frame came in and was left out."""

    async def open(self) -> None:
        """Connect.

        Raises:
            TransportFailed: It could not be opened.
        """

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; those of one loop turn leave together.

        Never blocks and never raises; frames for a transport that has ended are forgotten.
        """

    async def receive(self) -> Sequence[Incoming]:
        """Wait for frames: one or more, in the order of their arrival. Cancelling it loses nothing.

        Raises:
            TransportClosed: It has ended; every frame that came before was handed out.
        """
        ...

    async def close(self, code: int = 1000) -> None:
        """End it, within a second even if the server is frozen. Harmless when it is closed."""


def ignore(reason: str) -> None:
    """Called while nothing is registered."""


__all__ = ["Incoming", "Transport", "TransportClosed", "TransportFailed", "ignore"]
