"""Turns of connections that receive a lot, so that they don't delay the others.

A socket whose client sends without a pause always has bytes to read. uvloop calls its protocol up
to 32 times with 256 kB before it turns to the next socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE: Final = 250_000
"""Bytes of a read; after as many, uvloop may read again at once."""
LARGE_BESIDE_OTHERS: Final = 65_536


class LargeReads:
    """In each turn of the loop, one of the waiting connections continues to read.

    Attributes:
        size: After a read of so many bytes, a connection waits: fewer while others wait.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self.size = LARGE

    def enqueue(self, go_on: Callable[[], None]) -> None:
        """Call this function in its turn, but not in the current turn of the loop."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            self.size = LARGE_BESIDE_OTHERS
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            self._look_later()
        else:
            self.size = LARGE
        go_on()
