"""The only place that starts tasks: unexpected ends are logged, counted, and restarted."""

from __future__ import annotations

import ast
import asyncio
import logging
import time
from pathlib import Path

import pytest

import pubsub_server
from pubsub_server import tasks as tasks_module
from pubsub_server.tasks import FAILURES, Tasks, run_all

logger = logging.getLogger(__name__)

STARTERS = frozenset(
    {"create_task", "ensure_future", "wait_for", "TaskGroup", "run_coroutine_threadsafe"}
)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the waits."""
    monkeypatch.setattr(tasks_module, "AGAIN_AFTER", 0.001)
    monkeypatch.setattr(tasks_module, "CANCEL_EVERY", 0.01)


def made() -> Tasks:
    return Tasks(asyncio.get_running_loop(), logger, "mill")


async def after_a_restart() -> None:
    """Wait until a pending restart has happened: timers fire in the order of their times."""
    await asyncio.sleep(2 * tasks_module.AGAIN_AFTER)


async def fail() -> None:
    raise RuntimeError("the wheel is broken")


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


class Stubborn:
    """Work that swallows its first cancellations.

    Args:
        times: How many.
    """

    def __init__(self, times: int = 2) -> None:
        self._times = times
        self.swallowed = 0
        self.cancelled = asyncio.Event()
        self.free = asyncio.Event()

    async def work(self) -> None:
        while self.swallowed < self._times:
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.swallowed += 1
                self.cancelled.set()
            else:
                return
        await self.free.wait()


async def test_a_task_is_kept_until_it_has_ended() -> None:
    tasks, go = made(), asyncio.Event()

    async def work() -> None:
        await go.wait()

    task = tasks.spawn(work())
    assert list(tasks) == [task]
    go.set()
    await task
    assert len(tasks) == 0


async def test_a_task_that_fails_is_logged_with_its_name_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, before = made(), FAILURES.count
    with pytest.raises(RuntimeError, match="wheel"):
        await tasks.spawn(fail())
    (record,) = caplog.records
    assert record.getMessage() == "task fail of the mill failed; it does not run again"
    assert record.exc_info is not None
    assert FAILURES.count == before + 1
    assert len(tasks) == 0


async def test_a_failure_that_another_awaits_is_neither_logged_nor_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, before = made(), FAILURES.count
    with pytest.raises(RuntimeError, match="wheel"):
        await tasks.spawn(fail(), expected=(RuntimeError,))
    assert (FAILURES.count, caplog.records) == (before, [])


async def test_a_wait_ends_though_a_task_does_not_and_a_cancelled_one_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = made()
    task = tasks.spawn(wait_for_ever())
    await tasks.wait(0.0)
    assert list(tasks) == [task]
    await tasks.stop()
    assert task.cancelled()
    assert len(tasks) == 0
    assert caplog.records == []


@pytest.mark.parametrize("end", ["fails", "returns", "is cancelled"])
async def test_a_kept_task_runs_again_however_it_ends(
    caplog: pytest.LogCaptureFixture, end: str
) -> None:
    tasks, before, runs, done = made(), FAILURES.count, 0, asyncio.Event()

    async def grind() -> None:
        nonlocal runs
        runs += 1
        if runs == 4:
            done.set()
            await wait_for_ever()
        if end == "fails":
            raise KeyError("grain")
        if end == "is cancelled":
            raise asyncio.CancelledError

    tasks.keep(grind)
    async with asyncio.timeout(60):
        await done.wait()
    await tasks.stop()
    output = [record.getMessage().partition("; ") for record in caplog.records]
    assert len(output) == FAILURES.count - before == 3
    for what, _, follows in output:
        assert what.endswith("grind of the mill failed")
        assert follows.startswith("restarting in ")
    assert (runs, len(tasks)) == (4, 0)


async def test_a_kept_task_is_not_run_again_once_its_owner_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, go, runs = made(), asyncio.Event(), 0

    async def grind() -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    tasks.keep(grind)
    await asyncio.sleep(0)
    tasks.begin_end()
    go.set()
    await tasks.wait(5)
    await after_a_restart()
    assert (runs, len(tasks), caplog.records) == (1, 0, [])


async def test_a_pending_restart_does_not_happen_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks_module, "AGAIN_AFTER", 0.01)
    tasks, runs = made(), 0

    async def grind() -> None:
        nonlocal runs
        runs += 1

    tasks.keep(grind)
    while not tasks._waiting:  # noqa: ASYNC110 - until the restart is pending
        await asyncio.sleep(0)
    await tasks.stop()
    await after_a_restart()
    assert runs == 1


async def test_a_race_ends_with_the_first_and_raises_its_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, before, ended = made(), FAILURES.count, asyncio.Event()

    async def other() -> None:
        try:
            await wait_for_ever()
        finally:
            ended.set()

    with pytest.raises(RuntimeError, match="wheel"):
        await tasks.race(other(), fail())
    assert ended.is_set()
    assert (len(tasks), FAILURES.count, caplog.records) == (0, before, [])


async def test_a_race_that_is_cancelled_ends_all_of_its_tasks() -> None:
    tasks = made()
    task = tasks.spawn(tasks.race(wait_for_ever(), wait_for_ever()))
    await asyncio.sleep(0)
    assert len(tasks) == 3
    await tasks.end(task)
    assert len(tasks) == 0


@pytest.mark.parametrize("turn", range(6))
async def test_a_race_ends_all_of_its_tasks_if_the_process_is_suspended_meanwhile(
    turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_server.tasks.CANCEL_EVERY", 0.01)
    tasks = made()
    task = tasks.spawn(tasks.race(wait_for_ever(), wait_for_ever()))
    await asyncio.sleep(0)

    def suspend_at(turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(suspend_at, turns - 1)
        else:
            time.sleep(0.02)

    suspend_at(turn)
    await tasks.end(task)
    assert len(tasks) == 0


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    tasks, stubborn = made(), Stubborn()
    task = tasks.spawn(stubborn.work())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await tasks.stop()
    assert task.cancelled()
    assert stubborn.swallowed == 2


async def test_a_task_that_never_ends_is_abandoned_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, stubborn = made(), Stubborn(1_000_000)
    task = tasks.spawn(stubborn.work())
    await asyncio.sleep(0)
    await tasks.stop(0.03)
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "ignores its cancellation for 0.03 s and the server abandons it"
    )
    stubborn.free.set()
    await task


async def test_tasks_end_also_if_their_owner_is_cancelled_in_the_meantime() -> None:
    tasks, stubborn = made(), Stubborn()
    task = tasks.spawn(stubborn.work())
    await asyncio.sleep(0)
    stopping = asyncio.create_task(tasks.stop())
    async with asyncio.timeout(60):
        await stubborn.cancelled.wait()
        stopping.cancel()
        await asyncio.wait([stopping])
    assert stopping.cancelled()
    assert (task.cancelled(), len(tasks)) == (True, 0)


async def test_works_that_run_together_return_their_results_in_order() -> None:
    async def work(number: int) -> int:
        for _ in range(3 - number):
            await asyncio.sleep(0)
        return number

    assert await run_all(map(work, range(4))) == [0, 1, 2, 3]
    assert await run_all(()) == []


async def test_no_work_continues_after_another_one_has_failed() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(RuntimeError, match="wheel"):
        await run_all([wait_for_ever(), fail(), wait_for_ever()])
    assert asyncio.all_tasks() == before


async def test_no_work_continues_after_another_one_has_ended_by_a_cancellation() -> None:
    ended = asyncio.get_running_loop().create_future()
    ended.cancel()

    async def read() -> None:
        await ended

    before = asyncio.all_tasks()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await run_all([wait_for_ever(), read()])
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("failing", [False, True])
async def test_no_work_continues_after_its_caller_was_cancelled(failing: bool) -> None:
    before, stubborn = asyncio.all_tasks(), Stubborn()
    task = asyncio.create_task(run_all([stubborn.work(), fail() if failing else wait_for_ever()]))
    async with asyncio.timeout(60):
        if failing:
            # The other one is cancelled before this cancellation.
            await stubborn.cancelled.wait()
        else:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("failing", [False, True])
async def test_a_work_that_never_ends_is_abandoned_and_logged(
    failing: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks_module, "END_WITHIN", 0.03)
    before, stubborn = asyncio.all_tasks(), Stubborn(1_000_000)
    task = asyncio.create_task(run_all([stubborn.work(), fail() if failing else wait_for_ever()]))
    await asyncio.sleep(0)
    if not failing:
        await asyncio.sleep(0)
        task.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([task])
    assert task.cancelled() is not failing
    if failing:
        assert isinstance(task.exception(), RuntimeError)
    (record,) = caplog.records
    assert record.getMessage() == (
        "task Stubborn.work of the server failed; it ignores its cancellation for 0.03 s and the"
        " server abandons it"
    )
    (abandoned,) = asyncio.all_tasks() - before
    stubborn.free.set()
    await abandoned


def test_no_other_module_of_the_server_starts_tasks() -> None:
    root = Path(pubsub_server.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}: {name}"
        for path in sorted(root.rglob("*.py"))
        if path != Path(tasks_module.__file__)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in [node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")]
        if isinstance(node, ast.Attribute | ast.Name) and name in STARTERS
    ]
    assert found == [], "start tasks by pubsub_server.tasks, and bound waits by asyncio.timeout"
