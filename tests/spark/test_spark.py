"""The sink on a real Spark with a real server."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark import (
    ARROW_SCHEMA,
    FORMAT,
    PubSubConfig,
    foreach_batch,
    foreach_partition,
    publish_arrow,
    publish_partition,
    register,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.server_process import ServerProcess

pytestmark = [
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def config(server: ServerProcess, **changes: Any) -> PubSubConfig:
    return PubSubConfig(server.url, token_file=str(server.token_file), **changes)


def rows(spark: SparkSession, topic: str, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr(
        f"'{topic}' topic", "to_json(named_struct('n', id)) data"
    )


def numbers(count: int) -> list[dict[str, int]]:
    return sorted(({"n": n} for n in range(count)), key=lambda each: str(each["n"]))


def by_number(found: list[Any]) -> list[Any]:
    return sorted(found, key=lambda each: str(each["n"]))


def test_a_dataframe_is_written_without_registration(
    spark: SparkSession, server: ServerProcess
) -> None:
    frame = spark.range(0, 1_200, 1, 2).selectExpr(
        "'jobs.sink' topic", "'row' type", "named_struct('n', id) data", "concat('r', id) id"
    )
    writer = frame.write.format(FORMAT).option("url", server.url).mode("append")
    writer = writer.option("tokenFile", str(server.token_file))
    writer.save()
    writer.save()
    found = server.messages("jobs.sink")
    assert by_number([message["data"] for message in found]) == numbers(1_200)
    assert {message["type"] for message in found} == {"row"}
    assert {message["id"] for message in found} == {f"r{n}" for n in range(1_200)}


def test_a_thread_that_registers_the_format_can_write(
    spark: SparkSession, server: ServerProcess
) -> None:
    writer = rows(spark, "jobs.thread", 10).write.format(FORMAT).mode("append")
    writer = writer.option("url", server.url).option("tokenFile", str(server.token_file))

    def publish() -> None:
        register(spark)
        writer.save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(publish).result()
    assert by_number(server.data("jobs.thread")) == numbers(10)


def test_planning_refuses_what_cannot_work_and_shows_no_secret(
    spark: SparkSession, server: ServerProcess
) -> None:
    frame = rows(spark, "jobs.refused", 2)
    for columns, options, words in (
        (["topic", "data", "1 AS colour"], {}, ("colour", "unknown")),
        (["topic", "CAST(data AS BINARY) AS data"], {}, ("data", "base64")),
        (["topic", "data"], {"batchSise": "5"}, ("batchSize",)),
        (["topic", "data"], {"token": "s3cret"}, ("tokenFile",)),
        (["data"], {}, ("topic",)),
    ):
        writer = frame.selectExpr(*columns).write.format(FORMAT).mode("append")
        options = {"url": server.url, "tokenFile": str(server.token_file), **options}
        with pytest.raises(Exception, match=words[0]) as caught:
            writer.options(**options).save()
        assert all(word in str(caught.value) for word in words)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(Exception, match="append"):
        frame.write.format(FORMAT).option("url", server.url).mode("overwrite").save()
    assert server.messages("jobs.refused") == []


def _publish_and_die(rows: Iterable[Any], config: PubSubConfig, mark: str) -> Iterator[int]:
    publish_partition(rows, config)
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(1)
    yield 0


def test_a_task_that_dies_after_it_published_publishes_nothing_twice(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    settings, mark = config(server), str(tmp_path / "died")

    def task(some: Iterable[Any]) -> Iterator[int]:
        yield from _publish_and_die(some, settings, mark)

    rows(spark, "jobs.dies", 1_000).rdd.mapPartitions(task).collect()
    assert Path(mark).exists()
    assert by_number(server.data("jobs.dies")) == numbers(1_000)


def test_each_action_and_each_call_publishes_equal_rows_again(
    spark: SparkSession, server: ServerProcess
) -> None:
    frame = spark.createDataFrame([('{"n": 1}',)] * 3, "data STRING").coalesce(1)
    settings = config(server, topic="jobs.equal")
    frame.foreachPartition(foreach_partition(settings))
    assert len(server.messages("jobs.equal")) == 3
    frame.foreachPartition(foreach_partition(settings))
    assert len(server.messages("jobs.equal")) == 6

    def one_by_one(some: Iterable[Any]) -> None:
        for row in some:
            publish_partition([row], settings)

    frame.foreachPartition(one_by_one)
    assert len(server.messages("jobs.equal")) == 9


def test_map_in_arrow_prints_what_each_task_published(
    spark: SparkSession, server: ServerProcess
) -> None:
    frame = rows(spark, "jobs.arrow", 500)
    reported = frame.mapInArrow(publish_arrow(config(server)), ARROW_SCHEMA).collect()
    assert sorted((row.part, row.rows, row.duplicates) for row in reported) == [
        (0, 250, 0),
        (1, 250, 0),
    ]
    assert by_number(server.data("jobs.arrow")) == numbers(500)


def test_a_stream_is_published_once_over_a_restart_that_repeats_a_batch(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source, checkpoint = str(tmp_path / "in"), tmp_path / "checkpoint"
    rows(spark, "jobs.stream", 300).write.json(source)

    def run() -> None:
        stream = spark.readStream.schema("topic STRING, data STRING").json(source)
        query = (
            stream.writeStream.format(FORMAT)
            .option("url", server.url)
            .option("tokenFile", str(server.token_file))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    run()
    # Simulate a driver that died between the publish and the commit.
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    run()
    assert by_number(server.data("jobs.stream")) == numbers(300)


def test_foreach_batch_publishes_each_micro_batch_with_times_in_their_zone(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = str(tmp_path / "in")
    rows(spark, "jobs.each", 200).write.json(source)
    query = (
        spark.readStream.schema("topic STRING, data STRING")
        .json(source)
        .selectExpr("topic", "struct(parse_json(data) row, timestamp_seconds(1771840800) at) data")
        .writeStream.foreachBatch(foreach_batch(config(server), "alerts"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    found = server.data("jobs.each")
    assert by_number([each["row"] for each in found]) == numbers(200)
    then = datetime(2026, 2, 23, 10, tzinfo=UTC)
    assert {datetime.fromisoformat(each["at"]) for each in found} == {then}


def test_foreach_batch_rejects_a_wrong_column_before_a_task_runs(
    spark: SparkSession, server: ServerProcess
) -> None:
    frame = rows(spark, "jobs.columns", 2).withColumnRenamed("data", "value")
    with pytest.raises(InvalidOption, match="Column `value` is unknown"):
        foreach_batch(config(server), "alerts")(frame, 0)


def test_rows_that_cannot_be_published_go_to_the_dead_letters(
    spark: SparkSession, server: ServerProcess
) -> None:
    frame = spark.createDataFrame(
        [("jobs.good", "1"), ("jobs.*", "2"), ("jobs.good", "{oops"), ("jobs.good", "4")],
        "topic STRING, data STRING",
    )
    for _ in range(2):
        frame.write.format(FORMAT).options(
            url=server.url,
            tokenFile=str(server.token_file),
            onError="deadletter:jobs.rejected",
            idNamespace="nightly",
        ).mode("append").save()
    assert server.data("jobs.good") == [1, 4]
    letters = server.data("jobs.rejected")
    assert sorted((each["error"]["field"], each["row"]["data"]) for each in letters) == [
        ("data", "{oops"),
        ("topic", "2"),
    ]
