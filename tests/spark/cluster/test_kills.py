"""Executors and drivers are killed while they publish: every row arrives exactly once.

Set HANZO_PUBSUB_SOAK to test with 100,000 rows and all kills.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.spark import PubSubConfig, publish_partition
from tests.spark.cluster.driver import SPECULATION
from tests.spark.cluster.marks import Mark
from tests.spark.cluster.scene import BATCH, PAD, PARTITIONS, ROWS, SOAK, TOPICS, scene

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from tests.spark.cluster.driver import Driver, Plan
    from tests.spark.cluster.scene import Scene

    Drivers = Callable[[Mapping[str, str]], Driver]
    Source = Callable[[Driver, Scene, Path], Awaitable[tuple[dict[str, Any], Plan]]]

pytestmark = pytest.mark.timeout(900 if SOAK else 600)

FILES = 40
FILES_A_BATCH = 8
BATCHES = FILES // FILES_A_BATCH
TASKS = 4
"""Tasks per micro-batch."""


def half(name: str, partition: int) -> Mark:
    return Mark(name, partition, ROWS // PARTITIONS // 2)


def deep_in_batches(driver: Driver, rows_of_a_task: int) -> Plan:
    """Return kills that hit different micro-batches in the middle of a task."""
    half_way = rows_of_a_task // 2
    marks: Plan = {
        Mark("executor0", 0, half_way, batch=1): driver.kill_executor,
        Mark("driver", 1, half_way, batch=2): driver.kill,
    }
    if SOAK:
        marks[Mark("executor1", 2, half_way, batch=3)] = driver.kill_executor
        marks[Mark("executor2", 3, half_way, batch=4)] = driver.kill_executor
    return marks


@pytest.mark.parametrize("speculation", [True, False] if SOAK else [True])
async def test_a_dataframe_is_published_once_while_executors_and_the_driver_are_killed(
    drivers: Drivers, tmp_path: Path, speculation: bool
) -> None:
    driver = drivers(SPECULATION if speculation else {})
    marks: Plan = {half("driver", 2): driver.kill, half("executor0", 1): driver.kill_executor}
    if SOAK:
        marks |= {half("executor1", 4): driver.kill_executor}
        marks |= {half("executor2", 6): driver.kill_executor}
    if speculation:
        marks |= {Mark("twin", PARTITIONS - 1, ROWS // PARTITIONS // 2, twin=True): driver.kill}
    async with scene(tmp_path, f"batch{speculation:d}") as server:
        options = server.options(batchSize=str(BATCH), idNamespace="nightly")
        account = await server.play(driver, server.job("batch", options=options), marks)
    assert account.fate == (0, 0)
    assert account.runs == 2
    # The killed process had published some of its rows.
    assert account.suppressed > 0
    assert not account.gaps


async def test_random_ids_repeat_what_an_executor_had_published_when_it_was_killed(
    drivers: Drivers, tmp_path: Path
) -> None:
    driver = drivers({})
    marks: Plan = {half("executor", 1): driver.kill_executor}
    async with scene(tmp_path, "random") as server:
        options = server.options(batchSize=str(BATCH), idStrategy="random")
        account = await server.play(driver, server.job("batch", options=options), marks)
    assert account.lost == 0
    assert account.twice > 0
    assert account.suppressed == 0


async def files(driver: Driver, server: Scene, folder: Path) -> tuple[dict[str, Any], Plan]:
    """Return a job that streams files in batches."""
    source = folder / "source"
    source.mkdir()
    rows_a_file = ROWS // FILES
    for number in range(FILES):
        some = range(number * rows_a_file, (number + 1) * rows_a_file)
        lines = [
            json.dumps(
                {
                    "topic": server.topics[n % TOPICS],
                    "data": json.dumps({"n": n, "pad": "x" * PAD}),
                }
            )
            for n in some
        ]
        (source / f"{number:03}.json").write_text("\n".join(lines))
    checkpoint = str(folder / "checkpoint")
    job = server.job("stream", source=str(source), files=FILES_A_BATCH, checkpoint=checkpoint)
    return job, deep_in_batches(driver, rows_a_file * FILES_A_BATCH // TASKS)


async def topics(driver: Driver, server: Scene, folder: Path) -> tuple[dict[str, Any], Plan]:
    """Return a job that streams topics in batches."""
    rows = [
        {"topic": f"jobs.source.{n % TOPICS}", "data": json.dumps({"n": n, "pad": "x" * PAD})}
        for n in range(ROWS)
    ]
    config = PubSubConfig(server.url, token_file=str(server.token_file))
    await asyncio.to_thread(publish_partition, rows, config)
    source = server.options(
        topicsPattern="jobs.source.*",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(ROWS // BATCHES),
        minPartitions=str(TOPICS),
    )
    job = server.job("relay", source=source, checkpoint=str(folder / "checkpoint"))
    return job, deep_in_batches(driver, ROWS // BATCHES // TOPICS)


# The sink is the same for every source; the topic source is part of the product.
@pytest.mark.parametrize("source", [topics, files] if SOAK else [topics])
async def test_a_stream_is_published_once_while_executors_and_the_driver_are_killed(
    drivers: Drivers, tmp_path: Path, source: Source
) -> None:
    driver = drivers({})
    async with scene(tmp_path, "stream", kind="admin") as server:
        job, marks = await source(driver, server, tmp_path)
        account = await server.play(driver, job, marks)
    assert account.fate == (0, 0)
    assert account.runs == 2
    assert account.suppressed > 0
    assert not account.gaps
