"""Selects the transport: the WebSocket, or the event stream if it does not work (LIFE-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.settings.session import SessionOptions


class TransportChoice:
    """The transport of the next attempt, and the reasons for the other one.

    Args:
        options: `transport`, `short_life`, `fallback_failures` and `upgrade_after` are used.

    Attributes:
        name: The transport.
        answered: HTTP has answered since the last failure.
        asking: An HTTP check is in progress.
        has_opened: A WebSocket has worked in this process.
        late: The first WebSocket has not opened in time.
    """

    __slots__ = (
        "_failures",
        "_options",
        "_probes",
        "answered",
        "asking",
        "has_opened",
        "late",
        "name",
    )

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._failures = 0  # consecutive failed WebSockets, between which HTTP answered
        self._probes = 0
        self.name: TransportName = "sse" if options.transport == "sse" else "websocket"
        self.answered = False
        self.asking = False
        self.has_opened = False
        self.late = False

    @property
    def may_fall_back(self) -> bool:
        """Whether the transport is a WebSocket, and the user leaves the choice open."""
        return self._options.transport == "auto" and self.name == "websocket"

    def failed(self) -> bool:
        """Count a WebSocket that failed without an error of the server.

        The client falls back after some failures between which the HTTP address answered: an
        address without any answer says nothing about WebSockets, and a server without event streams
        offers no alternative.

        Returns:
            Whether to check the HTTP address now.
        """
        answered, self.answered = self.answered, False
        if answered or not self._failures:
            self._failures += 1
        needed = self._options.short_life if self.has_opened else self._options.fallback_failures
        if answered and self._failures >= needed:
            self.change()
            return False
        return True

    def http_answered(self, *, ok: bool) -> None:
        """The HTTP address answered as a PubSub service, or it did not."""
        self.asking = False
        self.answered = ok
        if not ok:
            self._failures = 0

    def change(self) -> None:
        """Switch to the event stream; or from it to the WebSocket."""
        self._failures = 0
        self.answered = self.has_opened = False
        if self._options.transport == "auto":
            self.name = "sse" if self.name == "websocket" else "websocket"

    def upgrade(self) -> None:
        """Switch to the WebSocket while the event stream works; one failure switches back."""
        self.change()
        self._failures = self._options.fallback_failures - 1
        self.answered = True

    def probed(self) -> None:
        """Count a WebSocket probe, so that the next one is later."""
        self._probes += 1

    def upgrade_delay(self) -> int | None:
        """Milliseconds until a WebSocket is probed again; None without a choice."""
        if self.name != "sse" or self._options.transport != "auto":
            return None
        first = self._options.upgrade_after
        return min(first << min(self._probes, 30), max(first, self._options.upgrade_cap))

    def proves_well(self) -> None:
        """A connection is useful: earlier failures no longer count against the transport."""
        if self.name == "websocket":
            self._failures = self._probes = 0
            self.answered = False
