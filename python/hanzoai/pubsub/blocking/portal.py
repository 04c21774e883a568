"""An event loop in a separate thread, and calls into it from other threads.

The blocking client is the asyncio client behind this portal. A second implementation on blocking
sockets would have its own bugs; and a client must read its socket, answer pings, renew its token
and reconnect while the program is busy, so it needs a separate thread in any case.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import sys
import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hanzoai.pubsub.errors import ClosedError, UsageError
from hanzoai.pubsub.runtime.environment import ForkedError, Owner
from hanzoai.pubsub.runtime.threads import new_event_loop, others_run, prepare_work

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

_JOIN: Final = 5.0

# A wait without a timeout cannot be interrupted by Ctrl-C on Windows.
_SLICE: Final = 0.1 if sys.platform == "win32" else -1.0


class Portal:
    """A running event loop in a daemon thread, until ``stop`` or until nothing references it.

    Raises:
        UsageError: No thread can start: in a subinterpreter, at the end of the process, or at a
            limit of the system.
    """

    def __init__(self) -> None:
        self._handlers = HandlerThreads()
        self._stopped = False
        self._calls: set[_Call[Any]] = set()
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=_run, args=(ready, self._calls), name="hanzoai.pubsub loop", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            raise UsageError(
                f"The thread of the client cannot start: {error}.",
                remedy="Create the client in the main interpreter, while the process is not "
                "ending. Several threads may share one client.",
            ) from error
        self._loop = ready.result()
        self._owner = Owner(self._loop)

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop, and wait for its result.

        Ctrl-C cancels it.

        Raises:
            UsageError: Called in the loop's own thread, or in a forked process.
            ClosedError: The portal has been stopped.
        """
        self.check()
        if self._stopped:
            raise ClosedError
        call = _Call(make)
        try:
            self._calls.add(call)
            self.post(lambda: self._begin(call))
            while not call.ended.acquire(timeout=_SLICE):
                pass
        except BaseException:
            with contextlib.suppress(ClosedError):  # the loop has ended, and the task with it
                self.post(call.cancel)
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def post(self, function: Callable[[], object]) -> None:
        """Schedule a call of a function in the loop, without waiting for it.

        Raises:
            ClosedError: The portal has been stopped.
        """
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise ClosedError from None

    def _begin(self, call: _Call[Any]) -> None:
        if self._stopped:
            call.end()
        else:
            call.task = self._loop.create_task(call.run())

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one whose thread runs the loop."""
        return self._owner.is_foreign

    def check(self) -> None:
        """Reject a thread or process that would wait for itself or forever.

        Raises:
            UsageError: It is the loop's own thread, or a forked process.
        """
        if self.is_foreign:
            raise ForkedError
        if threading.current_thread() is self._thread:
            raise UsageError(
                "A blocking call inside a coroutine of the same client would wait for itself.",
                remedy="Pass a plain function as handler; it runs in its own thread.",
            )

    async def run_handler(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """Call a handler in a thread, where it may block and call the client, and wait for it."""
        result = await self._handlers.run(functools.partial(function, *arguments))
        if not inspect.isawaitable(result):
            return result
        try:
            return await result
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"A handler raised {type(error).__name__}") from error

    def is_blocked(self) -> bool:
        """Whether the loop does nothing for 5 s."""
        turn = threading.Lock()
        turn.acquire()
        self.post(turn.release)
        # One that has been stopped may never reach it.
        return not self._stopped and not turn.acquire(timeout=_JOIN)

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        if not self._stopped and not self.is_foreign:
            self.stop_after(_nothing)
            self._thread.join(_JOIN)

    def stop_after(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a last coroutine, then end the loop, without waiting for it; from any thread."""
        if self._stopped or self.is_foreign:
            return
        self._stopped = True
        loop = self._loop

        def begin() -> None:
            loop.create_task(make()).add_done_callback(lambda _: loop.stop())

        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(begin)
        self._handlers.stop()

    def __del__(self) -> None:
        # Runs in any thread, also in that of the loop.
        if hasattr(self, "_owner"):
            self.stop_after(_nothing)


class _Call(Generic[T]):
    """A call from another thread, which waits for the lock `ended`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._results: list[T] = []
        self._errors: list[Exception] = []
        self.task: asyncio.Task[None] | None = None
        self.ended = threading.Lock()
        self.ended.acquire()

    async def run(self) -> None:
        try:
            self._results.append(await self._make())
        except Exception as error:
            self._errors.append(error)
        finally:
            # Not in a callback of the task, which would run a turn of the loop later.
            self.end()

    def end(self) -> None:
        if self.ended.locked():
            self.ended.release()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def result(self) -> T:
        if self._results:
            return self._results.pop()
        # Taken out: only the garbage collector would free an error that leads to itself.
        raise self._errors.pop() if self._errors else ClosedError()


async def _nothing() -> None:
    pass


def _run(ready: Future[asyncio.AbstractEventLoop], calls: set[_Call[Any]]) -> None:
    # Does not reference the portal, so that one without owners is collected.
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set_result, loop)
    del ready
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        # Calls that arrived after the last turn of the loop.
        for call in list(calls):
            call.end()


_THREADS: Final = 32

_EXIT_TIMEOUT: Final = 5.0
"""Seconds that the end of the program waits for running handlers, which may be saving something."""


class HandlerThreads:
    """Daemon threads, created when they are needed.

    The threads of `concurrent.futures` would keep the process until every handler has returned. A
    handler that blocks forever would then make Ctrl-C ineffective.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a handler in a thread, in the context of this task; call it in the event loop."""
        done, work = prepare_work(function, "A handler")
        with others_run(done.get_loop()):
            self._work.put(work)
            if not self._idle.acquire(blocking=False) and self._threads < _THREADS:
                self._start(done)
        return done

    def stop(self) -> None:
        """End each thread after its handler; drop the calls that wait for a thread."""
        with contextlib.suppress(Exception):
            while True:
                self._work.get_nowait()
        for _ in range(self._threads):
            self._work.put(None)

    def _start(self, done: asyncio.Future[Any]) -> None:
        thread = threading.Thread(
            target=_serve,
            args=(self._work, self._idle),
            name=f"hanzoai.pubsub handler_{self._threads}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:
            # The interpreter ends, and starts no more threads.
            if self._threads == 0:
                done.set_result(None)
        else:
            self._threads += 1


_busy: set[threading.Thread] = set()
"""The threads that run a handler now."""


def _serve(work: SimpleQueue[Callable[[], None] | None], idle: threading.Semaphore) -> None:
    # Does not reference the pool, so that a dropped client is collected.
    me = threading.current_thread()
    while (call := work.get()) is not None:
        _busy.add(me)
        call()
        _busy.discard(me)
        del call
        idle.release()


def _wait_for_handlers() -> None:
    # All clients are closed by now, so each thread ends after its handler.
    ends = time.monotonic() + _EXIT_TIMEOUT
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the wait
        for thread in list(_busy):
            thread.join(max(0.0, ends - time.monotonic()))


atexit.register(_wait_for_handlers)
