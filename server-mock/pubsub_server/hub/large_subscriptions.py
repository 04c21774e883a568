"""Subscriptions to many topics wait for the backplane a few at a time.

With dozens of them at once, a backplane that is slow would answer none of them in time.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    """The subscriptions to many topics of all connections.

    Those that may run also wait for their turns of the event loop. On a busy server this takes
    long, so only the time in which the backplane is asked counts as its silence.
    """

    def __init__(self) -> None:
        self._running = 0
        # Those of them that wait for the backplane.
        self._asking = 0
        # Seconds in which the backplane was asked, until this time of the loop.
        self._asked = self._until = 0.0
        # The same at its last answer.
        self._answered = 0.0
        self._changed = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether a further one must wait."""
        return self._running >= AT_ONCE

    def run(self, rest: Awaitable[None]) -> Awaitable[None]:
        """Count one that does not wait for others, until its work at the backplane is done."""
        self._running += 1
        return self._counted(self._ask(rest))

    async def run_in_turn(
        self, turn: Callable[[], Awaitable[None]], begin: Callable[[], Awaitable[None] | None]
    ) -> None:
        """Perform one when few others wait for the backplane.

        Args:
            turn: Waits for its turn of the event loop.
            begin: Begins it. Returns its work at the backplane, if there is any.

        Raises:
            ServiceError: `unavailable`: the backplane has answered none for `PATIENCE`.
        """
        began = self._clock()
        while self.full:
            left = self._left(began)
            if left <= 0:
                raise _unanswered()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if self._asking else None):
                    await self._changed.wait()
        self._running += 1
        await self._counted(self._run(turn, begin, began))

    async def _run(
        self,
        turn: Callable[[], Awaitable[None]],
        begin: Callable[[], Awaitable[None] | None],
        began: float,
    ) -> None:
        await turn()
        rest = begin()
        if rest is None:
            return
        try:
            async with asyncio.timeout(self._left(began)):
                await self._ask(rest)
        except TimeoutError:
            raise _unanswered() from None

    async def _ask(self, rest: Awaitable[None]) -> None:
        self._count_asking(1)
        try:
            await rest
            self._answered = self._clock()
        finally:
            self._count_asking(-1)

    async def _counted(self, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            self._running -= 1
            self._changed.set()

    def _count_asking(self, change: int) -> None:
        self._asked = self._clock()
        self._until = asyncio.get_running_loop().time()
        self._asking += change
        # The time of those that wait for others passes from now on.
        self._changed.set()

    def _clock(self) -> float:
        """Seconds in which the backplane was asked."""
        since = asyncio.get_running_loop().time() - self._until if self._asking else 0.0
        return self._asked + since

    def _left(self, began: float) -> float:
        """Seconds until one that began then gives up.

        A backplane that is slow, but answers, keeps no client from waiting longer.
        """
        return max(began, self._answered) + PATIENCE - self._clock()


def _unanswered() -> ServiceError:
    detail = "the store answers no subscriptions, so no messages can be replayed"
    return ServiceError("unavailable", detail, retry_after_ms=1_000)
