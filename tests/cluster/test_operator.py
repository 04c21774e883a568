"""The operator's view of nodes on one store: metrics, dashboard and alerts."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hanzoai.pubsub import AuthError, PermissionDenied, PubSubClient
from pubsub_server.testing import running_server
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

BOUND: Final = 60
DEPLOY: Final = Path(__file__).parents[2] / "server-mock" / "deploy"
DASHBOARD: Final = DEPLOY / "grafana" / "hanzo-pubsub.json"
ALERTS: Final = DEPLOY / "prometheus" / "hanzo-pubsub.rules.yml"
SCRAPER: Final = {"up"}
"""Metrics that Prometheus itself provides."""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(node: RunningServer) -> Samples:
    async with http_client() as http:
        text = (await http.get(f"{node.http}/metrics")).text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def value(node: RunningServer, name: str, **labels: str) -> float:
    return (await scrape(node)).get((f"hanzo_pubsub_{name}", tuple(sorted(labels.items()))), 0)


@asynccontextmanager
async def node_with_everything(store: Store, folder: Path) -> AsyncGenerator[RunningServer]:
    hook = {"url": "http://127.0.0.1:1", "secret": "0123456789abcdef", "topics": ["none"]}
    async with running_server(
        redis_url=store.url,
        audit_topics=["none"],
        audit_file=str(folder / "audit"),
        webhooks=[hook],
    ) as node:
        yield node


def client(node: RunningServer, token: str | None = None) -> PubSubClient:
    return PubSubClient(node.ws, rest_url=node.http, token=token or node.service_token())


async def test_a_publish_shows_in_rates_and_in_every_latency_on_its_way(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url) as node,
        client(node) as ps,
    ):
        sub = await ps.subscribe("demo.x")
        await ps.publish("demo.x", {"data": 1})
        await anext(sub)
        seen = await scrape(node)
        counts = {
            name: seen[f"hanzo_pubsub_{name}", labels]
            for name, labels in (
                ("published_total", ()),
                ("delivered_total", ()),
                ("publish_seconds_count", ()),
                ("publish_to_write_seconds_count", ()),
                ("redis_seconds_count", (("call", "publish"),)),
            )
        }
        assert set(counts.values()) == {1}
        assert seen["hanzo_pubsub_write_seconds_count", ()] >= 2
        assert seen["hanzo_pubsub_redis_seconds_count", (("call", "read"),)] >= 1
        assert seen["hanzo_pubsub_feed_up", ()] == 1
        assert seen["hanzo_pubsub_ready", ()] == 1
        assert seen["hanzo_pubsub_followed_topics", ()] == 1
        # The buckets are cumulative, and the last one contains all observations.
        buckets = [
            count
            for (name, _), count in seen.items()
            if name == "hanzo_pubsub_publish_to_write_seconds_bucket"
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 1


async def test_the_event_loop_reports_its_lag(store: Store) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        await until(lambda: _at_least(node, "loop_lag_seconds_count", 2))


async def _at_least(node: RunningServer, name: str, least: float) -> bool:
    return await value(node, name) >= least


async def test_a_lost_feed_and_a_failed_call_are_counted(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url) as node,
        running_server(redis_url=store.url) as other,
        client(node) as here,
        client(other) as there,
    ):
        sub = await here.subscribe("demo.x")
        await store.end()
        await until(lambda: value(node, "feed_up"), 0)
        lost = asyncio.create_task(there.publish("demo.x", {"data": 1}))
        await until(lambda: _at_least(other, "redis_failures_total", 1))
        assert await value(node, "feed_losses_total") >= 1
        await store.start()
        await lost
        assert (await anext(sub)).data == 1


async def test_a_hole_that_is_healed_is_counted(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url) as node,
        client(node) as ps,
    ):
        sub = await ps.subscribe("demo.x")
        await ps.publish("demo.x", {"data": 0})
        await anext(sub)
        assert await value(node, "healed_total") == 0
        feed: Any = node.hub.core.backplane
        feed = feed._feed._lanes[0]
        came: list[bytes] = []
        receive, feed._receive = feed._receive, came.append
        await ps.publish("demo.x", {"data": 1})
        await until(lambda: came != [])
        feed._receive = receive
        await ps.publish("demo.x", {"data": 2})
        assert [(await anext(sub)).data for _ in range(2)] == [1, 2]
        await until(lambda: value(node, "healed_total"), 1)


async def test_what_waits_for_a_store_that_stalls_is_seen(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url) as node,
        client(node) as ps,
    ):
        await ps.connect()
        store.stall()
        try:
            publishes = [
                asyncio.create_task(ps.publish("demo.x", {"data": n}, id=f"m{n}")) for n in range(2)
            ]
            await until(lambda: value(node, "frames_in_total"), 3)
            third = asyncio.create_task(ps.publish("demo.x", {"data": 2}))
            await until(lambda: _at_least(node, "publish_queue_messages", 1))
            assert await value(node, "publish_queue_bytes") > 0
        finally:
            store.go_on()
        await asyncio.gather(*publishes, third)
        assert await value(node, "publish_queue_messages") == 0


async def test_tokens_that_are_refused_are_counted_by_reason() -> None:
    async with asyncio.timeout(BOUND), running_server() as node:
        good = node.token("alice")
        for token, problem in (
            ("not.a.token", AuthError),
            (node.token("bob", ttl=-3600), Exception),
            (good, PermissionDenied),
        ):
            async with client(node, token) as ps:
                with pytest.raises(problem):
                    await ps.publish("org.other.x", {"data": 1}, via="rest")
        assert await value(node, "tokens_refused_total", code="token_invalid") == 1
        assert await value(node, "tokens_refused_total", code="token_expired") == 1
        assert await value(node, "tokens_total") == 3
        assert await value(node, "refused_total", code="forbidden") == 1


async def test_no_label_has_a_value_that_a_client_chooses(store: Store, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(BOUND),
        node_with_everything(store, tmp_path) as node,
        client(node) as ps,
        http_client() as http,
    ):
        secret = "s3cret-of-a-client"
        await ps.publish(f"demo.{secret}", {"type": secret, "data": secret})
        await http.get(f"{node.http}/v1/{secret}")
        await http.request(secret.upper(), f"{node.http}/v1/topics/{secret}/history")
        samples = await scrape(node)
        values = {label for _, labels in samples for label in labels}
        assert {name for name, _ in values} <= {
            *("call", "code", "form", "le", "method", "route", "status", "version"),
            *("generation", "implementation", "major", "minor", "patchlevel"),
        }
        assert not [text for _, text in values if secret in text.lower()]


# ---------------------------------------------------------------- dashboard and alerts


def panels() -> list[dict[str, Any]]:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = board["panels"]
    return found


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel.get("targets", ()):
            # Grafana substitutes this variable before it queries.
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


def alert_expressions() -> Iterator[tuple[str, str]]:
    document: Any = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def names(expression: str) -> set[str]:
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None, expression
            found.add(node.name)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


async def test_every_expression_parses_and_names_what_the_server_has(
    store: Store, tmp_path: Path
) -> None:
    async with asyncio.timeout(BOUND), node_with_everything(store, tmp_path) as node:
        async with client(node, "bad") as ps:
            with pytest.raises(AuthError):
                await ps.publish("demo.x", {"data": 1}, via="rest")
        node.stats.refused["forbidden"] = 1
        there = {name for name, _ in await scrape(node)} | SCRAPER
    expressions = [*dashboard_expressions(), *alert_expressions()]
    assert len(expressions) > 60
    for title, expression in expressions:
        assert names(expression), title
        assert names(expression) <= there, title
    # Conversely, the dashboard shows every metric of the server.
    shown = {name for _, expression in dashboard_expressions() for name in names(expression)}
    own = {name for name in there if name.startswith("hanzo_pubsub_")}
    shown |= {
        stem + end
        for name in shown
        for stem in (name.removesuffix("_bucket").removesuffix("_count"),)
        for end in ("_bucket", "_count", "_sum", "_created")
        if stem != name
    }
    unseen = {"hanzo_pubsub_history_topics", "hanzo_pubsub_history_bytes", "hanzo_pubsub_info"}
    assert {name for name in own - shown - unseen if not name.endswith("_created")} == set()


def test_the_panels_lie_side_by_side_with_numbers_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not taken & cells, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)


def test_every_panel_reads_from_the_chosen_source_and_has_a_description() -> None:
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["description"], panel["title"]
        for source in (panel, *panel["targets"]):
            assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
