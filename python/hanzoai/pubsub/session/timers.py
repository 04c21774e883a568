"""The running timers of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.session.ports import Ports, TimerName

MAX_TIMER: Final = 2**31 - 1
"""Maximum timer that every platform supports, milliseconds: 24.8 days."""


class Timers:
    """The running timers, with their milliseconds."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._running: dict[TimerName, int] = {}

    def __contains__(self, name: TimerName) -> bool:
        return name in self._running

    def after(self, name: TimerName) -> int | None:
        """Milliseconds of a timer that is running; None for others."""
        return self._running.get(name)

    def start(self, name: TimerName, after: int) -> None:
        """Start a timer, or restart it."""
        self._running[name] = after
        self._ports.start_timer(name, after)

    def stop(self, *names: TimerName) -> None:
        """Stop the timers that are running."""
        for name in names:
            if self._running.pop(name, None) is not None:
                self._ports.cancel_timer(name)

    def stop_all(self) -> None:
        """Stop every timer."""
        self.stop(*self._running)

    def limit(self, name: TimerName, after: int | None) -> None:
        """Let a timer fire after this time, if it is in the future and a timer can be that long."""
        self.stop(name)
        if after is not None and 0 < after <= MAX_TIMER:
            self.start(name, after)

    def fired(self, name: TimerName) -> bool:
        """Record that a timer has fired; False if it was not running."""
        return self._running.pop(name, None) is not None
