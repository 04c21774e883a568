"""Calls of functions of a program in threads, and the threads of a blocking client."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.runtime.green_threads import others_run

if TYPE_CHECKING:
    from collections.abc import Callable

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
