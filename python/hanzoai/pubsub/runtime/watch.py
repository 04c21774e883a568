"""Detects that the machine was suspended: timers did not run, and the connection may be dead."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.clock import Clock

logger = logging.getLogger("hanzoai.pubsub")

INTERVAL: Final = 5.0
"""Seconds between two checks of the clocks (LIFE-5)."""

_SUSPENDED: Final = 5.0
"""Seconds by which the wall clock must be ahead of the monotonic clock to detect a suspension."""


class Watch:
    """Compares the two readings of time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference = self._read()

    def slept(self) -> bool:
        """Whether the machine was suspended since the last call."""
        before, self._difference = self._difference, self._read()
        ahead = self._difference - before
        if ahead > _SUSPENDED:
            logger.info("The machine slept for %.0f s", ahead)
        return ahead > _SUSPENDED

    def _read(self) -> float:
        return self._clock.wall_ms() / 1000 - self._clock.now()
