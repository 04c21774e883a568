"""Shares out the event loop: what is heavy waits for its turn, first come first served.

Work is counted in units of about a microsecond. A turn of the loop has so many; what is begun
while there are some left runs at once, what comes later goes on in a turn of its own. So a client
that asks for a lot delays the others by a part of a turn, not by all that it asks for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

UNITS: Final = 20_000
"""Of one turn of the loop."""


class Turns:
    """One for a hub.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = UNITS
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    @property
    def free(self) -> bool:
        """Whether something heavy may begin at once."""
        return self._left > 0 and not self._waiting

    def spend(self, units: int) -> None:
        """So much has been done in this turn."""
        self._left -= units
        self._schedule()

    async def wait(self, units: int) -> None:
        """Wait for a turn, and spend these units of it."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        self._schedule()
        await turn
        self.spend(units)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        self._left = UNITS
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._schedule()
