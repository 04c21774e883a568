"""The tasks of the server.

Only this module starts tasks, so that none ends unnoticed. Each part has a `Tasks`. A task that
ends unexpectedly is logged with its name and the consequence, and counted. All waits are bounded: a
task may swallow its cancellation, as `asyncio.wait_for` does on Python 3.11 if the result arrives
at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

AGAIN_AFTER: Final = 0.05
AGAIN_AT_MOST: Final = 5.0
"""Maximum seconds before a kept task restarts; each wait is twice the previous one."""
STABLE: Final = 10.0
"""Seconds of running after which a kept task's restart wait is reset."""
CANCEL_EVERY: Final = 0.5
"""Seconds for a cancelled task to end before it is cancelled again."""
TURNS: Final = 10
"""Minimum turns of the event loop for a cancelled task to end before it is cancelled again."""
END_WITHIN: Final = 5.0
"""Seconds after which a task that does not end is abandoned."""

_LOG: Final = logging.getLogger(__name__)

_T = TypeVar("_T")


class Failures:
    """Counts the tasks of this process that ended unexpectedly.

    Attributes:
        count: How many.
    """

    def __init__(self) -> None:
        self.count = 0


FAILURES: Final = Failures()


@dataclass(slots=True, eq=False)
class _Kept:
    """A task that runs until its owner stops it."""

    work: Callable[[], Coroutine[Any, Any, None]]
    pause: float
    """Seconds before it restarts."""


class Tasks:
    """The tasks of one part of the server.

    Args:
        loop: The event loop.
        logger: Logger of the part.
        owner: Name of the part, for the log.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, logger: logging.Logger, owner: str) -> None:
        self._loop = loop
        self._logger = logger
        self._owner = owner
        # asyncio itself holds tasks weakly.
        self._running: dict[asyncio.Task[Any], Callable[[asyncio.Task[Any]], object]] = {}
        self._waiting: dict[_Kept, asyncio.TimerHandle] = {}
        # A cancelled task may end with the error of the call that was interrupted.
        self._asked: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(self._running)

    def spawn(
        self,
        work: Coroutine[Any, Any, _T],
        *,
        expected: tuple[type[Exception], ...] = (),
    ) -> asyncio.Task[_T]:
        """Run this once. If it fails, the failure is logged and counted. It does not run again.

        Args:
            work: The coroutine to run.
            expected: Failures that a caller awaits, which are not logged.
        """

        def ended(task: asyncio.Task[Any]) -> None:
            error = _retrieve(task)
            if error is not None and not isinstance(error, expected):
                self._fail(task, "it does not run again", error)

        return self._start(work, ended)

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this until `stop`. If it ends earlier, restart it after a growing wait.

        Args:
            work: Called for each run.
        """
        self._run(_Kept(work, AGAIN_AFTER))

    async def race(self, *works: Coroutine[Any, Any, None]) -> None:
        """Run all of these until the first of them ends, then end the others.

        Raises:
            Exception: The failure of the one that ended first.
        """
        tasks = [self._start(work, _retrieve) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.end(*tasks)
        for task in done:
            task.result()

    def begin_end(self) -> None:
        """Stop restarting kept tasks."""
        self._stopping = True
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    async def wait(self, seconds: float) -> None:
        """Wait until the current tasks have ended, for at most this many seconds."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)

    def cancel(self) -> None:
        """Cancel every task."""
        self.begin_end()
        self._cancel(self._running)

    async def stop(self, seconds: float = END_WITHIN) -> None:
        """Cancel every task, and wait until they have ended, for at most this many seconds."""
        self.begin_end()
        await self.end(*self._running, seconds=seconds)

    async def end(self, *tasks: asyncio.Task[Any], seconds: float = END_WITHIN) -> None:
        """Cancel these tasks, and wait until they have ended, for at most this many seconds.

        If the caller is cancelled in the meantime, this takes effect afterwards.
        """
        late = {task for task in tasks if not task.done()}
        last = self._loop.time() + seconds
        cancelled: asyncio.CancelledError | None = None
        while late and self._loop.time() < last:
            self._cancel(late)
            try:
                await asyncio.wait(late, timeout=CANCEL_EVERY)
                # If the process was suspended, the time has passed and the tasks have not run.
                for _ in range(TURNS):
                    if late.isdisjoint(self._running):
                        break
                    await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                cancelled = error
            late.intersection_update(self._running)
        for task in late:
            self._fail(
                task, f"it ignores its cancellation for {seconds:g} s and the server abandons it"
            )
        if cancelled is not None:
            raise cancelled

    # ------------------------------------------------------------ inside

    def _start(
        self, work: Coroutine[Any, Any, _T], ended: Callable[[asyncio.Task[Any]], object]
    ) -> asyncio.Task[_T]:
        task = self._loop.create_task(work, name=getattr(work, "__qualname__", None))
        self._running[task] = ended
        task.add_done_callback(self._done)
        return task

    def _cancel(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        for task in tasks:
            self._asked.add(task)
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        ended = self._running.pop(task)
        if task in self._asked:
            self._asked.discard(task)
            _retrieve(task)
        else:
            ended(task)

    def _run(self, kept: _Kept) -> None:
        self._waiting.pop(kept, None)
        began = self._loop.time()
        self._start(kept.work(), lambda task: self._ended(task, kept, began))

    def _ended(self, task: asyncio.Task[Any], kept: _Kept, began: float) -> None:
        error = _retrieve(task)
        if self._stopping:
            return
        now = self._loop.time()
        if now - began > STABLE:
            kept.pause = AGAIN_AFTER
        self._fail(task, f"restarting in {kept.pause:g} s", error)
        self._waiting[kept] = self._loop.call_later(kept.pause, self._run, kept)
        kept.pause = min(AGAIN_AT_MOST, kept.pause * 2)

    def _fail(
        self, task: asyncio.Task[Any], follows: str, error: BaseException | None = None
    ) -> None:
        FAILURES.count += 1
        self._logger.error(
            "task %s of the %s failed; %s",
            *(task.get_name(), self._owner, follows),
            exc_info=error,
        )


async def run_all(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all of these at the same time, and return their results in the same order.

    If one fails, the others end first, as `Tasks.end` ends them. With `asyncio.gather` they would
    continue without an owner, and could use connections after their part of the server has stopped.

    Raises:
        BaseException: The first failure.
    """
    owner = Tasks(asyncio.get_running_loop(), _LOG, "server")
    together = asyncio.gather(*[owner.spawn(work, expected=(Exception,)) for work in works])
    together.add_done_callback(_retrieve)
    try:
        # If `gather` itself is cancelled, it waits for all works, even for one that never ends.
        await asyncio.wait([together])
        return together.result()
    finally:
        await owner.stop(END_WITHIN)


def _retrieve(ended: asyncio.Future[Any]) -> BaseException | None:
    """The failure of an ended task, if there is one; asyncio then does not log it."""
    return None if ended.cancelled() else ended.exception()
