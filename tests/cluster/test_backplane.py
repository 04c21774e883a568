"""Nodes on one store: each message is numbered once and reaches every node exactly once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Self

import pytest

from hanzoai.pubsub import Conflict, Gap, Message, PubSubClient, Subscription, Unavailable
from pubsub_server.errors import ServiceError
from pubsub_server.shared.answers import Answer
from pubsub_server.shared.requests import Draft
from pubsub_server.testing import RunningServer, running_server
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.backplane import Entry, Published
    from tests.cluster.store import Store

BOUND = 60


@asynccontextmanager
async def nodes(store: Store, count: int = 2) -> AsyncGenerator[list[RunningServer]]:
    settings: dict[str, object] = {
        "redis_durable": True,
        "redis_url": store.url,
        "publish_rate_service": 10_000,
        "history_max_messages": 1_000,
    }
    async with running_server(**settings) as first:
        if count == 1:
            yield [first]
            return
        async with nodes(store, count - 1) as others:
            yield [first, *others]


def client(node: RunningServer) -> PubSubClient:
    return PubSubClient(node.ws, rest_url=node.http, token=node.service_token())


@asynccontextmanager
async def pair(
    store: Store,
) -> AsyncGenerator[tuple[list[RunningServer], list[PubSubClient]]]:
    """Run two nodes and a client of each, within the timeout of a test."""
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as both,
        client(both[0]) as here,
        client(both[1]) as there,
    ):
        yield both, [here, there]


async def test_what_is_published_on_one_node_is_received_on_the_other(store: Store) -> None:
    async with pair(store) as (_, (here, there)):
        sub = await there.subscribe("demo.x")
        wild = await there.subscribe("demo.*")
        first = await here.publish("demo.x", {"data": 1})
        second = await here.publish("demo.x", {"data": 2})
        assert first.seq is not None
        assert second.seq == first.seq + 1
        received = [(await anext(sub)).seq, (await anext(sub)).seq]
        assert received == [first.seq, second.seq]
        assert [(await anext(wild)).seq, (await anext(wild)).seq] == received
        assert [m.data async for m in there.history("demo.x")] == [1, 2]


async def test_an_id_counts_once_whatever_node_it_comes_to(store: Store) -> None:
    async with pair(store) as (_, (here, there)):
        first = await here.publish("demo.x", {"data": 1}, id="one")
        again = await there.publish("demo.x", {"data": 1}, id="one")
        assert (again.id, again.seq, again.duplicate) == ("one", first.seq, True)
        with pytest.raises(Conflict):
            await there.publish("demo.x", {"data": 2}, id="one")
        assert [m.data async for m in here.history("demo.x")] == [1]


async def test_a_node_listens_only_to_what_its_clients_need(store: Store) -> None:
    async def channels(shards: int) -> set[str]:
        async with store.client() as redis:
            found = await redis.pubsub_shardchannels()
        names = {name.decode().partition("}:")[2] for name in found}
        own = {name for name in names if name.startswith("alive:")}
        return names - own if len(names) < shards else {"all"}

    async with asyncio.timeout(BOUND), nodes(store, 1) as (node,), client(node) as ps:
        sub = await ps.subscribe("demo.x")
        assert await channels(64) == {"t:demo.x"}
        wild = await ps.subscribe("demo.*")
        async with store.client() as redis:
            assert len(await redis.pubsub_shardchannels()) >= 64
        await wild.unsubscribe()
        await until(lambda: channels(64), {"t:demo.x"})
        await ps.publish("demo.x", {"data": 1})
        assert (await anext(sub)).data == 1
        await sub.unsubscribe()
        await until(lambda: channels(64), set())


class Traffic:
    """Publishes continuously on one node, and records the acknowledged messages.

    Args:
        ps: The client that publishes.
        *topics: Its topics.
        again: Whether to publish a message again that the server refuses for now.
    """

    def __init__(self, ps: PubSubClient, *topics: str, again: bool = False) -> None:
        self.ps = ps
        self._again = again
        self.topics = topics
        self.acknowledged: dict[str, list[int]] = {topic: [] for topic in topics}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._publish(topic)) for topic in self.topics]
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _publish(self, topic: str) -> None:
        n = 0
        while not self._ending:
            n += 1
            await self._publish_one(topic, n)
            self.acknowledged[topic].append(n)

    async def _publish_one(self, topic: str, n: int) -> None:
        while True:
            try:
                await self.ps.publish(topic, {"data": n}, id=f"{topic}-{n}", timeout=BOUND)
            except Unavailable as error:
                if not self._again:
                    raise
                await asyncio.sleep(error.retry_after or 0)
            else:
                return

    async def more(self, count: int = 50) -> None:
        """Wait until this number of further messages is acknowledged on each topic."""
        goal = {topic: len(done) + count for topic, done in self.acknowledged.items()}
        await until(partial(self._reached, goal))

    def _reached(self, goal: dict[str, int]) -> bool:
        for task in self._tasks:
            if task.done():
                # It ended because a publish failed.
                task.result()
        return all(len(self.acknowledged[topic]) >= count for topic, count in goal.items())


async def collect(sub: Subscription, received: dict[str, list[object]]) -> None:
    async for event in sub.events():
        if isinstance(event, Gap):
            received.setdefault(event.topic, []).append("gap")
        elif isinstance(event, Message):
            received.setdefault(event.topic, []).append(event.data)


def differences(received: dict[str, list[object]], traffic: Traffic) -> dict[str, list[str]]:
    """Describe the differences between the received and the acknowledged messages of a topic."""
    found: dict[str, list[str]] = {}
    for topic, numbers in traffic.acknowledged.items():
        if received.get(topic) != numbers:
            pairs = zip_longest(received.get(topic, []), numbers)
            at = next(n for n, (here, there) in enumerate(pairs) if here != there)
            found[topic] = [f"at {at}", f"received {received.get(topic, [])[at - 2 : at + 8]}"]
            found[topic] += [f"acknowledged {numbers[at - 2 : at + 8]}"]
    return found


def last(received: dict[str, list[object]], topic: str) -> object:
    return received.get(topic, [None])[-1]


async def settled(received: dict[str, list[object]], traffic: Traffic) -> None:
    """Wait until the last message of each topic has arrived."""
    for topic, numbers in traffic.acknowledged.items():
        await until(partial(last, received, topic), numbers[-1])


@pytest.mark.parametrize("pattern", [("demo.x", "demo.y"), ("demo.*",)])
async def test_a_listening_connection_that_is_cut_loses_nothing(
    store: Store, pattern: tuple[str, ...]
) -> None:
    received: dict[str, list[object]] = {}
    async with pair(store) as (_, (here, there)):
        sub = await there.subscribe(list(pattern))
        task = asyncio.create_task(collect(sub, received))
        async with Traffic(here, "demo.x", "demo.y") as traffic:
            for _ in range(5):
                await traffic.more()
                async with store.client() as redis:
                    await redis.client_kill_filter(_type="pubsub")
        await settled(received, traffic)
        task.cancel()
        assert there.state == "connected"
    assert differences(received, traffic) == {}


async def test_at_a_common_end_nothing_more_is_taken_and_what_is_on_its_way_is_delivered(
    store: Store,
) -> None:
    async with pair(store) as ((a, b), (here, there)):
        sub, wild = await there.subscribe("demo.x"), await there.subscribe("demo.*")
        await here.publish("demo.x", {"data": 0})
        assert [(await anext(each)).data for each in (sub, wild)] == [0, 0]
        backplane: Any = b.hub.core.backplane
        delivered: list[Entry] = []
        deliver = backplane._deliveries._deliver

        def noting(entry: Entry) -> None:
            delivered.append(entry)
            deliver(entry)

        backplane._deliveries.start(noting)
        # A node that looks for missed messages meanwhile delivers them, too.
        backplane._feed._lanes[0]._take = len
        acknowledged = [asyncio.create_task(here.publish("demo.x", {"data": n})) for n in range(5)]
        await asyncio.gather(*acknowledged)
        await a.hub.core.backplane.finish_writing()
        answer: Answer[list[Published | ServiceError]] = Answer()
        late = Draft("demo.x", "t", b"6", None, None, None)
        a.hub.core.backplane.publish([late], ("service", "x"), answer)
        (refused,) = await answer
        assert isinstance(refused, ServiceError)
        assert refused.code == "unavailable"
        await backplane.deliver_rest()
        assert len(delivered) == 5
        for each in (sub, wild):
            assert [(await anext(each)).data for _ in range(5)] == list(range(5))


async def test_a_store_that_is_killed_and_comes_back_loses_nothing_that_was_acknowledged(
    store: Store,
) -> None:
    received: dict[str, list[object]] = {}
    async with pair(store) as ((_, b), (here, there)):
        sub = await there.subscribe(["demo.x", "demo.*"])
        task = asyncio.create_task(collect(sub, received))
        async with Traffic(here, "demo.x", "demo.y") as traffic:
            for _ in range(3):
                await traffic.more()
                await store.end()
                await store.start()
            await traffic.more()
        await settled(received, traffic)
        task.cancel()
        assert b.stats.connections_total == 1
    assert differences(received, traffic) == {}


async def test_a_store_that_loses_everything_shows_as_one_gap_per_topic(store: Store) -> None:
    received: dict[str, list[object]] = {}
    async with pair(store) as (_, (here, there)):
        sub = await there.subscribe("demo.x")
        task = asyncio.create_task(collect(sub, received))
        for n in (1, 2):
            await here.publish("demo.x", {"data": n})
        await until(lambda: received.get("demo.x"), [1, 2])
        async with store.client() as redis:
            await redis.flushall()
        for n in (3, 4):
            await here.publish("demo.x", {"data": n})
        await until(lambda: received["demo.x"][-1], 4)
        task.cancel()
    assert received == {"demo.x": [1, 2, "gap", 3, 4]}


async def test_subscribers_that_join_during_traffic_receive_each_message_once(store: Store) -> None:
    async with (
        asyncio.timeout(150),
        nodes(store) as (a, b),
        client(a) as here,
        Traffic(here, "demo.x") as traffic,
    ):
        for round in range(20):
            await traffic.more(5)
            async with asyncio.timeout(BOUND), client(b) as there:
                pattern = "demo.x" if round % 2 else "demo.*"
                sub = await there.subscribe(pattern, history=10)
                numbers = [(await anext(sub)).seq for _ in range(40)]
                assert numbers[0] is not None
                assert numbers == list(range(numbers[0], numbers[0] + 40))
