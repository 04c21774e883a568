"""The metrics for Prometheus."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pubsub_server.instruments import Distribution, Reading, Timing
from pubsub_server.interfaces import Stats
from pubsub_server.observe.metrics import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_the_counters_of_the_hub_are_read_when_asked() -> None:
    stats, waiting = Stats(), Distribution((0.1, 1.0))
    lost = Reading("audit_dropped", "Lost.", lambda: 3.0, "counter")
    waits = Timing("wait_seconds", "Waits.", {"a": waiting}, label="kind")
    metrics = Metrics(lambda: stats, [lost, waits], "1.2.3")
    assert samples(metrics)["hanzo_pubsub_published_total", ()] == 0
    stats.published = 7
    stats.connections["event_stream"] = 2
    stats.refused["forbidden"] = 5
    stats.token("token_expired")
    stats.token(None)
    for seconds in (0.1, 0.2, 5):
        waiting.observe(seconds)
    found = samples(metrics)
    assert found["hanzo_pubsub_published_total", ()] == 7
    assert found["hanzo_pubsub_connections", (("form", "event_stream"),)] == 2
    assert found["hanzo_pubsub_refused_total", (("code", "forbidden"),)] == 5
    assert found["hanzo_pubsub_audit_dropped_total", ()] == 3
    assert found["hanzo_pubsub_info", (("version", "1.2.3"),)] == 1
    assert found["hanzo_pubsub_tokens_total", ()] == 2
    assert found["hanzo_pubsub_tokens_refused_total", (("code", "token_expired"),)] == 1
    kind = ("kind", "a")
    buckets = [
        found["hanzo_pubsub_wait_seconds_bucket", (kind, ("le", end))]
        for end in ("0.1", "1.0", "+Inf")
    ]
    assert buckets == [1, 2, 3]
    assert found["hanzo_pubsub_wait_seconds_sum", (kind,)] == pytest.approx(5.3)
    assert ("process_resident_memory_bytes", ()) in found


def test_requests_are_counted_by_route_method_and_status() -> None:
    metrics = Metrics(Stats)
    for method in ("GET", "GET", "BREW"):
        metrics.request("/v1/topics/{topic}/history", method, 200, 0.004)
    metrics.request("/v1/subscribe", "GET", 200, 900)
    found = samples(metrics)
    route = ("route", "/v1/topics/{topic}/history")
    name = "hanzo_pubsub_http_requests_total"
    assert found[name, (("method", "GET"), route, ("status", "200"))] == 2
    assert found[name, (("method", "other"), route, ("status", "200"))] == 1
    seconds = "hanzo_pubsub_http_request_seconds_count"
    assert found[seconds, (route,)] == 3
    assert (seconds, (("route", "/v1/subscribe"),)) not in found


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = Metrics(Stats), Metrics(Stats)
    one.request("/", "GET", 200, 0.1)
    name = "hanzo_pubsub_http_requests_total"
    assert any(key[0] == name for key in samples(one))
    assert not any(key[0] == name for key in samples(other))
