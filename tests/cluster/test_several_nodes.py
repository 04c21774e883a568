"""HIP-56 requirements on several nodes: with one Redis behind one balancer."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient, RetryOptions
from pubsub_server.auth import dev_tokens
from pubsub_server.testing import running_server
from tests.cluster.balancers import Balancer
from tests.cluster.fleet import nodes, peer, settings
from tests.cluster.nodes import Node
from tests.cluster.store import Store, running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.interop.peer import Socket

BOUND = 60
TOPIC = "demo.x"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """A separate Redis for the test."""
    async with running("redis", tmp_path / "store") as store:
        yield store


async def publish(node: RunningServer, n: int) -> None:
    async with peer(node, node.service_token()) as socket:
        await socket.send({"type": "publish", "topic": TOPIC, "data": n, "ref": "1"})
        await socket.until("published")


async def replayed(socket: Socket) -> list[Any]:
    answer = await socket.subscribe(TOPIC, since=1)
    return [message["data"] for message in answer["history"]]


@pytest.mark.statement("H-003", "H-110")
async def test_a_publish_on_one_node_reaches_the_clients_of_all_nodes_through_redis(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 3) as three, AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(peer(node, node.token(f"user{number}")))
            for number, node in enumerate(three)
        ]
        for reader in readers:
            await reader.subscribe(TOPIC, presence=False)
        for n, node in enumerate(three):
            await publish(node, n)
        received = [[(await reader.message())["data"] for _ in three] for reader in readers]
        assert received == [[0, 1, 2]] * 3
        assert [set(node.hub.core.connections) for node in three] == [
            {reader.client_id} for reader in readers
        ]


@pytest.mark.statement("H-102", "H-111")
@pytest.mark.parametrize("named", [{}, {"backplane": "redis"}], ids=["by default", "by name"])
async def test_history_in_redis_is_replayed_by_a_node_that_starts_later(
    store: Store, named: dict[str, Any]
) -> None:
    async with asyncio.timeout(BOUND):
        async with running_server(**settings(store, **named)) as first:
            await publish(first, 1)
        async with running_server(**settings(store, **named)) as later:
            await publish(later, 2)
            async with peer(later, later.token("late")) as socket:
                assert await replayed(socket) == [1, 2]


@pytest.mark.statement("H-102")
async def test_history_in_memory_is_lost_with_the_server_and_does_not_use_redis(
    store: Store,
) -> None:
    given = settings(store, backplane="memory")
    async with asyncio.timeout(BOUND):
        async with running_server(**given) as first:
            await publish(first, 1)
            async with peer(first, first.token("late")) as socket:
                assert await replayed(socket) == [1]
        async with running_server(**given) as later, peer(later, later.token("late")) as socket:
            assert await replayed(socket) == []
        async with store.client() as redis:
            assert await redis.keys("*") == []


@pytest.mark.statement("H-113")
@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
async def test_a_client_behind_a_sticky_balancer_loses_nothing_when_its_node_ends(
    kind: str, tmp_path: Path, store: Store
) -> None:
    key = dev_tokens.load_key(tmp_path / "dev.key")
    flags = ("--redis-url", store.url, "--dev-key-file", str(tmp_path / "dev.key"))
    two = [Node(f"node{n}", tmp_path, *flags) for n in (1, 2)]
    balancer = Balancer(kind, tmp_path / "balancer", [*two, two[1]], sticky=True)

    def client(name: str) -> PubSubClient:
        return PubSubClient(
            f"{balancer.ws}?client={name}",
            dev_tokens.mint(key, name, kind="service"),
            rest_url=balancer.http,
            ssl_context=balancer.trust,
            transport="websocket",
            retry=RetryOptions(base=0.1, cap=0.3),
        )

    try:
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*(node.start() for node in two))
            await balancer.start()
            async with AsyncExitStack() as stack:
                names = [f"client{n}" for n in range(6)]
                clients = [await stack.enter_async_context(client(name)) for name in names]
                readers = [await stack.enter_async_context(ps.subscribe(TOPIC)) for ps in clients]
                for n in range(5):
                    await clients[0].publish(TOPIC, {"data": n})
                await two[0].end(signal.SIGKILL)
                for n in range(5, 10):
                    await clients[0].publish(TOPIC, {"data": n}, timeout=BOUND)
                received = [[(await anext(reader)).data for _ in range(10)] for reader in readers]
                assert received == [list(range(10))] * len(names)
    finally:
        await balancer.end()
        for node in two:
            if node.running:
                await node.end(signal.SIGKILL)
