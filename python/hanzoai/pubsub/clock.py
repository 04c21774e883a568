"""One clock object for every timer and both readings of time.

The driver and the transports never call `time` or `loop.call_later` themselves, so a whole client
runs in virtual time when it is given the clock of `hanzoai.pubsub.testing`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class TimerHandle(Protocol):
    """What `Clock.call_later` gives back."""

    def cancel(self) -> None:
        """Take the timer back; harmless after it has fired or was cancelled."""


class Clock(Protocol):
    """Readings of time and timers."""

    def now(self) -> float:
        """Monotonic seconds, for intervals; the zero point means nothing."""
        ...

    def wall_ms(self) -> int:
        """Unix epoch in milliseconds, for timestamps and for noticing that the machine slept."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, `seconds` (0 or more) from now, in the running event loop."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for `seconds`."""
        ...


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    # The function itself: it is read with each piece of data that arrives.
    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Unix epoch in milliseconds."""
        return time.time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` after `seconds` in the running event loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for `seconds`."""
        await asyncio.sleep(seconds)
