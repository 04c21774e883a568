"""Python workers are killed or stopped, and the server restarts, in the middle of a job."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from hanzoai.pubsub.spark import FORMAT, PubSubConfig, publish_partition, register
from tests.cluster.store import running
from tests.spark.cluster.scene import scene
from tests.spark.relay import relay
from tests.spark.source_lab import BOUND

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.cluster.scene import Scene
    from tests.spark.relay import Relay

    Fault = Callable[[Scene, asyncio.AbstractEventLoop, int], None]

pytestmark = [
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS = 1_000
PAGE = 50
"""Rows per request: each of two tasks needs ten."""
FIFTH = 5


def killed(_: Scene, __: asyncio.AbstractEventLoop, process: int) -> None:
    """Kill the worker."""
    os.kill(process, signal.SIGKILL)


def stopped(server: Scene, loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Stop the worker, and let it continue when the server has restarted."""
    os.kill(process, signal.SIGSTOP)
    try:
        restarted(server, loop, process)
    finally:
        os.kill(process, signal.SIGCONT)


def restarted(server: Scene, loop: asyncio.AbstractEventLoop, _: int) -> None:
    """Kill the server, and start it again."""
    restart = server.restart(signal.SIGKILL)
    asyncio.run_coroutine_threadsafe(restart, loop).result(BOUND)


FAULTS = (killed, stopped, restarted)


@asynccontextmanager
async def interrupted(folder: Path, fault: Fault, word: str) -> AsyncGenerator[tuple[Scene, Relay]]:
    """Run a server on Redis, behind a relay that runs the fault at the fifth request."""
    loop = asyncio.get_running_loop()
    async with (
        running("redis", folder) as redis,
        scene(folder, "interrupted", "--redis-url", redis.url, kind="admin") as server,
    ):
        with relay(server.url, word, FIFTH, lambda pid: fault(server, loop, pid)) as between:
            yield server, between
    assert between.disturbed


def options(server: Scene, between: Relay, **more: str) -> dict[str, str]:
    return {"url": between.url, "tokenFile": str(server.token_file), "maxRetries": "20", **more}


async def publish(server: Scene, topic: str) -> None:
    rows = [{"topic": topic, "data": json.dumps({"n": n})} for n in range(ROWS)]
    config = PubSubConfig(server.url, token_file=str(server.token_file), max_in_flight=1)
    await asyncio.to_thread(publish_partition, rows, config)


def numbers(rows: list[Any]) -> list[int]:
    return [json.loads(row.data)["n"] for row in rows]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_write_publishes_each_row_once_when_a_worker_or_the_server_fails(
    spark: SparkSession, tmp_path: Path, fault: Fault
) -> None:
    def write() -> None:
        register(spark)
        spark.range(0, ROWS, 1, 2).selectExpr(
            "'jobs.written' topic", "to_json(named_struct('n', id)) data"
        ).write.format(FORMAT).options(**options(server, between, batchSize=str(PAGE))).mode(
            "append"
        ).save()

    def stored() -> list[int]:
        frame = spark.read.format(FORMAT).options(
            url=server.url, tokenFile=str(server.token_file), topics="jobs.written"
        )
        return numbers(frame.load().collect())

    async with interrupted(tmp_path, fault, "messages:batch") as (server, between):
        await asyncio.to_thread(write)
        assert sorted(await asyncio.to_thread(stored)) == list(range(ROWS))


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_batch_reads_each_row_once_when_a_worker_or_the_server_fails(
    spark: SparkSession, tmp_path: Path, fault: Fault
) -> None:
    def read() -> list[int]:
        register(spark)
        frame = spark.read.format(FORMAT).options(
            **options(server, between, topics="jobs.read", pageSize=str(PAGE), minPartitions="2")
        )
        return numbers(frame.load().collect())

    async with interrupted(tmp_path, fault, "/history") as (server, between):
        await publish(server, "jobs.read")
        assert await asyncio.to_thread(read) == list(range(ROWS))


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_stream_reads_each_row_once_when_a_worker_or_the_server_fails(
    spark: SparkSession, tmp_path: Path, fault: Fault
) -> None:
    found: list[int] = []

    def collect(frame: DataFrame, batch: int) -> None:
        found.extend(numbers(frame.collect()))

    def read() -> None:
        register(spark)
        frame = spark.readStream.format(FORMAT).options(
            **options(server, between, topics="jobs.read", pageSize=str(PAGE), minPartitions="2"),
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(ROWS // 2),
        )
        writer = frame.load().writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(int(BOUND))

    async with interrupted(tmp_path, fault, "/history") as (server, between):
        await publish(server, "jobs.read")
        await asyncio.to_thread(read)
        assert found == list(range(ROWS))


async def test_a_query_whose_planner_is_killed_continues_at_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[int] = []

    def collect(frame: DataFrame, batch: int) -> None:
        found.extend(numbers(frame.collect()))

    def start() -> StreamingQuery:
        frame = spark.readStream.format(FORMAT).options(
            **options(server, between, topics="jobs.read", startingOffsets="earliest"),
            maxOffsetsPerTrigger=str(ROWS // 10),
        )
        writer = frame.load().writeStream.foreachBatch(collect)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def read() -> None:
        register(spark)
        with pytest.raises(StreamingQueryException):
            start().processAllAvailable()
        assert 0 < len(found) < ROWS
        query = start()
        query.processAllAvailable()
        query.stop()

    async with interrupted(tmp_path, killed, "/positions") as (server, between):
        await publish(server, "jobs.read")
        await asyncio.to_thread(read)
        assert found == list(range(ROWS))
