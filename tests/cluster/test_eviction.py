"""A store with too little memory: evicted messages are reported as missing, or publishes fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.backplanes.redis import writer
from tests.cluster.fleet import nodes, peer
from tests.cluster.store import running
from tests.cluster.test_backplane import collect
from tests.cluster.test_failover import history, publish
from tests.cluster.test_redis_cluster import client
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.cluster.store import Store

BOUND = 60
NODES: dict[str, Any] = {"publish_rate_service": 10_000, "history_max_messages": 100}


def small(folder: Path, memory: str, policy: str) -> AbstractAsyncContextManager[Store]:
    options = ("--maxmemory", memory, "--maxmemory-policy", policy)
    return running("redis", folder / "store", *options)


async def evict(store: Store, key: str) -> None:
    """Evict this key like the store does."""
    async with store.client() as redis:
        keys = await redis.keys(f"*:{key}")
        assert await redis.delete(*keys) == 1


async def test_an_evicted_log_is_reported_in_replays_by_time_and_position(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1, **NODES) as (a,), client(a) as ps:
        positions = await publish(ps, "demo.x", 1, 2, 3)
        assert await history(a, "demo.x", since=1) == ([1, 2, 3], False)
        await evict(store, "l:demo.x")
        assert await history(a, "demo.x", since=1) == ([], True)
        positions += await publish(ps, "demo.x", 4, 5)
        assert positions == list(range(positions[0], positions[0] + 5))
        assert await history(a, "demo.x", since=1) == ([4, 5], True)
        assert await history(a, "demo.x", after=positions[0]) == ([4, 5], True)
        assert await history(a, "demo.x", after=positions[2]) == ([4, 5], False)
        async with peer(a, a.service_token()) as late:
            answer = await late.subscribe("demo.x", since=1)
            assert [message["data"] for message in answer["history"]] == [4, 5]
            assert answer["truncated"] == ["demo.x"]


async def test_an_evicted_numbering_starts_again_above_the_old_one(store: Store) -> None:
    received: dict[str, list[object]] = {}
    async with (
        asyncio.timeout(BOUND),
        nodes(store, **NODES) as (a, b),
        client(a) as ps,
        client(b) as there,
    ):
        task = asyncio.create_task(collect(await there.subscribe("demo.x"), received))
        positions = await publish(ps, "demo.x", 1, 2)
        await until(lambda: received, {"demo.x": [1, 2]})
        await evict(store, "s:demo.x")
        positions += await publish(ps, "demo.x", 3, 4)
        await until(lambda: received, {"demo.x": [1, 2, "gap", 3, 4]})
        task.cancel()
        assert sorted(set(positions)) == positions
        assert await history(a, "demo.x", since=1) == ([1, 2, 3, 4], True)


async def test_ids_that_were_evicted_are_known_as_long_as_their_messages_are(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1, **NODES) as (a,), client(a) as ps:
        first = await ps.publish("demo.x", {"data": 1}, id="one")
        await evict(store, "i")
        again = await ps.publish("demo.x", {"data": 1}, id="one")
        assert (again.seq, again.duplicate) == (first.seq, True)
        assert await history(a, "demo.x") == ([1], False)


async def test_what_a_store_evicts_by_itself_is_marked_wherever_it_lacks(tmp_path: Path) -> None:
    received: dict[str, list[object]] = {}
    names = [f"demo.t{number}" for number in range(20)]
    async with (
        asyncio.timeout(BOUND),
        small(tmp_path, "4mb", "allkeys-lru") as store,
        nodes(store, **NODES) as (a, b),
        client(a) as ps,
        client(b) as there,
    ):
        task = asyncio.create_task(collect(await there.subscribe("demo.*"), received))
        meta = {"filler": "x" * 8_000}

        async def everywhere(n: int) -> None:
            await asyncio.gather(*(ps.publish(t, {"data": n, "meta": meta}) for t in names))

        for n in range(19):
            await everywhere(n)
        # The last message is not evicted, so its arrival shows that all messages have arrived.
        await store.command("CONFIG", "SET", "maxmemory", "0")
        await everywhere(19)
        await until(lambda: [row[-1] for row in received.values()], [19] * len(names))
        task.cancel()
        async with store.client() as redis:
            assert (await redis.info("stats"))["evicted_keys"] > 0
        lacking = 0
        for name in names:
            # A live subscriber is notified of each missing message.
            row = [n for n in received[name] if n != "gap"]
            assert row == [n for n in range(20) if n in row]
            assert row == list(range(20)) or "gap" in received[name]
            data, marked = await history(a, name, since=1, limit=100)
            assert data == sorted(set(data))
            assert marked or data == list(range(20))
            lacking += marked
        assert lacking


async def test_a_full_store_refuses_what_comes_and_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        asyncio.timeout(BOUND),
        small(tmp_path, "0", "noeviction") as store,
        nodes(store, 1, **NODES) as (a,),
        peer(a, a.service_token()) as socket,
    ):
        await socket.send({"type": "publish", "topic": "demo.x", "data": 1, "ref": "1"})
        first = await socket.until("published")
        await store.command("CONFIG", "SET", "maxmemory", "1")
        await socket.send({"type": "publish", "topic": "demo.x", "data": 2, "ref": "2"})
        assert (await socket.until("error"))["code"] == "unavailable"
        await store.command("CONFIG", "SET", "maxmemory", "0")
        await socket.send({"type": "publish", "topic": "demo.x", "data": 3, "ref": "3"})
        assert (await socket.until("published"))["seq"] == first["seq"] + 1
        assert await history(a, "demo.x", since=1) == ([1, 3], False)
        await socket.send({"type": "publish", "topic": "demo.x", "data": 4, "ref": "4"})
        await socket.until("published")
    lines = [record.getMessage() for record in caplog.records if record.name == writer.__name__]
    assert [line.partition(":")[0] for line in lines] == [
        "Redis is full, and publishes are rejected",
        "Redis accepts publishes again",
    ]


@pytest.mark.parametrize(
    ("memory", "policy", "warned"),
    [
        ("64mb", "allkeys-lru", True),
        ("64mb", "noeviction", False),
        ("0", "allkeys-lru", False),
        ("64mb", "volatile-lru", True),
        ("64mb", "volatile-ttl", False),
    ],
)
async def test_a_node_warns_at_its_start_if_the_store_may_evict_any_key(
    memory: str, policy: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with small(tmp_path, memory, policy) as store, nodes(store, 1):
        pass
    reported = [record.getMessage() for record in caplog.records if "evict" in record.getMessage()]
    assert [f"maxmemory-policy {policy}" in each for each in reported] == [True] * warned
