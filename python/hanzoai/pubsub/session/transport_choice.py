"""Selects the transport: the WebSocket, or the event stream if it does not work (LIFE-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.session.context import Context
    from hanzoai.pubsub.session.ports import TransportName


class TransportChoice:
    """The transport of the next attempt, and the reasons for the other one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._failures = 0  # consecutive failed WebSockets, between which HTTP answered
        self.name: TransportName = "sse" if context.options.transport == "sse" else "websocket"
        self.http_works = False  # it has answered since the last failure of a WebSocket
        self.is_probing_http = False
        self.has_opened = False  # a WebSocket has worked in this process
        self.is_late = False  # the first WebSocket has not opened in time
        self.probes = 0  # of the WebSocket, since the last useful connection

    @property
    def may_fall_back(self) -> bool:
        """Whether the transport is a WebSocket, and the user leaves the choice open."""
        return self._context.options.transport == "auto" and self.name == "websocket"

    def count_failure(self) -> bool:
        """A WebSocket failed, without an error of the server; whether to check HTTP now."""
        # The client falls back after some failures between which the HTTP address answered: an
        # address without any answer says nothing about WebSockets, and a server without event
        # streams offers no alternative.
        options = self._context.options
        http_works, self.http_works = self.http_works, False
        if http_works or not self._failures:
            self._failures += 1
        needed = options.short_life if self.has_opened else options.fallback_failures
        if not http_works or self._failures < needed:
            return True
        self.change()
        return False

    def http_answered(self, *, ok: bool) -> None:
        """The HTTP address answered as a PubSub service, or it did not."""
        self.is_probing_http = False
        self.http_works = ok
        if not ok:
            self._failures = 0

    def change(self) -> None:
        """Switch to the event stream; or from it to the WebSocket."""
        self._context.timers.stop("upgrade")
        self._failures = 0
        self.http_works = self.has_opened = False
        if self._context.options.transport == "auto":
            self.name = "sse" if self.name == "websocket" else "websocket"

    def upgrade(self) -> None:
        """Switch to the WebSocket while the event stream works; one failure switches back."""
        self.change()
        self._failures = self._context.options.fallback_failures
        self.http_works = True

    def start_upgrade(self) -> None:
        """Start the timer of the next WebSocket probe; cuts of the fallback do not reset it."""
        options, timers = self._context.options, self._context.timers
        if self.name == "sse" and options.transport == "auto" and "upgrade" not in timers:
            first = options.upgrade_after
            after = min(first << self.probes, max(first, options.upgrade_cap))
            timers.start("upgrade", after)

    def note_useful(self) -> None:
        """The connection is useful: earlier failures no longer count."""
        if self.name == "websocket":
            self._failures = self.probes = 0
