"""The content of `/metrics`: counters and timings, read on request, and HTTP requests."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pubsub_server.instruments import Reading, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pubsub_server.instruments import Instrument
    from pubsub_server.interfaces import Stats

PREFIX: Final = "hanzo_pubsub_"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})

_COUNTERS: Final = (
    ("connections_total", "Connections opened."),
    ("tokens", "Tokens checked."),
    ("frames_in", "Frames received from clients."),
    ("published", "Messages published."),
    ("duplicates", "Publishes with an id that was already published."),
    ("published_bytes", "Bytes of published messages."),
    ("delivered", "Messages delivered to connections."),
    ("writes", "Writes to transports."),
    ("bytes_out", "Bytes written to transports."),
    ("replayed", "Messages replayed from history."),
    ("slow_consumers", "Connections closed because the client read too slowly."),
    ("presence_changes", "Presence changes: joins, updates and leaves."),
)


class Metrics:
    """The metrics of one server, in a separate registry.

    Args:
        stats: Reads the hub's counters.
        instruments: Measurements of the server's other parts.
        version: Version of the server.
    """

    def __init__(
        self,
        stats: Callable[[], Stats],
        instruments: Iterable[Instrument] = (),
        version: str = "0",
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(_HubCollector(stats, tuple(instruments), version))
        self._requests = Counter(
            PREFIX + "http_requests",
            "HTTP requests answered.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            PREFIX + "http_request_seconds",
            "Duration of HTTP requests, without server-sent events.",
            ("route",),
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0),
            registry=self._registry,
        )

        # Cache the children: a look-up by labels costs more than counting.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram | None]] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts one HTTP request.

        Args:
            route: The path with placeholders, never the path itself.
            method: The method; unknown ones count as `other`.
            status: Status of the response.
            seconds: Duration.
        """
        name = method if method in METHODS else "other"
        counted = self._children.get((route, name, status))
        if counted is None:
            counted = self._children[route, name, status] = (
                self._requests.labels(route, name, str(status)),
                None if route == "/v1/subscribe" else self._seconds.labels(route),
            )
        counter, histogram = counted
        counter.inc()
        if histogram is not None:
            histogram.observe(seconds)

    def exposition(self) -> tuple[bytes, str]:
        """The metrics as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    async def alone(self) -> tuple[bytes, str]:
        """The metrics of a server without other workers."""
        return self.exposition()


class _HubCollector(Collector):
    def __init__(
        self, stats: Callable[[], Stats], instruments: tuple[Instrument, ...], version: str
    ) -> None:
        self._stats = stats
        self._instruments = instruments
        self._version = version

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        yield _labelled_gauge("info", "Version of the server.", "version", {self._version: 1})
        yield _labelled_gauge(
            "connections",
            "Open connections: `socket` (WebSocket), `event_stream` (server-sent events), `events`"
            " (event stream protocol), `hub`, `sp`, `signed`.",
            "form",
            stats.connections,
        )
        yield GaugeMetricFamily(
            PREFIX + "authenticated", "Authenticated connections.", stats.authenticated
        )
        yield GaugeMetricFamily(
            PREFIX + "subscriptions", "Active subscriptions.", stats.subscriptions
        )
        for name, text in _COUNTERS:
            value: int = getattr(stats, name)
            yield CounterMetricFamily(PREFIX + name.removesuffix("_total"), text, value)
        yield _by_code("refused", "Rejected requests, by error code.", stats.refused)
        yield _by_code("tokens_refused", "Rejected tokens, by error code.", stats.tokens_refused)
        yield _by_label(
            "local_messages",
            "Messages delivered only to subscribers of the same listener, because other listeners"
            " cannot carry their topic or size.",
            "listener",
            stats.local,
        )
        yield _by_label(
            "denied_messages",
            "Messages of byte protocols that the access rules rejected.",
            "listener",
            stats.denied,
        )
        yield _by_label(
            "broken_connections",
            "Connections of byte protocols closed by the server, as `listener.reason`.",
            "reason",
            stats.broken,
        )
        for timing in (
            Timing(
                "publish_to_write_seconds",
                "Time from the timestamp of a message to the end of its delivery, for the first "
                "message of each turn of the event loop.",
                {"": stats.publish_to_write},
            ),
            Timing(
                "write_seconds",
                "Time from the first queued bytes of a turn of the event loop to the end of its "
                "writes.",
                {"": stats.writing},
            ),
            Timing(
                "publish_seconds",
                "Time from a publish to its answer, on Redis.",
                {"": stats.answering},
            ),
        ):
            yield _histogram(timing)
        for instrument in self._instruments:
            if isinstance(instrument, Timing):
                yield _histogram(instrument)
            else:
                yield _number(instrument)


def _labelled_gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=(label,))
    for given, value in values.items():
        family.add_metric((given,), value)
    return family


def _by_code(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    return _by_label(name, text, "code", counts)


def _by_label(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family


def _number(reading: Reading) -> Metric:
    family = CounterMetricFamily if reading.kind == "counter" else GaugeMetricFamily
    return family(PREFIX + reading.name, reading.help, reading.read())


def _histogram(timing: Timing) -> Metric:
    labels = () if timing.label is None else (timing.label,)
    family = HistogramMetricFamily(PREFIX + timing.name, timing.help, labels=labels)
    for given, distribution in timing.of.items():
        ends = [*map(str, distribution.bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(distribution.counts), strict=True))
        family.add_metric(() if timing.label is None else (given,), buckets, distribution.total)
    return family
