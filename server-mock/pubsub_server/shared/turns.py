"""Shares the event loop: work waits for its turn, in order of arrival.

Each turn of the loop has a budget of time. Work that begins within it runs immediately, later work
runs in a later turn. So a client that causes a lot of work delays others by a part of a turn, not
by all of it. Time is measured, and not estimated from bytes: the cost of a byte depends on its
client.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

SECONDS: Final = 0.005
"""Seconds of a turn of the loop in which work may begin."""


class Turns:
    """The turns of one kind of work: a long queue of one kind does not delay the others.

    Args:
        loop: The event loop.
        clock: Seconds.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        # The end of the budget, if this turn has begun.
        self._end: float | None = None
        # Expected seconds of the work that `wait` has released: it begins after its release.
        self._expected = 0.0

    @property
    def waiting(self) -> int:
        """The amount of work that waits."""
        return len(self._waiting)

    @property
    def over(self) -> bool:
        """Whether the time of this turn is used up. It begins with the first question."""
        if self._end is None:
            self._begin()
            return False
        return self._clock() >= self._end

    @property
    def free(self) -> bool:
        """Whether work may begin immediately."""
        return not (self._waiting or self.over)

    def do(self, work: Callable[[], None]) -> None:
        """Do work immediately or in its turn."""
        if self.free:
            work()
        else:
            self.enqueue(work)

    def enqueue(self, work: Callable[[], None]) -> None:
        """Do work in its turn."""
        self._waiting.append(work)
        if self._end is None:
            self._begin()

    async def wait(self, seconds: float = SECONDS) -> None:
        """Wait for a turn.

        Args:
            seconds: Expected time of the work. Without it, it has a turn of its own.
        """
        turn: asyncio.Future[None] = self._loop.create_future()

        def begin() -> None:
            if not turn.done():
                turn.set_result(None)
                self._expected += seconds

        self.enqueue(begin)
        await turn

    def _begin(self) -> None:
        self._end = self._clock() + SECONDS
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._end = None
        self._expected = 0.0
        # The first question schedules the next turn, even if work fails.
        while self._waiting and not self.over and self._expected < SECONDS:
            self._waiting.popleft()()
