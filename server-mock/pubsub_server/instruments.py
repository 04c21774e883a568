"""What the parts of the server measure of themselves; `observe.metrics` shows it to Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)
"""Upper ends of the buckets of durations."""

SWITCHES: Final = frozenset({"ready", "feed_up"})
"""Readings that are 1 or 0; of several workers the least counts: one that is deaf must show."""


class Distribution:
    """How often values were how large; an observation costs a fraction of a microsecond.

    Args:
        bounds: Upper ends of the buckets, ascending; what is larger goes into one more.

    Attributes:
        counts: Observations of each bucket.
        total: Sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Note one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Observations."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number, read when it is asked for.

    Attributes:
        name: Without the prefix of the server; a counter's without `_total`.
        help: One sentence.
        read: The number.
        kind: A counter only grows.
    """

    name: str
    help: str
    read: Callable[[], float]
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds.

    Attributes:
        name: Without the prefix of the server.
        help: One sentence.
        of: The durations, by the value of ``label``; by an empty text where there is none.
        label: A label with few values.
    """

    name: str
    help: str
    of: Mapping[str, Distribution]
    label: str | None = None


Instrument: TypeAlias = Reading | Timing
