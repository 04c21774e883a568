"""Waits for the next notice of a condition that may have changed."""

from __future__ import annotations

import asyncio


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

    def notify(self) -> None:
        """End all waits."""
        for future in self._futures:
            if not future.done():
                future.set_result(None)
        self._futures.clear()
