"""What Spark prints before the message of an error."""

from __future__ import annotations

import importlib
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from hanzoai.pubsub.errors import AuthError, InvalidOption, InvalidPayload, PubSubError
from hanzoai.pubsub.spark import PubSubConfig, foreach_partition, publish_arrow
from hanzoai.pubsub.spark.data_source import HanzoPubSub
from hanzoai.pubsub.spark.rows import SOURCE_SCHEMA
from hanzoai.pubsub.spark.sink import BatchSink, StreamSink
from hanzoai.pubsub.spark.traces import brief

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pa: Any = importlib.import_module("pyarrow")  # no types
CONFIG = PubSubConfig("http://127.0.0.1:1", topic="a.b")
FRAMES_MAX = 5
"""The test, the call, and what raises the error again."""


def columns() -> StructType:
    """The columns of the source."""
    kinds = {"STRING": StringType(), "TIMESTAMP": TimestampType(), "INT": IntegerType()}
    found = StructType()
    for name, kind in (each.split() for each in SOURCE_SCHEMA.split(", ")):
        found = found.add(name, kinds.get(kind, LongType()))
    return found


def bad() -> Any:
    return iter([pa.RecordBatch.from_pydict({"data": ["no JSON"]})])


@pytest.mark.parametrize(
    "call",
    [
        lambda: BatchSink(CONFIG).write(bad()),
        lambda: StreamSink(CONFIG).write(bad()),
        lambda: foreach_partition(CONFIG)(bad()),
        lambda: next(publish_arrow(CONFIG)(bad())),
    ],
)
def test_little_precedes_the_message_of_a_bad_row(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidPayload, match="not JSON") as caught:
        call()
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= FRAMES_MAX


CALLS: list[Callable[[HanzoPubSub], object]] = [
    lambda source: source.schema(),
    lambda source: source.reader(StructType()),
    lambda source: source.writer(StructType().add("data", StringType()), overwrite=False),
    lambda source: source.streamWriter(StructType().add("data", StringType()), overwrite=False),
    lambda source: source.streamReader(StructType()).initialOffset(),
]


@pytest.mark.parametrize("call", CALLS)
def test_little_precedes_the_message_of_a_wrong_option(
    call: Callable[[HanzoPubSub], object],
) -> None:
    with pytest.raises(InvalidOption) as caught:
        call(HanzoPubSub({"url": "http://127.0.0.1:1", "topik": "a.b"}))
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= FRAMES_MAX


TOKENS: list[Callable[[dict[str, str]], object]] = [
    lambda given: HanzoPubSub({**given, "topics": "a.b"}).reader(columns()).partitions(),
    lambda given: HanzoPubSub({**given, "topics": "a.b"}).streamReader(columns()).initialOffset(),
    lambda given: (
        HanzoPubSub({**given, "topic": "a.b"})
        .writer(StructType().add("data", StringType()), overwrite=False)
        .write(iter([pa.RecordBatch.from_pydict({"data": ["1"]})]))
    ),
]


@pytest.mark.parametrize("call", TOKENS, ids=["batch source", "stream source", "sink"])
def test_a_token_that_cannot_be_read_has_the_name_of_its_option_in_spark(
    call: Callable[[dict[str, str]], object], tmp_path: Path
) -> None:
    empty = tmp_path / "token"
    empty.touch()
    with pytest.raises(AuthError, match="`tokenFile` is empty") as caught:
        call({"url": "http://127.0.0.1:1", "tokenFile": str(empty)})
    assert caught.value.field == "tokenFile"
    with pytest.raises(AuthError, match="give `tokenFile` or `credentialProvider`"):
        call({"url": "http://127.0.0.1:1", "tokenEnv": "HANZO_PUBSUB_NO_SUCH"})


def test_other_errors_keep_their_trace() -> None:
    @brief()
    def fail(error: Exception) -> None:
        raise error

    for error, names in ((KeyError("a"), "fail"), (PubSubError("x", "y", remedy="z"), "__exit__")):
        with pytest.raises(type(error)) as caught:
            fail(error)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == names
