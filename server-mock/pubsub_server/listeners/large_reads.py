"""Turns of connections that receive a lot, so that they don't delay the others.

In one turn of the loop, uvloop reads from each socket up to 32 times, 256 kB at a time, if its
client sends without a pause. A client with many sockets would occupy the loop for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE: Final = 32_768
"""Bytes of a read after which a connection stops reading until its turn."""
MEDIUM: Final = 2_048
"""Bytes of a read that can take milliseconds, and whose time is limited."""
SECONDS: Final = 0.02
"""Seconds of reads of this size in a turn of the loop; then connections stop reading, too."""
WAITING: Final = 256
"""Reads that wait with their bytes; further ones are handled immediately, to use no more memory."""


class LargeReads:
    """In each turn of the loop, one connection with a large read handles it, or some with less.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._spent = 0.0
        # Whether each is large.
        self._waiting: deque[tuple[Callable[[], None], bool]] = deque()
        self._scheduled = False

    @property
    def full(self) -> bool:
        """Whether no further read may wait with its bytes."""
        return len(self._waiting) >= WAITING

    @property
    def free(self) -> bool:
        """Whether a read that is not large may be handled immediately."""
        return not self._waiting and self._spent < SECONDS

    def run(self, read: Callable[[], None]) -> None:
        """Handle a read immediately, and count its time."""
        began = self._clock()
        try:
            read()
        finally:
            self._spent += self._clock() - began
            self._look_later()

    def enqueue(self, go_on: Callable[[], None], *, large: bool = True) -> None:
        """Call this function in its turn, but not in the current turn of the loop."""
        self._waiting.append((go_on, large))
        self._look_later()

    def _look_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        self._spent = 0.0
        large = False
        try:
            while self._waiting and not large and self._spent < SECONDS:
                go_on, large = self._waiting.popleft()
                self.run(go_on)
        finally:
            if self._waiting:
                self._look_later()
