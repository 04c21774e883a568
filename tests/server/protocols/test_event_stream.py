"""The event stream with a peer that does not use the product's code."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.eventstream.codec import encode_event
from pubsub_server.access.setup import StartError
from pubsub_server.listeners import byte_session
from pubsub_server.listeners.byte_session import MEDIUM, TAKEN
from pubsub_server.shared import turns
from pubsub_server.shared.turns import Turns
from pubsub_server.testing import running_server
from tests.server.protocols.peers import EventPeer, events, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer

ADMIN = {"event_stream": {"user": "bus", "kind": "admin"}}


class Broker:
    """A server with an event stream."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.url = server.server.others["event_stream"]
        (listener,) = server.server._byte_listeners
        self.connections = listener.connections
        self.sessions: Any = listener.connections.open

    async def has(self, count: int) -> None:
        """Wait until it has this many subscriptions."""
        await until(lambda: self.server.stats.subscriptions >= count)

    async def has_local(self, count: int) -> None:
        await until(lambda: len({each._topic for each in self.sessions} - {None}) >= count)

    async def outlived(self) -> Any:
        """Wait until the only session has no connection, and return it."""
        await until(lambda: [each._transport for each in self.sessions] == [None])
        (session,) = self.sessions
        return session


@asynccontextmanager
async def broker(**settings: Any) -> AsyncGenerator[Broker]:
    given = {
        "event_stream": "0",
        "listener_identities": ADMIN,
        "publish_rate_service": 1e6,
        **settings,
    }
    async with running_server(**given) as server:
        yield Broker(server)


async def test_a_message_that_no_event_can_hold_disturbs_no_other_subscriber() -> None:
    size = 17 * 1024 * 1024
    async with (
        broker(max_payload=2 * size, max_frame=4 * size, send_queue_bytes=8 * size) as node,
        events(node.url, b"demo.a") as peer,
        PubSubClient(
            node.server.ws,
            node.server.admin_token(),
            max_frame=4 * size,
            max_payload=2 * size,
        ) as client,
        client.subscribe("demo.a") as messages,
    ):
        await node.has(2)
        await client.publish("demo.a", {"type": "n", "data": "x" * size})
        assert len((await anext(aiter(messages))).data) == size
        await client.publish("demo.a", {"type": "n", "data": "small"})
        assert await peer.next() == (b"demo.a", b"small")


@pytest.mark.statement("P-03", "P-05", "P-10", "P-15", "P-22")
async def test_events_reach_all_subscribers_of_their_topic_in_order_and_not_their_sender() -> None:
    async with (
        broker() as node,
        events(node.url, b"status") as one,
        events(node.url, b"status") as two,
        events(node.url, b"metrics") as other,
    ):
        await node.has(3)
        for number in range(50):
            one.event(b"status", b"%d" % number)
        two.event(b"status", b"back")
        two.event(b"metrics", b'{"cpu":42}')
        assert [await two.next() for _ in range(50)] == [
            (b"status", b"%d" % number) for number in range(50)
        ]
        assert await one.next() == (b"status", b"back")
        assert await other.next() == (b"metrics", b'{"cpu":42}')


async def test_the_captured_bytes_work_in_one_write_and_in_single_bytes() -> None:
    subscribe = bytes.fromhex("000673746174757300000000")
    publish = bytes.fromhex("0006737461747573000000066f6e6c696e65")
    async with broker() as node, events(node.url) as one, events(node.url) as two:
        one.write(subscribe)
        await node.has(1)
        for byte in subscribe + publish:
            two.write(bytes((byte,)))
            await two.writer.drain()
        assert await one.read(len(publish)) == publish


@pytest.mark.statement("P-11", "P-12", "P-20")
async def test_a_star_alone_takes_everything_and_other_stars_are_topics() -> None:
    async with (
        broker() as node,
        events(node.url, b"*") as everything,
        events(node.url, b"events.*") as literal,
    ):
        await node.has(1)
        await node.has_local(1)
        for topic in (b"status", b"events.new", b"events.*", b"*", b"", b"a b/\xff"):
            literal.event(topic, b"x")
        got = [await everything.next() for _ in range(6)]
        assert sorted(topic for topic, _ in got) == sorted(
            [b"status", b"events.new", b"events.*", b"*", b"", b"a b/\xff"]
        )
        everything.event(b"events.*", b"back")
        assert await literal.next() == (b"events.*", b"back")
        assert node.server.stats.local == {"event_stream": 5}


@pytest.mark.statement("P-17", "P-18")
async def test_the_largest_topic_and_payload_pass_whole_and_one_byte_more_closes() -> None:
    topic, payload = b"t" * 1024, bytes(range(256)) * 65_536
    async with (
        broker() as node,
        events(node.url, topic) as reader,
        events(node.url, b"sender") as sender,
    ):
        await node.has_local(2)
        sender.event(topic, payload)
        assert await reader.next() == (topic, payload)
        sender.write(b"\0\x01a" + (2**24 + 1).to_bytes(4, "big"))
        assert await sender.ended() == b""
        async with events(node.url, b"t" * 1025) as wrong:
            assert await wrong.ended() == b""
        assert node.server.stats.broken == {
            "event_stream.oversize": 1,
            "event_stream.topic_too_long": 1,
        }


async def test_a_stalled_reader_delays_no_other_and_its_queue_is_bounded() -> None:
    piece = b"x" * 200_000
    async with (
        broker(max_payload=300_000) as node,
        events(node.url, b"load") as stopped,
        events(node.url, b"load") as reader,
        events(node.url, b"sender") as sender,
    ):
        await node.has(3)
        stopped.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(300):
            sender.event(b"load", piece)
            await sender.writer.drain()
            assert await reader.next() == (b"load", piece)
        await until(lambda: node.server.stats.slow_consumers == 1)
        assert sum(each.held for each in node.server.hub._open) == 0


async def test_an_event_is_read_and_published_by_the_sdk_too() -> None:
    async with (
        broker() as node,
        PubSubClient(url=node.server.ws, token=node.server.service_token()) as ps,
        events(node.url, b"demo.a") as peer,
    ):
        subscription = await ps.subscribe("demo.a")
        await node.has(2)
        values: list[tuple[bytes, Any]] = [
            (b'{"n":1}', {"n": 1}),
            (b"text", "text"),
            (b"17", "17"),
            (b'{ "spaced": 1 }', '{ "spaced": 1 }'),
            (b"\xff\x00", {"$base64": "/wA="}),
            (b"", ""),
        ]
        for data, _ in values:
            peer.event(b"demo.a", data)
        received = [message.data async for message in _first(subscription, len(values))]
        assert received == [value for _, value in values]
        for data, value in values:
            await ps.publish("demo.a", {"type": "t", "data": value})
            assert await peer.next() == (b"demo.a", data)


async def _first(messages: Any, count: int) -> AsyncGenerator[Any]:
    async for message in messages:
        yield message
        count -= 1
        if not count:
            return


async def test_without_an_identity_nothing_is_allowed_and_with_one_what_the_rules_say() -> None:
    async with broker(listener_identities={}) as node, events(node.url, b"demo.a") as peer:
        assert await peer.ended() == b""
        assert node.server.stats.broken == {"event_stream.forbidden": 1}
    alice = {"event_stream": {"user": "alice", "orgs": ["acme"]}}
    async with (
        broker(listener_identities=alice) as node,
        events(node.url, b"org.acme.news") as peer,
        events(node.url, b"org.acme.news") as reader,
    ):
        await node.has(2)
        peer.event(b"org.acme.news", b"no user may publish here")
        peer.event(b"demo.a", b"but here")
        await until(lambda: node.server.stats.published == 1)
        assert node.server.stats.denied == {"event_stream": 1}
        async with events(node.url, b"org.other.news") as stranger:
            assert await stranger.ended() == b""
        reader.writer.write_eof()
        assert await reader.ended() == b""


async def test_the_rules_also_filter_the_topics_that_stay_on_the_listener() -> None:
    class Rules:
        def may_publish(self, identity: object, topic: str) -> bool:
            return True

        def may_subscribe(self, identity: object, topic: str) -> bool:
            return topic != "a secret"

    async with (
        broker() as node,
        events(node.url, b"*") as reader,
        events(node.url, b"demo.b") as sender,
    ):
        await node.has(2)
        rules: Any = Rules()
        node.connections.policy = rules
        sender.event(b"a secret", b"1")
        sender.event(b"an open topic", b"2")
        assert await reader.next() == (b"an open topic", b"2")


async def test_the_first_denied_read_and_the_first_denied_publish_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sensors = {"event_stream": {"user": "sensors"}}
    async with broker(listener_identities=sensors) as node, events(node.url, b"demo.a") as peer:
        for topic in (b"status", b"other"):
            async with events(node.url, topic) as stranger:
                assert await stranger.ended() == b""
            peer.event(topic, b"x")
        await until(lambda: node.server.stats.denied["event_stream"] == 2)
    assert [record.getMessage() for record in caplog.records if "access rules" in record.msg] == [
        "listener event_stream: the access rules do not allow sensors to read status;"
        " later denials are not logged",
        "listener event_stream: the access rules do not allow sensors to publish to status;"
        " later denials are not logged",
    ]


async def test_a_publisher_above_the_rate_is_slowed_down_and_loses_nothing() -> None:
    async with (
        broker(publish_rate_service=200, publish_burst=100) as node,
        events(node.url, b"demo.a") as reader,
        events(node.url, b"demo.b") as sender,
    ):
        await node.has(2)
        for number in range(80):
            sender.event(b"demo.a" if number % 4 else b"a local topic", b"%d" % number)
        got = [await reader.next() for _ in range(60)]
        assert [payload for _, payload in got] == [b"%d" % n for n in range(80) if n % 4]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a socket holds fewer bytes")
def test_on_uvloop_a_client_that_sends_before_it_has_entered_is_slowed_down_too() -> None:
    import uvloop  # Windows has none

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send_ahead())


async def _send_ahead() -> None:
    # The second event waits for 1,000 seconds, so the client must stop sending.
    async with broker(publish_rate_service=0.001) as node:
        host, _, port = node.url.partition("://")[2].rpartition(":")
        with socket.create_connection((host, int(port))) as sender:
            # The server accepts the connection when it has bytes.
            sender.setblocking(False)
            sent = sender.send(
                encode_event(b"demo.a") + encode_event(b"demo.b", b"x" * 1_000) * 2_000
            )
            assert sent > 1_000_000
            await until(lambda: node.connections.unread)
            for _ in range(100):
                await asyncio.sleep(0)
            assert 0 < node.connections.unread < 500_000


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a socket holds fewer bytes")
def test_on_uvloop_a_large_event_is_read_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvloop  # Windows has none

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send_a_lot(monkeypatch))


async def _send_a_lot(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, turn, over = asyncio.get_running_loop(), 0, False
    reads: Counter[int] = Counter()
    received = byte_session.ByteSession.data_received

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    def note(self: Any, data: bytes) -> None:
        reads[turn] += len(data) >= MEDIUM
        received(self, data)

    monkeypatch.setattr(turns, "SECONDS", 1e-9)
    monkeypatch.setattr(byte_session.ByteSession, "data_received", note)
    async with broker() as node, events(node.url, b"a") as reader, events(node.url, b"b") as sender:
        await node.has_local(2)
        loop.call_soon(next_turn)
        payload = b"x" * 4_000_000
        sender.event(b"a", payload)
        assert await reader.next() == (b"a", payload)
        over = True
    # The first one uses up the turn, and the second one waits.
    assert max(reads.values()) <= 2


async def test_reads_of_many_event_streams_share_the_time_of_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "SECONDS", 1e-9)
    async with broker() as node, AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(events(node.url, b"demo.b"))
        await node.has(10)
        await asyncio.sleep(0)
        for session in node.sessions:
            session.data_received(encode_event(b"demo.a", b"x") * 200)
        assert 0 < node.server.stats.published <= TAKEN
        await until(lambda: node.server.stats.published == 2_000)


@pytest.mark.statement("P-07", "P-16")
async def test_a_subscription_ends_with_its_connection_and_nothing_is_replayed() -> None:
    async with broker() as node, events(node.url, b"demo.b") as sender:
        async with events(node.url, b"demo.a"):
            await node.has(2)
        await until(lambda: node.server.stats.subscriptions == 1)
        sender.event(b"demo.a", b"missed")
        await until(lambda: node.server.stats.published == 1)
        async with events(node.url, b"demo.a") as again:
            await node.has(2)
            sender.event(b"demo.a", b"seen")
            assert await again.next() == (b"demo.a", b"seen")


async def test_of_too_many_half_events_the_largest_goes_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(byte_session, "UNREAD_BYTES", 100_000)
    async with (
        broker() as node,
        events(node.url, b"demo.a") as hoarder,
        events(node.url, b"demo.a") as other,
        events(node.url, b"demo.a") as reader,
    ):
        await node.has(3)
        whole = encode_event(b"demo.a", b"x" * 200_000)
        hoarder.write(whole[:90_000])
        await until(lambda: node.connections.unread == 90_000)
        payload = b"y" * 20_000
        event = encode_event(b"demo.a", payload)
        other.write(event[:15_000])
        assert await hoarder.ended() == b""
        other.write(event[15_000:])
        assert await reader.next() == (b"demo.a", payload)
        assert node.server.stats.broken == {"event_stream.unread_bytes": 1}
        await until(lambda: node.connections.unread == 0)


async def test_the_largest_half_event_goes_at_once_though_its_client_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(byte_session, "UNREAD_BYTES", 100_000)
    # For this long, a connection that is closed in order waits for its client to read.
    monkeypatch.setattr(byte_session, "CLOSE_SECONDS", 1_000_000.0)
    piece = b"x" * 50_000
    async with (
        broker(auth_deadline=3_600_000, body_timeout=3_600_000) as node,
        events(node.url, b"load") as hoarder,
        events(node.url, b"load") as reader,
        events(node.url, b"sender") as sender,
    ):
        await node.has(3)
        hoarder.writer.transport.pause_reading()  # type: ignore[attr-defined]
        here = hoarder.writer.get_extra_info("sockname")
        (session,) = (
            each
            for each in node.sessions
            if (wire := each._transport) is not None and wire.get_extra_info("peername") == here
        )
        while not session.buffered():
            sender.event(b"load", piece)
            assert await reader.next() == (b"load", piece)
        hoarder.write(encode_event(b"load", b"x" * 200_000)[:90_000])
        await until(lambda: node.connections.unread == 90_000)
        sender.write(encode_event(b"load", piece)[:15_000])
        await until(lambda: len(node.sessions) == 2)
        assert node.connections.unread == 15_000


async def test_half_an_event_and_silence_or_no_subscription_close() -> None:
    async with (
        # The subscription must arrive within the deadline, on a busy machine, too.
        broker(body_timeout=100, auth_deadline=500) as node,
        events(node.url, b"demo.a") as half,
        events(node.url) as silent,
    ):
        half.write(b"\0\x06sta")
        assert await half.ended() == b""
        assert await silent.ended() == b""
        assert node.server.stats.broken == {
            "event_stream.half_a_frame": 1,
            "event_stream.no_subscription": 1,
        }


async def test_a_unix_socket_serves_its_owner_and_replaces_a_stale_file(tmp_path: Path) -> None:
    path = tmp_path / "events.sock"
    for _ in range(2):
        async with broker(event_stream=f"unix:{path}") as node:
            assert node.url == f"events+unix:{path}"
            assert path.stat().st_mode & 0o777 == 0o600
            async with events(node.url, b"a") as one, events(node.url, b"a") as two:
                await node.has(2)
                one.event(b"a", b"x")
                assert await two.next() == (b"a", b"x")


async def test_a_second_server_does_not_take_the_unix_socket_of_the_first(tmp_path: Path) -> None:
    setting = f"unix:{tmp_path / 'events.sock'}"
    async with broker(event_stream=setting) as node:
        with pytest.raises(StartError, match="the path is in use"):
            async with broker(event_stream=setting):
                pass
        async with events(node.url, b"a"):
            await node.has(1)


async def test_with_a_certificate_the_listener_uses_tls(tmp_path: Path) -> None:
    sender = TlsSender(tmp_path)
    async with (
        broker(**sender.settings) as node,
        events(node.url, b"a", sender.trusting) as one,
        events(node.url, b"a", sender.trusting) as two,
        events(node.url) as plain,
    ):
        assert node.url.startswith("events+tls://127.0.0.1:")
        await node.has(2)
        one.event(b"a", b"x" * 100_000)
        assert await two.next() == (b"a", b"x" * 100_000)
        plain.event(b"a")
        assert await plain.ended() == b""


class TlsSender:
    """Sends over TLS, and closes at once.

    Attributes:
        settings: Of the server.
        trusting: The context of a client.
    """

    def __init__(self, folder: Path) -> None:
        authority, chain, key = trustme.CA(), folder / "chain.pem", folder / "key.pem"
        issued = authority.issue_cert("127.0.0.1")
        chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        self.settings: dict[str, Any] = {"tls_cert": chain, "tls_key": key}
        self.trusting = ssl.create_default_context()
        authority.configure_trust(self.trusting)

    async def send(
        self, url: str, count: int, *, own: bytes = b"demo.own", size: int = 100
    ) -> None:
        # It subscribes to a topic of its own, so that no unread messages reset its connection.
        events = encode_event(own) + encode_event(b"demo.a", b"x" * size) * count
        host, _, port = url.partition("://")[2].rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=self.trusting)
        writer.write(events)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def slow_broker(folder: Path, **settings: Any) -> AsyncGenerator[tuple[Broker, TlsSender]]:
    """A broker that takes one event, so that the later events of a sender wait."""
    sender = TlsSender(folder)
    async with broker(**sender.settings, publish_rate_service=0.001, **settings) as node:
        yield node, sender


@pytest.mark.parametrize(
    ("count", "rate"),
    [
        (1_000, {}),
        # Most of these still wait when the connection is closed.
        (40, {"publish_rate_service": 200, "publish_burst": 100}),
    ],
)
async def test_nothing_is_lost_of_clients_that_close_tls_after_many_events(
    tmp_path: Path, count: int, rate: dict[str, Any]
) -> None:
    sender = TlsSender(tmp_path)
    async with broker(**sender.settings, **rate) as node, asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(sender.send(node.url, count))
        stats = node.server.stats
        await until(lambda: stats.published == 3 * count)
        await until(lambda: not stats.connections["events"])


async def test_a_server_that_stops_does_not_wait_for_the_events_of_a_closed_connection(
    tmp_path: Path,
) -> None:
    async with slow_broker(tmp_path) as (node, sender):
        await sender.send(node.url, 10)
        await node.outlived()
        assert node.server.stats.connections["events"] == 1
    assert not node.sessions


async def test_a_closed_connection_whose_events_wait_takes_no_place_of_an_open_one(
    tmp_path: Path,
) -> None:
    async with slow_broker(tmp_path, max_connections=1) as (node, sender):
        await sender.send(node.url, 10)
        await until(lambda: node.connections.outliving == 1)
        async with (
            events(node.url, b"demo.a", sender.trusting),
            events(node.url, b"demo.a", sender.trusting) as refused,
        ):
            await node.has(1)
            assert await refused.ended() == b""
        assert node.server.stats.broken == {"event_stream.too_many": 1}
    assert node.connections.outliving == 0


@pytest.mark.parametrize("own", [b"demo.a", b"*"])
async def test_a_closed_connection_is_subscribed_to_nothing_while_its_events_wait(
    tmp_path: Path, own: bytes
) -> None:
    async with slow_broker(tmp_path) as (node, sender):
        await sender.send(node.url, 10, own=own)
        session = await node.outlived()
        assert node.server.stats.subscriptions == 0
        assert not list(session._local.subscribers(b"demo.a"))


async def test_a_client_that_closes_before_it_has_entered_publishes_and_is_not_subscribed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = TlsSender(tmp_path)
    async with (
        broker(**sender.settings) as node,
        events(node.url, b"demo.a", sender.trusting) as reader,
    ):
        await node.has(1)
        service: Any = node.connections.service
        enter, proceed = service.enter, asyncio.Event()

        async def late(*given: Any) -> None:
            await proceed.wait()
            await enter(*given)

        monkeypatch.setattr(service, "enter", late)
        await sender.send(node.url, 10)
        await until(lambda: any(each.lost for each in node.sessions))
        (lost,) = [each for each in node.sessions if each.lost]
        assert node.server.stats.published == 0
        proceed.set()
        for _ in range(10):
            assert await reader.next() == (b"demo.a", b"x" * 100)
        assert node.server.stats.subscriptions == 1
        subscribers = [each for topic in lost._local._topics.values() for each in topic]
        assert lost not in subscribers
        assert len(subscribers) == 1
        await until(lambda: node.server.stats.connections["events"] == 1)


async def test_a_client_that_closes_before_it_has_subscribed_is_not_subscribed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_broker(tmp_path) as (node, sender):
        turns, proceed = node.server.hub.core.turns, asyncio.Event()

        async def wait(seconds: float) -> None:
            await proceed.wait()

        monkeypatch.setattr(Turns, "free", False)
        monkeypatch.setattr(turns, "wait", wait)
        await sender.send(node.url, 10)
        await node.outlived()
        assert node.server.stats.published == 0
        proceed.set()
        await until(lambda: node.server.stats.published == 1)
        assert node.server.stats.subscriptions == 0


async def test_what_still_waits_long_after_its_client_has_closed_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_session, "FINISH_SECONDS", 0.1)
    async with slow_broker(tmp_path) as (node, sender):
        await sender.send(node.url, 10)
        await until(lambda: node.server.stats.broken == {"event_stream.unfinished": 1})
        await until(lambda: not node.sessions)
        assert node.connections.unread == 0
        # The task that waited for the rate has ended, too, and holds no events.
        await until(lambda: not len(node.connections.tasks))


async def test_what_waits_of_closed_connections_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_session, "UNREAD_BYTES", 100_000)
    async with slow_broker(tmp_path) as (node, sender):
        await sender.send(node.url, 4, size=15_000)
        await sender.send(node.url, 5, size=15_000)
        await until(lambda: node.server.stats.broken == {"event_stream.unread_bytes": 1})
        await until(lambda: len(node.sessions) == 1)
        assert 60_000 < node.connections.unread < 70_000


async def test_half_an_event_is_released_when_its_connection_ends() -> None:
    async with broker(auth_deadline=3_600_000, body_timeout=3_600_000) as node:
        async with events(node.url, b"demo.a") as peer:
            await node.has(1)
            peer.write(encode_event(b"demo.a", b"x" * 1_000)[:-1])
            (session,) = node.sessions
            await until(lambda: session._decoder.pending)
        await until(lambda: not node.sessions)
        # A timer still holds the session, for an hour.
        assert session._decoder.pending == 0


async def test_a_client_certificate_is_demanded_and_its_name_chooses_the_identity(
    tmp_path: Path,
) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    paths = {name: tmp_path / f"{name}.pem" for name in ("chain", "key", "ca")}
    issued = authority.issue_cert("127.0.0.1")
    paths["chain"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    paths["key"].write_bytes(issued.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(paths["ca"]))

    def showing(issuer: trustme.CA | None, name: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        if issuer is not None:
            issuer.issue_cert(name).configure_cert(context)
        return context

    sensors = {"user": "sensors", "orgs": ["acme"]}
    who = {"event_stream": {"user": "bus", "certificates": {"sensor-7.example": sensors}}}
    async with (
        broker(
            tls_cert=paths["chain"],
            tls_key=paths["key"],
            listener_client_ca=paths["ca"],
            listener_identities=who,
        ) as node,
        events(node.url, b"org.acme.a", showing(authority, "sensor-7.example")) as sensor,
        events(node.url, b"org.acme.a", showing(authority, "other.example")) as other,
    ):
        await node.has(1)
        assert await other.ended() == b""
        assert node.server.stats.broken == {"event_stream.forbidden": 1}
        for wrong in (showing(None), showing(stranger, "sensor-7.example")):
            with contextlib.suppress(ssl.SSLError, ConnectionResetError):
                async with events(node.url, b"demo.a", wrong) as refused:
                    assert await refused.ended() == b""
        assert node.server.stats.connections["events"] == 1
        assert isinstance(sensor, EventPeer)


async def test_peers_are_closed_when_the_server_stops() -> None:
    async with broker() as node:
        async with events(node.url, b"a") as peer:
            await node.has(1)
            await node.server.server.stop()
            assert await peer.ended() == b""
        assert isinstance(peer, EventPeer)


async def test_an_event_that_stays_here_and_waits_for_its_rate_ends_with_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    local = b"not a topic of HIP-56"
    async with (
        broker(publish_rate_service=0.001) as node,
        events(node.url, b"status") as sender,
    ):
        await node.has(1)
        for _ in range(2):
            sender.event(local, b"x")
        (session,) = node.sessions
        await until(lambda: session._nap is not None)
        session.abort()
        await until(lambda: not session._working)
        await until(lambda: not node.sessions)
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []
