"""The time that messages carry: Unix milliseconds that never go back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def now_ms() -> int:
    """Unix ms as the machine has it, which may go back."""
    return time.time_ns() // 1_000_000


def never_back(clock: Callable[[], int]) -> Callable[[], int]:
    """A clock that stands still for as long as ``clock`` has gone back."""
    last = 0

    def wall() -> int:
        nonlocal last
        now = clock()
        # Called for every message: not `max`, whose call is dearer.
        if now > last:
            last = now
        return last

    return wall
