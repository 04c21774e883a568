"""Waits for a change of a condition, and the tasks of a client."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

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


logger = logging.getLogger("hanzoai.pubsub")

_CANCEL_TIMEOUT: Final = 1.0
"""Seconds for a cancelled task of user code to end."""

_inside: contextvars.ContextVar[asyncio.Task[Any] | None]
_inside = contextvars.ContextVar("hanzoai.pubsub task", default=None)
"""The task in which code runs, also in threads and tasks that it has started."""


class Tasks:
    """The tasks of one client: referenced until they have ended, and ended when it closes."""

    def __init__(self, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiters = Waiters()

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task and reference it until it has ended."""
        # Not with the task factory of the loop: one that starts tasks eagerly would run user code
        # within a step of the session.
        context = contextvars.copy_context()
        task = asyncio.Task(
            coroutine, loop=self._loop, name=f"hanzoai.pubsub {name}", context=context
        )
        context.run(_inside.set, task)
        self._tasks.add(task)
        task.add_done_callback(self._ended, context=context)
        return task

    async def join(self, seconds: float) -> None:
        """Wait until every task has ended; slower tasks are cancelled.

        A handler that closes its client calls this from inside of one of these tasks, for which it
        does not wait.
        """
        if (me := _inside.get()) is not None:
            self._tasks.discard(me)
        await self._waiters.until(lambda: not self._tasks, self._clock, seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, running = await asyncio.wait(self._tasks, timeout=_CANCEL_TIMEOUT)
            for task in running:
                logger.error("%s ignores its cancellation; the client abandons it", task.get_name())
            self._tasks -= running

    def _ended(self, task: asyncio.Task[Any]) -> None:
        _inside.set(None)  # otherwise, the task and its context refer to each other
        self._tasks.discard(task)
        self._waiters.notify()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):  # Ctrl-C, which hits any task, has already ended the loop
            logger.error("%s failed", task.get_name(), exc_info=error)
