"""The checks of the sink before a job, and what its driver logs. Without Spark's JVM."""

from __future__ import annotations

import importlib.util
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark import PubSubConfig, sink
from hanzoai.pubsub.spark.sink import BatchSink, Published, StreamSink, check_schema, planned
from hanzoai.pubsub.spark.stats import PublishStats
from hanzoai.pubsub.testing import ThreadedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

# The package has no types.
pa: Any = importlib.import_module("pyarrow")
tokens: list[str] = []


def provide() -> str:
    return tokens[0]


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with ThreadedServer() as running:
        tokens[:] = [running.service_token()]
        yield running


def config(**changes: Any) -> PubSubConfig:
    settings: dict[str, Any] = {"credential_provider": f"{__name__}:provide", **changes}
    return PubSubConfig(settings.pop("url", "http://127.0.0.1:1"), **settings)


def columns(**kinds: DataType) -> StructType:
    found = StructType()
    for name, kind in kinds.items():
        found = found.add(name, kind)
    return found


TEXT = StringType()


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        columns(a=TEXT, b=ArrayType(IntegerType())),
        MapType(TEXT, DoubleType()),
        ArrayType(columns(a=TEXT)),
        VariantType(),
    ],
)
def test_columns_that_can_be_published_are_accepted(data: DataType) -> None:
    check_schema(columns(topic=TEXT, id=TEXT, type=TEXT, ttl=LongType(), data=data), config())
    check_schema(columns(data=data), config(topic="jobs.rows"))


@pytest.mark.parametrize(
    ("schema", "field", "expected", "remedy"),
    [
        (columns(topic=IntegerType(), data=TEXT), "topic", "INT, not STRING", "Cast it to STRING."),
        (columns(topic=TEXT, data=TEXT, ttl=TEXT), "ttl", "STRING, not INT", "Cast it to INT."),
        (columns(data=TEXT, ttl=TimestampType()), "ttl", "TIMESTAMP, not INT", "number of seconds"),
        (columns(topic=TEXT, data=DoubleType()), "data", "DOUBLE, not STRING", "Cast it to"),
        (columns(topic=BinaryType(), data=TEXT), "topic", "BINARY, not STRING", "Cast it to"),
        (columns(id=BinaryType(), data=TEXT), "id", "BINARY, not STRING", "base64()"),
        (columns(topic=TEXT, data=BinaryType()), "data", "BINARY, not", "'value', base64(data))"),
        (columns(topic=TEXT, data=TimestampType()), "data", "TIMESTAMP, not", "'value', data)"),
        (columns(topic=TEXT, data=BooleanType()), "data", "BOOLEAN, not STRING", "Cast it to"),
        (columns(topic=TEXT, data=columns(a=BinaryType())), "data", "`data.a` has", "base64()"),
        (columns(topic=TEXT, data=ArrayType(BinaryType())), "data", "BINARY, which", "base64()"),
        (
            columns(topic=TEXT, data=MapType(TEXT, ArrayType(columns(a=BinaryType())))),
            "data",
            "`data.value.element.a` has the type BINARY, which",
            "base64()",
        ),
        (columns(topic=TEXT, data=MapType(BinaryType(), TEXT)), "data", "BINARY, which", "base64"),
        (
            columns(topic=TEXT, data=columns(a=YearMonthIntervalType())),
            "data",
            "INTERVAL YEAR TO MONTH, which",
            "Cast it to STRING",
        ),
        (columns(data=TEXT), "topic", "neither a column `topic`", "Select the topic"),
        (columns(topic=TEXT, DATA=TEXT), "DATA", "`DATA` is unknown", "Rename it to `data`"),
        (columns(topic=TEXT, payload=TEXT), "payload", "`payload` is unknown", "with to_json"),
    ],
)
def test_a_column_that_cannot_be_published_is_named(
    schema: StructType, field: str, expected: str, remedy: str
) -> None:
    with pytest.raises(InvalidOption, match=expected.replace("(", r"\(")) as refused:
        check_schema(schema, config())
    assert refused.value.field == field
    assert remedy in refused.value.remedy


def test_ids_of_a_column_need_the_column() -> None:
    chosen = config(ids="column")
    with pytest.raises(InvalidOption, match="no column `id`") as refused:
        check_schema(columns(topic=TEXT, data=TEXT), chosen)
    assert refused.value.field == "id"
    check_schema(columns(topic=TEXT, data=TEXT, id=TEXT), chosen)


def test_overwriting_is_refused_whatever_the_options() -> None:
    with pytest.raises(InvalidOption, match="overwrite") as refused:
        planned({}, columns(), overwrite=True)
    assert refused.value.field == "mode"
    assert "append" in refused.value.remedy


def test_the_options_and_the_columns_are_checked_together() -> None:
    options = {"url": "http://127.0.0.1:1", "credentialProvider": f"{__name__}:provide"}
    schema = columns(data=TEXT)
    with pytest.raises(InvalidOption, match="neither a column `topic`"):
        planned(options, schema, overwrite=False)
    assert planned({**options, "topic": "jobs.rows"}, schema, overwrite=False).topic == "jobs.rows"


def batch(count: int) -> Any:
    return pa.RecordBatch.from_pydict(
        {"topic": ["jobs.rows"] * count, "data": [json.dumps({"n": n}) for n in range(count)]}
    )


@pytest.mark.parametrize("kind", [BatchSink, StreamSink])
def test_a_task_reports_how_many_rows_it_published(server: ThreadedServer, kind: Any) -> None:
    report = kind(config(url=server.http)).write(iter([batch(3), batch(2)]))
    assert report.stats.rows == 5


def test_a_stream_gets_arrow_batches_in_spark_4_0_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    spec = importlib.util.find_spec(sink.__name__)
    assert spec is not None
    assert spec.loader is not None
    older = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(older)
    assert issubclass(older.StreamSink, datasource.DataSourceStreamWriter)
    assert issubclass(older.StreamSink, datasource.DataSourceArrowWriter)


def stats(rows: int) -> Published:
    return Published(PublishStats(rows=rows))


def test_a_commit_logs_the_sum_of_its_tasks_only_on_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hanzoai.pubsub.spark")
    # Spark passes None for a task that did not run.
    messages = [stats(3), None, stats(4)]
    BatchSink(config()).commit(messages)
    assert caplog.messages == []
    BatchSink(config(log_stats=True)).commit(messages)
    StreamSink(config(log_stats=True)).commit(messages, 9)
    batched, streamed = caplog.messages
    assert batched.startswith("write committed: ")
    assert streamed.startswith("write committed of batch 9: ")
    assert "7" in batched


def test_a_process_without_logging_shows_the_requested_counters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As in a process of Spark; pytest has handlers at the root.
    monkeypatch.setattr(logging.getLogger("hanzoai.pubsub.spark"), "propagate", False)
    BatchSink(config()).commit([stats(3)])
    assert capsys.readouterr().err == ""
    BatchSink(config(log_stats=True)).commit([stats(3)])
    assert capsys.readouterr().err.startswith("write committed: PublishStats(partition=0")


def test_an_abort_says_how_many_rows_stay_published_at_least(
    caplog: pytest.LogCaptureFixture,
) -> None:
    BatchSink(config()).abort([stats(3), None])
    StreamSink(config()).abort([None, stats(4)], 9)
    assert caplog.messages == [
        f"write{batch} aborted: finished tasks published {rows} rows; others may have"
        " published more"
        for batch, rows in (("", 3), (" of batch 9", 4))
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
