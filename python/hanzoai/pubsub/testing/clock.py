"""A clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.settings.checks import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.durations import Duration

_CENTURY: Final = 36_525 * 86_400.0
_START_MS: Final = 1_740_307_200_000
_AT_ONCE: Final = 1_000_000
"""Maximum timers that may fire at the same time."""

_TURNS: Final = 50
"""Turns to run on an event loop that does not show its ready queue."""


class VirtualTimer:
    """A timer of a ``VirtualClock``."""

    __slots__ = ("_callback", "due")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self._callback: Callable[[], None] | None = callback

    @property
    def pending(self) -> bool:
        """Whether it can still fire."""
        return self._callback is not None

    def cancel(self) -> None:
        """Cancel the timer."""
        self._callback = None

    def fire(self) -> None:
        """Call the callback, unless it was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class VirtualClock:
    """A clock that only a test moves: no test waits, and every run is the same.

    Pass it to ``MemoryServer``, whose clients and hub then use it.

    Args:
        start_ms: First time of the wall clock, in Unix milliseconds.
    """

    def __init__(self, start_ms: int = _START_MS) -> None:
        self._now = 0.0
        self._wall = start_ms / 1000
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._begun = 0

    def __repr__(self) -> str:
        return f"<VirtualClock now={self._now:g} pending={self.pending}>"

    def now(self) -> float:
        """Seconds by which the test has moved the clock."""
        return self._now

    def wall_ms(self) -> int:
        """Unix milliseconds."""
        return round(self._wall * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        """Call ``callback`` when the test has moved the clock by ``seconds``."""
        timer = VirtualTimer(self._now + max(0.0, seconds), callback)
        self._begun += 1
        heapq.heappush(self._timers, (timer.due, self._begun, timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task until the test has moved the clock by ``seconds``."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: _wake(woken))
        try:
            await woken
        finally:
            timer.cancel()

    @property
    def pending(self) -> int:
        """Number of timers that can still fire; 0 when everything is closed."""
        return sum(1 for _, _, timer in self._timers if timer.pending)

    @property
    def begun(self) -> int:
        """Number of timers that were started so far."""
        return self._begun

    async def settle(self) -> None:
        """Run every task and every due timer until all of them wait.

        Threads are outside the loop: this does not wait for their answers.
        """
        await self.advance(0)

    async def advance(self, seconds: Duration) -> None:
        """Move the clock: timers fire in order, and tasks run in between.

        Args:
            seconds: 0 or more, or a timedelta.

        Raises:
            InvalidOption: ``seconds`` is negative or not a duration.
        """
        end = self._now + check_seconds("seconds", seconds, 0.0, _CENTURY)
        await _idle()
        while (due := self._next_due()) is not None and due <= end:
            self._move(max(due, self._now))
            fired = 0
            while self._timers and self._timers[0][0] <= self._now:
                _, _, timer = heapq.heappop(self._timers)
                timer.fire()
                fired += 1
                if fired > _AT_ONCE:
                    raise AssertionError("Timers start each other without any time passing")
            await _idle()
        self._move(end)
        await _idle()

    async def advance_until(self, happened: Callable[[], object], limit: float = 3_600.0) -> float:
        """Move the clock until a condition is true.

        Args:
            happened: The condition, checked after each timer.
            limit: Maximum seconds to move the clock.

        Returns:
            Seconds that passed.

        Raises:
            AssertionError: The condition did not become true.
        """
        began = self._now
        await self.settle()
        while not happened():
            due = self._next_due()
            if due is None or due > began + limit:
                raise AssertionError(f"The condition was not met within {limit:g} virtual seconds")
            await self.advance(due - self._now)
        return self._now - began

    async def machine_sleeps(self, seconds: float) -> None:
        """Suspend the machine: only the wall clock moves."""
        await self.settle()
        self._wall += seconds

    def _next_due(self) -> float | None:
        while self._timers and not self._timers[0][2].pending:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _move(self, to: float) -> None:
        self._wall += to - self._now
        self._now = to


async def _idle() -> None:
    """Yield until the event loop has nothing to do."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:  # a loop that does not show its ready queue, such as uvloop's
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - no Event could tell that the others have nothing to do
        await asyncio.sleep(0)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


__all__ = ["VirtualClock", "VirtualTimer"]
