"""The server restarts in the middle of a job.

Set HANZO_PUBSUB_SOAK to test with 100,000 rows and more restarts.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.cluster.store import running
from tests.spark.cluster.marks import Mark
from tests.spark.cluster.scene import BATCH, PARTITIONS, ROWS, SOAK, scene

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.spark.cluster.driver import Driver, Plan
    from tests.spark.cluster.marks import Left
    from tests.spark.cluster.scene import Scene

    Drivers = Callable[[Mapping[str, str]], Driver]

pytestmark = pytest.mark.timeout(900 if SOAK else 600)

IN_FLIGHT = 4
TASKS_AT_ONCE = 2
OPTIONS = {"maxRetries": "20", "maxRowsPerSecond": "500" if SOAK else "1500"}
"""A restart is slow on a busy machine, and a replay contains at most 10,000 messages: fewer must be
published meanwhile."""


def at(server: Scene, number: int) -> Plan:
    """Return restarts with this signal: in one task, or in three tasks of a soak test."""

    async def restart(_: Left) -> None:
        await server.restart(number)

    partitions = (1, 4, 6) if SOAK else (1,)
    half = ROWS // PARTITIONS // 2
    return {Mark(f"restart{place}", place, half): restart for place in partitions}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_in_memory_loses_and_repeats_at_most_what_is_under_way(
    drivers: Drivers, tmp_path: Path, number: signal.Signals
) -> None:
    async with scene(tmp_path, f"memory{number.name.lower()}") as server:
        marks = at(server, number)
        options = server.options(batchSize=str(BATCH), **OPTIONS)
        account = await server.play(drivers({}), server.job("batch", options=options), marks)
    # After SIGTERM, the server finishes the requests that it has started.
    bound = 0 if number == signal.SIGTERM else len(marks) * TASKS_AT_ONCE * IN_FLIGHT * BATCH
    assert account.lost <= bound
    assert account.twice <= bound
    # The server has a new log, and subscribers are notified.
    assert account.gaps


async def test_servers_on_redis_lose_and_repeat_nothing_when_they_are_killed(
    drivers: Drivers, tmp_path: Path
) -> None:
    async with (
        running("redis", tmp_path) as redis,
        scene(tmp_path, "redis", "--redis-url", redis.url) as server,
    ):
        marks = at(server, signal.SIGKILL)
        options = server.options(batchSize=str(BATCH), **OPTIONS)
        account = await server.play(drivers({}), server.job("batch", options=options), marks)
    assert account.fate == (0, 0)
    assert account.suppressed > 0 or not SOAK
    assert not account.gaps
