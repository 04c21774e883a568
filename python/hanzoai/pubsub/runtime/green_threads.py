"""An event loop in a green thread of gevent, which shares an operating system thread with others.

asyncio keeps the running loop per operating system thread. While the loop waits, other green
threads run, and must not find it: Django, for example, would reject all use of its database. They
may also run while the loop takes a lock or starts a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import sys

# asyncio exports both for implementations of event loops.
from asyncio.events import (
    _get_running_loop,  # pyright: ignore[reportPrivateUsage]
    _set_running_loop,  # pyright: ignore[reportPrivateUsage]
)
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class GreenSelector:
    """Hides the running loop from other green threads while it waits with another selector."""

    def __init__(self, waiting: selectors.BaseSelector) -> None:
        self._waiting = waiting
        self._others: asyncio.AbstractEventLoop | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._waiting, name)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, while other green threads run."""
        with self.others_run():
            return self._waiting.select(timeout)

    @contextlib.contextmanager
    def others_run(self) -> Generator[None]:
        """Hide the running loop in a block in which other green threads may run."""
        own = _get_running_loop()
        _set_running_loop(self._others)
        try:
            yield
        finally:
            # Another green thread may have begun or ended a loop of its own.
            self._others = _get_running_loop()
            _set_running_loop(own)


class GreenEventLoop(asyncio.SelectorEventLoop):
    """Hides itself from other green threads while it waits."""

    def __init__(self, waiting: selectors.BaseSelector) -> None:
        green = GreenSelector(waiting)
        self.others_run = green.others_run
        super().__init__(cast("selectors.BaseSelector", green))

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread, which may have to be started."""
        with self.others_run():
            return super().run_in_executor(executor, func, *args)


def others_run(loop: asyncio.AbstractEventLoop) -> contextlib.AbstractContextManager[None]:
    """The context in which this loop, which is running, may switch to other green threads."""
    return loop.others_run() if isinstance(loop, GreenEventLoop) else contextlib.nullcontext()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for a thread, which may be a green one."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is None or not gevent.is_module_patched("threading"):
        return asyncio.new_event_loop()
    return GreenEventLoop(selectors.DefaultSelector())
