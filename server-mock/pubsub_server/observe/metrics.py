"""What `/metrics` tells Prometheus: the hub's counters, read when asked, and HTTP requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_server.interfaces import Stats, WireForm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Gauge: TypeAlias = tuple[str, str, Callable[[], float]]
    """Name, help, and how it is read."""

PREFIX: Final = "hanzo_pubsub_"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})

_COUNTERS: Final = (
    ("connections_total", "Connections opened."),
    ("auth_failures", "Tokens refused."),
    ("frames_in", "Frames received from clients."),
    ("published", "Messages published."),
    ("duplicates", "Publishes of an id that was published before."),
    ("published_bytes", "Bytes of published envelopes."),
    ("delivered", "Messages delivered to connections."),
    ("writes", "Writes to transports."),
    ("bytes_out", "Bytes written to transports."),
    ("replayed", "Messages replayed from history."),
    ("slow_consumers", "Connections cut because they read too slowly."),
    ("presence_changes", "Joins, updates and leaves."),
)


class Metrics:
    """The metrics of one server, in a registry of its own.

    Args:
        stats: Reads the hub's counters.
        gauges: Further gauges: name, help, and how to read it.
    """

    def __init__(
        self,
        stats: Callable[[], Stats],
        gauges: Iterable[Gauge] = (),
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(_HubCollector(stats, tuple(gauges)))
        self._requests = Counter(
            PREFIX + "http_requests",
            "HTTP requests answered.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            PREFIX + "http_request_seconds",
            "Time to answer an HTTP request; an event stream lasts as long as it lasts.",
            ("route",),
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0),
            registry=self._registry,
        )

        # Looking a child up by its labels costs more than counting; there are few of them.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram | None]] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts one HTTP request.

        Args:
            route: The path with placeholders, never the path itself.
            method: The method; unknown ones count as `other`.
            status: Of the response.
            seconds: It took.
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


class _HubCollector(Collector):
    def __init__(
        self,
        stats: Callable[[], Stats],
        gauges: tuple[Gauge, ...],
    ) -> None:
        self._stats = stats
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        connections = GaugeMetricFamily(
            PREFIX + "connections", "Open connections.", labels=("form",)
        )
        for form in WireForm:
            connections.add_metric((form.name.lower(),), stats.connections[form])
        yield connections
        yield GaugeMetricFamily(
            PREFIX + "authenticated", "Authenticated connections.", stats.authenticated
        )
        yield GaugeMetricFamily(PREFIX + "subscriptions", "Subscriptions.", stats.subscriptions)
        for name, text in _COUNTERS:
            value: int = getattr(stats, name)
            yield CounterMetricFamily(PREFIX + name.removesuffix("_total"), text, value)
        refused = CounterMetricFamily(
            PREFIX + "refused", "Requests refused, by error code.", labels=("code",)
        )
        for code, count in stats.refused.items():
            refused.add_metric((code,), count)
        yield refused
        for name, text, read in self._gauges:
            yield GaugeMetricFamily(PREFIX + name, text, read())
