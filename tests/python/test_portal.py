"""Calls from threads into an event loop."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.blocking.portal import Portal
from hanzoai.pubsub.errors import ClosedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

BOUND = 60


@pytest.fixture
def portal() -> Generator[Portal]:
    portal = Portal()
    yield portal
    portal.stop()


def test_a_client_whose_thread_cannot_start_says_where_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("daemon threads are disabled in this (sub)interpreter")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(UsageError, match=r"disabled in this .* in the main interpreter"):
        Portal()


def test_a_coroutine_runs_in_the_loops_thread_and_gives_its_result(portal: Portal) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert portal.call(where) == "hanzoai.pubsub loop"


def test_an_exception_comes_back_a_timeout_of_the_coroutine_too(portal: Portal) -> None:
    async def fail(error: Exception) -> None:
        raise error

    for error in (ZeroDivisionError("a"), TimeoutError("b")):
        with pytest.raises(type(error)):
            portal.call(lambda error=error: fail(error))  # type: ignore[misc]


def test_an_interrupt_at_the_beginning_of_a_call_leaves_nothing_behind(portal: Portal) -> None:
    class Interrupted(set[Any]):
        def add(self, item: object) -> None:
            super().add(item)
            raise KeyboardInterrupt

    portal._calls = calls = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        portal.call(lambda: asyncio.sleep(0))
    assert not calls


def test_a_loop_that_is_ending_does_not_count_as_blocked(portal: Portal) -> None:
    ending, released = threading.Event(), threading.Event()

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(BOUND)
        finally:
            ending.set()
            released.wait(BOUND)

    tasks: list[asyncio.Task[None]] = []

    async def begin() -> None:
        tasks.append(asyncio.create_task(end_slowly()))
        await asyncio.sleep(0)

    portal.call(begin)
    portal.stop_after(lambda: asyncio.sleep(0))
    try:
        assert ending.wait(BOUND)
        assert not portal.is_blocked()
    finally:
        released.set()


def test_an_exception_before_there_is_a_coroutine_comes_back(portal: Portal) -> None:
    def refuse() -> Coroutine[Any, Any, None]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        portal.call(refuse)


def test_a_handler_that_raises_stop_iteration_ends_with_an_error(portal: Portal) -> None:
    def take_from_nothing() -> object:
        return next(iter(()))

    async def handled() -> None:
        async with asyncio.timeout(BOUND):
            await portal.run_handler(take_from_nothing, ())

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        portal.call(handled)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_cancels_the_coroutine(portal: Portal) -> None:
    cancelled = threading.Event()
    began = threading.Event()

    async def forever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        began.wait(BOUND)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        portal.call(forever)
    assert cancelled.wait(BOUND)


def test_the_loop_does_not_wait_for_itself(portal: Portal) -> None:
    async def inner() -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            portal.call(inner)

    portal.call(inner)


def test_after_its_end_calls_are_refused_and_remaining_tasks_are_cancelled() -> None:
    portal = Portal()
    ended = threading.Event()

    async def leave_behind() -> None:
        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        asyncio.get_running_loop().lingering = asyncio.create_task(linger())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    portal.call(leave_behind)
    portal.stop()
    portal.stop()
    assert ended.wait(BOUND)
    with pytest.raises(ClosedError):
        portal.call(leave_behind)


def test_calls_during_the_close_get_an_error_and_none_hangs() -> None:
    for _ in range(20):
        portal = Portal()
        outcomes: list[object] = []

        async def forever() -> None:
            await asyncio.Event().wait()

        def call(portal: Portal = portal, outcomes: list[object] = outcomes) -> None:
            while not outcomes:
                try:
                    portal.call(forever)
                except ClosedError as error:
                    outcomes.append(error)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        portal.stop()
        for thread in threads:
            thread.join(BOUND)
            assert not thread.is_alive()


def test_a_call_after_the_last_turn_of_the_loop_gets_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    portal = Portal()
    loop = portal._loop
    entered, closing, arrived = threading.Event(), threading.Event(), threading.Event()
    close, schedule = loop.close, loop.call_soon_threadsafe
    ended: list[type[BaseException]] = []

    def close_later() -> None:
        closing.set()
        arrived.wait(BOUND)
        close()

    def schedule_later(*given: Any) -> Any:
        if threading.current_thread() is not caller:
            return schedule(*given)
        entered.set()
        closing.wait(BOUND)
        handle = schedule(*given)
        arrived.set()
        return handle

    def call() -> None:
        try:
            portal.call(lambda: asyncio.sleep(0))
        except ClosedError as error:
            ended.append(type(error))

    monkeypatch.setattr(loop, "close", close_later)
    monkeypatch.setattr(loop, "call_soon_threadsafe", schedule_later)
    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert entered.wait(BOUND)
    portal.stop()
    caller.join(BOUND)
    assert ended == [ClosedError]


def test_a_handler_runs_in_a_thread_and_what_it_raises_comes_out(portal: Portal) -> None:
    names: list[str] = []

    def handle(value: int) -> None:
        names.append(threading.current_thread().name)
        if value == 2:
            raise ZeroDivisionError

    async def call(value: int) -> None:
        await portal.run_handler(handle, (value,))

    portal.call(lambda: call(1))
    with pytest.raises(ZeroDivisionError):
        portal.call(lambda: call(2))
    assert all(name.startswith("hanzoai.pubsub handler") for name in names)
