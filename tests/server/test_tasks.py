from __future__ import annotations

import asyncio
import logging

import pytest

from pubsub_server.tasks import Tasks

logger = logging.getLogger(__name__)


def made() -> Tasks:
    return Tasks(asyncio.get_running_loop(), logger, "mill")


async def fail() -> None:
    raise RuntimeError("the wheel is broken")


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_task_is_kept_until_it_has_ended() -> None:
    tasks, go = made(), asyncio.Event()

    async def work() -> None:
        await go.wait()

    task = tasks.spawn(work())
    assert list(tasks) == [task]
    go.set()
    await task
    assert len(tasks) == 0


async def test_a_task_that_fails_is_told_with_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    tasks = made()
    with pytest.raises(RuntimeError, match="wheel"):
        await tasks.spawn(fail())
    (record,) = caplog.records
    assert record.getMessage() == "a task of the mill failed"
    assert record.exc_info is not None
    assert len(tasks) == 0


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
