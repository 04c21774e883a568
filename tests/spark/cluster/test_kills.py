"""Executors and drivers killed in the middle of what they publish: nothing lost, nothing twice.

With HANZO_PUBSUB_SOAK set the same with 100,000 rows and all kills.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster.driver import SPECULATION
from tests.spark.cluster.marks import Mark
from tests.spark.cluster.scene import PAD, PARTITIONS, ROWS, SOAK, TOPICS, scene

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.spark.cluster.driver import Driver, Plan

    Drivers = Callable[[Mapping[str, str]], Driver]

pytestmark = pytest.mark.timeout(900)

FILES = 40
FILES_A_BATCH = 8


def half(name: str, partition: int) -> Mark:
    return Mark(name, partition, ROWS // PARTITIONS // 2)


@pytest.mark.parametrize("speculation", [False, True] if SOAK else [True])
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
        options = server.options(idNamespace="nightly")
        account = await server.play(driver, server.job("batch", options=options), marks)
    assert account.fate == (0, 0)
    assert account.runs == 2
    # What was killed had published some of its rows.
    assert account.suppressed > 0
    assert account.gaps == 0


async def test_a_stream_is_published_once_while_executors_and_the_driver_are_killed(
    drivers: Drivers, tmp_path: Path
) -> None:
    driver = drivers({})
    source = tmp_path / "source"
    source.mkdir()
    rows_a_file = ROWS // FILES
    deep = rows_a_file * FILES_A_BATCH // 4 // 2
    marks: Plan = {
        Mark("executor0", 0, deep, batch=1): driver.kill_executor,
        Mark("driver", 1, deep, batch=2): driver.kill,
    }
    if SOAK:
        marks |= {Mark("executor1", 2, deep, batch=3): driver.kill_executor}
        marks |= {Mark("executor2", 3, deep, batch=4): driver.kill_executor}
    async with scene(tmp_path, "stream") as server:
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
        job = server.job(
            "stream",
            source=str(source),
            files=FILES_A_BATCH,
            checkpoint=str(tmp_path / "checkpoint"),
        )
        account = await server.play(driver, job, marks)
    assert account.fate == (0, 0)
    assert account.runs == 2
    assert account.suppressed > 0
    assert account.gaps == 0
