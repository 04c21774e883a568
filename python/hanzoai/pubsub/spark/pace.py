"""Publish rate of a client: unlimited until the server reports a rate limit.

From then on, publishes share a budget. It halves when the server rejects rows, and grows a little
with every batch that the server accepts whole, up to the allowed rate. Pure: the caller passes the
time.
"""

from __future__ import annotations

_GROWTH = 0.05
_LEAST = 1.0


class Pace:
    """A budget of rows per second.

    Args:
        rate: Rows per second; None while there is no limit.
    """

    def __init__(self, rate: float | None = None) -> None:
        self._limit = rate
        self._rate = rate
        self._level = rate or 0.0
        self._at: float | None = None
        self._lowered_at = 0.0

    @property
    def rate(self) -> float | None:
        """Current rows per second; None for no limit."""
        return self._rate

    def most(self, wanted: int) -> int:
        """Return how many of the given rows fit in one request."""
        return wanted if self._rate is None else max(1, min(wanted, int(self._rate)))

    def take(self, count: int, now: float) -> float:
        """Take `count` rows of the budget; returns the seconds until they may be sent.

        Rows beyond the budget are a debt: later callers wait longer.
        """
        if self._rate is None:
            return 0.0
        self._fill(now)
        self._level -= count
        return max(0.0, -self._level / self._rate)

    def limited(self, allowed: float, now: float, taken: float) -> None:
        """Halve the rate after a rejection; the first time, start at the allowed rate.

        Requests that are in flight together are rejected together: only the first rejection counts.

        Args:
            allowed: Rows per second that the server allows.
            now: Monotonic seconds.
            taken: `now` of the `take` of the rejected rows.
        """
        if self._rate is None:
            self._limit = self._rate = max(_LEAST, allowed)
            self._at = self._lowered_at = now
        else:
            self._fill(now)
            if taken > self._lowered_at:
                self._rate = max(_LEAST, self._rate / 2)
                self._lowered_at = now
        self._level = min(self._level, 0.0)

    def accepted(self) -> None:
        """The server accepted a whole batch."""
        if self._rate is not None and self._limit is not None:
            self._rate = min(self._limit, self._rate * (1 + _GROWTH))

    def _fill(self, now: float) -> None:
        assert self._rate is not None
        if self._at is None:
            self._at = now
        self._level = min(self._rate, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
