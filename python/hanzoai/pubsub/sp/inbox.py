"""The receive queue of a SUB socket: bounded, with a policy and counters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import OperationTimeout
from hanzoai.pubsub.sp.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Select = Callable[[Sequence[bytes]], list[bytes]]


class Inbox:
    """Holds the messages that the program has not received yet; for programs on one event loop.

    Args:
        capacity: Maximum messages that wait, at least 1.
        drop_oldest: Whether a full queue drops the oldest waiting message; otherwise, it drops the
            new one.
    """

    patience = 0.0
    """Seconds to wait for the program before the next read, once the queue is full."""

    def __init__(self, capacity: int, *, drop_oldest: bool) -> None:
        self._capacity = capacity
        self._drop_oldest = drop_oldest
        self._messages: deque[bytes] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.closed = False
        """Whether what still arrives is discarded."""
        self.received = 0
        """Messages passed to the program."""
        self.dropped = 0
        """Messages lost because the queue was full."""

    @property
    def room(self) -> int:
        """How many more messages fit without a loss."""
        return self._capacity - len(self._messages)

    def put(self, messages: Sequence[bytes]) -> None:
        """Queue messages; drop messages by the policy if the queue is full."""
        if self.closed:
            return
        queue = self._messages
        excess = len(queue) + len(messages) - self._capacity
        if excess <= 0:
            queue.extend(messages)
        elif self._drop_oldest:
            queue.extend(messages)
            for _ in range(excess):
                queue.popleft()
            self.dropped += excess
        else:
            queue.extend(messages[: len(messages) - excess])
            self.dropped += excess
        self._wake(len(queue))

    def when_empty(self, wake: Callable[[], None]) -> None:
        """Call `wake` once the program has taken all messages; does nothing if `patience` is 0."""

    def purge(self, select: Select) -> None:
        """Discard the waiting messages that `select` does not return."""
        self._messages = deque(select(self._messages))

    def close(self) -> None:
        """Discard the waiting messages, and end every `get` with `Closed`."""
        self.closed = True
        self._messages.clear()
        self._wake(len(self._waiting))

    async def get(self) -> bytes:
        """Wait for the next message.

        Raises:
            Closed: The socket is closed, before or meanwhile.
        """
        while not self._messages:
            if self.closed:
                raise Closed
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                elif self._messages:  # pass the turn to the next waiter
                    self._wake(1)
                raise
        self.received += 1
        return self._messages.popleft()

    def _wake(self, most: int) -> None:
        while most > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1


class ThreadInbox(Inbox):
    """The same for programs with threads: any thread may receive."""

    # The event loop runs in another thread: without a wait, each burst would overflow the queue.
    patience = 0.001

    def __init__(self, capacity: int, *, drop_oldest: bool) -> None:
        super().__init__(capacity, drop_oldest=drop_oldest)
        self._condition = threading.Condition()
        self._sleeping = 0
        self._hungry: list[Callable[[], None]] = []

    def when_empty(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when the program takes the last message or closes the socket."""
        self._hungry.append(wake)

    def put(self, messages: Sequence[bytes]) -> None:
        """Queue messages; drop messages by the policy if the queue is full."""
        with self._condition:
            super().put(messages)

    def purge(self, select: Select) -> None:
        """Discard the waiting messages that `select` does not return."""
        with self._condition:
            super().purge(select)

    def close(self) -> None:
        """Discard the waiting messages, and end every `get_blocking` with `Closed`."""
        with self._condition:
            super().close()
            self._condition.notify_all()
            self._feed()

    def get_blocking(self, timeout: float | None) -> bytes:
        """Wait for the next message; see `get`.

        Raises:
            Closed: The socket is closed, before or meanwhile.
            OperationTimeout: No message arrived within `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while not self._messages:
                if self.closed:
                    raise Closed
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise OperationTimeout(f"No message arrived within {timeout:g} s.", remedy="")
                self._sleeping += 1
                try:
                    self._condition.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
                finally:
                    self._sleeping -= 1
            self.received += 1
            message = self._messages.popleft()
            if self._hungry and not self._messages:
                self._feed()
            return message

    def _feed(self) -> None:
        hungry, self._hungry = self._hungry, []
        for wake in hungry:
            wake()

    def _wake(self, most: int) -> None:
        if self._sleeping and most > 0:
            self._condition.notify(most)
