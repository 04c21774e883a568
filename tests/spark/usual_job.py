"""A program that loads the classes that most tests of Spark use; `jvm.py` runs it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import Row, StructType

PATIENCE = 120
"""Maximum seconds of a stream."""


class Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        for number in range(10):
            yield number, f'{{"n": {number}}}'


class Writer(DataSourceWriter):
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Source(DataSource):
    """A source with two partitions of ten rows, and a sink that accepts all rows."""

    @classmethod
    def name(cls) -> str:
        return "usual"

    def schema(self) -> str:
        return "number INT, data STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer()


def same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def count(batch: DataFrame, _: int) -> None:
    batch.count()


def main(java: str) -> None:
    """Run a batch query and a stream query over sources in Python."""
    builder: Any = SparkSession.builder.master("local[2]")  # type: ignore[attr-defined,unused-ignore]
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.dataSource.register(Source)
    frame = spark.read.format("usual").load()
    shuffled = frame.repartition(2, "number").selectExpr("to_json(named_struct('n', number)) data")
    mapped = shuffled.mapInArrow(same, shuffled.schema)
    mapped.write.format("usual").mode("append").save()
    assert frame.orderBy("number").groupBy("data").count().count() == 10
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        frame.write.json(str(source))
        stream = spark.readStream.schema(frame.schema).json(str(source))
        query = (
            stream.writeStream.foreachBatch(count)
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
