"""Detects that the machine was suspended: timers did not run, and the connection may be dead."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock, TimerHandle

logger = logging.getLogger("hanzoai.pubsub")

_INTERVAL: Final = 5.0
"""Seconds between two checks of the clocks (LIFE-5)."""

_SUSPENDED: Final = 5.0
"""Seconds by which the wall clock must be ahead of the monotonic clock to detect a suspension."""


class Watch:
    """Compares the two readings of time; `woke`: called after a suspension of the machine."""

    def __init__(self, clock: Clock, woke: Callable[[], None]) -> None:
        self._clock = clock
        self._woke = woke
        self._timer: TimerHandle | None = None
        self._readings = (0.0, 0.0)

    def start(self) -> None:
        """Start checking."""
        self._readings = (self._clock.wall_ms() / 1000, self._clock.now())
        self._timer = self._clock.call_later(_INTERVAL, self._check)

    def stop(self) -> None:
        """Stop checking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        wall, steady = self._clock.wall_ms() / 1000, self._clock.now()
        ahead = (wall - self._readings[0]) - (steady - self._readings[1])
        self._readings = (wall, steady)
        self._timer = self._clock.call_later(_INTERVAL, self._check)
        if ahead > _SUSPENDED:
            logger.info("The machine slept for %.0f s", ahead)
            self._woke()
