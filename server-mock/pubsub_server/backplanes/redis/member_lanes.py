"""Changes of members that wait for Redis: in order, and each call repeated until it is answered.

In a cluster each shard has its own lane, so that an unavailable server delays only its own topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pubsub_server.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from pubsub_server.backplanes.redis.lease import Lease
    from pubsub_server.tasks import Tasks

logger = logging.getLogger(__name__)

CALL_CHANGES: Final = 500
CROWDED: Final = 5_000
"""Waiting changes above which a client must wait before it makes many more."""


@dataclass(slots=True)
class Step:
    """One operation of `members.lua`."""

    op: Literal["j", "u", "a", "l"]
    topic: str
    client_id: str
    id: str
    shown: bytes
    done: asyncio.Future[None] | None = None

    def finish(self) -> None:
        """End the wait for it."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of `members.lua`; a repetition has the same number and steps."""

    number: int
    steps: Sequence[Step]

    def finish(self) -> None:
        """End the waits for its steps."""
        for step in self.steps:
            step.finish()


class Lane:
    """The changes of all shards, or of one shard of a cluster.

    Args:
        perform: Sends a call; returns whether Redis has answered it.
        lease: The name of this node.
        numbers: Numbers the calls of this node.
        tasks: Runs the writes.
    """

    def __init__(
        self,
        perform: Callable[[Call], Awaitable[bool]],
        lease: Lease,
        numbers: Iterator[int],
        tasks: Tasks,
    ) -> None:
        self._perform = perform
        self._lease = lease
        self._numbers = numbers
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._steps: deque[Step] = deque()
        # Redis may have executed this call: it is repeated before later changes.
        self._unanswered: Call | None = None
        self._entering = asyncio.Lock()
        # Set when some of the waiting changes have been written.
        self._written = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def unanswered(self) -> bool:
        """Whether its last call had no answer, and is repeated."""
        return self._unanswered is not None

    def add(self, step: Step) -> None:
        """Write this change after the others."""
        self._steps.append(step)
        if self._task is None:
            # The task starts after this loop turn, and so writes all its changes together.
            self._task = self._tasks.spawn(self._write())

    def drop(self) -> None:
        """Write nothing that waits."""
        for step in self._steps:
            step.finish()
        self._steps.clear()
        self._give_up()

    async def room(self) -> None:
        """Wait until few changes wait; one caller at a time continues."""
        # The next caller continues in a later turn, when this one has made its changes.
        async with self._entering:
            while len(self._steps) >= CROWDED:
                self._written.clear()
                await self._written.wait()

    async def close(self) -> None:
        """Write what waits, if Redis is available."""
        self._closed = True
        if self._task is not None:
            await self._task

    # ------------------------------------------------------------ inside

    def _give_up(self) -> None:
        call, self._unanswered = self._unanswered, None
        if call is not None:
            call.finish()

    async def _write(self) -> None:
        backoff = Backoff()
        try:
            while self._unanswered is not None or self._steps:
                call = self._unanswered or self._next_call()
                node = self._lease.node
                try:
                    self._unanswered = None if await self._perform(call) else call
                    if self._unanswered is None:
                        backoff.reset()
                    elif self._closed:
                        self.drop()
                    elif node != self._lease.node:
                        # With a new lease, all members are written again.
                        self._give_up()
                    else:
                        await backoff.wait()
                except Exception:
                    logger.exception("cannot write members to Redis")
                    self._unanswered = call
                    self._give_up()
                finally:
                    self._written.set()
        finally:
            self._task = None

    def _next_call(self) -> Call:
        some = min(CALL_CHANGES, len(self._steps))
        return Call(next(self._numbers), [self._steps.popleft() for _ in range(some)])
