"""The running timers of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.session.events import TimerName
    from hanzoai.pubsub.session.ports import Ports

_POSTPONED: Final[tuple[TimerName, ...]] = ("pace", "rejoin")
"""Timers that start at the end of a step, in this order."""


class Timers:
    """The running timers, and those that start at the end of the current step.

    Attributes:
        due: Milliseconds of the timers that start at the end of the step.
    """

    __slots__ = ("_ports", "_running", "due")

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._running: dict[TimerName, int] = {}
        self.due: dict[TimerName, int] = {}

    def __contains__(self, name: TimerName) -> bool:
        return name in self._running

    def after(self, name: TimerName) -> int | None:
        """Milliseconds of a timer that is running or due; None for others."""
        return self.due.get(name, self._running.get(name))

    def start(self, name: TimerName, after: int) -> None:
        """Start a timer, or restart it."""
        self._running.pop(name, None)
        self._running[name] = after
        self._ports.start_timer(name, after)

    def stop(self, name: TimerName) -> None:
        """Stop a timer, if it is running or due."""
        self.due.pop(name, None)
        if name in self._running:
            del self._running[name]
            self._ports.cancel_timer(name)

    def stop_all(self) -> None:
        """Stop every timer, oldest first."""
        self.due.clear()
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
        for name in _POSTPONED:
            if name in self.due:
                self.start(name, self.due.pop(name))
