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
        # Work, and its cost; 0 if that is not known yet.
        self._waiting: deque[tuple[asyncio.Future[None] | Callable[[], None], int]] = deque()
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
        """Wait for a turn, and spend these units of it; with 0 units, for a turn of its own."""
        await self.next(units)

    def do(self, work: Callable[[], None], units: int) -> None:
        """Do work immediately or in its turn, and spend these units of the turn."""
        if self.free:
            self.spend(units)
            work()
        else:
            self._waiting.append((work, units))
            self._schedule()

    def next(self, units: int = 0) -> asyncio.Future[None]:
        """A future that is done in the next turn that no earlier work waits for; see `wait`."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((turn, units))
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
                turn, units = self._waiting.popleft()
                if callable(turn):
                    self.spend(units)
                    turn()
                elif not turn.done():
                    turn.set_result(None)
                    if not units:
                        break
                    # Small work shares a turn: messages of one turn are written together.
                    self.spend(units)
        finally:
            if self._waiting:
                self._schedule()
