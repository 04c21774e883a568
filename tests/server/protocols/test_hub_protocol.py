"""The hub protocol with a peer that does not use the product's code."""

from __future__ import annotations

import asyncio
import os
import random
import resource
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from pubsub_server.listeners import byte_session
from pubsub_server.listeners.hub_protocol.session import HubSession
from pubsub_server.shared import turns
from pubsub_server.testing import running_server
from tests.server.protocols.peers import BOUND, hub, names, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.testing import RunningServer

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
PUBLISH = bytes.fromhex("020000000d0106") + b"demo.a" + bytes.fromhex("0000000178")
SUBSCRIBE = bytes.fromhex("04000000080106") + b"demo.a"
ADMIN = {"hub": {"user": "relay", "kind": "admin"}}


@asynccontextmanager
async def relay(**settings: Any) -> AsyncGenerator[tuple[RunningServer, str]]:
    given = {"hub": "0", "listener_identities": ADMIN, "publish_rate_service": 1e6, **settings}
    async with running_server(**given) as server:
        yield server, server.server.others["hub"]


async def test_the_captured_bytes_of_the_existing_hub_work_also_byte_by_byte() -> None:
    two = bytes.fromhex("07746f7069635f3107746f7069635f32")
    subscribe = bytes.fromhex("040000001102") + two
    publish = bytes.fromhex("020000001a02") + two + bytes.fromhex("0000000568656c6c6f")
    async with relay() as (_, url), hub(url) as reader, hub(url) as sender:
        for byte in subscribe:
            reader.write(bytes((byte,)))
            await reader.writer.drain()
        assert await reader.read(1) == b"\x05"
        id = await reader.number(8)
        assert id
        assert await reader.number(4) == 2
        # Two requests in one write.
        sender.write(publish + publish)
        assert await sender.read(10) == bytes.fromhex("0300000002") * 2
        for topic in (b"topic_1", b"topic_2") * 2:
            push = b"\x06\0\0\0\x07" + topic + bytes.fromhex("0000000568656c6c6f")
            assert await reader.read(len(push)) == push


@pytest.mark.statement("Z-01", "Z-02", "Z-05", "Z-25")
async def test_counts_are_exact_over_topics_subscribers_and_listeners() -> None:
    async with (
        relay(event_stream="0") as (server, url),
        PubSubClient(url=server.ws, token=server.service_token()) as ps,
        hub(url) as one,
        hub(url) as two,
        hub(url) as sender,
    ):
        subscription = await ps.subscribe("demo.a")
        id_, count = await one.subscribe(b"demo.a", b"demo.b", b"no such topic", b"demo.a")
        assert count == 3
        assert (await two.subscribe(b"demo.a"))[1] == 1
        assert await sender.publish(b"x", b"demo.a") == 3
        assert await sender.publish(b"y", b"demo.a", b"demo.b", b"demo.c") == 4
        assert await sender.publish(b"z", b"demo.b", b"demo.b") == 2
        assert await sender.publish(b"w", b"no such topic", b"") == 1
        got = [await one.pushed() for _ in range(6)]
        assert [data for topic, data in got if topic == b"demo.a"] == [b"x", b"y"]
        assert [data for topic, data in got if topic == b"demo.b"] == [b"y", b"z", b"z"]
        assert got[-1] == (b"no such topic", b"w")
        assert [await two.pushed() for _ in range(2)] == [(b"demo.a", b"x"), (b"demo.a", b"y")]
        assert await one.add(id_, b"demo.a", b"demo.d") == 1
        assert await one.remove(id_, b"demo.a", b"demo.d", b"never") == 2
        assert await sender.publish(b"x", b"demo.a", b"demo.d") == 2
        assert (await anext(aiter(subscription))).data == "x"


async def test_an_id_of_another_client_changes_nothing() -> None:
    async with relay() as (_, url), hub(url) as one, hub(url) as mallory, hub(url) as sender:
        id_, _ = await one.subscribe(b"a")
        own, _ = await mallory.subscribe(b"b")
        assert own != id_
        for stranger in (id_, 0, 12345):
            assert await mallory.remove(stranger, b"a") == 0
            assert await mallory.add(stranger, b"c") == 0
        assert await sender.publish(b"x", b"a", b"b", b"c") == 2
        assert await one.pushed() == (b"a", b"x")


async def test_an_empty_subscribe_gets_no_id_and_an_empty_publish_reaches_no_client() -> None:
    async with relay() as (_, url), hub(url) as peer:
        assert await peer.subscribe() == (0, 0)
        assert await peer.publish(b"x") == 0


async def test_a_publisher_receives_its_own_messages_if_it_is_subscribed() -> None:
    async with relay() as (_, url), hub(url) as peer:
        await peer.subscribe(b"a")
        peer.request(2, names(b"a") + b"\0\0\0\x01x")
        push, reply = b"\x06\0\0\0\x01a\0\0\0\x01x", b"\x03\0\0\0\x01"
        # The order of the two is not defined.
        assert await peer.read(16) in {push + reply, reply + push}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        *((bytes((opcode,)) + b"\0\0\0\x01\0", "bad_opcode") for opcode in (0, 1, 3, 5, 6, 8)),
        *((bytes((opcode,)) + b"\0\0\0\x01\0", "bad_opcode") for opcode in (10, 11, 255)),
        (b"\x02\0\0\0\0", "bad_length"),
        (b"\x02\0\0\0\x07\x01\x01a\0\0\0\x05", "bad_length"),
        (b"\x04\0\0\0\x03\x02\x01a", "bad_length"),
        (b"\x02\xff\xff\xff\xff", "oversize"),
    ],
)
async def test_an_invalid_frame_closes_only_its_connection(wrong: bytes, reason: str) -> None:
    async with relay() as (server, url), hub(url) as good, hub(url) as bad:
        await good.subscribe(b"a")
        bad.write(wrong)
        assert await bad.ended() == b""
        assert server.stats.broken == {f"hub.{reason}": 1}
        assert await good.add(1, b"a") == 0


async def test_a_denied_request_is_answered_with_0_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alice = {"hub": {"user": "alice"}}
    async with relay(listener_identities=alice) as (server, url), hub(url) as peer:
        _, count = await peer.subscribe(b"demo.a", b"org.acme.news")
        assert count == 1
        assert await peer.publish(b"x", b"org.acme.news") == 0
        assert await peer.publish(b"x", b"demo.b") == 0
        assert server.stats.denied == {"hub": 1}
    assert "listener hub: the access rules do not allow alice to read org.acme.news" in caplog.text
    assert (
        "listener hub: the access rules do not allow alice to publish to org.acme.news"
        in caplog.text
    )
    async with relay(listener_identities={}) as (_, url), hub(url) as nobody:
        assert (await nobody.subscribe(b"demo.a"))[1] == 0
        assert await nobody.publish(b"x", b"demo.a") == 0


async def test_topics_of_the_hub_and_of_the_listener_have_one_limit() -> None:
    async with relay(max_subscriptions=3) as (_, url), hub(url) as peer:
        id_, count = await peer.subscribe(b"demo.a", b"a local topic", b"demo.b", b"demo.c")
        assert count == 3
        assert await peer.add(id_, b"another local topic") == 0
        assert await peer.remove(id_, b"a local topic") == 1
        assert await peer.add(id_, b"another local topic") == 1


async def test_a_publisher_above_the_rate_waits_for_its_answer() -> None:
    async with (
        relay(publish_rate_service=200, publish_burst=50) as (_, url),
        hub(url) as reader,
        hub(url) as sender,
    ):
        await reader.subscribe(b"demo.a")
        for number in range(40):
            sender.request(2, names(b"demo.a") + b"\0\0\0\x02%02d" % number)
        assert [(await reader.pushed())[1] for _ in range(40)] == [b"%02d" % n for n in range(40)]
        assert await sender.read(200) == bytes.fromhex("0300000001") * 40


@pytest.mark.statement("Z-01")
async def test_a_message_of_16_mib_passes_whole() -> None:
    data = bytes(range(256)) * 65_536
    async with relay() as (server, url), hub(url) as reader, hub(url) as sender:
        await reader.subscribe(b"a")
        assert await sender.publish(data, b"a") == 1
        assert await reader.pushed() == (b"a", data)
        assert server.stats.local["hub"] == 1


@pytest.mark.statement("Z-03")
async def test_many_clients_at_once_are_served() -> None:
    many = 8_000 if SOAK else 300
    if SOAK:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limits: dict[str, Any] = {"connections_per_user": 10_000}
    async with AsyncExitStack() as stack:
        server, url = await stack.enter_async_context(relay(**limits))
        peers = [await stack.enter_async_context(hub(url)) for _ in range(many)]
        await asyncio.gather(*(peer.subscribe(b"demo.a") for peer in peers))
        assert await peers[0].publish(b"x", b"demo.b") == 0
        sender = await stack.enter_async_context(hub(url))
        assert await sender.publish(b"x", b"demo.a") == many
        assert {await peer.pushed() for peer in peers} == {(b"demo.a", b"x")}
        assert server.stats.connections["hub"] == many + 1
    await until(lambda: server.stats.connections["hub"] == 0)


async def test_a_client_with_many_requests_is_served_in_several_turns_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, turn = asyncio.get_running_loop(), 0
    handled: Counter[int] = Counter()
    handle = HubSession.handle

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if handled.total() < 3_000:
            loop.call_soon(next_turn)

    def note(self: HubSession, requests: Any) -> Any:
        handled[turn] += 1
        return handle(self, requests)

    monkeypatch.setattr(turns, "SECONDS", 1e-9)
    monkeypatch.setattr(HubSession, "handle", note)
    remove = b"\x09" + (10).to_bytes(4, "big") + bytes(8) + names(b"")
    async with relay() as (_, url), hub(url) as sender:
        loop.call_soon(next_turn)
        sender.write(remove * 3_000)
        assert await sender.read(5 * 3_000) == (b"\x0a" + bytes(4)) * 3_000
    assert max(handled.values()) <= byte_session.TAKEN


async def test_garbage_closes_only_the_connection_that_sent_it() -> None:
    chance = random.Random(13)
    async with relay(event_stream="0", body_timeout=200, auth_deadline=200) as (server, url):
        broken = server.stats.broken
        async with hub(url) as good, hub(url) as sender:
            await good.subscribe(b"demo.a")
            for number in range(200):
                other = server.server.others["event_stream"] if number % 2 else url
                async with hub(other) as mallory:
                    mallory.write(chance.randbytes(chance.randrange(1, 400)))
                    assert not (await mallory.ended()).startswith(b"\x05")
            assert await sender.publish(b"x", b"demo.a") == 1
            assert await good.pushed() == (b"demo.a", b"x")
        assert sum(broken.values()) == 200
        assert not any(each.connections.unread for each in server.server._byte_listeners)


@pytest.mark.parametrize(
    ("method", "requests"),
    [
        ("enter", b""),
        ("put", PUBLISH),
        ("subscribe", SUBSCRIBE),
        ("subscribe", PUBLISH + SUBSCRIBE),
    ],
)
async def test_an_unexpected_failure_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    requests: bytes,
) -> None:
    def fail(*given: object) -> None:
        raise ZeroDivisionError

    async with relay() as (server, url), hub(url) as good:
        await good.subscribe(b"demo.b")
        with monkeypatch.context() as patch:
            patch.setattr(server.hub, method, fail)
            async with hub(url) as bad:
                bad.write(requests)
                await bad.ended()
        assert server.stats.broken == {"hub.internal": 1}
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert await good.publish(b"x", b"demo.c") == 0


async def test_a_client_that_leaves_in_the_middle_of_a_publish_leaves_nothing_behind() -> None:
    async with relay(publish_rate_service=10, publish_burst=1) as (server, url):
        async with hub(url) as peer:
            for _ in range(20):
                peer.request(2, names(b"demo.a") + b"\0\0\0\x01x")
            assert await peer.read(5)
            peer.writer.transport.abort()
        await until(lambda: server.stats.connections["hub"] == 0)
        (listener,) = server.server._byte_listeners
        assert (listener.connections.open, listener.connections.unread) == (set(), 0)


LOCAL = b"not a topic of HIP-56"


@pytest.mark.parametrize("topics", [(b"demo.a",), (b"demo.a", b"demo.b"), (LOCAL,)])
async def test_a_publish_that_waits_for_its_rate_ends_with_its_connection(
    topics: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    napping: asyncio.Queue[HubSession] = asyncio.Queue()
    nap = HubSession.nap

    async def note(self: HubSession, seconds: float) -> None:
        napping.put_nowait(self)
        await nap(self, seconds)

    monkeypatch.setattr(HubSession, "nap", note)
    async with relay(publish_rate_service=1, publish_burst=1) as (server, url), hub(url) as sender:
        assert await sender.publish(b"x", b"demo.a") == 0
        sender.request(2, names(*topics) + b"\0\0\0\1x")
        async with asyncio.timeout(BOUND):
            session = await napping.get()
        session.abort()
        await until(lambda: server.stats.connections["hub"] == 0)
        await until(lambda: not session._working)
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


async def test_a_subscriber_whose_connection_is_closing_is_not_counted() -> None:
    async with relay() as (server, url), hub(url) as sender, hub(url) as stays:
        await stays.subscribe(LOCAL)
        assert await sender.publish(b"x", LOCAL) == 1
        listener: Any = server.server._byte_listeners[0]
        others = set(listener.connections.open)
        async with hub(url) as leaves:
            await leaves.subscribe(LOCAL)
            (session,) = listener.connections.open - others
            # Its last bytes are still being sent.
            session._closing = True
            assert await sender.publish(b"x", LOCAL) == 1
