"""A peer that supports only the six opcodes of the proposal, together with full nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hanzoai.pubsub import Gap, Message
from tests.server.mesh.rig import joined, node, nodes
from tests.server.mesh.seed_peer import names, seed_listener, seed_peer
from tests.server.protocols.peers import BOUND, hub, until

TWO = names(b"topic_1", b"topic_2")
ADMIN = {"hub": {"user": "relay", "kind": "admin"}}
PATIENT = {"mesh_ack_timeout": 60_000}
"""Otherwise, a node repeats a subscription if the machine pauses before it is acknowledged."""


@pytest.mark.statement("Z-16", "Z-17", "Z-18", "Z-26", "Z-27", "Z-23", "Z-24")
async def test_the_frames_of_the_proposal_are_exact_to_the_byte_both_ways() -> None:
    async with (
        node(hub="0", listener_identities=ADMIN) as one,
        seed_peer(one.url) as peer,
        hub(one.server.server.others["hub"]) as client,
    ):
        peer.writer.write(bytes.fromhex("0200000010 07746f7069635f31 07746f7069635f32"))
        assert await peer.expect(3) == b"\x01"
        # One request of two topics is one forward of two topics: 31 bytes.
        await client.publish(b"hello", b"topic_1", b"topic_2")
        assert await peer.expect(6) == b"\x02" + TWO + b"\0\0\0\x05hello"
        # The interest of a client in two topics is one frame of 21 bytes.
        subscribed = asyncio.ensure_future(client.subscribe(b"topic_1", b"topic_2"))
        assert await peer.expect(2) == TWO
        peer.write(3, b"\x01")
        await subscribed
        peer.writer.write(bytes.fromhex("060000001a02") + TWO + b"\0\0\0\x05hello")
        assert [await client.pushed() for _ in range(2)] == [
            (b"topic_1", b"hello"),
            (b"topic_2", b"hello"),
        ]
        assert peer.skipped == 1, "the hello, which this peer does not know"


@pytest.mark.statement("Z-12", "Z-14", "Z-19")
async def test_a_peer_gets_what_it_wants_and_nothing_else() -> None:
    async with node() as one, one.client() as client, seed_peer(one.url) as peer:
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"
        peer.subscribe(b"demo.a", b"\xff not a topic of HIP-56")
        assert await peer.expect(3) == b"\x01"
        for topic in ("demo.b", "demo.a"):
            await client.publish(topic, {"type": "n", "data": {"of": topic}})
        assert await peer.expect(6) == b"\x01\x06demo.a" + b'\0\0\0\x0f{"of":"demo.a"}'
        peer.unsubscribe(b"demo.a")
        assert await peer.expect(5) == b"\x01"
        await client.publish("demo.a", {"type": "n", "data": 1})
        peer.write(1, b"ping")
        assert await peer.frame() == (1, b"pong")


async def test_a_forwarded_message_is_never_forwarded_again() -> None:
    async with (
        nodes(2, **PATIENT) as (one, two),
        one.client() as a,
        two.client() as b,
        seed_peer(one.url) as peer,
    ):
        peer.write(1, b"pong")
        await until(lambda: one.mesh.peers == 2)
        subscriptions = [each.subscribe("demo.a") for each in (a, b)]
        ready = asyncio.gather(*map(joined, subscriptions))
        assert await peer.expect(2) == b"\x06demo.a"
        peer.write(3, b"\x01")
        await ready
        messages = [aiter(each) for each in subscriptions]
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"
        peer.forward(b"from outside", b"demo.a")
        async with asyncio.timeout(BOUND):
            assert (await anext(messages[0])).data == "from outside"
            await a.publish("demo.a", {"type": "n", "data": "from here"})
            assert (await anext(messages[1])).data == "from here"
        # The first message that either of them gets is the one that was published here.
        assert await peer.expect(6) == b"\x01\x06demo.a\0\0\0\x09from here"
        assert two.mesh.counts.received == 1


@pytest.mark.statement("Z-22")
async def test_an_unwanted_forward_is_dropped_and_answered_by_another_unsubscription() -> None:
    async with node(**PATIENT) as one, one.client() as client, seed_peer(one.url) as peer:
        peer.write(1, b"pong")
        await until(lambda: one.mesh.peers == 1)
        subscription = client.subscribe("demo.a")
        ready = asyncio.ensure_future(joined(subscription))
        assert await peer.expect(2) == b"\x06demo.a"
        peer.write(3, b"\x01")
        await ready
        for n, topics in enumerate(((b"demo.b", b"demo.a"), (b"demo.c",))):
            peer.forward(b"x%d" % n, *topics)
            # The answer arrives with the next tick of the node, so before the second ping.
            before = peer.pings
            while (frame := await peer.raw()) == (1, b"ping") and peer.pings - before < 2:
                peer.pings += 1
                peer.write(1, b"pong")
            assert frame == (4, names(topics[0]))
            peer.write(5, b"\x01")
        async with asyncio.timeout(BOUND):
            assert (await anext(aiter(subscription))).data == "x0"
        assert one.mesh.counts.unwanted == 1


@pytest.mark.statement("Z-20")
async def test_a_subscription_is_sent_four_times_and_then_the_connection_ends() -> None:
    async with (
        node(mesh_heartbeat=60_000) as one,
        one.client() as client,
        seed_peer(one.url) as peer,
    ):
        peer.write(1, b"pong")
        await until(lambda: one.mesh.peers == 1)
        subscription = client.subscribe("demo.a")
        ready = asyncio.ensure_future(joined(subscription))
        for _ in range(4):
            assert await peer.expect(2) == b"\x06demo.a"
        await peer.ended()
        # The subscriber has waited for one window, and gets a gap for possibly missed messages.
        await ready
        await client.publish("demo.a", {"type": "n", "data": 1})
        events = aiter(subscription.events())
        async with asyncio.timeout(BOUND):
            assert isinstance(await anext(events), Gap)
        assert one.mesh.counts.refused == 1


@pytest.mark.statement("Z-21")
async def test_an_unsubscription_is_never_sent_again() -> None:
    async with (
        # Two heartbeats take longer than the time after which a subscription is sent again.
        node(mesh_heartbeat=1_500, mesh_ack_timeout=1_000) as one,
        one.client() as client,
        seed_peer(one.url) as peer,
    ):
        peer.write(1, b"pong")
        await until(lambda: one.mesh.peers == 1)
        subscription = client.subscribe("demo.a")
        ready = asyncio.ensure_future(joined(subscription))
        assert await peer.expect(2) == b"\x06demo.a"
        peer.write(3, b"\x01")
        await ready
        await subscription.unsubscribe()
        assert await peer.expect(4) == b"\x06demo.a"
        # Not acknowledged, but not repeated within two heartbeats either.
        before = peer.pings
        while peer.pings < before + 2:
            opcode, body = await peer.raw()
            assert (opcode, body) == (1, b"ping")
            peer.pings += 1
            peer.write(1, b"pong")


@pytest.mark.statement("Z-28")
async def test_heartbeats_go_both_ways_and_a_silent_peer_is_dead_after_three() -> None:
    async with node(mesh_heartbeat=100) as one, seed_peer(one.url) as peer:
        peer.write(1, b"ping")
        assert await peer.frame() == (1, b"pong")
        while peer.pings < 3:
            opcode, body = await peer.raw()
            peer.pings += (opcode, body) == (1, b"ping")
        await peer.ended()
        await until(lambda: not one.mesh.peers)
        assert (one.mesh.counts.lost, one.mesh.counts.refused) == (1, 0)


async def test_a_peer_that_is_silent_at_first_is_asked_and_dialed_again() -> None:
    # The answer must come within two of these timeouts, on a busy machine, too.
    async with seed_listener() as (address, peers), node(address, mesh_ack_timeout=500) as one:
        async with asyncio.timeout(BOUND):
            peer = await peers.get()
            while await peer.raw() != (1, b"ping"):
                pass
        assert one.mesh.peers == 0
        peer.write(1, b"pong")
        await until(lambda: one.mesh.peers == 1)
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"
        await peer.close()
        async with asyncio.timeout(BOUND):
            await (await peers.get()).close()


async def test_a_node_that_hangs_interrupts_no_subscription() -> None:
    """The system still accepts connections to it."""
    async with (
        seed_listener() as (address, peers),
        node(address, mesh_ack_timeout=20) as one,
        one.client() as client,
    ):
        events = aiter((await client.subscribe("demo.a")).events())
        async with asyncio.timeout(BOUND):
            await client.publish("demo.a", {"data": 1})
            assert isinstance(await anext(events), Message)
            for _ in range(2):
                await peers.get()
            await client.publish("demo.a", {"data": 2})
            assert isinstance(await anext(events), Message)
        assert (one.mesh.had_peers, one.mesh.counts.lost) == (False, 0)


@pytest.mark.statement("Z-01", "Z-25")
@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        (b"plain", "plain"),
        (b'{"a":1}', {"a": 1}),
        (b"\x00\xff", {"$base64": "AP8="}),
    ],
)
async def test_data_of_any_kind_crosses_without_loss(data: bytes, shown: Any) -> None:
    topic = "t" * 255
    async with (
        node(**PATIENT) as one,
        seed_peer(one.url) as peer,
        seed_peer(one.url) as other,
        one.client() as client,
    ):
        for each in (peer, other):
            each.write(1, b"pong")
        await until(lambda: one.mesh.peers == 2)
        subscription = client.subscribe("demo.a")
        ready = asyncio.ensure_future(joined(subscription))
        for each in (peer, other):
            assert await each.expect(2) == b"\x06demo.a"
            each.write(3, b"\x01")
        await ready
        peer.forward(data, b"demo.a")
        async with asyncio.timeout(BOUND):
            got = await anext(aiter(subscription))
        assert got.data == shown
        assert got.sender is not None
        assert got.sender.id == "mesh"
        other.subscribe(b"demo.a", topic.encode())
        while (await other.frame())[0] != 3:
            pass
        await client.publish("demo.a", {"type": "n", "data": shown})
        while (frame := await other.frame())[0] != 6:
            pass
        assert frame[1].endswith(len(data).to_bytes(4, "big") + data)
