"""An in-memory server in virtual time, and a check for leftover tasks."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.testing import MemoryServer, VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[MemoryServer]:
    async with MemoryServer() as server:
        yield server


@pytest.fixture
def clock(server: MemoryServer) -> VirtualClock:
    clock = server.clock
    assert isinstance(clock, VirtualClock)
    return clock


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """Fail a test that hangs or leaves a task running."""
    before = asyncio.all_tasks()

    def left() -> set[asyncio.Task[object]]:
        return asyncio.all_tasks() - before - {asyncio.current_task()}

    yield
    if left():
        # Ignore tasks that only unreachable objects reference.
        gc.collect()
    assert not left()
