"""Turns of connections that receive a lot, so that they don't delay the others.

In one turn of the loop, uvloop reads from each socket up to 32 times, 256 kB at a time, if its
client sends without a pause. A client with many sockets would occupy the loop for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE: Final = 32_768
"""Bytes of a read after which a connection stops reading until its turn."""
WAITING: Final = 256
"""Reads that wait with their bytes; further ones are handled immediately, to use no more memory."""


class LargeReads:
    """In each turn of the loop, one of the waiting connections handles what it has read."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def full(self) -> bool:
        """Whether no further read may wait with its bytes."""
        return len(self._waiting) >= WAITING

    def enqueue(self, go_on: Callable[[], None]) -> None:
        """Call this function in its turn, but not in the current turn of the loop."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            self._look_later()
        go_on()
