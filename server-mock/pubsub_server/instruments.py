"""Metrics of the parts of the server; `observe.metrics` exports them to Prometheus."""

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
"""Upper bounds of the duration buckets, seconds."""

SWITCHES: Final = frozenset({"ready", "feed_up"})
"""Gauges of value 0 or 1."""
LEAST: Final = SWITCHES | {"tls_certificate_expiry_timestamp_seconds"}
"""Gauges of which several workers report the minimum, so that one failing worker is visible."""


class Distribution:
    """A histogram; an observation costs a fraction of a microsecond.

    Args:
        bounds: Upper bounds of the buckets, ascending; larger values go into an extra bucket.

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
        """Record one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number, read on demand.

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
        of: The durations by the value of ``label``; by an empty text without a label.
        label: A label with few values.
    """

    name: str
    help: str
    of: Mapping[str, Distribution]
    label: str | None = None


Instrument: TypeAlias = Reading | Timing
