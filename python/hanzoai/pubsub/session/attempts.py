"""The waits between attempts to connect (LIFE-2, LIFE-3).

There is no clock: the length of an outage is the sum of its waits and failed openings.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.session.context import Context

MAX_RETRY_AFTER: Final = 3_600_000
"""Maximum wait that a server can request, milliseconds."""

_UNHURRIED: Final = 160_000
"""Milliseconds. An outage of 25 s allows waits of up to 4 s, one of 70 s waits of up to 30 s."""


class Attempts:
    """Counts consecutive failed attempts, and calculates the wait before the next one.

    Attributes:
        failed: Number of consecutive failed attempts.
        outage: Milliseconds of waits and failed openings since the last useful connection.
        requested_wait: Milliseconds that the server requested before it ended the connection.
        wait: Milliseconds of the planned wait.
        can_shorten: Whether a call of the program ends the running wait early.
        shorten_later: Whether one will end it when the timer `hold` fires.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._minimum = 0  # milliseconds of the wait that no call of the program saves
        self.failed = 0
        self.outage = 0
        self.requested_wait = 0
        self.wait = 0
        self.can_shorten = False
        self.shorten_later = False

    def delay(self, attempt: int, bound: float = inf) -> int:
        """Draw a wait with full jitter, in milliseconds (LIFE-2)."""
        options = self._context.options
        ceiling = min(options.retry_cap, options.retry_base << attempt, bound)
        return int(self._context.random() * ceiling)

    def plan(self, retry_after: int, *, unsettled: bool) -> int:
        """Draw the wait before the next attempt, and count this one.

        Its bound grows with the length of the outage, so that clients return soon after a short
        outage and are spread out after a long one. It stays low while a publish waits.

        Args:
            retry_after: Milliseconds that the server requested now.
            unsettled: Whether a publish waits.

        Returns:
            Milliseconds, at least what the server requested.
        """
        options = self._context.options
        bound = 2 * options.retry_base
        if not unsettled:
            bound = max(bound, self.outage * self.outage // _UNHURRIED)
        requested = min(MAX_RETRY_AFTER, max(retry_after, self.requested_wait))
        self.wait = max(self.delay(self.failed, bound), requested)
        self._minimum = max(options.call_interval, requested)
        self.failed += 1
        self.outage += self.wait
        return self.wait

    def schedule(self) -> None:
        """Start the planned wait."""
        timers = self._context.timers
        timers.start("retry", self.wait)
        self.shorten_later = False
        self.can_shorten = self.wait > self._minimum
        if self.can_shorten:
            timers.start("hold", self._minimum)

    def shorten(self) -> None:
        """A call of the program ends the wait early."""
        self.outage -= self.wait - self._minimum
