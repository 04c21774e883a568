"""An event loop in a separate thread, and calls into it from other threads.

The blocking client is the asyncio client behind this portal. A second implementation on blocking
sockets would have its own bugs; and a client must read its socket, answer pings, renew its token
and reconnect while the program is busy, so it needs a separate thread in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hanzoai.pubsub.errors import ClosedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

_HANDLER_THREADS: Final = 32
_JOIN: Final = 5.0

# A wait without a timeout cannot be interrupted by Ctrl-C on Windows.
_SLICE: Final = 0.1 if sys.platform == "win32" else None


class Portal:
    """A running event loop in a daemon thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._executor: ThreadPoolExecutor | None = None
        self._inside = threading.local()
        self._stopped = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._outcomes: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="hanzoai.pubsub loop", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()

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
        # Created before the start, so that an interrupt always finds it.
        outcome: Future[T] = Future()
        self._outcomes.add(outcome)
        try:
            try:
                self._loop.call_soon_threadsafe(self._begin, make, outcome)
            except RuntimeError:  # it has just ended
                raise ClosedError from None
            while True:
                try:
                    return outcome.result(_SLICE)
                except TimeoutError:
                    if outcome.done():
                        raise
        except BaseException:
            outcome.cancel()
            raise
        finally:
            self._outcomes.discard(outcome)

    def post(self, function: Callable[[], object]) -> None:
        """Schedule a call of a function in the loop, without waiting for it.

        Raises:
            ClosedError: The portal has been stopped.
        """
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise ClosedError from None

    def _begin(self, make: Callable[[], Coroutine[Any, Any, T]], outcome: Future[T]) -> None:
        if outcome.cancelled():
            return
        if self._stopped:
            outcome.set_exception(ClosedError())
            return
        task = self._loop.create_task(make())
        self._calls.add(task)

        def ended(task: asyncio.Task[T]) -> None:
            self._calls.discard(task)
            if outcome.done() or not outcome.set_running_or_notify_cancel():
                return
            if task.cancelled():
                outcome.set_exception(ClosedError())
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def given_up(outcome: Future[T]) -> None:
            if outcome.cancelled():
                with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                    self._loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(ended)
        outcome.add_done_callback(given_up)

    def check(self) -> None:
        """Reject a thread or process that would wait for itself or forever.

        Raises:
            UsageError: It is the loop's own thread, or a forked process.
        """
        if os.getpid() != self._pid:
            raise UsageError(
                "This client was created before the process forked, and belongs to the "
                "parent process.",
                remedy="Create the client in the child process.",
            )
        if threading.current_thread() is self._thread:
            raise UsageError(
                "A blocking call inside a coroutine of the same client would wait for itself.",
                remedy="Pass a plain function as handler; it runs in its own thread.",
            )

    async def run_handler(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """Call a handler in a thread, where it may block and call the client, and wait for it.

        Returns:
            What the handler returns, or None if it closed the client.
        """
        loop = self._loop
        released: asyncio.Future[None] = loop.create_future()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_HANDLER_THREADS, "hanzoai.pubsub handler")

        def release() -> None:
            if not released.done():
                released.set_result(None)

        def work() -> Any:
            self._inside.release = lambda: loop.call_soon_threadsafe(release)
            try:
                return function(*arguments)
            except StopIteration as error:
                # A future cannot hold it: the call would never end.
                raise RuntimeError("A handler raised StopIteration") from error
            finally:
                self._inside.release = None

        done = loop.run_in_executor(self._executor, work)
        await asyncio.wait({done, released}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            return None
        result = done.result()
        return await result if inspect.isawaitable(result) else result

    def release_handler(self) -> None:
        """The handler of this thread closes the client, which must not wait for the handler."""
        release = getattr(self._inside, "release", None)
        if release is not None:
            release()

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN)
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.call_soon(self._ready.set_result, loop)
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
            for outcome in list(self._outcomes):
                if not outcome.done() and outcome.set_running_or_notify_cancel():
                    outcome.set_exception(ClosedError())
