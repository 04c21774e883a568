"""Peers that violate rules, lie, flood or stall are rejected without affecting other nodes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hanzoai.pubsub import Gap, Message
from pubsub_server.backplanes.mesh.link import Link
from pubsub_server.backplanes.mesh.peering import Peering
from tests.ports import free_port
from tests.server.mesh.proxies import Relay
from tests.server.mesh.rig import MeshNode, joined, node, nodes
from tests.server.mesh.seed_peer import SeedPeer, names, seed_listener, seed_peer
from tests.server.protocols.peers import BOUND, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = "a shared key of a test"
LABEL = b"hanzo-pubsub mesh 1"
pack = msgspec.msgpack.encode


def hello(one: MeshNode, **changes: Any) -> bytes:
    """Return the first frame of a full node."""
    output = {
        "version": 1,
        "node": "z" * 16,
        "start": "s",
        "address": "127.0.0.1:1",
        "nonce": os.urandom(16),
        "keyed": one.mesh.terms.key is not None,
    }
    return pack({**output, **changes})


def proof(one: MeshNode, mine: bytes, its: bytes) -> bytes:
    """Return the proof of a dialer for the nonces of both hellos."""
    key = one.mesh.terms.key
    assert key is not None
    parts = (LABEL, b"dialer", mine, its, b"z" * 16, one.id.encode())
    return hmac.digest(key, b"".join(len(part).to_bytes(2) + part for part in parts), "sha256")


async def greet(one: MeshNode, peer: SeedPeer, **changes: Any) -> None:
    """Connect as a node with a high id, which is accepted."""
    peer.write(7, hello(one, **changes))
    while (await peer.raw())[0] != 9:
        pass
    peer.write(9, b"\x00")


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"\x06\0\0\0\x03\x01\x05a", "a topic that reaches behind the end"),
        (b"\x06\0\0\0\x07\x01\x01a\0\0\0\x09", "less data than it says"),
        (b"\x06\0\0\0\x09\x01\x01a\0\0\0\x01xy", "more data than it says"),
        (b"\x06\0\0\0\x00", "a forward without anything"),
        (b"\x06\xff\xff\xff\xff", "a body of 4 GiB"),
        (b"\x02\0\0\0\x03\x05ab", "a list that ends within a name"),
        (b"\x02\xff\xff\xff\xff", "a list of 4 GiB"),
        (b"\x01\0\0\0\x04pang", "another heartbeat"),
        (b"\x0b\0\0\0\x01\xc1", "an envelope of a peer that has not said hello"),
        (b"\x07\0\0\0\x01\xc1", "a hello that cannot be read"),
        (b"\x08\0\0\0\x00", "a proof before the hello"),
        (b"\x09\0\0\0\x01\x00", "a welcome before the hello"),
    ],
)
async def test_a_broken_frame_ends_its_connection_and_no_other(frame: bytes, why: str) -> None:
    async with nodes(2) as (one, two), one.client() as a, two.client() as b:
        subscription = await b.subscribe("demo.a")
        async with seed_peer(one.url) as peer:
            peer.writer.write(frame)
            await peer.ended()
        await until(lambda: one.mesh.counts.refused == 1)
        await a.publish("demo.a", {"type": "n", "data": 1})
        async with asyncio.timeout(BOUND):
            assert (await anext(aiter(subscription))).data == 1, why
        assert one.mesh.peers == two.mesh.peers == 1


async def test_strangers_that_break_the_protocol_are_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node() as one:
        for _ in range(3):
            async with seed_peer(one.url) as peer:
                peer.writer.write(b"\x06\xff\xff\xff\xff")
                await peer.ended()
        await until(lambda: one.mesh.counts.refused == 3)
    assert caplog.text.count("mesh: closed the connection") == 1


async def test_a_message_above_the_limit_of_another_node_is_a_gap_and_names_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        node() as one,
        node(one, max_payload=1_000) as two,
        one.client() as a,
        two.client() as b,
    ):
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)
        events = aiter((await b.subscribe("demo.a")).events())
        async with asyncio.timeout(BOUND):
            await a.publish("demo.a", {"data": 1})
            first = await anext(events)
            await a.publish("demo.a", {"data": "x" * 100_000})
            await until(lambda: one.mesh.counts.lost == two.mesh.counts.lost == 1)
            await until(lambda: one.wanting("demo.a") == {two.id})
            await a.publish("demo.a", {"data": 2})
            gap, last = await anext(events), await anext(events)
    assert isinstance(first, Message)
    assert isinstance(gap, Gap)
    assert isinstance(last, Message)
    assert (first.data, last.data) == (1, 2)
    assert "Give max_payload the same value on all nodes" in caplog.text


@pytest.mark.parametrize("opcode", [7, 10, 11])
async def test_text_that_is_not_utf_8_is_refused(opcode: int) -> None:
    async with node() as one, seed_peer(one.url) as peer:
        if opcode == 7:
            peer.write(7, hello(one, start="broken").replace(b"broken", b"br\xffken"))
        else:
            await greet(one, peer)
            record: list[Any] = [["broken", "127.0.0.1:1"]]
            if opcode == 11:
                record = ["demo.a", "broken", False, "n", b"1", "user", "u", 1, None, None]
            peer.write(opcode, pack(record).replace(b"broken", b"br\xffken"))
        await peer.ended()
        await until(lambda: one.mesh.counts.refused == 1)


async def test_a_heartbeat_in_the_middle_of_the_greeting_is_ignored() -> None:
    async with node() as one, seed_peer(one.url) as peer:
        peer.write(7, hello(one, node="0" * 16))
        peer.write(1, b"ping")
        peer.write(9, b"\x00")
        while (await peer.raw())[0] != 9:
            pass
        await until(lambda: one.mesh.peers == 1)


async def test_an_unknown_opcode_is_skipped_by_its_length() -> None:
    async with node() as one, seed_peer(one.url) as peer:
        for opcode in (0, 17, 99, 255):
            peer.write(opcode, b"\x02" * 100_000)
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"


@pytest.mark.statement("Z-29")
async def test_nodes_with_another_key_or_none_do_not_connect() -> None:
    async with node(mesh_key=KEY) as one, one.client() as client:
        async with node(one, mesh_key=KEY) as two:
            await until(lambda: one.mesh.peers == two.mesh.peers == 1)
        await until(lambda: not one.mesh.peers)
        refused = one.mesh.counts.refused
        for key in ("another key of a test", None):
            async with node(one, mesh_key=key) as three:
                await until(lambda: one.mesh.counts.refused > refused or one.mesh.peers)  # noqa: B023
                assert not one.mesh.peers
                assert not three.mesh.peers
            refused = one.mesh.counts.refused
        # A peer with only the six opcodes cannot prove that it has the key.
        async with seed_peer(one.url) as peer:
            peer.subscribe(b"demo.a")
            await peer.ended()
        assert not one.wanting("demo.a")
        await client.publish("demo.a", {"type": "n", "data": 1})


@pytest.mark.parametrize("key", ["another key of a test", None])
async def test_the_log_names_the_remedy_for_nodes_with_different_keys(
    key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(mesh_key=KEY) as one, node(one, mesh_key=key):
        await until(lambda: "shared key; set the same mesh_key on both nodes" in caplog.text)


async def test_a_proof_that_is_played_back_is_refused() -> None:
    async with node(mesh_key=KEY) as one, seed_peer(one.url) as peer:
        opcode, body = await peer.raw()
        assert opcode == 7
        mine = msgspec.msgpack.decode(body)
        # Reflect the nonce, to try the node's own proof as the answer.
        peer.write(7, hello(one, nonce=mine["nonce"]))
        opcode, proof = await peer.raw()
        assert opcode == 8
        peer.write(8, proof)
        await peer.ended()
        assert not one.mesh.had_peers, "the peer was never taken for a node"


async def test_a_proof_of_an_earlier_connection_is_refused() -> None:
    async with node(mesh_key=KEY) as one:
        nonce = os.urandom(16)
        async with seed_peer(one.url) as peer:
            output = msgspec.msgpack.decode((await peer.raw())[1])
            recorded = (hello(one, nonce=nonce), proof(one, nonce, output["nonce"]))
            for opcode, body in zip((7, 8), recorded, strict=True):
                peer.write(opcode, body)
            while (await peer.raw())[0] != 9:
                pass
            assert one.mesh.counts.refused == 0, "on its own connection the proof is valid"
        async with seed_peer(one.url) as peer:
            for opcode, body in zip((7, 8), recorded, strict=True):
                peer.write(opcode, body)
            await peer.ended()
            assert one.mesh.counts.refused == 1


async def test_two_nodes_with_one_id_are_not_taken_for_one() -> None:
    async with node() as one, seed_peer(one.url) as first, seed_peer(one.url) as second:
        await greet(one, first)
        first.write(2, names(b"demo.a"))
        assert await first.expect(3) == b"\x01"
        second.write(7, hello(one, start="another"))
        await second.ended()
        assert one.mesh.counts.refused == 1
        # Then a peer with the node's own id.
        async with seed_peer(one.url) as third:
            third.write(7, hello(one, node=one.id))
            await third.ended()
        await until(lambda: one.mesh.counts.refused == 2)
        assert one.mesh.peers == 1


async def test_a_node_that_starts_again_with_its_id_has_no_subscriptions() -> None:
    async with node() as one:
        for start in ("first", "second"):
            async with seed_peer(one.url) as peer:
                await greet(one, peer, start=start)
                if start == "first":
                    peer.write(2, names(b"demo.a"))
                    assert await peer.expect(3) == b"\x01"
                assert one.mesh.interests == (start == "first")
            await until(lambda: not one.mesh.peers)


async def test_another_version_of_the_mesh_is_refused() -> None:
    async with node() as one, seed_peer(one.url) as peer:
        peer.write(7, hello(one, version=2))
        await peer.ended()
        assert one.mesh.counts.refused == 1


async def test_a_peer_that_is_refused_for_its_version_gets_the_version_of_this_node_first() -> None:
    sent: list[bytes] = []

    class Peer(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            sent.append(bytes(data))

        def abort(self) -> None:
            sent.append(b"closed")

        def get_write_buffer_size(self) -> int:
            return 0

    async with node() as one:
        theirs = hello(one, version=2)
        link = Link(
            one.mesh,
            Peering(one.mesh.terms, b"n" * 16, dialed=False, now=0),
            asyncio.get_running_loop(),
            1 << 20,
            None,
        )
        # The hello of the peer is there before this node has sent its own.
        link.connection_made(Peer())
        link.data_received(b"\x07" + len(theirs).to_bytes(4) + theirs)
    ours, end = sent
    assert (msgspec.msgpack.decode(ours[5:])["version"], end) == (1, b"closed")


@asynccontextmanager
async def node_of_a_later_version() -> AsyncGenerator[str]:
    """Listen as a node of another version; yields its address."""

    def greet_as_later(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = pack({**later, "nonce": os.urandom(16)})
        writer.write(b"\x07" + len(theirs).to_bytes(4) + theirs)
        writer.close()

    later = {"version": 2, "node": "z" * 16, "start": "s", "address": "", "keyed": False}
    async with await asyncio.start_server(greet_as_later, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_strangers_do_not_hide_what_is_wrong_with_a_node_that_another_node_has_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node_of_a_later_version() as address, node() as one:
        async with seed_peer(one.url) as stranger:
            stranger.writer.write(b"\x06\xff\xff\xff\xff")
            await stranger.ended()
        async with seed_peer(one.url) as peer:
            await greet(one, peer)
            peer.write(10, pack([("zz", address)]))
            await until(lambda: one.mesh.counts.refused == 2)
    assert f"closed the connection to {address}: The peer uses version 2" in caplog.text


async def test_a_configured_address_of_another_version_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node_of_a_later_version() as address, node(address) as one:
        await until(lambda: one.mesh.counts.refused >= 2)
    warnings = [each.getMessage() for each in caplog.records if address in each.getMessage()]
    assert warnings == [
        f"mesh: closed the connection to {address}: The peer uses version 2 of the mesh, this node"
        " 1; install the same server on both nodes."
    ]


async def test_a_node_that_dials_itself_notices_and_continues() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with node(address, mesh_listen=address) as one, node(address) as two:
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)
        assert one.mesh.counts.refused == 0


async def test_a_peer_that_lies_about_members_costs_a_bounded_number_of_addresses() -> None:
    async with node() as one, seed_peer(one.url) as peer:
        await greet(one, peer)
        for start in range(0, 1000, 250):
            lies = [(f"n{n}", f"127.0.0.1:{10_000 + n}") for n in range(start, start + 250)]
            peer.write(10, pack([*lies, ("x", "no address"), (one.id, "127.0.0.1:9")]))
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"
        assert one.mesh.members <= 256
        assert one.mesh.counts.refused == 4


@pytest.mark.parametrize("address", ["x:port{}", "a..b{}:1", "{}" + 64 * "a" + ":1"])
async def test_addresses_that_cannot_be_dialed_keep_no_other_from_being_dialed(
    address: str,
) -> None:
    async with node() as one, seed_listener() as (reachable, came):
        for n in range(8):
            async with seed_peer(one.url) as peer:
                await greet(one, peer, node=f"z{n}", address=address.format(n))
        await until(lambda: not one.mesh.peers)
        await until(lambda: not one.mesh._members.untried(lambda node: False))
        async with seed_peer(one.url) as peer:
            await greet(one, peer)
            peer.write(10, pack([("zz", reachable)]))
            async with asyncio.timeout(BOUND):
                await came.get()


async def test_a_wildcard_among_topics_is_a_name_and_no_pattern() -> None:
    async with node() as one, one.client() as client, seed_peer(one.url) as peer:
        peer.subscribe(b"demo.*", b"**")
        assert await peer.expect(3) == b"\x01"
        await client.publish("demo.a", {"type": "n", "data": 1})
        peer.write(1, b"ping")
        assert await peer.frame() == (1, b"pong")


async def test_a_subscription_that_a_peer_rejects_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        # Otherwise, a pause of the machine repeats a subscription.
        node(mesh_ack_timeout=60_000) as one,
        one.client() as client,
        seed_peer(one.url) as peer,
    ):
        peer.write(1, b"pong")
        await until(lambda: one.mesh.peers == 1)
        subscriptions = [client.subscribe(topic) for topic in ("demo.a", "demo.b")]
        for subscription, topic in zip(subscriptions, (b"demo.a", b"demo.b"), strict=True):
            subscribed = asyncio.ensure_future(joined(subscription))
            assert await peer.expect(2) == names(topic)
            peer.write(3, b"\x00")
            await subscribed
    assert caplog.text.count("accepts no more topics of this node") == 1


async def test_a_request_for_too_many_topics_is_rejected_and_keeps_the_existing_ones() -> None:
    async with node(topics_max=100) as one, seed_peer(one.url) as peer:
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"
        peer.subscribe(*(f"demo.{n}".encode() for n in range(100)))
        assert await peer.expect(3) == b"\x00"
        peer.subscribe()
        assert await peer.expect(3) == b"\x00"
        assert one.wanting("demo.a")
        assert not one.wanting("demo.1")


@pytest.mark.parametrize(
    "record",
    [
        ["not a topic!", "id", False, "n", b"1", "user", "u", 1, None, None],
        ["demo.*", "id", False, "n", b"1", "user", "u", 1, None, None],
        ["demo.a", "id", False, "n", b"{half", "user", "u", 1, None, None],
        ["demo.a", "id", False, "n", b"1", "user", "u", 1, None, b"{half"],
        ["demo.a", "id", False, "n", b"1", "user", "u", 1, None, b"[1]"],
        ["demo.a", "id", False, "n", b"1", "user", "u", 1, -1, None],
        ["demo.a", "", False, "n", b"1", "user", "u", 1, None, None],
        ["demo.a", "id" * 100, False, "n", b"1", "user", "u", 1, None, None],
        ["demo.a", "id", False, "", b"1", "user", "u", 1, None, None],
        ["demo.a", "id", False, "n", b'{"a":\n1}', "user", "u", 1, None, None],
        ["demo.a", "id", False, "n", b"[" * 300 + b"]" * 300, "user", "u", 1, None, None],
    ],
)
async def test_an_envelope_that_would_break_clients_is_dropped(record: list[Any]) -> None:
    async with node() as one, one.client() as client, seed_peer(one.url) as peer:
        await greet(one, peer)
        subscription = client.subscribe(["demo.a", "demo.**"])
        ready = asyncio.ensure_future(joined(subscription))
        assert await peer.expect(2) == b"\x06demo.a"
        peer.write(3, b"\x01")
        peer.write(13, b"\x01")
        await ready
        peer.write(11, pack(record))
        good = ["demo.a", "m1", False, "n", b'{"n":1}', "user", "u", 2**60, None, None]
        peer.write(11, pack(good))
        peer.write(11, pack(good))
        async with asyncio.timeout(BOUND):
            got = await anext(aiter(subscription))
        assert (got.id, got.data) == ("m1", {"n": 1})
        # A peer's clock that is ahead does not move this node's time ahead.
        assert got.timestamp < 2**50
        await until(lambda: one.mesh.counts.duplicates == 1)
        assert one.mesh.counts.refused + one.mesh.counts.unwanted == one.mesh.peers == 1


@pytest.mark.parametrize(("timestamp", "ttl"), [(1, None), (-5, None), (1, 60)])
async def test_a_message_of_a_node_whose_clock_is_far_behind_arrives_once_and_is_kept(
    timestamp: int, ttl: int | None
) -> None:
    async with node() as one, one.client() as client, seed_peer(one.url) as peer:
        await greet(one, peer)
        subscription = client.subscribe("demo.a")
        ready = asyncio.ensure_future(joined(subscription))
        assert await peer.expect(2) == b"\x06demo.a"
        peer.write(3, b"\x01")
        await ready
        for n in (1, 1, 2):
            record = ["demo.a", f"m{n}", False, "n", b"%d" % n, "user", "u", timestamp, ttl, None]
            peer.write(11, pack(record))
        reader = aiter(subscription)
        async with asyncio.timeout(BOUND):
            assert [(await anext(reader)).data for _ in range(2)] == [1, 2]
        assert (one.mesh.peers, one.mesh.counts.duplicates) == (1, 1)
        page = await one.backplane.logs.page(
            "demo.a", since=None, before=None, after=None, limit=10
        )
        assert len(page.messages) == 2


@pytest.mark.parametrize("topic", [b"demo.\xff", b"demo.a b", b"demo.", b"demo.\0", b"demo/a"])
async def test_data_on_an_invalid_topic_is_dropped_and_its_peer_stays(topic: bytes) -> None:
    async with node() as one, one.client() as client, seed_peer(one.url) as peer:
        reader = aiter(await client.subscribe("**"))
        peer.forward(b"bad", topic)
        peer.forward(b"good", b"demo.a")
        async with asyncio.timeout(BOUND):
            assert (await anext(reader)).data == "good"
        assert one.mesh.counts.refused == 1
        assert one.mesh.peers == 1


@pytest.mark.parametrize("topic", ["demo.\u20ac", "x" * 300], ids=["not latin", "too long"])
async def test_an_unwanted_topic_that_no_list_can_hold_disturbs_no_other_peer(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as one, one.client() as client, seed_peer(one.url) as bad:
        await greet(one, bad)
        record = [topic, "id", False, "n", b"1", "user", "u", 1, None, None]
        bad.write(11, pack(record))
        await until(lambda: one.mesh.counts.unwanted == 1)
        async with seed_peer(one.url) as good:
            good.write(1, b"pong")
            subscription = client.subscribe("demo.a")
            subscribed = asyncio.ensure_future(joined(subscription))
            for each in (bad, good):
                assert await each.expect(2) == b"\x06demo.a"
                each.write(3, b"\x01")
            await subscribed
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_flood_of_unwanted_topics_costs_a_bounded_answer() -> None:
    async with node(mesh_ack_timeout=60_000) as one, seed_peer(one.url) as peer:
        peer.write(1, b"pong")
        for first in range(0, 20_000, 250):
            peer.forward(b"", *(b"demo.%d" % n for n in range(first, first + 250)))
        await peer.writer.drain()
        await until(lambda: one.mesh.counts.unwanted == 80)
        (link,) = one.mesh.links
        assert link.peering.announcements.unsent <= 2_000
        await peer.expect(4)


async def test_a_peer_that_does_not_read_is_cut_and_costs_no_more_than_its_queue() -> None:
    async with (
        nodes(2, mesh_queue_bytes=1_000_000, mesh_heartbeat=60_000) as (one, two),
        one.client() as publisher,
        two.client() as client,
        seed_peer(one.url) as peer,
    ):
        subscription = await client.subscribe("demo.a")
        peer.subscribe(b"demo.a")
        assert await peer.expect(3) == b"\x01"
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        got = 0
        reader = aiter(subscription)
        while not one.mesh.counts.stalled:
            await publisher.publish("demo.a", {"type": "n", "data": "x" * 100_000})
            async with asyncio.timeout(BOUND):
                await anext(reader)
            got += 1
            assert got < 1000
        assert one.mesh.peers == 1


async def test_a_flood_of_one_peer_delays_others_only_briefly() -> None:
    # On a busy machine, a heartbeat can be late.
    async with (
        nodes(2, mesh_heartbeat=60_000) as (one, two),
        one.client() as a,
        two.client() as b,
    ):
        subscription = await b.subscribe("demo.a")
        async with seed_peer(two.url) as peer:
            peer.write(1, b"pong")

            async def flood() -> None:
                frame = b"\x06\0\0\0\x0e\x01\x06demo.z\0\0\0\x02xx"
                while True:
                    peer.writer.write(frame * 2000)
                    await peer.writer.drain()

            task = asyncio.ensure_future(flood())
            for n in range(20):
                await a.publish("demo.a", {"type": "n", "data": n})
                async with asyncio.timeout(BOUND):
                    assert (await anext(aiter(subscription))).data == n
            task.cancel()
            await asyncio.wait([task])
        assert two.mesh.counts.unwanted > 1000


async def test_a_stranger_cannot_make_a_node_wait_for_a_long_body() -> None:
    async with node(mesh_key=KEY, mesh_ack_timeout=60_000) as one, seed_peer(one.url) as peer:
        peer.writer.write(b"\x02" + (65_537).to_bytes(4, "big"))
        await peer.ended()
        assert one.mesh.counts.refused == 1


async def test_connections_that_never_send_a_hello_are_bounded() -> None:
    async with node(mesh_key=KEY, mesh_ack_timeout=20_000, mesh_heartbeat=60_000) as one:
        peers = [seed_peer(one.url) for _ in range(260)]
        opened = [await each.__aenter__() for each in peers]
        await opened[0].ended()
        assert len(one.mesh.links) <= 256
        for each in peers:
            await each.__aexit__(None, None, None)


@pytest.mark.parametrize("turns", range(6))
async def test_a_peer_that_connects_while_a_node_ends_is_disconnected_without_a_complaint(
    turns: int,
) -> None:
    async with node() as one:
        host, port = one.address.rsplit(":", 1)
        client = socket.create_connection((host, int(port)))
        # The event loop needs some turns to pass a new connection to the node.
        for _ in range(turns):
            await asyncio.sleep(0)
        await one.mesh.close()
    with client:
        client.setblocking(False)
        with suppress(ConnectionResetError):
            async with asyncio.timeout(BOUND):
                while await asyncio.get_running_loop().sock_recv(client, 4096):
                    pass
    assert one.mesh.counts.refused == 0


async def test_only_messages_published_while_a_node_was_away_are_a_gap() -> None:
    async with nodes(2) as (one, two), one.client() as publisher, two.client() as client:
        subscription = await client.subscribe("demo.a")
        await publisher.publish("demo.a", {"type": "n", "data": 1})
        events = aiter(subscription.events())
        async with asyncio.timeout(BOUND):
            first = await anext(events)
        assert not isinstance(first, Gap)
        for link in one.mesh.links:
            link.cut("closed", "a test cuts the connection")
        await publisher.publish("demo.a", {"type": "n", "data": 2})
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)
        await until(lambda: one.wanting("demo.a"))
        await publisher.publish("demo.a", {"type": "n", "data": 3})
        async with asyncio.timeout(BOUND):
            got = [await anext(events) for _ in range(2)]
        assert isinstance(got[0], Gap)
        assert not isinstance(got[1], Gap)


@pytest.mark.parametrize("late", [False, True])
async def test_messages_that_a_dead_connection_swallows_are_a_gap(late: bool) -> None:
    """Also if bytes that the subscriber had sent arrive late."""
    async with (
        Relay() as relay,
        node(mesh_heartbeat=1000, mesh_advertise=relay.address) as one,
        one.client() as publisher,
    ):
        relay.target = one.address
        async with node(relay.address) as two, two.client() as client:
            await until(lambda: one.mesh.peers == two.mesh.peers == 1)
            events = aiter((await client.subscribe("demo.a")).events())
            if late:
                relay.hold()
                two.mesh.join("demo.b")
                await relay.held.wait()
            relay.cut()
            await until(lambda: not two.mesh.peers)
            await client.publish("demo.a", {"type": "n", "data": "here"})
            await publisher.publish("demo.a", {"type": "n", "data": "swallowed"})
            if late:
                relay.release()
                await until(lambda: one.wanting("demo.b") == {two.id})
            relay.mend()
            await until(lambda: one.mesh.counts.lost == 1 and two.mesh.peers == 1)
            await until(lambda: one.wanting("demo.a") == {two.id})
            await publisher.publish("demo.a", {"type": "n", "data": "there"})
            async with asyncio.timeout(BOUND):
                got = [await anext(events) for _ in range(4)]
    assert [isinstance(each, Gap) for each in got] == [True, False, True, False]


@pytest.mark.parametrize("dials", [True, False])
async def test_connections_that_never_send_a_hello_keep_no_node_out(dials: bool) -> None:
    slow = {"mesh_key": KEY, "mesh_ack_timeout": 20_000, "mesh_heartbeat": 60_000}
    port = free_port()
    async with AsyncExitStack() as stack:
        known = [f"127.0.0.1:{port}"] if dials else []
        one = await stack.enter_async_context(node(*known, **slow))
        for _ in range(256):
            await stack.enter_async_context(seed_peer(one.url))
        await until(lambda: len(one.mesh.links) == 256)
        others = [] if dials else [one]
        two = await stack.enter_async_context(node(*others, mesh_listen=str(port), **slow))
        await until(lambda: one.mesh.peers == two.mesh.peers == 1)
