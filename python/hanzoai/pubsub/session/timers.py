"""The running timers of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.session.events import TimerName
    from hanzoai.pubsub.session.ports import Ports


class Timers:
    """The running timers, and those that start at the end of the current step.

    Attributes:
        pace: Milliseconds after which `pace` fires; None leaves it unchanged.
        rejoin: The same for `rejoin`.
    """

    __slots__ = ("_ports", "_running", "pace", "rejoin")

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._running: dict[TimerName, None] = {}
        self.pace: int | None = None
        self.rejoin: int | None = None

    def __contains__(self, name: TimerName) -> bool:
        return name in self._running

    def start(self, name: TimerName, after: int) -> None:
        """Start a timer, or restart it."""
        self._running.pop(name, None)
        self._running[name] = None
        self._ports.start_timer(name, after)

    def stop(self, name: TimerName) -> None:
        """Stop a timer, if it runs."""
        if name in self._running:
            del self._running[name]
            self._ports.cancel_timer(name)

    def stop_all(self) -> None:
        """Stop every timer, oldest first."""
        for name in list(self._running):
            self.stop(name)

    def fired(self, name: TimerName) -> bool:
        """Record that a timer has fired; False if it was not running."""
        if name not in self._running:
            return False
        del self._running[name]
        return True

    def start_due(self) -> None:
        """Start the timers that the queue and the subscriptions requested during the step."""
        if self.pace is not None:
            after, self.pace = self.pace, None
            self.start("pace", after)
        if self.rejoin is not None:
            after, self.rejoin = self.rejoin, None
            self.start("rejoin", after)
