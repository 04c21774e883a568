"""How fast a client publishes: freely, until the server says that it is too fast.

From then on a budget is shared out: it halves when it proves too large and grows a little with
every batch that is taken whole, up to what the server allows. Pure: the caller passes the time.
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

    @property
    def rate(self) -> float | None:
        """Rows per second at present; None for no limit."""
        return self._rate

    def most(self, wanted: int) -> int:
        """How many of this many rows should go in one request."""
        return wanted if self._rate is None else max(1, min(wanted, int(self._rate)))

    def take(self, count: int, now: float) -> float:
        """Take `count` rows of the budget; answers in how many seconds they may be sent.

        What is taken beyond the budget is owed: who comes later waits longer.
        """
        if self._rate is None:
            return 0.0
        self._fill(now)
        self._level -= count
        return max(0.0, -self._level / self._rate)

    def limited(self, allowed: float, now: float) -> None:
        """The server refused some: halve, and begin at what it allows.

        Args:
            allowed: Rows per second that the server says it allows.
            now: Monotonic seconds.
        """
        if self._rate is None:
            self._limit = self._rate = max(_LEAST, allowed)
            self._at = now
        else:
            self._fill(now)
            self._rate = max(_LEAST, self._rate / 2)
        self._level = min(self._level, 0.0)

    def accepted(self) -> None:
        """A batch was taken whole."""
        if self._rate is not None and self._limit is not None:
            self._rate = min(self._limit, self._rate * (1 + _GROWTH))

    def _fill(self, now: float) -> None:
        assert self._rate is not None
        if self._at is None:
            self._at = now
        self._level = min(self._rate, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
