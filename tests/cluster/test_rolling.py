"""Nodes and store restart under traffic behind balancers: each message arrives exactly once.

Set HANZO_PUBSUB_SOAK to test with 2,000 clients for a minute.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PubSubClient, RetryOptions
from hanzoai.pubsub.topics import is_wildcard
from pubsub_server.auth import dev_tokens
from tests.cluster.balancers import Balancer
from tests.cluster.ledger import Publisher, Subscriber, faults, gather, settled
from tests.cluster.nodes import Node
from tests.cluster.store import Store
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))


@dataclass(frozen=True)
class Load:
    clients: int
    topics: int
    publishers: int
    pause: float
    seconds: float
    """Minimum seconds under traffic."""
    bound: float
    """Maximum seconds for the whole test."""
    at_once: int
    """Clients that connect at the same time."""
    kills: int
    """Number of nodes to kill, one after the other; the store restarts equally often."""
    slack: float
    """Factor on the connect timeout, because all clients run in one process."""


LOAD = (
    Load(2_000, 40, 4, 0.2, 60, 1_800, 100, 3, 10)
    if SOAK
    else Load(15, 6, 4, 0.12, 0, 240, 15, 1, 1)
)
FLAGS = (
    *("--publish-rate-service", "10000", "--connections-per-user", "10000"),
    *("--history-max-messages", "5000", "--log-level", "warning"),
    *("--drain-notice", "300ms", "--drain-spread", "2s" if SOAK else "300ms"),
    *("--drain-timeout", "10s", "--auth-deadline", "60s"),
)
MORE = 12 if SOAK else 8
"""Messages per publisher between two restarts."""
LEAVE_WITHIN = 60.0
"""Seconds; several times `node_timeout` and `presence_grace`, by default."""
CASES = [
    *(("haproxy", False), ("nginx", True)),
    *((("haproxy", True), ("nginx", False)) if SOAK else ()),
]


class Cluster:
    """Run three nodes on one store behind one balancer."""

    def __init__(self, folder: Path, store: Store, key: bytes) -> None:
        flags = (
            "--redis-url",
            store.url,
            "--redis-durable",
            "--dev-key-file",
            str(folder / "dev.key"),
            *FLAGS,
        )
        self.store = store
        self.nodes = [Node(f"node{n}", folder, *flags) for n in (1, 2, 3)]
        self.key = key

    def client(self, balancer: Balancer, name: str, *, streams: bool) -> PubSubClient:
        return PubSubClient(
            f"{balancer.ws}?client={name}",
            dev_tokens.mint(self.key, name, kind="service"),
            rest_url=balancer.http,
            ssl_context=balancer.trust,
            transport="sse" if streams else "websocket",
            retry=RetryOptions(base=0.2 * LOAD.slack, cap=2.0 * LOAD.slack),
            open_timeout=20 * LOAD.slack,
        )


@asynccontextmanager
async def cluster(folder: Path, store: Store) -> AsyncGenerator[Cluster]:
    key = dev_tokens.load_key(folder / "dev.key")
    made = Cluster(folder, store, key)
    try:
        await asyncio.gather(*(node.start() for node in made.nodes))
        yield made
    finally:
        for node in made.nodes:
            if node.running:
                await node.end(signal.SIGKILL)


@asynccontextmanager
async def traffic(
    made: Cluster, balancer: Balancer
) -> AsyncGenerator[tuple[list[Publisher], list[Subscriber]]]:
    """Run subscribers and publishers inside the context; then wait until everything has settled."""
    topics = [f"demo.g{n % 3}.t{n}" for n in range(LOAD.topics)]
    patterns = [*topics, *topics, "demo.g0.*", "demo.g1.*", "demo.g2.*"]
    if SOAK:
        patterns *= 4
    patterns.append("demo.**")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        subscribers: list[Subscriber] = []
        gate = asyncio.Semaphore(LOAD.at_once)

        async def subscribe(number: int) -> None:
            pattern = patterns[number % len(patterns)]
            name = f"reader{number}"
            async with gate:
                ps = await enter(made.client(balancer, name, streams=number % 4 == 3))
                subscriber = Subscriber(ps, name, pattern, streams=number % 4 == 3)
                sub = await enter(await ps.subscribe(pattern))
                task = asyncio.create_task(subscriber.run(sub))
            stack.callback(task.cancel)
            subscribers.append(subscriber)

        await asyncio.gather(*(subscribe(number) for number in range(LOAD.clients)))
        publishers: list[Publisher] = []
        for number in range(LOAD.publishers):
            name = f"writer{number}"
            ps = await enter(made.client(balancer, name, streams=number % 2 == 1))
            publishers.append(Publisher(ps, name, topics, LOAD.pause))
        running = [asyncio.create_task(each.run()) for each in publishers]
        yield publishers, subscribers
        for publisher in publishers:
            publisher.end()
        await asyncio.gather(*running)
        await settled(subscribers, gather(publishers), 30 * LOAD.slack)
        await attended(made, subscribers)


async def attended(made: Cluster, subscribers: Sequence[Subscriber]) -> None:
    """Wait until each node reports exactly the connected members of every topic.

    Raises:
        TimeoutError: A node does not, although the members of killed nodes had time to leave.
    """
    there: dict[str, list[str]] = {}
    for each in subscribers:
        # Readers of event streams only watch; they are not members.
        if not is_wildcard(each.pattern) and not each.streams:
            there.setdefault(each.pattern, []).append(each.name)
    token = dev_tokens.mint(made.key, "warden", kind="admin")
    wrong = [(node, topic) for node in made.nodes for topic in there]
    async with http_client(headers={"Authorization": f"Bearer {token}"}) as http:

        async def all_right() -> bool:
            while wrong:
                node, topic = wrong[-1]
                url = f"http://127.0.0.1:{node.http_port}/v1/topics/{topic}/presence"
                answer = (await http.get(url, timeout=30)).raise_for_status()
                reported = sorted(member["user_id"] for member in answer.json()["members"])
                if reported != sorted(there[topic]):
                    return False
                wrong.pop()
            return True

        began = time.monotonic()
        async with asyncio.timeout(LEAVE_WITHIN * LOAD.slack):
            await until(all_right)
        print(f"presence: right on every node after {time.monotonic() - began:.1f} s")


async def more(publishers: Sequence[Publisher]) -> None:
    """Wait until each publisher has some more acknowledged messages."""
    for publisher in publishers:
        await until(partial(_as_far, publisher, publisher.count + MORE))


def _as_far(publisher: Publisher, goal: int) -> bool:
    if publisher.failure is not None:
        raise publisher.failure
    return publisher.count >= goal


@pytest.mark.timeout(LOAD.bound)
@pytest.mark.parametrize(("kind", "sticky"), CASES)
async def test_nodes_and_store_are_restarted_and_nothing_is_lost_and_nothing_comes_twice(
    kind: str, sticky: bool, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = tmp_path / "store"
    folder.mkdir()
    store = Store("redis", folder, "--appendonly", "yes", "--appendfsync", "always")
    await store.start()
    codes: list[int] = []
    kills = 0
    try:
        async with cluster(tmp_path, store) as made:
            balancer = Balancer(kind, tmp_path / "balancer", made.nodes, sticky=sticky)
            await balancer.start()
            try:
                async with traffic(made, balancer) as (publishers, subscribers):
                    began = time.monotonic()
                    await more(publishers)
                    while True:
                        for node in made.nodes:
                            codes.append(await node.restart())
                            await more(publishers)
                        await made.nodes[kills % len(made.nodes)].restart(signal.SIGKILL)
                        kills += 1
                        await more(publishers)
                        await store.end()
                        await store.start()
                        await more(publishers)
                        if kills >= LOAD.kills and time.monotonic() - began >= LOAD.seconds:
                            break
                acknowledged = gather(publishers)
                seconds = time.monotonic() - began
            finally:
                await balancer.end()
    finally:
        await store.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = [fault for each in subscribers for fault in faults(each, acknowledged)]
    published = sum(map(len, acknowledged.values()))
    received = sum(len(numbers) for each in subscribers for numbers in each.received.values())
    output = f"{published:,} acknowledged, {received:,} received by {len(subscribers):,}"
    print(
        f"{kind}: {output}, {seconds:.0f} s with {len(codes)} restarts and {kills} kills of nodes, "
        f"and as many restarts of the store"
    )
    assert found == []
    assert set(codes) == {0}
