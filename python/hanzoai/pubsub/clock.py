"""One clock object for every timer and both readings of time.

The driver and the transports never call `time` or `loop.call_later` themselves, so a whole client
runs in virtual time with the clock of `hanzoai.pubsub.testing`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class TimerHandle(Protocol):
    """The result of `Clock.call_later`."""

    def cancel(self) -> None:
        """Cancel the timer. Has no effect after it has fired or was cancelled."""


class Clock(Protocol):
    """Readings of time and timers."""

    def now(self) -> float:
        """Monotonic seconds, for intervals; the zero point is arbitrary."""
        ...

    def wall_ms(self) -> int:
        """Unix milliseconds, for timestamps and to detect that the machine was suspended."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, `seconds` (0 or more) from now, in the running event loop."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for `seconds`."""
        ...


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    # The function itself, without a wrapper: it is called for all data that arrives.
    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` after `seconds` in the running event loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for `seconds`."""
        await asyncio.sleep(seconds)
