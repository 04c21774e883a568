"""The tasks of one part of the server: kept until they have ended, their failures logged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging
    from collections.abc import Coroutine, Iterator


class Tasks:
    """A set of running tasks, for asyncio itself holds them weakly.

    Args:
        loop: In which they run.
        logger: Is told of each task that fails.
        owner: Whose they are, for the log.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, logger: logging.Logger, owner: str) -> None:
        self._loop = loop
        self._logger = logger
        self._owner = owner
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task and keep it until it has ended."""
        task = self._loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def wait(self, seconds: float) -> None:
        """Wait until those that run now have ended, so long at most."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)

    def cancel(self) -> None:
        """Ask every task to end."""
        for task in self._running:
            task.cancel()

    async def stop(self) -> None:
        """End every task, and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("a task of the %s failed", self._owner, exc_info=error)
