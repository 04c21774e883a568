"""Deadlines of publishes, with one timer for all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock, TimerHandle

EXPIRED: Final = -math.inf


class Deadlines:
    """Gives up publishes whose deadline has passed.

    A timer per publish would cost as much as the whole session for it. This one runs until the
    earliest known deadline, even if that publish is already settled.

    Attributes:
        pending: Deadlines by number, `EXPIRED` after they have passed. A call adds its deadline,
            calls `arm` if it is before `next`, and removes it when the publish is settled.
        next: When the timer fires; infinite if it does not run.
    """

    __slots__ = ("_clock", "_expire", "_timer", "next", "pending")

    def __init__(self, clock: Clock, expire: Callable[[int], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._timer: TimerHandle | None = None
        self.pending: dict[int, float] = {}
        self.next = math.inf

    def arm(self, deadline: float) -> None:
        """Have the timer fire at this time, by the clock's `now`."""
        if self._timer is not None:
            self._timer.cancel()
        self.next = deadline
        wait = max(0.0, deadline - self._clock.now())
        self._timer = self._clock.call_later(wait, self._fire)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.next = None, math.inf

    def _fire(self) -> None:
        self._timer, self.next = None, math.inf
        now = self._clock.now()
        for number, deadline in list(self.pending.items()):
            if EXPIRED < deadline <= now:
                self.pending[number] = EXPIRED
                self._expire(number)
        earliest = min((at for at in self.pending.values() if at > EXPIRED), default=math.inf)
        if earliest < math.inf:
            self.arm(earliest)
