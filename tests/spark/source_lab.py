"""Queries of a real Spark on a real server, and the rows that they read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.spark import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.server_process import ServerProcess

BOUND = 120.0
"""Maximum seconds to wait for an event."""


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@dataclass
class Lab:
    spark: SparkSession
    server: ServerProcess
    folder: Path
    queries: list[StreamingQuery] = field(default_factory=list)

    def options(self, **options: str) -> dict[str, str]:
        return {"url": self.server.url, "tokenFile": str(self.server.token_file), **options}

    def read(self, **options: str) -> list[Any]:
        frame = self.spark.read.format(FORMAT).options(**self.options(**options)).load()
        return frame.orderBy("topic", "seq").collect()

    def stream(self, **options: str) -> DataFrame:
        return self.spark.readStream.format(FORMAT).options(**self.options(**options)).load()

    def start(
        self, each: Callable[[DataFrame, int], None], options: dict[str, str], *, now: bool = True
    ) -> StreamingQuery:
        writer = self.stream(**options).writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer = (
            writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")
        )
        query = writer.start()
        self.queries.append(query)
        return query

    def run(self, each: Callable[[DataFrame, int], None], **options: str) -> None:
        query = self.start(each, options)
        assert query.awaitTermination(int(BOUND))

    def forget_commits(self, newest: int) -> None:
        """Simulate a driver that died before it recorded the `newest` last batches as done."""
        commits = self.folder / "checkpoint" / "commits"
        done = sorted(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        for number in done[-newest:]:
            (commits / str(number)).unlink()
            (commits / f".{number}.crc").unlink(missing_ok=True)


@dataclass
class Batches:
    """The rows of each micro-batch; a repeated batch is listed twice."""

    rows: list[list[tuple[str, int]]] = field(default_factory=list)
    fail: bool = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = [(row.topic, row.seq) for row in frame.select("topic", "seq").collect()]
        self.rows.append(found)
        if self.fail and found:
            raise RuntimeError("the driver dies here")

    @property
    def all(self) -> list[tuple[str, int]]:
        return [row for batch in self.rows for row in batch]


def of(topic: str, seqs: list[int]) -> list[tuple[str, int]]:
    return [(topic, seq) for seq in seqs]


def pairs(rows: list[Any]) -> list[tuple[str, int]]:
    return [(row.topic, row.seq) for row in rows]
