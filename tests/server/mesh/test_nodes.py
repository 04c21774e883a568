"""Full nodes: discovery, forwarding, and the view of clients."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.msgpack import encode as pack

from hanzoai.pubsub import Gap, Message
from pubsub_server.backplanes.mesh.opening import SLOTS
from pubsub_server.errors import ServiceError
from pubsub_server.shared.wall_clock import now_ms
from tests.server.mesh.proxies import Relay
from tests.server.mesh.rig import node, nodes
from tests.server.protocols.peers import BOUND, until
from tests.server.test_sse import stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.server.mesh.rig import MeshNode
    from tests.server.test_sse import Stream


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
async def test_nodes_that_know_one_find_all_others_with_one_connection_per_pair() -> None:
    async with nodes(5) as found:
        assert [each.mesh.peers for each in found] == [4] * 5
        # One connection per pair, even if both sides dialed.
        await until(lambda: all(len(each.mesh.links) == 4 for each in found))


@pytest.mark.statement("Z-12", "Z-13", "Z-14")
async def test_a_message_goes_only_to_interested_nodes_until_their_last_subscriber_leaves() -> None:
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


async def test_a_subscription_lingers_at_other_nodes_so_that_a_reconnect_misses_nothing() -> None:
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
        async with asyncio.timeout(BOUND):
            assert [(await anext(aiter(subscription))).data for _ in range(2)] == [1, 2]
        await until(lambda: three.mesh.counts.duplicates == 1)


async def test_a_configured_address_without_a_node_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "pubsub_server.backplanes.mesh")

    def output(level: int) -> list[str]:
        return [
            each.getMessage()
            for each in caplog.records
            if each.levelno == level and "cannot reach" in each.getMessage()
        ]

    with socket.socket() as reserved:  # it does not listen, and no other test gets its port
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        async with node(address):
            await until(lambda: len(output(logging.DEBUG)) >= 2)
    assert output(logging.WARNING) == [
        f"mesh: cannot reach {address}: Connection refused; trying again"
    ]


async def test_an_address_that_closes_each_connection_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node with TLS does this to a node without."""
    closed = 0

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal closed
        closed += 1
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with node(address):
            await until(lambda: closed >= 3)
    warnings = [each.getMessage() for each in caplog.records if address in each.getMessage()]
    assert len(warnings) == 1
    assert "closes connections before the greeting" in warnings[0]


async def test_another_reason_why_an_address_fails_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = {"version": 2, "node": "z" * 16, "start": "s", "address": "", "keyed": False}
    calls = 0

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            hello = pack({**later, "nonce": os.urandom(16)})
            writer.write(b"\x07" + len(hello).to_bytes(4) + hello)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with node(address) as one:
            await until(lambda: one.mesh.counts.refused >= 2)
    warnings = [each.getMessage() for each in caplog.records if address in each.getMessage()]
    assert len(warnings) == 2
    assert "version" in warnings[1]


async def test_a_node_that_stops_is_logged_by_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pubsub_server.backplanes.mesh")
    async with node() as one:
        async with node(one) as two:
            await until(lambda: one.mesh.peers == 1)
            stopped = f"mesh: node {two.id} has stopped"
        await until(lambda: stopped in caplog.messages)
    assert "lost node" not in caplog.text


async def test_a_node_that_ends_announces_it_and_leaves_no_gap() -> None:
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
        # Without a gap the third event is the last message.
        for n in (2, 3):
            await client.publish("demo.a", {"type": "n", "data": n})
        events = aiter(subscription.events())
        async with asyncio.timeout(BOUND):
            got = [await anext(events) for _ in range(3)]
        assert isinstance(got[1], Gap)
        assert got[1].missed is None
        assert not isinstance(got[0], Gap)
        assert not isinstance(got[2], Gap)
        # Then the two reconnect.
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)


async def test_an_event_id_of_another_node_overrides_positions_of_the_request() -> None:
    async with node() as one, one.client() as client:
        sent = [await client.publish("demo.a", {"type": "n", "data": n}) for n in range(2)]
        body = {"subscriptions": [{"topics": ["demo.a"], "after": {"demo.a": sent[1].seq}}]}
        headers = {"Last-Event-ID": f"{(sent[0].timestamp or 0) - 1}~0"}
        token = one.server.service_token()
        async with stream(one.server, token, body=body, headers=headers) as opened:
            answer = await opened.until("subscribed")
        assert [message["data"] for message in answer["history"]] == [0, 1]


@pytest.mark.parametrize("pattern", ["demo.a", "demo.*"])
@pytest.mark.parametrize("known_is_higher", [True, False])
async def test_a_position_of_another_node_is_a_gap_though_this_node_never_had_the_topic(
    pattern: str, known_is_higher: bool
) -> None:
    async with nodes(2) as (one, two):
        first, second = sorted(
            (one, two), key=lambda each: int(each.id, 16) % SLOTS, reverse=known_is_higher
        )
        async with first.client() as here, second.client() as there:
            known = await here.publish("demo.a", {"data": "there is a position"})
            assert known.seq is not None
            subscription = await there.subscribe(pattern, after={"demo.a": known.seq})
            events = aiter(subscription.events())
            async with asyncio.timeout(BOUND):
                gap = await anext(events)
            assert isinstance(gap, Gap)
            assert (gap.topic, gap.reason) == ("demo.a", "log_reset")
            await there.publish("demo.a", {"data": "next"})
            async with asyncio.timeout(BOUND):
                message = await anext(events)
            assert isinstance(message, Message)
            assert message.data == "next"


async def test_an_event_source_that_moves_to_another_node_gets_a_gap_on_each_topic() -> None:
    async with (
        nodes(2, mesh_linger=60_000) as (one, two),
        one.client() as here,
        two.client() as there,
    ):
        topics = "demo.a,demo.b,demo.*.c"

        @asynccontextmanager
        async def source(at: MeshNode, last: str = "") -> AsyncGenerator[Stream]:
            """Send the frames of a browser without an SDK."""
            server = at.server
            token = server.service_token()
            headers = {"Last-Event-ID": last} if last else {}
            async with stream(server, token, topics=topics, headers=headers) as opened:
                yield opened

        # The other node had a subscriber, so its log of the topic is complete, and starts with a
        # message that is older than the last one of the reader.
        kept = await there.subscribe("demo.a")
        known = await there.publish("demo.a", {"type": "n", "data": "known"})
        async with source(one) as opened:
            await opened.until("subscribed")
            # The next message must have a later timestamp.
            await until(lambda: now_ms() > (known.timestamp or 0))
            last = await here.publish("demo.a", {"type": "n", "data": 0})
            while (event := await opened.next()).event != "message" or last.id not in event.data:
                pass
        await here.publish("demo.b", {"type": "n", "data": "nobody there subscribes"})
        async with source(two, event.id) as opened:
            answer = await opened.until("subscribed")
            assert answer["reset"] == ["demo.a", "demo.b", "demo.*.c"]
            assert [message["id"] for message in answer["history"]] == [last.id]
            await here.publish("demo.x.c", {"type": "n", "data": 1})
            while (event := await opened.next()).event != "message":
                pass
        await there.publish("demo.x.c", {"type": "n", "data": 2})
        async with source(two, event.id) as opened:
            answer = await opened.until("subscribed")
            assert "reset" not in answer
            assert [message["data"] for message in answer["history"]] == [2]
        await kept.unsubscribe()


@asynccontextmanager
async def behind_relay(**settings: Any) -> AsyncGenerator[tuple[Relay, MeshNode, MeshNode]]:
    """Run two nodes, connected by a relay that can hold what the second one sends."""
    settings = {"mesh_heartbeat": 60_000, **settings}
    async with Relay() as relay, node(mesh_advertise=relay.address, **settings) as one:
        relay.target = one.address
        async with node(relay.address, **settings) as two:
            await until(lambda: one.mesh.peers == two.mesh.peers == 1)
            yield relay, one, two


async def test_an_event_source_that_resumes_gets_what_a_slow_node_sent_late() -> None:
    async with (
        behind_relay(mesh_linger=60_000) as (relay, one, two),
        one.client() as here,
        two.client() as there,
    ):
        others = aiter(await here.subscribe("demo.b"))
        server, token = one.server, one.server.service_token()
        async with stream(server, token, topics="demo.a,demo.*") as opened:
            await opened.until("subscribed")
            relay.hold()
            late = await there.publish("demo.b", {"type": "n", "data": "late"})
            await until(lambda: now_ms() > (late.timestamp or 0) + 1)
            await here.publish("demo.a", {"type": "n", "data": "in time"})
            while (event := await opened.next()).event != "message":
                pass
        relay.release()
        async with asyncio.timeout(BOUND):
            assert (await anext(others)).timestamp == late.timestamp
        async with stream(
            server, token, topics="demo.a,demo.*", headers={"Last-Event-ID": event.id}
        ) as opened:
            history = (await opened.until("subscribed"))["history"]
            assert [message["data"] for message in history] == ["late"]
            assert history[0]["timestamp"] == late.timestamp


@pytest.mark.parametrize("waits", ["demo.a", "demo.b"])
@pytest.mark.parametrize("ends", [False, True])
async def test_no_event_before_the_last_answer_of_a_stream_has_an_id(
    waits: str, *, ends: bool
) -> None:
    async with (
        behind_relay(mesh_ack_timeout=60_000) as (relay, one, _),
        one.client() as here,
    ):
        await here.publish("demo.b", {"type": "n", "data": "of the second"})
        server, token = one.server, one.server.service_token()
        names = {"subscriptions": [{"topics": ["demo.a"]}, {"topics": ["demo.b"], "history": 9}]}
        # The answer to what no other client of the node subscribes to waits for the other node.
        kept = await here.subscribe("demo.a" if waits == "demo.b" else "demo.b")
        relay.hold()
        async with stream(server, token, body=names) as opened:
            await relay.held.wait()
            await here.publish("demo.a", {"type": "n", "data": "of the first"})
            if ends:
                hub = server.hub
                (reader,) = [each for each in hub.core.connections.values() if each.busy]
                hub.end(reader, ServiceError("going_away", "the server is shutting down"))
            relay.release()
            kinds = [("", False)]
            while kinds[-1][0] != ("error" if ends else "message"):
                event = await opened.next()
                kinds.append((event.event, bool(event.id)))
        await kept.unsubscribe()
    if ends:
        assert set(kinds[1:-1]) <= {("subscribed", False)}
        assert kinds[-1] == ("error", False)
    else:
        assert kinds[1:] == [("subscribed", False), ("subscribed", True), ("message", True)]


@pytest.mark.parametrize("topics", ["demo.a", "demo.*"])
async def test_an_event_source_that_moves_before_its_first_message_gets_a_gap(
    topics: str,
) -> None:
    async with nodes(2) as (one, two), one.client() as here:
        async with stream(one.server, one.server.service_token(), topics=topics) as opened:
            event = await opened.next()
        await here.publish("demo.a", {"type": "n", "data": 1})
        headers = {"Last-Event-ID": event.id}
        token = two.server.service_token()
        async with stream(two.server, token, topics=topics, headers=headers) as opened:
            assert (await opened.until("subscribed"))["reset"] == [topics]
