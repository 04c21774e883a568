"""Durations as programs pass them: seconds, or a timedelta."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias, overload

from hanzoai.pubsub.errors import InvalidOption

Duration: TypeAlias = float | timedelta
"""A duration: seconds, or a timedelta."""


@overload
def seconds_of(duration: Duration, field: str = "timeout") -> float: ...


@overload
def seconds_of(duration: Duration | None, field: str = "timeout") -> float | None: ...


def seconds_of(duration: object, field: str = "timeout") -> float | None:
    """A duration in seconds; None stays None.

    Raises:
        InvalidOption: It is neither a number nor a timedelta; `field` is its name.
    """
    if duration is None:
        return None
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, float | int) or math.isnan(duration):
        raise _invalid(duration, field)
    return duration


def positive_seconds(duration: Duration | None, field: str) -> float:
    """A duration of more than 0 seconds.

    Raises:
        InvalidOption: It is something else; `field` is its name.
    """
    seconds = seconds_of(duration, field)
    if seconds is None:
        raise _invalid(seconds, field)
    if seconds <= 0:
        raise InvalidOption(f"{field} is {seconds:g}; it must be positive.", field=field)
    return seconds


def waits_of(reconnect_min: Duration, reconnect_max: Duration) -> tuple[float, float]:
    """The shortest and the longest wait between attempts to connect, in seconds.

    Raises:
        InvalidOption: One of them is not positive, or the longest is shorter than the shortest.
    """
    first = positive_seconds(reconnect_min, "reconnect_min")
    longest = positive_seconds(reconnect_max, "reconnect_max")
    if longest < first:
        raise InvalidOption(
            f"reconnect_max is {longest:g}; it must be at least reconnect_min.",
            field="reconnect_max",
        )
    return first, longest


def _invalid(value: object, field: str) -> InvalidOption:
    kind = "NaN" if isinstance(value, float) else type(value).__name__
    return InvalidOption(
        f"{field} is {'None' if value is None else kind}, not a duration.",
        field=field,
        remedy="Pass seconds or a timedelta.",
    )
