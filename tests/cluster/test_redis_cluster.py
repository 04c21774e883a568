"""Nodes on a Redis Cluster: same behaviour as on one Redis, also while slots move."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from hanzoai.pubsub import Published, PubSubClient
from pubsub_server.backplanes.redis import limits, wire
from tests.cluster.fleet import nodes, peer, present
from tests.cluster.redis_cluster import PRIMARIES, redis_cluster
from tests.cluster.test_backplane import Traffic, collect, differences, settled
from tests.cluster.test_limits import published, refusal
from tests.cluster.test_presence import change, snapshot, users
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.cluster.redis_cluster import Cluster

BOUND = 60
SHARDS = 16


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Cluster]:
    async with redis_cluster("redis", tmp_path / "cluster") as cluster:
        yield cluster


def shard(topic: str) -> int:
    return crc32(topic.encode()) % SHARDS


def base(topic: str) -> str:
    return f"hanzo-pubsub:{{{shard(topic)}}}"


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


async def test_each_primary_that_may_evict_any_key_is_named_at_the_start_and_after_a_loss(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    first = await cluster.owner("hanzo-pubsub:{0}")
    others = [number for number in range(PRIMARIES) if number != first]
    for number, policy in zip(others, ("allkeys-lru", "allkeys-random"), strict=True):
        server = cluster.servers[number]
        await server.command("CONFIG", "SET", "maxmemory-policy", policy)
        await server.command("CONFIG", "SET", "maxmemory", "1gb")
    async with asyncio.timeout(BOUND), nodes(cluster, 1, **on()) as (node,):
        assert "maxmemory-policy allkeys-lru, allkeys-random" in caplog.text
        cluster.servers[others[1]].stall()
        try:
            link: Any = node.hub.core.backplane
            keys = link._layout.bases
            assert await link._link.eviction_policies(keys) == "allkeys-lru"
        finally:
            cluster.servers[others[1]].go_on()
        assert await link._link.eviction_policies(keys, evicted=True) == ""


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
    limited = on(connections_per_user=2, publish_rate_service=0.01, publish_burst="1000s")
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, **limited) as (a, b),
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


@asynccontextmanager
async def silent_primary(cluster: Cluster, number: int) -> AsyncGenerator[None]:
    """Let a primary answer nothing, and keep its connections open."""
    cluster.servers[number].stall()
    try:
        yield
    finally:
        cluster.servers[number].go_on()


async def test_presence_of_other_topics_does_not_wait_for_a_shard_that_does_not_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, **on(node_timeout=60_000)) as (a, b),
        peer(a, a.token("ann")) as ann,
        peer(a, a.token("eve")) as eve,
        peer(b, b.token("bob")) as bob,
    ):
        owners = await topics(cluster)
        here, away = owners[1][0], owners[2][0]
        await bob.subscribe(here)
        assert users(await snapshot(bob)) == ["bob"]
        await eve.subscribe(away)
        async with silent_primary(cluster, 2):
            # Each call waits for its answer.
            monkeypatch.setattr(wire, "ANSWER_WITHIN", BOUND)
            update: dict[str, Any] = {"type": "presence.update", "topic": away, "ref": "1"}
            await eve.send({**update, "data": {"status": "away"}})
            await eve.until("published")
            for _ in range(3):
                await ann.subscribe(here)
                assert (await change(bob, "join"))["user_id"] == "ann"
                await ann.send({"type": "unsubscribe", "topics": [here], "ref": "1"})
                assert (await change(bob, "leave"))["user_id"] == "ann"
        read = partial(present, b, away, b.token("x"))
        await until(lambda: statuses(read), ["away"])


async def statuses(read: Callable[[], Awaitable[list[dict[str, Any]]]]) -> list[object]:
    return [member.get("status") for member in await read()]


async def test_a_node_without_one_shard_is_ready_and_closes_only_connections_without_messages(
    cluster: Cluster,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, 1, **on(feed_timeout=2_000, drain_spread=0)) as (node,),
        peer(node, node.token("ann")) as without,
        peer(node, node.token("bob")) as mixed,
        peer(node, node.token("eve")) as wild,
    ):
        owners = await topics(cluster)
        here, away = owners[2][0], owners[1][0]
        await without.subscribe(away)
        await mixed.subscribe(here, away)
        await wild.subscribe("demo.*")
        feed: Any = node.hub.core.backplane._feed  # type: ignore[attr-defined]
        async with silent_primary(cluster, 1), client(node) as here_client:
            assert await without.closed() == 1001
            assert node.server.ready
            assert 0 < feed.silent_shards < SHARDS
            await here_client.publish(here, {"data": 1})
            for each in (mixed, wild):
                assert (await each.until("message"))["message"]["topic"] == here
        await until(lambda: bool(feed.up and not feed.silent_shards))


async def test_the_failure_of_a_server_is_logged_once_for_all_its_shards(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(BOUND), nodes(cluster, 1, **on()) as (node,):
        feed: Any = node.hub.core.backplane._feed  # type: ignore[attr-defined]
        await until(lambda: bool(feed.up))
        owners = [await cluster.owner(f"hanzo-pubsub:{{{number}}}") for number in range(SHARDS)]
        assert owners.count(0) > 1
        failed = f"127.0.0.1:{cluster.servers[0].port}"
        await cluster.servers[0].end(signal.SIGKILL)
        await until(lambda: any("may have lost its last" in each for each in caplog.messages))
        await until(lambda: bool(feed.up))
    told = ("the feed connection", "the feed to Redis", "may have lost its last")
    lines = [each for each in caplog.messages if any(text in each for text in told)]
    # A search may find the loss before the feed is connected again.
    assert lines[0] == (
        f"lost the feed connection to Redis at {failed}: the server closed the connection"
    )
    assert sorted(lines[1:]) == [
        f"Redis may have lost its last acknowledged writes in {owners.count(0)} of {SHARDS} shards",
        "reconnected the feed to Redis",
    ]


async def test_the_failure_of_another_server_soon_after_the_first_is_logged_too(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(BOUND), nodes(cluster, 1, **on()) as (node,):
        feed: Any = node.hub.core.backplane._feed  # type: ignore[attr-defined]
        await until(lambda: bool(feed.up))
        for server in cluster.servers[1:PRIMARIES]:
            await server.end(signal.SIGKILL)
            lost = f"lost the feed connection to Redis at 127.0.0.1:{server.port}"
            await until(partial(reported, caplog, lost), 1)


def reported(caplog: pytest.LogCaptureFixture, line: str) -> int:
    return [line in each for each in caplog.messages].count(True)


async def opened(node: RunningServer, user: str) -> None:
    async with peer(node, node.token(user)):
        pass


async def test_a_connection_does_not_wait_for_the_counter_of_a_shard_that_does_not_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATIENCE", BOUND)
    # A call without an answer takes as long as the default of `auth_deadline`.
    settings = on(auth_deadline=1000 * BOUND)
    async with asyncio.timeout(BOUND), nodes(cluster, 1, **settings) as (node,):
        by_owner: dict[int, list[str]] = {number: [] for number in range(PRIMARIES)}
        for number in range(30):
            owner = await cluster.owner(base(f"user user user{number}"))
            by_owner[owner].append(f"user{number}")
        async with silent_primary(cluster, 1):
            waiting = asyncio.create_task(opened(node, by_owner[1][0]))
            limiter: Any = node.hub.core.limiter
            await until(lambda: limiter.count(f"user user {by_owner[1][0]}"), 1)
            await opened(node, by_owner[2][0])
            assert not waiting.done()
            # Without an answer, only the counts of this node are known.
            await waiting
            await opened(node, by_owner[1][0])


async def test_members_are_renewed_when_all_shards_have_answered(cluster: Cluster) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, 1, **on(node_heartbeat=60_000, node_timeout=120_000)) as (node,),
        peer(node, node.token("ann")) as ann,
    ):
        owners = await topics(cluster)
        here, away = owners[2][0], owners[1][0]
        # In this order, the last member that is written is that of the other shard.
        await ann.subscribe(away)
        await ann.subscribe(here)
        roster: Any = node.hub.core.roster
        async with silent_primary(cluster, 1):
            renewed = roster.renew(["former"])
            await until(lambda: len(roster._lane(here)), 0)
            await until(lambda: roster._lane(away).unanswered)
            assert not renewed.done()
        await renewed


async def test_members_of_several_dead_nodes_leave_though_one_shard_does_not_answer(
    cluster: Cluster,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, 1, **on()) as (node,),
        peer(node, node.token("bob")) as bob,
    ):
        # The shard is one of the last ones.
        here = max((await topics(cluster, 10))[2], key=shard)
        await bob.subscribe(here)
        assert users(await snapshot(bob)) == ["bob"]
        backplane: Any = node.hub.core.backplane
        await join_as(node, "dead", here)
        assert (await change(bob, "join"))["user_id"] == "ann"
        async with silent_primary(cluster, 1):
            revoking = asyncio.create_task(backplane._lease._revoke(["other", "dead"]))
            assert (await change(bob, "leave"))["user_id"] == "ann"
        await revoking


async def test_members_of_a_node_without_heartbeat_leave_though_one_shard_does_not_answer(
    cluster: Cluster,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(cluster, 1, **on()) as (node,),
        peer(node, node.token("bob")) as bob,
    ):
        here = (await topics(cluster))[2][0]
        await bob.subscribe(here)
        assert users(await snapshot(bob)) == ["bob"]
        # The index of the nodes must answer.
        assert await cluster.owner("hanzo-pubsub:{0}") != 1
        async with silent_primary(cluster, 1):
            await join_as(node, "dead", here)
            assert (await change(bob, "join"))["user_id"] == "ann"
            assert (await change(bob, "leave"))["user_id"] == "ann"


async def join_as(node: RunningServer, name: str, topic: str) -> None:
    """Write a member as another node."""
    backplane: Any = node.hub.core.backplane
    shown = b'{"since":1,"kind":"user","client_id":"cl_1","user_id":"ann","joined_at":1}'
    joins = [name, 1, 60_000, 10, 60_000, 1, "j", topic, "cl_1", "", shown]
    await backplane._link.call("members.lua", [base(topic)], joins)


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
