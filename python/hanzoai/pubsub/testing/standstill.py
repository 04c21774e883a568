"""Reports a test that waits for virtual time that does not advance.

With a virtual clock a call that waits for a timer waits forever, unless the test lets time pass,
and a test that hangs does not say what for. This looks at the clock in real time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.testing.clock import VirtualClock

PATIENCE: Final = 5.0
"""Real seconds without activity after which this is reported."""


class _Timer(Protocol):
    def cancel(self) -> None: ...


class Standstill:
    """Watches one clock.

    Args:
        clock: What may stand still.
        call_later: Of the event loop, in real time.
        tell: Gets the sentence, once for each standstill.
        patience: Real seconds.
    """

    def __init__(
        self,
        clock: VirtualClock,
        call_later: Callable[[float, Callable[[], None]], _Timer],
        tell: Callable[[str], None],
        patience: float = PATIENCE,
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._tell = tell
        self._patience = patience
        self._seen: tuple[int, float] | None = None
        self._told = False
        self._timer: _Timer | None = None

    def start(self) -> None:
        """Look from now on."""
        self._timer = self._call_later(self._patience, self._look)

    def stop(self) -> None:
        """Look no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        seen = (self._clock.begun, self._clock.now())
        pending = self._clock.pending
        if seen != self._seen:
            self._told = False
        elif pending and not self._told:
            self._told = True
            timers = "1 timer is" if pending == 1 else f"{pending} timers are"
            self._tell(
                f"virtual time does not advance, {timers} pending: advance the clock "
                "(`await server.clock.advance(seconds)`)"
            )
        self._seen = seen
        self.start()


def tell_stderr(sentence: str) -> None:
    """Write it where people look."""
    sys.stderr.write(f"hanzoai.pubsub.testing: {sentence}\n")
    sys.stderr.flush()


__all__ = ["PATIENCE", "Standstill", "tell_stderr"]
