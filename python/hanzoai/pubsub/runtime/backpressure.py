"""Backpressure on publishes: calls wait for room in the queue (policy ``block``)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock


class Backpressure:
    """Lets publishes in one by one, in order, as the queue has room (policy ``block``).

    Args:
        has_room: Whether so many messages of this many bytes fit.
        clock: For the timeout.

    Attributes:
        waiting: Calls that wait: messages, bytes, and what lets them in.
    """

    def __init__(self, has_room: Callable[[int, int], bool], clock: Clock) -> None:
        self._has_room = has_room
        self._clock = clock
        self.waiting: deque[tuple[int, int, asyncio.Future[bool]]] = deque()

    async def enter(self, messages: int, size: int, seconds: float) -> bool:
        """Wait for room; False where the time passed first. Then publish at once, and ``check``."""
        if not self.waiting and self._has_room(messages, size):
            return True
        admitted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        place = (messages, size, admitted)
        self.waiting.append(place)
        timer = self._clock.call_later(seconds, lambda: _answer(admitted, False))
        granted = False
        try:
            granted = await admitted
        finally:
            timer.cancel()
            self.waiting.remove(place)
            if not granted:
                self.check()
        return granted

    def check(self) -> None:
        """Let the first in line in, if there is room for it."""
        for messages, size, admitted in self.waiting:
            if admitted.done():
                if not admitted.cancelled() and admitted.result():
                    return  # it was let in and is about to publish
            elif self._has_room(messages, size):
                admitted.set_result(True)
                return
            else:
                return

    def open(self) -> None:
        """Let all in: the client has ended, and each publish learns of that."""
        for _, _, admitted in self.waiting:
            _answer(admitted, True)


def _answer(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
