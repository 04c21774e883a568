"""A client in a loop that begins tasks at once, as Python 3.12 and later can do."""

from __future__ import annotations

import asyncio

import pytest

from hanzoai.pubsub.runtime.tasks import Tasks
from hanzoai.pubsub.testing import VirtualClock
from tests.python.sse.test_bytes import BODY, check_body, read_body


@pytest.fixture(autouse=True)
async def eager_tasks() -> None:
    # Python 3.11 does not have it.
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009


async def test_a_task_begins_after_the_current_step() -> None:
    tasks = Tasks(VirtualClock())
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    task = tasks.spawn(work(), "work")
    assert begun == []
    await task
    assert begun == ["work"]


async def test_an_event_stream_is_read_to_its_end() -> None:
    async with asyncio.timeout(60):
        check_body(*await read_body([BODY.encode()]))
