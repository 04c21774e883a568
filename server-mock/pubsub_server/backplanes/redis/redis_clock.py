"""The time of Redis, without a call: how far the clock of this node is from that of Redis."""

from __future__ import annotations

from typing import Final

DRIFT_MS: Final = 1
"""Maximum milliseconds by which two clocks move apart between two readings."""


class RedisClock:
    """Knows the distance between two clocks from readings of the other one.

    An answer took time, so each reading gives only the bounds of the distance. The bounds of all
    readings together are narrow, even if some answers were slow.
    """

    def __init__(self) -> None:
        # Minimum and maximum milliseconds by which the clock of Redis is ahead.
        self._bounds: tuple[int, int] | None = None

    def read(self, time: int, sent: int, received: int) -> None:
        """Redis has answered with its time.

        Args:
            time: Unix ms.
            sent: Unix ms of this node before the call.
            received: Unix ms of this node after the answer.
        """
        low, high = time - received, time - sent
        if self._bounds is not None:
            narrow_low = max(low, self._bounds[0] - DRIFT_MS)
            narrow_high = min(high, self._bounds[1] + DRIFT_MS)
            # Otherwise, one of the clocks was set, or another server answers.
            if narrow_low <= narrow_high:
                low, high = narrow_low, narrow_high
        self._bounds = low, high

    def redis_time(self, at: int) -> int:
        """Unix ms of Redis when the clock of this node showed this time.

        Before the first reading, the clocks count as equal.
        """
        return at if self._bounds is None else at + sum(self._bounds) // 2
