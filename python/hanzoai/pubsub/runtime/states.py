"""Iterators over state changes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Self

from hanzoai.pubsub.runtime.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.values import StateChange

_KEPT: Final = 256


class StateStream:
    """An async iterator over state changes; `ended`: called when it ends, as with the client."""

    def __init__(self, ended: Callable[[StateStream], None]) -> None:
        self._changes: deque[StateChange] = deque(maxlen=_KEPT)
        self._waiters = Waiters()
        self._finished = False
        self._ended = ended

    def put(self, change: StateChange) -> None:
        """Add a change; drop the oldest if there are too many."""
        self._changes.append(change)
        self._waiters.notify()

    def finish(self) -> None:
        """End after the waiting changes."""
        self._finished = True
        self._ended(self)
        self._waiters.notify()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StateChange:
        while not self._changes:
            if self._finished:
                raise StopAsyncIteration
            await self._waiters.wait()
        return self._changes.popleft()

    async def aclose(self) -> None:
        """Stop reading."""
        self._changes.clear()
        self.finish()
