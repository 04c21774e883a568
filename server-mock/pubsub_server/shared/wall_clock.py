"""The clock of message timestamps: Unix milliseconds that never decrease."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def now_ms() -> int:
    """Unix ms of the machine's clock, which may decrease."""
    return time.time_ns() // 1_000_000


def never_back(
    clock: Callable[[], int], steady: Callable[[], float] = time.monotonic
) -> Callable[[], int]:
    """A clock that runs at half speed while ``clock`` is behind it.

    It must not stop: a clock that was years ahead is set back when a machine starts, and messages
    would not expire until then.

    Args:
        clock: Unix ms.
        steady: Seconds that never decrease.
    """
    last = 0
    behind: tuple[int, float] | None = None

    def wall() -> int:
        nonlocal last, behind
        now = clock()
        # Called for every message: a comparison is faster than calling `max`.
        if now >= last:
            last = now
            behind = None
            return now
        at = steady()
        if behind is None:
            behind = last, at
        start, since = behind
        last = max(last, start + int((at - since) * 500))
        return last

    return wall
