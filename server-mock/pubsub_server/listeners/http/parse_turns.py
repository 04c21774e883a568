"""Limits the time that all connections of the HTTP port spend on parsing in one turn of the loop.

The cost of a byte depends on its client: a body in chunks of one byte takes a hundred times as long
as one in a single chunk. So time is counted, and not bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = 0.005
"""Seconds of parsing in a turn of the loop; then connections stop reading until their turn."""


class ParseTurns:
    """Connections with received bytes, in order of arrival.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._spent = 0.0
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    @property
    def free(self) -> bool:
        """Whether a connection may parse what it has just received."""
        return not (self._waiting or self.over)

    @property
    def over(self) -> bool:
        """Whether the time of this turn is used up."""
        return self._spent >= SECONDS

    def parse(self, feed: Callable[[bytes], None], data: bytes) -> None:
        """Parse bytes, and count the time."""
        began = self._clock()
        try:
            feed(data)
        finally:
            self._spent += self._clock() - began
            self._schedule()

    def enqueue(self, go_on: Callable[[], None]) -> None:
        """Call this function in its turn."""
        self._waiting.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        self._spent = 0.0
        try:
            while self._waiting and not self.over:
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._schedule()
