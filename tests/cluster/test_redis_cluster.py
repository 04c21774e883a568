"""Nodes on a Redis Cluster: same behaviour as on one Redis, also while slots move."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from hanzoai.pubsub import Published, PubSubClient
from tests.cluster.fleet import nodes, peer, present
from tests.cluster.redis_cluster import PRIMARIES, redis_cluster
from tests.cluster.test_backplane import Traffic, collect, differences, settled
from tests.cluster.test_limits import published, refusal
from tests.cluster.test_presence import change, snapshot, users
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.cluster.redis_cluster import Cluster

BOUND = 60
SHARDS = 16


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Cluster]:
    async with redis_cluster("redis", tmp_path / "cluster") as cluster:
        yield cluster


def base(topic: str) -> str:
    return f"hanzo-pubsub:{{{crc32(topic.encode()) % SHARDS}}}"


async def topics(cluster: Cluster, per_primary: int = 1) -> dict[int, list[str]]:
    """Return topics by the number of the primary that stores them."""
    found: dict[int, list[str]] = {number: [] for number in range(PRIMARIES)}
    number = 0
    while any(len(names) < per_primary for names in found.values()):
        number += 1
        owner = await cluster.owner(base(f"demo.t{number}"))
        if len(found[owner]) < per_primary:
            found[owner].append(f"demo.t{number}")
    return found


def on(**more: object) -> dict[str, Any]:
    given: dict[str, Any] = {
        "redis_cluster": True,
        "redis_shards": SHARDS,
        "redis_durable": False,
        "publish_rate_service": 10_000,
        "history_max_messages": 1_000,
    }
    return {**given, **more}


def client(node: RunningServer) -> PubSubClient:
    return PubSubClient(node.ws, rest_url=node.http, token=node.service_token())


@pytest.mark.statement("H-115")
@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_redis_cluster_behaves_like_one_redis(kind: str, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(BOUND),
        redis_cluster(kind, tmp_path / "cluster") as cluster,
        nodes(cluster, **on()) as (a, b),
        client(a) as here,
        client(b) as there,
    ):
        owners = await topics(cluster, 2)
        names = [name for row in owners.values() for name in row]
        wild = await there.subscribe("demo.*")
        sub = await there.subscribe(names)
        done: list[Published] = []
        for n in range(3):
            done = await asyncio.gather(*(here.publish(name, {"data": n}) for name in names))
            assert not any(each.duplicate for each in done)
        for listener in (wild, sub):
            received: dict[str, list[object]] = {name: [] for name in names}
            for _ in range(3 * len(names)):
                message = await anext(listener)
                received[message.topic].append(message.data)
            assert received == {name: [0, 1, 2] for name in names}
        again = await there.subscribe("demo.*", history=2)
        replayed = [await anext(again) for _ in range(2 * len(names))]
        assert {(m.topic, m.data) for m in replayed} == {(n, d) for n in names for d in (1, 2)}
        batch = [{"topic": name, "data": 9} for name in names]
        headers = {"Authorization": f"Bearer {a.service_token()}"}
        async with http_client(base_url=a.http, headers=headers) as rest:
            answer = await rest.post("/v1/messages:batch", json={"messages": batch})
        results = answer.json()["results"]
        assert [r["seq"] for r in results] == [(each.seq or 0) + 1 for each in done]
        # Each primary has only the logs of its own topics.
        for number, row in owners.items():
            keys: list[bytes] = await cluster.servers[number].command("KEYS", "*:l:demo.*")
            assert sorted(key.decode().rpartition(":")[2] for key in keys) == sorted(row)


async def test_a_node_starts_though_the_server_of_its_url_stalls_for_two_seconds(
    cluster: Cluster,
) -> None:
    first = cluster.servers[0]
    first.stall()
    asyncio.get_running_loop().call_later(2, first.go_on)
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, 1, **on()) as (a,),
        client(a) as here,
    ):
        assert (await here.publish("demo.1", {"data": 1})).seq is not None


async def test_presence_counts_and_budgets_are_of_all_nodes_on_a_cluster(
    cluster: Cluster,
) -> None:
    limits = on(connections_per_user=2, publish_rate_service=0.01, publish_burst="1000s")
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, **limits) as (a, b),
        peer(a, a.token("ann")) as ann,
        peer(b, b.token("bob")) as bob,
    ):
        names = [name for row in (await topics(cluster)).values() for name in row]
        await ann.subscribe(*names)
        for name in names:
            await bob.subscribe(name)
            assert users(await snapshot(bob)) == ["ann", "bob"]
            assert users(await present(a, name, a.token("x"))) == ["ann", "bob"]
        async with peer(a, a.token("bob")):
            assert await refusal(a, a.token("bob")) is not None
        await ann.send({"type": "unsubscribe", "topics": [names[0]], "ref": "1"})
        assert (await change(bob, "leave"))["user_id"] == "ann"
        assert await published(a, "sam", 6) == (6, [])
        assert (await published(b, "sam", 6))[0] == 4


async def test_a_slot_that_moves_amid_traffic_loses_and_repeats_nothing(
    cluster: Cluster,
) -> None:
    received: dict[str, list[object]] = {}
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, **on()) as (a, b),
        client(a) as here,
        client(a) as other,
        client(b) as there,
    ):
        names = [name for row in (await topics(cluster)).values() for name in row]
        moved = names[1]
        sub = await there.subscribe([moved, "demo.*"])
        task = asyncio.create_task(collect(sub, received))
        async with Traffic(here, moved) as traffic, Traffic(other, names[0], names[2]) as rest:
            for to in (2, 1):
                await traffic.more()
                async with cluster.moving(base(moved), to):
                    before = len(traffic.acknowledged[moved])
                    # The other slots continue; publishes to this one wait.
                    await rest.more()
                    assert len(traffic.acknowledged[moved]) <= before + 1
            await traffic.more()
        for each in (traffic, rest):
            await settled(received, each)
        task.cancel()
        assert b.stats.connections_total == 1
        history = [m.data async for m in there.history(moved, limit=1_000)]
        assert history == traffic.acknowledged[moved][-len(history) :]
    assert (differences(received, traffic), differences(received, rest)) == ({}, {})


async def test_a_request_during_a_slot_move_is_rejected_after_a_while(cluster: Cluster) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, 1, **on()) as (a,),
        peer(a, a.service_token()) as socket,
    ):
        name = (await topics(cluster))[1][0]
        await socket.send({"type": "publish", "topic": name, "data": 1, "id": "one", "ref": "1"})
        first = await socket.until("published")
        async with cluster.moving(base(name), 2):
            await socket.send({"type": "publish", "topic": name, "data": 2, "ref": "2"})
            refused = await socket.until("error")
            assert (refused["code"], refused["retry_after_ms"]) == ("unavailable", 1000)
        await socket.send({"type": "publish", "topic": name, "data": 1, "id": "one", "ref": "3"})
        again = await socket.until("published")
        assert (again["seq"], again["duplicate"]) == (first["seq"], True)
        await socket.send({"type": "publish", "topic": name, "data": 3, "ref": "4"})
        assert (await socket.until("published"))["seq"] == first["seq"] + 1
