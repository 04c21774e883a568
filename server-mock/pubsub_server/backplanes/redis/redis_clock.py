"""The time of Redis, without a call."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from pubsub_server.shared.wall_clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

DRIFT_MS: Final = 1
"""Maximum milliseconds by which two clocks move apart between two readings."""
UNKNOWN: Final = (0, 2**53 - 1)
"""Bounds of a time that may be any time."""


class RedisClock:
    """Knows the distance between the clock of Redis and a steady one of this node.

    An answer took time, so each reading gives only the bounds of the distance. The bounds of all
    readings together are narrow, even if some answers were slow. Operators and NTP may set the
    machine's clock; they do not change the steady one.

    Args:
        wall: Unix ms of the machine's clock.
        steady: Seconds that never decrease.
    """

    def __init__(
        self,
        wall: Callable[[], int] = now_ms,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        # Minimum and maximum milliseconds by which the clock of Redis is ahead of the steady one.
        self._bounds: tuple[int, int] | None = None

    def steady(self) -> int:
        """The ms of the steady clock."""
        return int(self._steady() * 1000)

    def read(self, time: int, sent: int) -> int:
        """Redis has just answered with its time.

        Args:
            time: Unix ms.
            sent: `steady` before the call.

        Returns:
            Milliseconds by which the clock of Redis was set back, at least: also if another server
            answers, whose clock is behind.
        """
        low, high, back = time - self.steady(), time - sent, 0
        if self._bounds is not None:
            narrow_low = max(low, self._bounds[0] - DRIFT_MS)
            narrow_high = min(high, self._bounds[1] + DRIFT_MS)
            # Otherwise, the clock of Redis was set, or another server answers.
            if narrow_low <= narrow_high:
                low, high = narrow_low, narrow_high
            back = max(0, narrow_low - high)
        self._bounds = low, high
        return back

    def now(self) -> int:
        """Unix ms of Redis: the time of the machine, as far as the readings allow it.

        The clocks of synchronized nodes agree more closely than the bounds of each of them.
        """
        time = self._wall()
        return time - self.apart(time)

    def apart(self, time: int) -> int:
        """Milliseconds by which this time is ahead of Redis, at least; negative if it is behind.

        Args:
            time: Unix ms of another clock, just read.
        """
        earliest, latest = self.bounds_at(self.steady())
        return max(0, time - latest) or min(0, time - earliest)

    def bounds_at(self, steady: int) -> tuple[int, int]:
        """The earliest and latest Unix ms of Redis when `steady` was this.

        Later readings bring them closer together. Before the first one, they are `UNKNOWN`: the
        clock of the machine may be wrong.
        """
        if self._bounds is None:
            return UNKNOWN
        return steady + self._bounds[0], steady + self._bounds[1]
