"""Every task of a client is referenced until it has ended."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from hanzoai.pubsub.runtime.tasks import Tasks
from hanzoai.pubsub.runtime.threads import prepare_work
from hanzoai.pubsub.testing import VirtualClock


async def test_all_tasks_are_awaited_and_slow_ones_are_cancelled() -> None:
    clock = VirtualClock()
    tasks = Tasks(clock)
    ended: list[str] = []

    async def work(name: str, seconds: float) -> None:
        try:
            await clock.sleep(seconds)
        finally:
            ended.append(name)

    quick, slow = tasks.spawn(work("quick", 1), "quick"), tasks.spawn(work("slow", 9), "slow")
    leaving = [asyncio.create_task(tasks.join(5)) for _ in range(2)]
    await clock.advance(4)
    assert ended == ["quick"]
    await clock.advance(1)
    async with asyncio.timeout(60):
        await asyncio.gather(*leaving)
    assert ended == ["quick", "slow"]
    assert (quick.cancelled(), slow.cancelled()) == (False, True)
    assert clock.pending == 0


def test_ctrl_c_in_a_task_ends_the_loop_and_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        await Tasks(VirtualClock()).spawn(interrupted(), "work")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert not caplog.records


async def test_a_task_that_sees_the_others_out_is_not_waited_for() -> None:
    clock = VirtualClock()
    tasks = Tasks(clock)

    async def leave() -> None:
        await tasks.join(60)

    async with asyncio.timeout(60):
        await asyncio.gather(tasks.spawn(leave(), "one"), tasks.spawn(leave(), "two"))


@pytest.mark.parametrize("way", ["task", "thread"])
async def test_a_task_is_not_waited_for_by_what_it_has_started(way: str) -> None:
    tasks = Tasks(VirtualClock())
    loop = asyncio.get_running_loop()

    def leave() -> None:
        asyncio.run_coroutine_threadsafe(tasks.join(60), loop).result(60)

    async def handle() -> None:
        if way == "task":
            await asyncio.create_task(tasks.join(60))
        else:
            done, work = prepare_work(leave, "A handler")
            threading.Thread(target=work).start()
            await done

    async with asyncio.timeout(60):
        await tasks.spawn(handle(), "handlers")


async def test_an_ended_task_is_freed_without_the_garbage_collector() -> None:
    tasks = Tasks(VirtualClock())
    gc.disable()
    try:
        task = tasks.spawn(asyncio.sleep(0), "short")
        freed = asyncio.Event()
        weakref.finalize(task, freed.set)
        await task
        del task
        async with asyncio.timeout(10):
            await freed.wait()
    finally:
        gc.enable()


async def test_a_failed_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks(VirtualClock())

    async def fail() -> None:
        raise ZeroDivisionError

    task = tasks.spawn(fail(), "probe")
    await asyncio.wait({task})
    await tasks.join(0)
    assert "probe failed" in caplog.text
