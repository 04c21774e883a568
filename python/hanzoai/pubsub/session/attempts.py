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
    """Counts failed attempts, and calculates the wait before the next one, in milliseconds."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.failed = 0  # consecutive attempts
        self.outage = 0  # waits and failed openings since the last useful connection
        self.requested_wait = 0  # by the server before it ended the connection
        self.wait = 0  # the planned one
        self._minimum = 0  # the part of it that no call of the program saves
        self.can_shorten = False  # a call of the program ends the running wait early
        self.shorten_later = False  # such a call ends it when the timer `hold` fires

    def delay(self, attempt: int, bound: float = inf) -> int:
        """Draw a wait with full jitter (LIFE-2)."""
        options = self._context.options
        ceiling = min(options.retry_cap, options.retry_base << attempt, bound)
        return int(self._context.random() * ceiling)

    def plan(self, retry_after: int, *, unsettled: bool) -> int:
        """Draw the wait before the next attempt, at least `retry_after`, and count this one."""
        options = self._context.options
        # Clients return soon after a short outage, and are spread out after a long one. While a
        # publish waits, the bound stays low.
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
