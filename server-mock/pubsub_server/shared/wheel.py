"""One timer for everything that waits: deadlines in buckets, a bucket a tick.

A connection has no timer of its own: it is in the bucket of its next deadline, and says, when
that comes, when it wants to be asked again. So what is idle costs one place in a list.
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
"""Seconds: how much later than asked something may be due."""


class Waiting(Protocol):
    """Something with a deadline."""

    def due(self, now: float) -> float | None:
        """The deadline has come (or a tick later).

        Args:
            now: Monotonic seconds.

        Returns:
            When to be asked again, or None for never.
        """
        ...


class Wheel:
    """Asks each waiting thing when its deadline has come.

    Nothing can be taken back: what no longer waits answers None when it is asked.

    Args:
        clock: Monotonic seconds.
        call_at: How to be called at such a time, as ``loop.call_at``; None where the owner calls
            `run` itself.
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
        """Ask ``waiting`` at this time, never before."""
        key = int(at / self._tick) + 1
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.append(waiting)
            return
        self._buckets[key] = [waiting]
        heapq.heappush(self._heap, key)
        if self._heap[0] == key:
            self._arm()

    def run(self, now: float | None = None) -> None:
        """Ask everything whose time has come."""
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
        """Forget everything."""
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
