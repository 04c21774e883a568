"""The clock of message timestamps: Unix milliseconds that never decrease."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def now_ms() -> int:
    """Unix ms of the machine's clock, which may decrease."""
    return time.time_ns() // 1_000_000


def never_back(clock: Callable[[], int]) -> Callable[[], int]:
    """A clock that repeats its last value while ``clock`` is behind it."""
    last = 0

    def wall() -> int:
        nonlocal last
        now = clock()
        # Called for every message: a comparison is faster than calling `max`.
        if now > last:
            last = now
        return last

    return wall
