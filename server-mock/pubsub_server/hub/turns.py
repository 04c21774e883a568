"""Shares the event loop: heavy work waits for its turn, in order of arrival.

Work is counted in units of about a microsecond. Each turn of the loop has a budget: work that
starts within it runs immediately, later work runs in a later turn. So a client with a large request
delays others by a part of a turn, not by its whole request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

UNITS: Final = 20_000
"""Units of one turn of the loop."""


class Turns:
    """The turns of one hub.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = UNITS
        self._waiting: deque[asyncio.Future[None] | tuple[Callable[[], None], int]] = deque()
        self._scheduled = False

    @property
    def free(self) -> bool:
        """Whether heavy work may begin immediately."""
        return self._left > 0 and not self._waiting

    @property
    def over(self) -> bool:
        """Whether the budget of this turn is used up."""
        return self._left <= 0

    def spend(self, units: int) -> None:
        """Count work that was done in this turn."""
        self._left -= units
        self._schedule()

    async def wait(self, units: int) -> None:
        """Wait for a turn, and spend these units of it."""
        await self.next()
        self.spend(units)

    def do(self, work: Callable[[], None], units: int) -> None:
        """Do work immediately or in its turn, and spend these units of the turn."""
        if self.free:
            self.spend(units)
            work()
        else:
            self._waiting.append((work, units))
            self._schedule()

    def next(self) -> asyncio.Future[None]:
        """A future that is done in the next turn that no earlier work waits for."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        self._schedule()
        return turn

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        self._left = UNITS
        try:
            while self._waiting and self._left > 0:
                turn = self._waiting.popleft()
                if isinstance(turn, tuple):
                    work, units = turn
                    self.spend(units)
                    work()
                elif not turn.done():
                    turn.set_result(None)
                    break
        finally:
            if self._waiting:
                self._schedule()
