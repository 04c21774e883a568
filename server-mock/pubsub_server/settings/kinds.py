"""Types of setting values, and their text formats.

Text comes from a flag, the environment or YAML. Durations accept a unit (`500ms`, `5s`, `2m`,
`1h`), sizes accept `KiB`, `MiB` or `GiB`, and lists are separated by commas.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, get_args

from pydantic import BeforeValidator, Field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic.fields import FieldInfo

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(ms|s|m|h)")
_SIZES = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SIZE = re.compile(r"(\d{1,20})\s*(KiB|MiB|GiB)")
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def _milliseconds(value: object) -> object:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return round(float(match[1]) * _UNITS[match[2]])
    return value


def seconds(value: object) -> object:
    """A duration with a unit in seconds, rounded; other values unchanged.

    Raises:
        ValueError: It is more than 0 and less than a second.
    """
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        exact = float(match[1]) * _UNITS[match[2]] / 1000
        if 0 < exact < 1:
            raise ValueError("is counted in whole seconds; give 1s or more, or 0")
        return round(exact)
    return value


def _bytes(value: object) -> object:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(match[1]) * _SIZES[match[2]]
    return value


def _truth(value: object) -> object:
    return _TRUTH.get(value.strip().lower(), value) if isinstance(value, str) else value


def _items(value: object) -> object:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


_AS_MILLISECONDS = BeforeValidator(_milliseconds)
_AS_SECONDS = BeforeValidator(seconds)
_AS_BYTES = BeforeValidator(_bytes)
_AS_ITEMS = BeforeValidator(_items)

FORMS: Mapping[object, str] = {
    _AS_MILLISECONDS: "milliseconds, for example 1500, or with a unit: 500ms, 90s, 10m, 1h",
    _AS_SECONDS: "seconds, for example 3600, or with a unit: 90s, 10m, 1h",
    _AS_BYTES: "bytes, for example 65536, or with a unit: 64KiB, 10MiB, 1GiB",
}
"""Accepted notations of a value, by the validator that reads it."""
METAVARS: Mapping[object, str] = {
    _AS_MILLISECONDS: "TIME",
    _AS_SECONDS: "TIME",
    _AS_BYTES: "SIZE",
    _AS_ITEMS: "A,B",
}
"""Placeholder of a value in the help of a flag, by the validator that reads it."""

Milliseconds = Annotated[int, _AS_MILLISECONDS, Field(ge=1, le=86_400_000)]
"""Milliseconds from 1 to a day."""
Wait = Annotated[int, _AS_MILLISECONDS, Field(ge=0, le=86_400_000)]
"""Milliseconds from 0 to a day."""
Seconds = Annotated[int, _AS_SECONDS, Field(ge=0, le=31_536_000)]
"""Seconds from 0 to a year."""
Size = Annotated[int, _AS_BYTES, Field(ge=1, le=2**40)]
"""Bytes, from 1 to a TiB."""
Count = Annotated[int, Field(ge=1, le=10**9)]
Rate = Annotated[float, Field(gt=0, le=1e9)]
Port = Annotated[int, Field(ge=0, le=65535)]
Switch = Annotated[bool, BeforeValidator(_truth)]
"""Also `yes`, `on`, `1`, and their opposites."""
Items = Annotated[tuple[str, ...], _AS_ITEMS]


def metadata(field: FieldInfo) -> tuple[object, ...]:
    """The validators and bounds of a field, including those of an optional value."""
    parts: tuple[object, ...] = get_args(field.annotation)
    return (
        *field.metadata,
        *(each for part in parts for each in getattr(part, "__metadata__", ())),
    )


def written(value: int, metadata: Sequence[object]) -> str:
    """A duration or size in the largest unit that keeps it whole; other numbers unchanged.

    Args:
        value: The value of the setting.
        metadata: The result of `metadata` for the field.
    """
    units: tuple[tuple[str, int], ...]
    if _AS_BYTES in metadata:
        units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    elif _AS_MILLISECONDS in metadata:
        units = (("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
    elif _AS_SECONDS in metadata:
        units = (("h", 3_600), ("m", 60), ("s", 1))
    else:
        return str(value)
    for unit, length in units:
        if value and value % length == 0 and (unit != "m" or value >= 2 * length):
            return f"{value // length}{unit}"
    return str(value)
