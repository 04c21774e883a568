"""Calls of functions and imports in threads, and event loops in green threads of gevent.

asyncio keeps the running loop per operating system thread. While a loop in a green thread waits,
other green threads run, and must not find it: Django, for example, would reject all use of its
database. They may also run while the loop takes a lock or starts a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import selectors
import sys
import threading

# asyncio exports both for implementations of event loops.
from asyncio.events import (
    _get_running_loop,  # pyright: ignore[reportPrivateUsage]
    _set_running_loop,  # pyright: ignore[reportPrivateUsage]
)
from functools import partial
from importlib import import_module
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


async def call_in_thread(function: Callable[[], T], name: str) -> T:
    """Call a function in a thread of its own, named `name`."""
    done, work = prepare_work(function, name)
    thread = threading.Thread(target=work, name=f"hanzoai.pubsub {name}", daemon=True)
    with others_run(done.get_loop()):
        thread.start()
    result: T = await done
    return result


async def load(module: str, name: str) -> None:
    """Import a module that needs httpx, in a thread; `name` is the last one that it defines.

    httpx takes a third of this package's import time, and many programs never use HTTP. In a
    thread, its import does not stop the event loop.
    """
    # While another thread imports the module, it is without the name.
    if not hasattr(sys.modules.get(module), name):
        await call_in_thread(partial(import_module, module), "import of httpx")


def prepare_work(
    function: Callable[[], Any], name: str
) -> tuple[asyncio.Future[Any], Callable[[], None]]:
    """The future of a result, and the call for it, which a thread makes.

    The call has the context of this task. It raises only in a process that the function has forked.
    Errors name the function `name`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context, pid = contextvars.copy_context(), os.getpid()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = context.run(function)
        except BaseException as error:
            failure = error
        if os.getpid() != pid:
            # The function has forked: this thread is the only one of the child, which ends with it.
            raise failure or SystemExit
        if isinstance(failure, (StopIteration, SystemExit, KeyboardInterrupt)):
            # A future cannot hold the first: the call would never end. The others would end the
            # loop, although `sys.exit` in a thread ends nothing else.
            raised = RuntimeError(f"{name} raised {type(failure).__name__}")
            raised.__cause__ = failure
            failure = raised.with_traceback(failure.__traceback__)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failure)

    return done, work
