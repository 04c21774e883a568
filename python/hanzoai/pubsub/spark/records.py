"""Reads topic, type, data, ttl and id from rows of any kind.

Rows are read in chunks of columns, so values that many rows share are checked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark.values import arrow_reader, with_known_zones

COLUMNS: Final = ("topic", "type", "data", "ttl", "id")
_DATA: Final = COLUMNS.index("data")


class Record(NamedTuple):
    """One row. A field is None if the row does not have it."""

    topic: object
    type: object
    data: object
    ttl: object
    id: object


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Replaces a value that Spark can hold and Python cannot.

    Attributes:
        why: What is wrong with it, as a verb and its object.
    """

    why: str


class Chunk(NamedTuple):
    """A chunk of rows as columns of equal length."""

    topic: Sequence[object]
    type: Sequence[object]
    data: Sequence[object]
    ttl: Sequence[object]
    id: Sequence[object]

    def record(self, place: int) -> Record:
        """Return one of the rows."""
        return Record(*(column[place] for column in self))


def chunks(rows: Iterable[Any], most: int, most_bytes: int) -> Iterator[Chunk]:
    """Yield the rows of a partition in chunks, in order.

    Args:
        rows: Spark's `Row`, a mapping, or a `pyarrow.RecordBatch`, each with columns of `COLUMNS`.
        most: Maximum rows of a chunk.
        most_bytes: Approximate maximum bytes of data of a chunk; a single row may have more.

    Raises:
        InvalidOption: There is another column, or no `data`.
    """
    gathered: list[tuple[object, ...]] = []
    record: tuple[object, ...]
    size = 0
    known: object = None
    pick: Callable[[tuple[object, ...]], tuple[object, ...]] = tuple
    for row in rows:
        # Looking up a missing field of Spark's Row costs more than all else here, and so do its
        # look-ups by index: use it as the tuple that it is.
        names: Any = getattr(cast("object", row), "__fields__", None) if _is_tuple(row) else None
        if names is not None:
            if names != known:
                check_columns(names)
                known = names
                pick = itemgetter(*[names.index(name) if name in names else -1 for name in COLUMNS])
            record = pick((*row, None))
        elif isinstance(row, Mapping):
            fields = cast("Mapping[str, object]", row)
            if not fields.keys() <= _KNOWN or "data" not in fields:
                check_columns(list(fields))
            record = tuple(map(fields.get, COLUMNS))
        elif hasattr(row, "num_rows"):
            if gathered:
                yield _turned(gathered)
                gathered, size = [], 0
            yield from _of_batch(row, most, most_bytes)
            continue
        else:
            raise InvalidOption(
                f"A row is {type(row).__name__}.",
                remedy="Give Row, dict or RecordBatch with a column `data`.",
                field="rows",
            )
        gathered.append(record)
        if isinstance(data := record[_DATA], str):
            size += len(data)
        if len(gathered) >= most or size >= most_bytes:
            yield _turned(gathered)
            gathered, size = [], 0
    if gathered:
        yield _turned(gathered)


def _is_tuple(row: Any) -> bool:
    return isinstance(row, tuple)


def _turned(records: list[tuple[object, ...]]) -> Chunk:
    return Chunk(*zip(*records, strict=True))


_KNOWN: Final = frozenset(COLUMNS)


def check_columns(names: Iterable[str]) -> None:
    """Check the names of columns.

    Raises:
        InvalidOption: One is unknown, occurs twice, or `data` is missing.
    """
    found = list(names)
    for name in found:
        if name not in _KNOWN:
            low = name.lower()
            raise InvalidOption(
                f"Column `{name[:80]}` is unknown.",
                remedy=(
                    f"Rename it to `{low}`: the case matters."
                    if low in _KNOWN
                    else "Select data, topic, type, ttl, id; put the rest into data with to_json."
                ),
                field=name[:80],
            )
        if found.count(name) > 1:
            raise InvalidOption(
                f"Column `{name}` occurs twice.", remedy="Select it once.", field=name
            )
    if "data" not in found:
        raise InvalidOption(
            "Column `data` is missing.",
            remedy="Select the payload as data, for example to_json(struct('*')).alias('data').",
            field="data",
        )


def _of_batch(batch: Any, most: int, most_bytes: int) -> Iterator[Chunk]:
    names = batch.schema.names
    check_columns(names)
    kinds = {name: with_known_zones(batch.schema.field(name).type) for name in names}
    readers = {name: arrow_reader(kind) for name, kind in kinds.items()}
    # The values of a whole batch as Python objects take several times its memory.
    step = max(1, min(most, most_bytes * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)
        columns: list[Sequence[object]] = []
        for name in COLUMNS:
            if name not in readers:
                columns.append([None] * part.num_rows)
                continue
            column = part.column(name)
            if column.type != kinds[name]:
                column = column.cast(kinds[name])
            columns.append(_values(column, readers[name]))
        yield Chunk(*columns)


def _values(column: Any, read: Callable[[object], object] | None) -> list[object]:
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):
        return [_value(scalar, read) for scalar in column]
    return values if read is None else list(map(read, values))


def _value(scalar: Any, read: Callable[[object], object] | None) -> object:
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        return Unreadable("has text that is not UTF-8")
    except (ValueError, OverflowError):
        return Unreadable("has a time outside of the years 1 to 9999")
    return value if read is None else read(value)
