"""Positions of logs in Redis, and waiting requests on one node for publishes on another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from hanzoai.pubsub import Message
from pubsub_server.backplanes.redis.layout import Layout
from pubsub_server.hub import positions
from tests.cluster.test_backplane import BOUND, client, nodes
from tests.cluster.waiting import until
from tests.server.test_positions import ask, held, publish
from tests.server.test_rest import api

if TYPE_CHECKING:
    import httpx
    import pytest

    from pubsub_server.backplanes.redis.backplane import RedisBackplane
    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store


def rest(node: RunningServer) -> httpx.AsyncClient:
    return api(node, node.service_token())


async def test_positions_are_those_of_the_store(store: Store) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as (a, b), rest(a) as here, rest(b) as there:
        x = await publish(here, "demo.x", 3)
        y = await publish(here, "demo.y", 2)
        found = await ask(there, "demo.*", "demo.never", "demo.x")
        assert found == {
            "demo.never": {"topic": "demo.never", "first": 1, "last": 0},
            "demo.x": {"topic": "demo.x", "first": x[0], "last": x[-1]},
            "demo.y": {"topic": "demo.y", "first": y[0], "last": y[-1]},
        }
        # The node remembers the matches of a pattern, but new topics appear nevertheless.
        z = await publish(here, "demo.z")
        assert (await ask(there, "demo.*"))["demo.z"]["last"] == z[-1]


async def test_what_has_expired_is_not_retained_and_times_are_found_between_holes(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1) as (node,), rest(node) as client:
        short = await publish(client, "demo.x", 150, ttl=1)
        long = await publish(client, "demo.x", 2)
        hole = await publish(client, "demo.x", 1, ttl=1)
        end = await publish(client, "demo.x", 1)
        assert short[-1] == long[0] - 1
        history = "/v1/topics/demo.x/history"
        page = (await client.get(history, params={"after": long[-1]})).json()
        times = {each["seq"]: each["timestamp"] for each in page["messages"]}

        async def retained() -> int:
            return len((await client.get(history, params={"limit": 500})).json()["messages"])

        await until(retained, 3)
        expected = {"topic": "demo.x", "first": long[0], "last": end[0]}
        assert (await ask(client, "demo.x"))["demo.x"] == expected
        async with store.client() as redis:
            # The store removes expired messages at the start, but not the hole behind them.
            shard = Layout("", 64).shard("demo.x")
            assert await redis.xlen(f"hanzo-pubsub:{{{shard}}}:l:demo.x") == 4
        found = await ask(client, "demo.x", at=times[hole[0]])
        assert found["demo.x"]["at"] == end[0]
        found = await ask(client, "demo.x", at=0)
        assert found["demo.x"]["at"] == long[0]
        found = await ask(client, "demo.x", at=times[end[0]] + 1)
        assert found["demo.x"]["at"] == end[0] + 1


async def test_what_one_node_publishes_answers_what_another_holds(store: Store) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as (a, b), rest(a) as here, rest(b) as there:
        last = (await publish(here, "demo.x"))[-1]
        # Twice, because the node has already joined the topic the second time.
        for _ in range(2):
            waiting = asyncio.create_task(
                ask(there, "demo.x", "demo.y", after={"demo.x": last, "demo.y": 0}, wait_ms=30_000)
            )
            await held(b, 1)
            await publish(here, "demo.z")
            last = (await publish(here, "demo.x"))[-1]
            assert (await waiting)["demo.x"]["last"] == last
        waiting = asyncio.create_task(
            ask(there, "demo.more.*", "demo.y", after={"demo.y": 0}, wait_ms=30_000)
        )
        await held(b, 1)
        await publish(here, "demo.more.x")
        assert "demo.more.x" in await waiting


async def test_only_a_waiting_request_makes_a_node_join_a_topic(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def channels() -> set[str]:
        async with store.client() as redis:
            found = await redis.pubsub_shardchannels()
        names = {name.decode().partition("}:")[2] for name in found}
        # A node also listens to its own test messages.
        return {name for name in names if name.partition(":")[0] != "alive"}

    monkeypatch.setattr(positions, "LINGER", 0)
    async with asyncio.timeout(BOUND), nodes(store, 1) as (node,), rest(node) as ps:
        await ask(ps, "demo.x", "demo.*", after={}, wait_ms=30_000)
        await ask(ps, "demo.x", "demo.*")
        assert await channels() == set()
        waiting = asyncio.create_task(ask(ps, "demo.x", after={"demo.x": 0}, wait_ms=30_000))
        await until(channels, {"t:demo.x"})
        await publish(ps, "demo.x")
        await waiting
        node.hub.due(0)
        await until(channels, set())


async def test_waiting_requests_and_subscriptions_do_not_affect_each_other(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        rest(b) as waiter,
        client(a) as here,
        client(b) as there,
    ):
        last = (await here.publish("demo.x", {"data": 0})).seq
        waiting = asyncio.create_task(
            ask(waiter, "demo.x", "demo.y", after={"demo.x": last, "demo.y": 0}, wait_ms=30_000)
        )
        await held(b, 1)
        x = await there.subscribe("demo.x", history=10)
        y = await there.subscribe("demo.y")
        await here.publish("demo.x", {"data": 1})
        await here.publish("demo.y", {"data": 2})
        await waiting
        received = [await anext(x), await anext(x), await anext(y)]
        assert [each.data for each in received if isinstance(each, Message)] == [0, 1, 2]
        # The subscriber leaves, and the waiting request is still answered.
        found = await ask(waiter, "demo.x", "demo.y")
        after = {name: each["last"] for name, each in found.items()}
        waiting = asyncio.create_task(ask(waiter, "demo.x", "demo.y", after=after, wait_ms=30_000))
        await held(b, 1)
        await x.unsubscribe()
        await y.unsubscribe()
        await here.publish("demo.y", {"data": 3})
        assert (await waiting)["demo.y"]["last"] == after["demo.y"] + 1


async def test_a_lost_store_rejects_requests_and_a_new_log_is_reported(store: Store) -> None:
    async with asyncio.timeout(2 * BOUND), nodes(store, 1) as (node,), rest(node) as ps:
        last = (await publish(ps, "demo.x"))[-1]
        more: dict[str, Any] = {"after": {"demo.x": last}, "wait_ms": 30_000}
        waiting = asyncio.create_task(ask(ps, "demo.x", **more))
        tracks = cast("RedisBackplane", node.hub.core.backplane)._tracks  # pyright: ignore[reportPrivateUsage]

        def following() -> bool:
            track = tracks.get("demo.x")
            return track is not None and track.last == last

        await until(following)
        await store.end()
        answer = await ps.post("/v1/positions", json={"topics": ["demo.x"]}, timeout=BOUND)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert not waiting.done()
        await store.start()
        async with store.client() as redis:
            await redis.flushall()

        async def published() -> int:
            answer = await ps.post("/v1/topics/demo.x/messages", json={"data": 1}, timeout=BOUND)
            return answer.status_code

        await until(published, 201)
        assert (await waiting)["demo.x"]["last"] > last + 1
