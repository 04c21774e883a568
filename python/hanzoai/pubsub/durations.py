"""Durations as programs pass them: seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias, overload

Duration: TypeAlias = float | timedelta
"""A duration: seconds, or a timedelta."""


@overload
def seconds_of(duration: Duration) -> float: ...


@overload
def seconds_of(duration: Duration | None) -> float | None: ...


def seconds_of(duration: Duration | None) -> float | None:
    """A duration in seconds; None stays None."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
