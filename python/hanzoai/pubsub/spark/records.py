"""What of a row is published: its topic, type, data, ttl and id, whatever brings the row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark.values import arrow_reader

COLUMNS: Final = ("topic", "type", "data", "ttl", "id")
_SLICE: Final = 1_000


class Record(NamedTuple):
    """One row. None where the row says nothing."""

    topic: object
    type: object
    data: object
    ttl: object
    id: object


def records(rows: Iterable[Any]) -> Iterator[Record]:
    """The rows of a partition.

    Args:
        rows: Spark's `Row`, a mapping, or a `pyarrow.RecordBatch`, each with columns of `COLUMNS`.

    Raises:
        InvalidOption: There is another column, or no `data`.
    """
    known: object = None
    places: list[int | None] = []
    for row in rows:
        if isinstance(row, Mapping):
            fields = cast("Mapping[str, object]", row)
            if not fields.keys() <= _KNOWN or "data" not in fields:
                check_columns(list(fields))
            yield Record(*(fields.get(name) for name in COLUMNS))
        elif hasattr(row, "num_rows"):
            yield from _of_batch(row)
        else:
            names = getattr(row, "__fields__", None)
            if names is None:
                raise InvalidOption(
                    f"A row is {type(row).__name__}.",
                    remedy="Give Row, dict or RecordBatch with a column `data`.",
                    field="rows",
                )
            if names != known:
                check_columns(names)
                known = names
                places = [names.index(name) if name in names else None for name in COLUMNS]
            yield Record(*(None if place is None else row[place] for place in places))


_KNOWN: Final = frozenset(COLUMNS)


def check_columns(names: Iterable[str]) -> None:
    """Check the names of columns.

    Raises:
        InvalidOption: One is unknown, stands there twice, or `data` is missing.
    """
    found = list(names)
    for name in found:
        if name not in _KNOWN:
            raise InvalidOption(
                f"Column `{name[:80]}` is unknown.",
                remedy="Select data, topic, type, ttl, id; put the rest into data with to_json.",
                field=name[:80],
            )
        if found.count(name) > 1:
            raise InvalidOption(
                f"Column `{name}` stands there twice.", remedy="Select it once.", field=name
            )
    if "data" not in found:
        raise InvalidOption(
            "Column `data` is missing.",
            remedy="Select the payload as data, for example to_json(struct('*')).alias('data').",
            field="data",
        )


def _of_batch(batch: Any) -> Iterator[Record]:
    names = batch.schema.names
    check_columns(names)
    readers = {name: arrow_reader(batch.schema.field(name).type) for name in names}
    # A slice at a time: the values of a whole batch as Python objects take several times its room.
    for start in range(0, batch.num_rows, _SLICE):
        part = batch.slice(start, _SLICE)
        columns: list[Iterable[object]] = []
        for name in COLUMNS:
            if name not in readers:
                columns.append(repeat(None))
                continue
            values = part.column(name).to_pylist()
            read = readers[name]
            columns.append(values if read is None else map(read, values))
        yield from map(Record._make, zip(*columns, strict=False))
