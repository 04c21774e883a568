"""Nodes of our own: who finds whom, who is sent what, and what a client sees of it."""

from __future__ import annotations

import asyncio

import pytest

from hanzoai.pubsub import Gap, Message
from tests.server.mesh.rig import node, nodes
from tests.server.protocols.peers import BOUND, until


@pytest.mark.statement("Z-08", "Z-09", "Z-10", "Z-11", "Z-15")
async def test_a_message_reaches_subscribers_of_another_node_as_soon_as_they_are_subscribed() -> (
    None
):
    async with nodes(2) as (one, two), one.client() as publisher, two.client() as subscriber:
        subscription = await subscriber.subscribe(["demo.a", "demo.b", "demo.*.c"])
        for topic in ("demo.a", "demo.b", "demo.x.c"):
            sent = await publisher.publish(topic, {"type": "note", "data": {"of": topic}})
            async with asyncio.timeout(BOUND):
                got = await anext(aiter(subscription))
            assert (got.topic, got.id, got.timestamp) == (topic, sent.id, sent.timestamp)
            assert got.sender is not None
            assert got.sender.id == "service"


@pytest.mark.statement("Z-05")
async def test_messages_of_one_publisher_keep_their_order_across_nodes() -> None:
    async with nodes(2) as (one, two), one.client() as publisher, two.client() as subscriber:
        subscription = await subscriber.subscribe("demo.a")
        for n in range(0, 1000, 100):
            batch = [{"topic": "demo.a", "type": "n", "data": m} for m in range(n, n + 100)]
            await publisher.publish_many(batch)
        async with asyncio.timeout(BOUND):
            got = [(await anext(aiter(subscription))).data for _ in range(1000)]
        assert got == list(range(1000))


@pytest.mark.statement("Z-06", "Z-07")
async def test_nodes_that_know_one_find_all_others_with_one_connection_a_pair() -> None:
    async with nodes(5) as found:
        assert [each.mesh.peers for each in found] == [4] * 5
        # One connection for each pair, even where both dialed.
        await until(lambda: all(len(each.mesh.links) == 4 for each in found))


@pytest.mark.statement("Z-12", "Z-13", "Z-14")
async def test_a_message_goes_to_interested_nodes_alone_until_their_last_subscriber_leaves() -> (
    None
):
    async with nodes(3) as (one, two, three), one.client() as publisher, two.client() as client:
        first = await client.subscribe("demo.a")
        second = await client.subscribe("demo.a")
        assert one.wanting("demo.a") == {two.id}
        await publisher.publish("demo.a", {"type": "n", "data": 1})
        assert one.mesh.counts.forwarded == 1
        assert three.mesh.counts.received == 0
        await first.unsubscribe()
        await publisher.publish("demo.a", {"type": "n", "data": 2})
        async with asyncio.timeout(BOUND):
            assert [(await anext(aiter(second))).data for _ in range(2)] == [1, 2]
        await second.unsubscribe()
        await until(lambda: not one.wanting("demo.a") and not three.wanting("demo.a"))
        await publisher.publish("demo.a", {"type": "n", "data": 3})
        assert one.mesh.counts.forwarded == 2


async def test_a_subscription_lingers_at_other_nodes_so_that_who_comes_back_misses_nothing() -> (
    None
):
    async with (
        nodes(2, mesh_linger=60_000) as (one, two),
        one.client() as publisher,
        two.client() as client,
    ):
        subscription = await client.subscribe("demo.a")
        await publisher.publish("demo.a", {"type": "n", "data": 1})
        async with asyncio.timeout(BOUND):
            await anext(aiter(subscription))
        positions = subscription.positions
        await subscription.unsubscribe()
        await publisher.publish("demo.a", {"type": "n", "data": 2})
        await until(lambda: two.mesh.counts.received == 2)
        again = await client.subscribe("demo.a", after=positions)
        async with asyncio.timeout(BOUND):
            got = await anext(aiter(again.events()))
        assert isinstance(got, Message)
        assert got.data == 2


async def test_an_id_that_comes_by_two_nodes_is_delivered_once() -> None:
    async with (
        nodes(3) as (one, two, three),
        one.client() as a,
        two.client() as b,
        three.client() as subscriber,
    ):
        subscription = await subscriber.subscribe("demo.a")
        for publisher in (a, b):
            await publisher.publish("demo.a", {"type": "n", "data": 1, "id": "order-1"})
        await a.publish("demo.a", {"type": "n", "data": 2})
        await until(lambda: three.mesh.counts.duplicates == 1)
        async with asyncio.timeout(BOUND):
            assert [(await anext(aiter(subscription))).data for _ in range(2)] == [1, 2]


async def test_a_node_that_ends_says_so_and_leaves_no_gap() -> None:
    async with node() as one, one.client() as client:
        subscription = await client.subscribe("demo.a")
        async with node(one) as two, two.client() as publisher:
            await until(lambda: two.wanting("demo.a"))
            await publisher.publish("demo.a", {"type": "n", "data": 1})
            await until(lambda: one.mesh.counts.received == 1)
        await until(lambda: not one.mesh.peers)
        assert one.mesh.counts.lost == 0
        await client.publish("demo.a", {"type": "n", "data": 2})
        events = aiter(subscription.events())
        async with asyncio.timeout(BOUND):
            got = [await anext(events) for _ in range(2)]
        assert not any(isinstance(each, Gap) for each in got)


async def test_a_node_that_is_lost_shows_a_gap_of_unknown_size_in_the_topics_it_may_have_fed() -> (
    None
):
    async with nodes(2) as (one, two), one.client() as client:
        subscription = await client.subscribe("demo.a")
        await client.publish("demo.a", {"type": "n", "data": 1})
        for link in one.mesh.links:
            link.cut("closed", "a test cuts the connection")
        await until(lambda: one.mesh.counts.lost == 1)
        await client.publish("demo.a", {"type": "n", "data": 2})
        events = aiter(subscription.events())
        async with asyncio.timeout(BOUND):
            got = [await anext(events) for _ in range(3)]
        assert isinstance(got[1], Gap)
        assert got[1].missed is None
        assert not isinstance(got[0], Gap)
        assert not isinstance(got[2], Gap)
        # And the two find each other again.
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)
