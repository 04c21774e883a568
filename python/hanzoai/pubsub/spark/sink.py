"""The sink: writers that run `publish_partition` on Arrow batches, and the checks before it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark.options import SINK_OPTIONS, sink_config
from hanzoai.pubsub.spark.publish import publish_partition
from hanzoai.pubsub.spark.records import check_columns
from hanzoai.pubsub.spark.stats import PublishStats, log_stats
from hanzoai.pubsub.spark.traces import brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hanzoai.pubsub.spark.config import PubSubConfig

logger = logging.getLogger("hanzoai.pubsub.spark")


def _stream_writer() -> Any:
    since = getattr(datasource, "DataSourceStreamArrowWriter", None)
    if since is not None:  # since Spark 4.1
        return since
    # Spark 4.0 passes rows to a writer of streams, in which times have no time zone. To a writer
    # of Arrow, it passes batches, also in a stream.
    return type(
        "StreamArrowWriter",
        (datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter),
        {},
    )


_STREAM_WRITER: Any = _stream_writer()


@dataclass
class Published(datasource.WriterCommitMessage):
    """The report of a task to the driver."""

    stats: PublishStats


def planned(options: Mapping[str, str], schema: StructType, overwrite: bool) -> PubSubConfig:
    """Return the config of a sink, checked against its columns.

    Raises:
        InvalidOption: An option or a column is missing, unknown or of a wrong type; `field` names
            it.
    """
    if overwrite:
        raise InvalidOption(
            'The modes "overwrite" and "complete" are not possible for a topic, because a published'
            " message cannot be removed.",
            remedy=(
                'Write .mode("append"). In a stream, write .outputMode("append"), or use'
                " foreach_batch, which publishes every mode."
            ),
            field="mode",
        )
    config = sink_config(options)
    check_schema(schema, config)
    return config


def check_schema(schema: StructType, config: PubSubConfig) -> None:
    """Check names and types of the columns.

    Raises:
        InvalidOption: A column has a wrong name or type; `field` names it.
    """
    check_columns(schema.fieldNames())
    names = schema.fieldNames()
    for column in schema.fields:
        wanted = _WANTED.get(column.name)
        if wanted is not None and not isinstance(column.dataType, wanted[0]):
            raise _ill_typed(column.name, column.dataType, wanted[1])
        if column.name == "data":
            _check_data(column.dataType, "data")
    if "topic" not in names and config.topic is None:
        raise InvalidOption(
            "There is neither a column `topic` nor an option `topic`.",
            remedy="Select the topic of each row, or give one for all.",
            field="topic",
        )
    if "id" not in names and config.ids == "column":
        raise InvalidOption(
            "Option `idStrategy` is `column`, and there is no column `id`.",
            remedy="Select it, or leave the option out.",
            field="id",
        )


_WANTED: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "topic": ((StringType,), "STRING"),
    "type": ((StringType,), "STRING"),
    "id": ((StringType,), "STRING"),
    "ttl": ((ShortType, IntegerType, LongType), "INT"),
    "data": (
        (StringType, StructType, MapType, ArrayType, VariantType),
        "STRING with JSON, STRUCT, MAP, ARRAY or VARIANT",
    ),
}


_PLACE_MAX: Final = 200
"""Maximum characters of the place of a field in an error."""

_UNSUPPORTED: dict[type[DataType], str] = {
    BinaryType: "Encode it with base64().",
    YearMonthIntervalType: "Cast it to STRING.",
}


def _check_data(kind: DataType, place: str) -> None:
    remedy = _UNSUPPORTED.get(type(kind))
    if remedy is not None:
        raise InvalidOption(
            f"Column `{place[:_PLACE_MAX]}` has the type {kind.simpleString().upper()}, which JSON"
            " does not support.",
            remedy=remedy,
            field="data",
        )
    if isinstance(kind, StructType):
        for column in kind.fields:
            _check_data(column.dataType, f"{place}.{column.name}")
    elif isinstance(kind, ArrayType):
        _check_data(kind.elementType, f"{place}.element")
    elif isinstance(kind, MapType):
        _check_data(kind.keyType, f"{place}.key")
        _check_data(kind.valueType, f"{place}.value")


def _ill_typed(name: str, kind: DataType, wanted: str) -> InvalidOption:
    return InvalidOption(
        f"Column `{name}` is {kind.simpleString().upper()[:80]}, not {wanted}.",
        remedy=_remedy(name, kind, wanted),
        field=name,
    )


def _remedy(name: str, kind: DataType, wanted: str) -> str:
    if name == "data" and not isinstance(kind, NumericType | BooleanType):
        # Cast to STRING, a time is not JSON, and some base64 is a number.
        value = "base64(data)" if isinstance(kind, BinaryType) else "data"
        return f"Put it into a STRUCT, such as named_struct('value', {value})."
    if name == "id" and isinstance(kind, BinaryType):
        return "Encode it with base64()."
    if name == "ttl" and not isinstance(kind, NumericType | StringType):
        # Spark does not cast a DATE to INT, and a TIMESTAMP becomes seconds since 1970.
        return "Select a number of seconds as INT."
    return f"Cast it to {wanted.split()[0]}."


@brief(SINK_OPTIONS)
def _write(config: PubSubConfig, rows: Iterator[Any]) -> Published:
    return Published(publish_partition(rows, config))


def _log(config: PubSubConfig, what: str, messages: Sequence[Any], batch: int | None) -> None:
    total = PublishStats()
    for message in messages:
        if isinstance(message, Published):
            total.add(message.stats)
    if what == "aborted":
        logger.warning(
            "write%s aborted: finished tasks published %d rows; others may have published more",
            _of(batch),
            total.rows,
        )
    elif config.log_stats:
        log_stats("write committed%s: %s", _of(batch), total)


def _of(batch: int | None) -> str:
    return "" if batch is None else f" of batch {batch}"


class BatchSink(datasource.DataSourceArrowWriter):
    """Publishes a DataFrame. Published rows stay published even if the job fails."""

    def __init__(self, config: PubSubConfig) -> None:
        self._config = config

    def write(self, iterator: Iterator[Any]) -> Published:
        """See `DataSourceWriter`; runs in the task."""
        return _write(self._config, iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        """See `DataSourceWriter`."""
        _log(self._config, "committed", messages, None)

    def abort(self, messages: Sequence[Any]) -> None:
        """See `DataSourceWriter`."""
        _log(self._config, "aborted", messages, None)


class StreamSink(_STREAM_WRITER):  # type: ignore[misc]
    """Publishes micro-batches. Spark creates one for planning and another one for the commit."""

    def __init__(self, config: PubSubConfig) -> None:
        self._config = config

    def write(self, iterator: Iterator[Any]) -> Published:
        """See `DataSourceStreamWriter`; runs in the task."""
        return _write(self._config, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """See `DataSourceStreamWriter`."""
        _log(self._config, "committed", messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """See `DataSourceStreamWriter`."""
        _log(self._config, "aborted", messages, batchId)
