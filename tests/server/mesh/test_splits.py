"""Invariants of five nodes during joins, leaves, kills and network splits.

`HANZO_PUBSUB_SOAK=1` runs 200 topics for 60 seconds. The seed comes from `HANZO_PUBSUB_TEST_SEED`.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import Gap, Message
from tests.ports import free_port
from tests.server.mesh.proxies import Network, Proxy
from tests.server.mesh.rig import MeshNode, node
from tests.server.protocols.peers import BOUND, until

if TYPE_CHECKING:
    from hanzoai.pubsub import PubSubClient, Subscription

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
SECONDS = 60 if SOAK else 4
TOPICS = [f"demo.t{n}" for n in range(200 if SOAK else 40)]
MARK = "demo.mark"
"""Every station subscribes to it: its messages show that all earlier messages have arrived."""
NODES = 5


class Station:
    """A node with a subscriber and a publisher, behind a proxy."""

    def __init__(self, stack: AsyncExitStack, here: MeshNode, proxy: Proxy, name: str) -> None:
        self.stack = stack
        self.node = here
        self.proxy = proxy
        self.name = name
        self.subscriptions: dict[str, Subscription] = {}
        self.received: list[tuple[str, str, int]] = []
        self.sent = 0
        self.subscriber: PubSubClient
        self.publisher: PubSubClient

    def take(self, message: Message) -> None:
        publisher, n = message.data
        self.received.append((message.topic, publisher, n))

    async def publish(self, topic: str) -> None:
        self.sent += 1
        await self.publisher.publish(topic, {"type": "n", "data": [self.name, self.sent]})

    async def subscribe(self, topic: str) -> None:
        self.subscriptions[topic] = await self.subscriber.subscribe(topic, on_message=self.take)

    async def unsubscribe(self, topic: str) -> None:
        await self.subscriptions.pop(topic).unsubscribe()


class World:
    """All stations, and their faults."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network()
        self.stations: list[Station] = []
        self.gone: list[Station] = []
        self.count = 0

    async def add(self) -> None:
        """Start a node that knows all running nodes: a single known node could die too early."""
        stack = AsyncExitStack()
        proxy = Proxy(self.network)
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        proxy.target = f"127.0.0.1:{free_port()}"
        known = [each.proxy.address for each in self.stations]
        here = await stack.enter_async_context(
            node(
                *known,
                mesh_listen=proxy.target,
                mesh_advertise=proxy.address,
                mesh_heartbeat=300,
                mesh_ack_timeout=300,
            )
        )
        self.count += 1
        station = Station(stack, here, proxy, f"p{self.count}")
        for name in ("subscriber", "publisher"):
            setattr(station, name, await stack.enter_async_context(here.client()))
        await station.subscribe(MARK)
        self.stations.append(station)

    async def kill(self, station: Station) -> None:
        """Kill a node without notifying the others."""
        self.stations.remove(station)
        self.gone.append(station)
        for link in station.node.mesh.links:
            link.cut("killed", "a test kills the node")
        station.node.mesh.on_event = lambda link, event: None  # type: ignore[method-assign]
        await station.stack.aclose()

    async def end(self) -> None:
        for station in self.stations:
            await station.stack.aclose()

    async def step(self) -> None:
        """Cause a random fault."""
        dice = self.random.random()
        station = self.random.choice(self.stations)
        topic = self.random.choice(TOPICS)
        if dice < 0.6:
            await station.publish(topic)
        elif dice < 0.8:
            if topic not in station.subscriptions:
                await station.subscribe(topic)
        elif dice < 0.97:
            if topic in station.subscriptions:
                await station.unsubscribe(topic)
        elif dice < 0.98:
            ids = [each.node.id for each in self.stations]
            half = set(self.random.sample(ids, len(ids) // 2))
            self.network.split(lambda one, other: (one in half) != (other in half))
        elif dice < 0.99:
            self.network.split(lambda one, other: False)
        elif dice < 0.995 and len(self.stations) > 2:
            await self.kill(station)
        elif len(self.stations) < NODES:
            await self.add()

    async def settle(self) -> None:
        """Undo all faults, and wait until every node knows the topics of every other."""
        self.network.split(lambda one, other: False)
        while len(self.stations) < NODES:
            await self.add()
        await until(self.converged)
        for station in self.stations:
            await station.publish(MARK)
        marks = {(MARK, each.name, each.sent) for each in self.stations}
        await until(lambda: all(marks <= set(each.received) for each in self.stations))

    def converged(self) -> bool:
        nodes = [each.node for each in self.stations]
        return all(
            {remote.node for remote in here.mesh.nodes}
            == {other.id for other in nodes if other is not here}
            and all(
                here.wanting(topic)
                == {
                    other.node.id
                    for other in self.stations
                    if other.node is not here and topic in other.subscriptions
                }
                for topic in (*TOPICS, MARK)
            )
            for here in nodes
        )

    def check_order(self) -> None:
        """Check the order per publisher and topic, and that there are no duplicates."""
        for station in (*self.stations, *self.gone):
            newest: dict[tuple[str, str], int] = {}
            for topic, publisher, n in station.received:
                before = newest.get((topic, publisher), 0)
                assert n > before, (station.name, topic, publisher, before, n)
                newest[topic, publisher] = n

    async def check_forwards(self) -> None:
        """Publish one message per topic and node: the network carries only wanted messages."""
        self.network.forwards.clear()
        before = {each.name: len(each.received) for each in self.stations}
        wanted = {
            (one.node.id, other.node.id, topic)
            for one in self.stations
            for other in self.stations
            for topic in other.subscriptions
            if one is not other
        }
        bytes_before = sum(each.node.mesh.forwarded_bytes for each in self.stations)
        for station in self.stations:
            for topic in (*TOPICS, MARK):
                await station.publish(topic)
        due = {each.name: len(each.subscriptions) * NODES for each in self.stations}
        await until(
            lambda: all(
                len(each.received) - before[each.name] >= due[each.name] for each in self.stations
            )
        )
        passed = [(one, other, topic) for one, other, topic, _ in self.network.forwards]
        assert sorted(passed) == sorted(wanted)
        size = sum(size for *_, size in self.network.forwards)
        counted = sum(each.node.mesh.forwarded_bytes for each in self.stations)
        assert counted - bytes_before == size
        for each in self.stations:
            assert len(each.received) - before[each.name] == due[each.name]


async def test_a_subscription_that_begins_during_a_split_has_a_gap_after_it() -> None:
    world = World(0)
    try:
        for _ in range(2):
            await world.add()
        one, two = world.stations
        await until(lambda: one.node.mesh.peers == two.node.mesh.peers == 1)
        world.network.split(lambda one, other: True)
        await until(lambda: one.node.mesh.peers == two.node.mesh.peers == 0)
        subscription = await two.subscriber.subscribe("demo.late")
        await one.publisher.publish("demo.late", {"data": "lost"})
        world.network.split(lambda one, other: False)
        await until(lambda: two.node.id in one.node.wanting("demo.late"))
        await one.publisher.publish("demo.late", {"data": "next"})
        events = aiter(subscription.events())
        async with asyncio.timeout(BOUND):
            gap, message = [await anext(events) for _ in range(2)]
        assert isinstance(gap, Gap)
        assert isinstance(message, Message)
        assert message.data == "next"
    finally:
        await world.end()


@pytest.mark.statement("Z-05", "Z-07", "Z-12", "Z-14", "Z-28")
@pytest.mark.timeout(400 if SOAK else 120)
async def test_interest_converges_and_messages_are_forwarded_only_to_interested_nodes() -> None:
    seed = int(os.environ.get("HANZO_PUBSUB_TEST_SEED") or random.randrange(2**32))
    print(f"seed {seed}")
    world = World(seed)
    try:
        for _ in range(NODES):
            await world.add()
        loop = asyncio.get_running_loop()
        for _ in range(4 if SOAK else 2):
            end = loop.time() + SECONDS / (4 if SOAK else 2)
            while loop.time() < end:
                await world.step()
            await world.settle()
            await world.check_forwards()
            world.check_order()
        assert world.random
    finally:
        await world.end()
