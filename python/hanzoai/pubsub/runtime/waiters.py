"""Waits for the next notice of a condition that may have changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock


class Waiters:
    """Those who wait for the next notice; each checks its own condition afterwards."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        """A future of the next notice. A cancelled wait loses nothing."""
        if self._futures:
            self._futures = [future for future in self._futures if not future.done()]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        return future

    async def until(
        self, condition: Callable[[], bool], clock: Clock, seconds: float | None = None
    ) -> bool:
        """Wait until a condition holds after a notice, but at most this time; whether it holds."""
        passed = False

        def expire() -> None:
            nonlocal passed
            passed = True
            self.notify()

        timer = None if seconds is None else clock.call_later(seconds, expire)
        try:
            while not (met := condition()) and not passed:
                await self.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return met

    def notify(self) -> None:
        """End all waits."""
        for future in self._futures:
            if not future.done():
                future.set_result(None)
        self._futures.clear()
