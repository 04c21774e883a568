"""The driver's program: runs the jobs that it reads, one JSON object a line.

Arguments: the Master's address, and settings of Spark as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tests.spark.cluster.marks import Mark, Marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "topic STRING, data STRING"
"""Of the files of a stream."""
PATIENCE = 1_800
"""Seconds of one stream."""


def batch(spark: SparkSession, job: dict[str, Any]) -> None:
    """Numbers from 0, shuffled, to the sink."""
    frame = spark.range(0, job["rows"], 1, job["partitions"])
    shuffled = frame.repartition(job["partitions"], "id").selectExpr(
        f"concat('{job['topic']}.', id % {job['topics']}) topic",
        f"to_json(named_struct('n', id, 'pad', repeat('x', {job['pad']}))) data",
    )
    writer = marked(shuffled, job).write.format("hanzo-pubsub").options(**job["options"])
    writer.mode("append").save()


def stream(spark: SparkSession, job: dict[str, Any]) -> None:
    """Files of rows to the sink, some in a micro-batch, until all are published."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", job["files"])
    follow(reader.json(job["source"]), job)


def relay(spark: SparkSession, job: dict[str, Any]) -> None:
    """Messages of some topics to others, each under an id that is made of its position."""
    reader = spark.readStream.format("hanzo-pubsub").options(**job["source"])
    frame = reader.load().selectExpr(
        f"concat('{job['topic']}.', element_at(split(topic, '[.]'), -1)) topic",
        "data",
        "concat(topic, ':', seq) id",
    )
    follow(frame, job)


def follow(frame: DataFrame, job: dict[str, Any]) -> None:
    """Write a stream to the sink until it has no more.

    Raises:
        TimeoutError: It does not come to an end.
    """
    query = (
        marked(frame, job)
        .writeStream.format("hanzo-pubsub")
        .options(**job["options"], checkpointLocation=job["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(PATIENCE):
        raise TimeoutError("the stream does not end")


def marked(frame: DataFrame, job: dict[str, Any]) -> DataFrame:
    """The same rows, with the marks of the job."""
    marks = [Mark(**fields) for fields in job["marks"]]
    return frame.mapInArrow(Marked(job["folder"], marks), frame.schema)


def perform(spark: SparkSession, job: dict[str, Any]) -> str:
    """What went wrong with a job; empty for nothing."""
    kinds = {"batch": batch, "stream": stream, "relay": relay}
    try:
        kinds[job["kind"]](spark, job)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(master: str, settings: str) -> None:
    """Run the jobs of standard input, and write down how each ended."""
    builder: Any = SparkSession.builder.master(master)  # type: ignore[attr-defined,unused-ignore]
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    for line in sys.stdin:
        job = json.loads(line)
        result = Path(job["result"])
        scratch = result.with_suffix(".part")
        scratch.write_text(perform(spark, job), encoding="utf-8")
        scratch.rename(result)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
