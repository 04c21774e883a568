"""Backpressure on publishes: calls wait for room in the queue (policy ``block``)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock


class Backpressure:
    """Admits publishes one by one, in order, as the queue has room (policy ``block``).

    Args:
        has_room: Whether this many messages of this many bytes fit.

    Attributes:
        waiting: Waiting calls: messages, bytes, and the future that admits them.
    """

    def __init__(self, has_room: Callable[[int, int], bool], clock: Clock) -> None:
        self._has_room = has_room
        self._clock = clock
        self.waiting: deque[tuple[int, int, asyncio.Future[bool]]] = deque()

    async def enter(self, messages: int, size: int, seconds: float) -> bool:
        """Wait for room; False after the timeout. Otherwise publish immediately, and ``check``."""
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
        """Admit the first waiting call, if there is room for it."""
        for messages, size, admitted in self.waiting:
            if admitted.done():
                if not admitted.cancelled() and admitted.result():
                    return  # it was admitted and is about to publish
            elif self._has_room(messages, size):
                admitted.set_result(True)
                return
            else:
                return

    def open(self) -> None:
        """Admit all calls: the client has ended, so each publish raises its error."""
        for _, _, admitted in self.waiting:
            _answer(admitted, True)


def _answer(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
