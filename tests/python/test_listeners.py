"""State changes that a program reads, and listeners."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from hanzoai.pubsub.runtime.handlers import Listener, Listeners, StateStream
from hanzoai.pubsub.values import StateChange


def change(reason: str = "", code: str | int | None = None) -> StateChange:
    return StateChange("connecting", "reconnecting", code, reason)


async def test_a_stream_gives_what_comes_and_ends() -> None:
    listeners = Listeners(None, None, lambda work, name: asyncio.create_task(work))
    reading = asyncio.create_task(_all(listeners.states()))
    await asyncio.sleep(0)
    listeners.notify(change("one"))
    listeners.notify(change("two"))
    listeners.finish()
    async with asyncio.timeout(60):
        assert await reading == ["one", "two"]


async def _all(stream: StateStream) -> list[str]:
    return [found.reason async for found in stream]


async def test_an_unread_iteration_keeps_the_newest_changes() -> None:
    listeners = Listeners(None, None, lambda work, name: asyncio.create_task(work))
    stream = listeners.states()
    for number in range(1_000):
        listeners.notify(change(str(number)))
    listeners.finish()
    seen = await _all(stream)
    assert (len(seen), seen[-1]) == (256, "999")


async def test_an_iteration_that_a_break_has_ended_is_forgotten() -> None:
    listeners = Listeners(None, None, lambda work, name: asyncio.create_task(work))
    for _ in range(3):
        stream = listeners.states()
        listeners.notify(change())
        async for _ in stream:
            break
        del stream
        assert not listeners._streams


async def test_an_iteration_that_a_task_waits_for_is_kept_without_a_reference() -> None:
    listeners = Listeners(None, None, lambda work, name: asyncio.create_task(work))
    seen: list[str] = []
    started = asyncio.Event()

    async def read() -> None:
        started.set()
        async for found in listeners.states():
            seen.append(found.reason)

    asyncio.create_task(read())  # noqa: RUF006
    await started.wait()
    gc.collect()
    listeners.notify(change("one"))
    await asyncio.sleep(0)
    gc.collect()
    listeners.notify(change("two"))
    listeners.finish()
    await asyncio.sleep(0)
    assert seen == ["one", "two"]
    gc.collect()
    assert not listeners._streams


async def test_a_listener_is_called_in_order_by_a_task_that_ends_after_the_last_value() -> None:
    received: list[object] = []
    tasks: list[asyncio.Task[None]] = []

    def spawn(coroutine: Any, name: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(coroutine, name=name))
        return tasks[-1]

    async def listen(value: object) -> None:
        await asyncio.sleep(0)
        received.append(value)
        if value == 1:
            raise ZeroDivisionError

    listener = Listener(listen, "on_state", spawn)
    for number in range(3):
        listener.notify(number)
    async with asyncio.timeout(60):
        await tasks[0]
        listener.notify(3)
        await tasks[1]
    assert received == [0, 1, 2, 3]
    assert len(tasks) == 2


async def test_a_listener_that_is_behind_keeps_the_newest() -> None:
    received: list[object] = []
    tasks: list[asyncio.Task[None]] = []

    def spawn(coroutine: Any, name: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(coroutine))
        return tasks[-1]

    listener = Listener(received.append, "on_error", spawn)
    for number in range(1_000):
        listener.notify(number)
    await tasks[0]
    assert received == list(range(744, 1_000))


async def test_an_iteration_over_states_that_begins_after_the_end_of_the_client_is_empty() -> None:
    listeners = Listeners(None, None, lambda work, name: asyncio.create_task(work))
    listeners.finish()
    async with asyncio.timeout(60):
        assert [change async for change in listeners.states()] == []
