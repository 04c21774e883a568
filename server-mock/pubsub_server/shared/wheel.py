"""One timer for all deadlines, which are in buckets of one tick.

A connection has no timer of its own: it is in the bucket of its next deadline, and returns the
following deadline when it is called. So an idle connection costs one list entry.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable

logger = logging.getLogger(__name__)

TICK: Final = 0.05
"""Maximum delay of a deadline in seconds."""


class Waiting(Protocol):
    """An object with a deadline."""

    def due(self, now: float) -> float | None:
        """The deadline has passed, by at most one tick.

        Args:
            now: Monotonic seconds.

        Returns:
            The next deadline, or None.
        """
        ...


class Wheel:
    """Calls each waiting object at its deadline.

    Deadlines cannot be cancelled: an object that no longer waits returns None when it is called.

    Args:
        clock: Monotonic seconds.
        call_at: Schedules a call, like ``loop.call_at``; None if the owner calls `run` itself.
        tick: Seconds of a bucket.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], TimerHandle] | None = None,
        tick: float = TICK,
    ) -> None:
        self._clock = clock
        self._call_at = call_at
        self._tick = tick
        self._buckets: dict[int, list[Waiting]] = {}
        self._heap: list[int] = []
        self._timer: TimerHandle | None = None
        self._timer_key = 0
        self._stopped = False

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock()

    def add(self, waiting: Waiting, at: float) -> None:
        """Call ``waiting`` at this time, not before."""
        key = int(at / self._tick) + 1
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.append(waiting)
            return
        self._buckets[key] = [waiting]
        heapq.heappush(self._heap, key)
        if self._heap[0] == key:
            self._arm()

    def call(self, due: Callable[[float], float | None], at: float) -> None:
        """Call a function as `Waiting.due` of an object."""
        self.add(_Call(due), at)

    def run(self, now: float | None = None) -> None:
        """Call all objects whose deadline has passed."""
        now = self._clock() if now is None else now
        last = int(now / self._tick)
        while self._heap and self._heap[0] <= last:
            for waiting in self._buckets.pop(heapq.heappop(self._heap)):
                try:
                    again = waiting.due(now)
                except Exception:
                    logger.exception("a timer failed")
                    continue
                if again is not None:
                    self.add(waiting, max(again, now))

    def stop(self) -> None:
        """Remove all deadlines."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._heap.clear()

    def _arm(self) -> None:
        if self._call_at is None or self._stopped or not self._heap:
            return
        key = self._heap[0]
        if self._timer is not None:
            if self._timer_key <= key:
                return
            self._timer.cancel()
        self._timer_key = key
        self._timer = self._call_at(key * self._tick, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.run()
        self._arm()


class _Call:
    __slots__ = ("_due",)

    def __init__(self, due: Callable[[float], float | None]) -> None:
        self._due = due

    def due(self, now: float) -> float | None:
        """See `Waiting`."""
        return self._due(now)
