"""The driver's program: reads jobs as one JSON object per line, and runs them.

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
"""Schema of the files of a stream."""
PATIENCE = 1_800
"""Maximum seconds of one stream."""


def batch(spark: SparkSession, job: dict[str, Any]) -> None:
    """Write shuffled numbers from 0 to the sink."""
    frame = spark.range(0, job["rows"], 1, job["partitions"])
    shuffled = frame.repartition(job["partitions"], "id").selectExpr(
        f"concat('{job['topic']}.', id % {job['topics']}) topic",
        f"to_json(named_struct('n', id, 'pad', repeat('x', {job['pad']}))) data",
    )
    writer = marked(shuffled, job).write.format("hanzo-pubsub").options(**job["options"])
    writer.mode("append").save()


def stream(spark: SparkSession, job: dict[str, Any]) -> None:
    """Stream files of rows to the sink, some per micro-batch, until all are published."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", job["files"])
    follow(reader.json(job["source"]), job)


def relay(spark: SparkSession, job: dict[str, Any]) -> None:
    """Copy messages of some topics to others, each with an id made from its position."""
    reader = spark.readStream.format("hanzo-pubsub").options(**job["source"])
    frame = reader.load().selectExpr(
        f"concat('{job['topic']}.', element_at(split(topic, '[.]'), -1)) topic",
        "data",
        "concat(topic, ':', seq) id",
    )
    follow(frame, job)


def follow(frame: DataFrame, job: dict[str, Any]) -> None:
    """Write a stream to the sink until it has no more rows.

    Raises:
        TimeoutError: The stream does not end.
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
    """Add the marks of the job to the rows."""
    marks = [Mark(**fields) for fields in job["marks"]]
    return frame.mapInArrow(Marked(job["folder"], marks), frame.schema)


def perform(spark: SparkSession, job: dict[str, Any]) -> str:
    """Run a job; return its error, or an empty string."""
    kinds = {"batch": batch, "stream": stream, "relay": relay}
    try:
        kinds[job["kind"]](spark, job)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(master: str, settings: str) -> None:
    """Run the jobs from standard input, and record the outcome of each."""
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
