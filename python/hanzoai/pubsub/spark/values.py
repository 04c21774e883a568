"""Converts values of rows to plain JSON, including Spark's types that JSON does not support."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import SchemaValidator, core_schema, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql.types import VariantVal

_VARIANT = {"value", "metadata"}

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
"""Time zone of Spark with an offset in whole minutes."""

_OBJECT = SchemaValidator(core_schema.typed_dict_schema({}, extra_behavior="ignore"))
"""Reads an object of any content without creating Python values."""


class Ambiguous(ValueError):
    """A struct has two fields of the same name, of which an object can have only one."""


_NAME_MAX: Final = 64
"""Maximum characters of a name in the place of a value."""


def check_json(text: str) -> None:
    """Check that a text is JSON.

    Raises:
        ValueError: It is not, or it contains NaN or an infinity; the message has the place.
    """
    # The validator accepts these two; the parser below accepts them only within a string.
    if text.startswith("{") and "NaN" not in text and "Infinity" not in text:
        with suppress(ValueError):  # the parser has a shorter message
            _OBJECT.validate_json(text)
            return
    try:
        from_json(text, allow_inf_nan=False)
    except TypeError:
        raise ValueError("it has characters that UTF-8 cannot encode") from None


def all_json(values: Sequence[object]) -> Sequence[str]:
    """Check that all values are JSON texts, and return them.

    Raises:
        TypeError: A value is not text.
        ValueError: A value is not JSON.
    """
    texts = cast("Sequence[str]", values)
    # Performs the checks of `check_json` on all of them at once.
    together = "".join(texts)
    # Most texts have neither letter, and a search for one letter takes a tenth of the time.
    if ("N" in together and "NaN" in together) or ("I" in together and "Infinity" in together):
        for text in texts:
            check_json(text)
    else:
        try:
            for _ in map(_OBJECT.validate_json, texts):
                pass
        except ValueError:
            for text in texts:
                check_json(text)
    return texts


def to_text(value: object) -> str:
    """Return a value of a row as JSON.

    Structs and rows become objects, maps objects with text keys, times ISO 8601, decimals texts.

    Raises:
        TypeError: It contains bytes, or something else that JSON does not support.
        Ambiguous: It contains a struct with two fields of the same name.
        ValueError: It contains NaN or an infinity, or characters that UTF-8 cannot encode.
    """
    variant = _variant(value)
    if variant is not None:
        return _text_of(variant)
    made = plain(value)
    try:
        return to_json(made, inf_nan_mode="constants").decode()
    except ValueError:
        raise ValueError("has characters that UTF-8 cannot encode") from None


def plain(value: object) -> object:
    """Convert a value to types that JSON supports."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("is NaN or infinite")
        return value
    variant = _variant(value)
    if variant is not None:
        return from_json(_text_of(variant))
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {key if isinstance(key, str) else _key(key): plain(item) for key, item in items}
    fields = getattr(value, "__fields__", None)
    if isinstance(value, tuple) and fields is not None:
        row = cast("tuple[object, ...]", value)
        made = {name: plain(item) for name, item in zip(fields, row, strict=True)}
        if len(made) < len(row):
            raise Ambiguous("has two fields of the same name")
        return made
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"is of type {type(value).__name__}, which JSON does not support")


def place_of_fault(value: object) -> str:
    """Return the place of the first value that `to_text` rejects, such as `.scores[3]`.

    Empty if that is the given value itself.
    """
    place = ""
    found: tuple[str, object] | None = ("", value)
    while found is not None:
        part, value = found
        place += part
        found = next((each for each in _parts(value) if _is_rejected(each[1])), None)
    return place


def _parts(value: object) -> Iterable[tuple[str, object]]:
    """Return the values in a struct, map or array with their names."""
    if _variant(value) is not None:
        return []
    fields = getattr(value, "__fields__", None)
    if isinstance(value, dict):
        named: Iterable[tuple[object, object]] = cast("dict[object, object]", value).items()
    elif isinstance(value, tuple) and fields is not None:
        named = zip(fields, cast("tuple[object, ...]", value), strict=True)
    elif isinstance(value, list | tuple):
        return ((f"[{n}]", item) for n, item in enumerate(cast("list[object]", value)))
    else:
        return []
    return ((f".{str(name)[:_NAME_MAX]}", item) for name, item in named)


def _is_rejected(value: object) -> bool:
    try:
        to_text(value)
    except (TypeError, ValueError):
        return True
    return False


def _key(key: object) -> str:
    try:
        made = plain(key)
    except (TypeError, ValueError) as error:
        raise type(error)(f"has a key that {error}") from None
    if isinstance(made, bool):
        return "true" if made else "false"
    return made if isinstance(made, str) else to_json(made).decode()


def _variant(value: object) -> VariantVal | None:
    """Return a VARIANT, which is an object in rows and two byte strings in Arrow."""
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        if parts.keys() == _VARIANT and all(isinstance(part, bytes) for part in parts.values()):
            from pyspark.sql.types import VariantVal

            return VariantVal(cast("bytes", parts["value"]), cast("bytes", parts["metadata"]))
        return None
    # Ask the type: in a Row, a column may have this name, and a name that it lacks is slow.
    return cast("VariantVal", value) if hasattr(type(value), "toJson") else None


def _text_of(variant: VariantVal) -> str:
    text = variant.toJson()
    try:
        check_json(text)
    except ValueError:
        raise ValueError("contains NaN or an infinity") from None
    return text


def arrow_reader(kind: Any) -> Callable[[object], object] | None:
    """Return a converter of an Arrow type to Python, for types that `to_pylist` does not convert.

    Arrow returns maps as lists of pairs.

    Args:
        kind: A `pyarrow.DataType`.
    """
    types: Any = import_module("pyarrow.types")
    if types.is_map(kind):
        item = arrow_reader(kind.item_type) or _same
        # A key of several values is a dict or a list, which cannot be a key in Python.
        name = _key if types.is_nested(kind.key_type) else _same
        return lambda value: (
            None if value is None else {name(key): item(each) for key, each in cast("Any", value)}
        )
    if types.is_struct(kind):
        readers = {
            field.name: read
            for field in (kind.field(n) for n in range(kind.num_fields))
            if (read := arrow_reader(field.type)) is not None
        }
        if not readers:
            return None
        return lambda value: (
            None
            if value is None
            else {
                name: readers.get(name, _same)(each)
                for name, each in cast("dict[str, object]", value).items()
            }
        )
    if types.is_list(kind) or types.is_large_list(kind):
        read = arrow_reader(kind.value_type)
        if read is None:
            return None
        return partial(_each, read)
    return None


def with_known_zones(kind: Any) -> Any:
    """Return an Arrow type whose time zones exist in Python; the same type if all of them do.

    Spark also accepts zones such as `GMT+8`, `Z` and `PST`. An offset in whole minutes stays
    that offset, any other such zone becomes UTC: a value stays the same instant.

    Args:
        kind: A `pyarrow.DataType`.
    """
    pa: Any = import_module("pyarrow")
    types: Any = import_module("pyarrow.types")
    if types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, _known_zone(kind.tz))
    if types.is_map(kind):
        return pa.map_(_of_known_zones(kind.key_field), _of_known_zones(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_of_known_zones(kind.field(n)) for n in range(kind.num_fields)])
    if types.is_list(kind):
        return pa.list_(_of_known_zones(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_of_known_zones(kind.value_field))
    return kind


def _of_known_zones(field: Any) -> Any:
    return field.with_type(with_known_zones(field.type))


@cache
def _known_zone(zone: str) -> str:
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        return f"{sign}{int(hours):02}:{int(minutes or 0):02}"
    pa: Any = import_module("pyarrow")
    try:
        pa.scalar(0, pa.timestamp("s", zone)).as_py()
    except (KeyError, ValueError):  # of pytz, of zoneinfo, of an offset with seconds
        return "UTC"
    return zone


def _each(read: Callable[[object], object], value: object) -> object:
    return None if value is None else [read(item) for item in cast("list[object]", value)]


def _same(value: object) -> object:
    return value
