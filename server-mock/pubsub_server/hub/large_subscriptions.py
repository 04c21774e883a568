"""Subscriptions to many topics wait for the backplane a few at a time.

With dozens of them at once, a backplane that is slow would answer none of them in time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MANY: Final = 100
"""Maximum topics of a subscription that does not wait for others."""
AT_ONCE: Final = 4
"""Subscriptions to more topics that wait for the backplane at the same time."""
PATIENCE: Final = 5.0
"""Seconds that a subscription waits while the backplane answers none."""


class LargeSubscriptions:
    """The subscriptions to many topics of all connections."""

    def __init__(self) -> None:
        self._running = 0
        self._fewer = asyncio.Event()
        self._answered = 0.0

    @property
    def full(self) -> bool:
        """Whether a further one must wait."""
        return self._running >= AT_ONCE

    def run(self, work: Awaitable[None]) -> Awaitable[None]:
        """Count one that does not wait for others, until its work is done."""
        self._running += 1
        return self._counted(work)

    async def run_in_turn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Perform one when few others wait for the backplane.

        Raises:
            ServiceError: `unavailable`: the backplane has answered none for `PATIENCE`.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            # A backplane that is slow, but answers, keeps no client from waiting longer.
            until = max(began, self._answered) + PATIENCE
            try:
                async with asyncio.timeout_at(until):
                    while self.full:
                        self._fewer.clear()
                        await self._fewer.wait()
            except TimeoutError:
                if until >= max(began, self._answered) + PATIENCE:
                    raise _unanswered() from None
            else:
                break
        self._running += 1
        try:
            async with asyncio.timeout_at(max(began, self._answered) + PATIENCE):
                await self._counted(work())
        except TimeoutError:
            raise _unanswered() from None

    async def _counted(self, work: Awaitable[None]) -> None:
        try:
            await work
            self._answered = asyncio.get_running_loop().time()
        finally:
            self._running -= 1
            self._fewer.set()


def _unanswered() -> ServiceError:
    detail = "the store answers no subscriptions, so no messages can be replayed"
    return ServiceError("unavailable", detail, retry_after_ms=1_000)
