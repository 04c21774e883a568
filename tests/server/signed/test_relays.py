"""Relayed topics: one upstream per topic, to a broker node or to the WebSocket of a Bee node."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from hanzoai.pubsub.soc import owner_of, sign
from pubsub_server.listeners.signed.addresses import Asked
from pubsub_server.listeners.signed.modes import GSOC, Parameters
from pubsub_server.listeners.signed.relays import Relays
from pubsub_server.listeners.signed.stream_codec import Received
from pubsub_server.listeners.signed.upstreams import UpstreamError
from pubsub_server.tasks import Tasks
from tests.http_client import http_client
from tests.ports import free_port
from tests.server.protocols.peers import BOUND, until
from tests.server.signed.peers import (
    EMPTY,
    FORGED,
    HELLO,
    ID,
    OWNER,
    PUBLISHER,
    SUBSCRIBER,
    TOPIC,
    Broker,
    Stream,
    literal_broker,
)
from tests.server.signed.test_sockets import (
    ADMIN,
    ID_HEX,
    OWNER_HEX,
    TOPIC_HEX,
    WRITES,
    end_of,
    next_of,
    node,
    send_and_close,
    socket,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from websockets.asyncio.client import ClientConnection, connect

    from pubsub_server.testing import RunningServer

HEAD = b"\0" + ID + OWNER


def opened(opening: bytes) -> set[bytes]:
    """Return the header pairs of an opening; a Bee node sends them in random order."""
    body = opening[2:] if opening[0] > 127 else opening[1:]
    found, at = set[bytes](), 0
    while at < len(body):
        found.add(body[at + 2 : at + 2 + body[at + 1]])
        at += 2 + body[at + 1]
    return found


def relay(server: RunningServer, broker: Broker, *, writes: bool = False) -> connect:
    query = f"{WRITES}&" if writes else "?"
    return socket(server, f"{TOPIC_HEX}{query}peer={broker.peer}")


@asynccontextmanager
async def both(
    server: RunningServer, broker: Broker, *, writes: bool = False
) -> AsyncGenerator[tuple[ClientConnection, Stream]]:
    """Open a socket; return it with the stream that this node opens for it."""
    task = asyncio.ensure_future(broker.next())
    async with relay(server, broker, writes=writes) as ws:
        yield ws, await task


@pytest.mark.statement("B-06", "B-17", "B-20", "B-22", "B-29")
async def test_sockets_of_a_topic_share_one_stream_that_ends_with_the_last_of_them() -> None:
    async with node() as server, literal_broker() as broker:
        async with both(server, broker) as (one, stream):
            assert opened(stream.opening) == opened(SUBSCRIBER)
            async with relay(server, broker) as two:
                stream.write(b"\xff" + HEAD + HELLO + b"\xff\1" + EMPTY)
                for each in (one, two):
                    assert [await next_of(each), await next_of(each)] == [HELLO, EMPTY]
                assert broker.streams.empty()
            stream.write(b"\1" + HELLO)
            assert await next_of(one) == HELLO
        assert await stream.ended() == b""
        assert len(broker.open) == 1
        # Opened again immediately, with a separate stream.
        async with both(server, broker) as (again, other):
            other.write(b"\2" + ID + OWNER + HELLO + b"\1\3" + EMPTY)
            assert [await next_of(again), await next_of(again)] == [HELLO, EMPTY]


@pytest.mark.statement("B-24")
@pytest.mark.parametrize("named", ["query", "long query", "header"])
async def test_a_broker_is_named_in_every_spelling(named: str) -> None:
    async with node() as server, literal_broker() as broker:
        queries = {
            "query": f"?peer={broker.peer}",
            "long query": f"?swarm-pubsub-peer={broker.peer}",
        }
        headers = {"Swarm-Pubsub-Peer": broker.peer} if named == "header" else {}
        opening = asyncio.ensure_future(broker.next())
        rest = TOPIC_HEX + queries.get(named, "")
        async with socket(server, rest, additional_headers=headers) as one:
            (await opening).write(HEAD + HELLO)
            assert await next_of(one) == HELLO


@pytest.mark.statement("B-02", "B-05", "B-10")
async def test_a_publisher_writes_bare_frames_and_a_subscriber_none() -> None:
    async with (
        node() as server,
        literal_broker() as broker,
        both(server, broker, writes=True) as (one, stream),
        relay(server, broker) as quiet,
    ):
        assert opened(stream.opening) == opened(PUBLISHER)
        await quiet.send(HELLO)
        await one.send(EMPTY)
        await one.send(HELLO + EMPTY)
        expected = EMPTY + HELLO + EMPTY
        assert await stream.read(len(expected)) == expected


async def test_a_publisher_that_joins_the_stream_of_a_subscriber_publishes() -> None:
    async with (
        node() as server,
        literal_broker() as broker,
        both(server, broker) as (reader, first),
        both(server, broker, writes=True) as (writer, second),
    ):
        assert await first.ended() == b""
        await writer.send(HELLO)
        assert await second.read(len(HELLO)) == HELLO
        second.write(HEAD + HELLO)
        assert await next_of(reader) == await next_of(writer) == HELLO


async def test_a_bad_signature_ends_its_socket_before_it_reaches_the_broker() -> None:
    async with (
        node() as server,
        literal_broker() as broker,
        both(server, broker, writes=True) as (bad, stream),
        relay(server, broker, writes=True) as good,
    ):
        await bad.send(FORGED)
        assert await end_of(bad) == (4400, "invalid_frame")
        await good.send(HELLO)
        assert await stream.read(len(HELLO)) == HELLO


@pytest.mark.statement("B-21")
@pytest.mark.parametrize(
    "ending",
    [
        b"",
        HEAD + FORGED,
        b"\0" + bytes(52) + HELLO,
        b"\0\7",
        b"\xff\1" + HELLO,
        HEAD + HELLO[:65] + b"\xff" * 8,
    ],
    ids=["end", "forged", "another owner", "half a frame", "no handshake", "span too large"],
)
async def test_when_the_stream_ends_its_sockets_end_and_a_new_one_gets_a_fresh_stream(
    ending: bytes,
) -> None:
    async with (
        node() as server,
        literal_broker() as broker,
        both(server, broker) as (one, stream),
        relay(server, broker) as two,
    ):
        stream.write(ending)
        await stream.writer.drain()
        stream.close()
        assert await end_of(one) == await end_of(two) == (1013, "unavailable")
        async with both(server, broker) as (again, fresh):
            fresh.write(HEAD + HELLO)
            assert await next_of(again) == HELLO


class Ending:
    """An upstream that ends when the test requests it."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def messages(self) -> AsyncIterator[Received]:
        while not self.end.is_set():
            await self.end.wait()
            if self.end.is_set():
                raise UpstreamError("ended")
            yield Received(b"", None)

    async def send(self, frame: bytes) -> None:
        raise UpstreamError("ended")

    async def close(self) -> None:
        self.end.set()


async def test_a_socket_that_comes_while_others_still_leave_gets_a_fresh_stream() -> None:
    opened: list[Ending] = []

    async def dial(asked: Asked) -> Ending:
        opened.append(Ending())
        return opened[-1]

    tasks = Tasks(asyncio.get_running_loop(), logging.getLogger("test"), "test")
    relays = Relays(tasks, dial, lambda: None, {})
    asked = Asked(TOPIC, None, None)
    first = await relays.enter(asked)
    opened[0].end.set()
    await until(lambda: first.ended)
    try:
        second = await relays.enter(asked)
    except UpstreamError as error:
        pytest.fail(f"The socket got the stream that has ended: {error}")
    assert len(opened) == 2
    for each in (first, second):
        relays.leave(each)
    await tasks.stop()


async def test_many_frames_in_one_message_are_verified_at_the_rate_of_their_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verified: list[bytes] = []
    verify = GSOC.verify

    def counting(frame: bytes, parameters: Parameters) -> None:
        verified.append(frame)
        verify(frame, parameters)

    monkeypatch.setattr(GSOC, "verify", counting)
    acting = {"signed": {"user": "bus", "kind": "service"}}
    async with (
        node(listener_identities=acting, publish_rate_service=5) as server,
        literal_broker() as broker,
        both(server, broker, writes=True) as (one, stream),
    ):
        await one.send(HELLO * 2_000)
        assert await stream.read(5 * len(HELLO)) == HELLO * 5
        assert len(verified) < 100


async def test_what_a_publisher_sends_before_it_closes_reaches_the_broker() -> None:
    async with (
        node() as server,
        literal_broker() as broker,
        both(server, broker, writes=True) as (one, stream),
    ):
        await send_and_close(one, HELLO, EMPTY)
        assert await stream.read(len(HELLO + EMPTY)) == HELLO + EMPTY
        await until(lambda: server.stats.connections["signed"] == 0)
        assert await stream.ended() == b""


async def test_what_a_publisher_sends_before_it_closes_reaches_a_slower_broker() -> None:
    acting = {"signed": {"user": "bus", "kind": "service"}}
    async with (
        node(signed_listen="0", listener_identities=acting, publish_rate_service=20) as broker,
        node() as edge,
        socket(broker) as reader,
    ):
        await until(lambda: broker.stats.subscriptions == 1)
        port = broker.server.others["signed_stream"].rpartition(":")[2]
        writer = await socket(edge, f"{TOPIC_HEX}{WRITES}&peer=/ip4/127.0.0.1/tcp/{port}")
        await send_and_close(writer, *[HELLO] * 60)
        for _ in range(60):
            assert await next_of(reader) == HELLO
        await until(lambda: broker.stats.connections["signed_stream"] == 0)


async def test_a_publisher_above_its_rate_ends_with_its_broker() -> None:
    acting = {"signed": {"user": "bus", "kind": "service"}}
    async with (
        node(listener_identities=acting, publish_rate_service=5) as server,
        literal_broker() as broker,
        both(server, broker, writes=True) as (one, stream),
    ):
        await one.send(HELLO * 100)
        assert await stream.read(5 * len(HELLO)) == HELLO * 5
        stream.close()
        assert await end_of(one) == (1013, "unavailable")
        await until(lambda: not server.server._signed.tasks)  # type: ignore[union-attr]


async def test_a_message_that_the_broker_has_forged_reaches_no_socket() -> None:
    async with node() as server, literal_broker() as broker, both(server, broker) as (one, stream):
        stream.write(HEAD + HELLO + b"\1" + FORGED)
        assert await next_of(one) == HELLO
        with pytest.raises(ConnectionClosed):
            await next_of(one)
        assert server.stats.broken == {"signed.forged_by_broker": 1}


async def test_a_broker_that_names_another_owner_is_rejected() -> None:
    other = b"\2" * 32
    named = b"\0" + ID + owner_of(other) + sign(other, ID, b"hello")
    async with node() as server, literal_broker() as broker, both(server, broker) as (one, stream):
        stream.write(named)
        with pytest.raises(ConnectionClosed):
            await next_of(one)
        assert server.stats.broken == {"signed.forged_by_broker": 1}


async def test_the_end_of_a_broker_is_logged_once_with_its_address_and_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node() as server, literal_broker() as broker:
        async with both(server, broker):
            pass
        async with both(server, broker) as (one, stream), relay(server, broker) as two:
            stream.close()
            assert await end_of(one) == await end_of(two) == (1013, "unavailable")
        (logged,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert f"127.0.0.1:{broker.port} no longer relays signed.{TOPIC_HEX}" in logged.message
        assert "the 2 sockets of the topic" in logged.message
        assert "the broker has closed the stream; check that the broker is" in logged.message


async def test_the_end_of_a_bee_node_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with bee() as upstream, node(signed_upstream=upstream.url) as server:
        async with socket(server) as one:
            await (await upstream.sockets.get()).close()
            assert await end_of(one) == (1013, "unavailable")
        (logged,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert "the Bee node of signed_upstream no longer relays" in logged.message


async def test_an_unreachable_broker_is_answered_with_502() -> None:
    gone = Broker()
    gone.port = free_port()
    async with node() as server:
        with pytest.raises(InvalidStatus) as caught:
            async with relay(server, gone):
                pass
        assert caught.value.response.status_code == 502
        body = json.loads(caught.value.response.body or b"")
        assert body["message"] == "pubsub connect failed"
        assert not server.server._signed.relays._relays  # type: ignore[union-attr]
        assert server.stats.connections["signed"] == 0
        assert server.stats.broken == {"signed.no_broker": 1}


async def test_a_broker_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_server.listeners.signed.upstreams.DIAL_SECONDS", 0.05)
    async with node() as server, literal_broker() as broker:
        with pytest.raises(InvalidStatus) as caught:
            async with relay(server, broker):
                pass
        assert caught.value.response.status_code == 502


async def test_a_broker_that_falls_silent_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_server.listeners.signed.upstreams.SILENT_SECONDS", 0.05)
    async with node() as server, literal_broker() as broker, both(server, broker) as (one, _):
        assert await end_of(one) == (1013, "unavailable")


async def test_a_client_that_leaves_while_its_broker_is_dialed_leaves_nothing_behind() -> None:
    async with node() as server, literal_broker() as broker:
        ws = relay(server, broker)
        opening = asyncio.ensure_future(ws.__aenter__())
        async with asyncio.timeout(BOUND):
            stream = await broker.streams.get()
        opening.cancel()
        await asyncio.wait([opening])
        await stream.headers()
        stream.write(b"\0")
        assert await stream.ended() == b""
        await until(lambda: server.stats.connections["signed"] == 0)


async def test_two_nodes_of_ours_carry_a_topic_between_their_sockets() -> None:
    async with (
        node(signed_listen="0") as broker,
        node() as edge,
    ):
        port = broker.server.others["signed_stream"].rpartition(":")[2]
        peer = f"peer=/ip4/127.0.0.1/tcp/{port}"
        async with (
            socket(broker) as home,
            socket(edge, f"{TOPIC_HEX}?{peer}") as away,
            socket(edge, f"{TOPIC_HEX}{WRITES}&{peer}") as writer,
            http_client() as http,
        ):
            await until(lambda: broker.stats.subscriptions == 2)
            for frame in (HELLO, EMPTY, HELLO):
                await writer.send(frame)
                for each in (home, away, writer):
                    assert await next_of(each) == frame
            url = edge.server.others["signed"].replace("ws://", "http://")
            (listed,) = (await http.get(url)).json()["topics"]
            assert listed["role"] == "subscriber"
            assert listed["connections"] == [f"127.0.0.1:{port}"]


async def test_peers_are_dialed_where_signed_peers_allows_them() -> None:
    async with literal_broker() as broker, node(signed_peers=["broker.example:1634"]) as server:
        with pytest.raises(InvalidStatus) as caught:
            async with socket(server, f"{TOPIC_HEX}?peer=/ip4/10.0.0.1/tcp/{broker.port}"):
                pass
        assert caught.value.response.status_code == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://localhost.evil.example", "null", "", "http://["]
)
async def test_a_page_of_another_site_cannot_reach_services_of_a_developers_machine(
    origin: str,
) -> None:
    command = b"\r\nFLUSHALL\r\n".ljust(32, b"\n")
    async with literal_broker() as broker, node() as server:
        with pytest.raises(InvalidStatus) as caught:
            async with socket(server, f"{command.hex()}?peer={broker.peer}", origin=origin):
                pass
        assert caught.value.response.status_code == 403
        assert not broker.open


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"])
async def test_a_page_of_the_developers_machine_names_a_broker_there(origin: str) -> None:
    async with literal_broker() as broker, node() as server:
        opening = asyncio.ensure_future(broker.next())
        async with socket(server, f"{TOPIC_HEX}?peer={broker.peer}", origin=origin) as ws:
            (await opening).write(HEAD + HELLO)
            assert await next_of(ws) == HELLO


# ---------------------------------------------------------------- a Bee node's WebSocket


class Bee:
    """The `/pubsub/` of a Bee node."""

    def __init__(self) -> None:
        self.sockets: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self.url = ""

    async def serve(self, ws: ServerConnection) -> None:
        self.sockets.put_nowait(ws)
        await ws.wait_closed()


@asynccontextmanager
async def bee() -> AsyncGenerator[Bee]:
    found = Bee()
    async with serve(found.serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        found.url = f"ws://127.0.0.1:{port}/pubsub/?peer=/ip4/10.0.0.9/tcp/1634"
        yield found


async def test_a_bee_node_is_the_upstream_of_sockets_without_a_peer() -> None:
    async with bee() as upstream, node(signed_upstream=upstream.url) as server:
        async with socket(server) as one:
            theirs = await upstream.sockets.get()
            assert theirs.request is not None
            assert theirs.request.path == f"/pubsub/{TOPIC.hex()}?peer=/ip4/10.0.0.9/tcp/1634"
            await theirs.send(HELLO)
            assert await next_of(one) == HELLO
            async with socket(server, TOPIC_HEX + WRITES) as writer:
                again = await upstream.sockets.get()
                assert again.request is not None
                for spelling in ("", "swarm-pubsub-"):
                    given = f"{spelling}gsoc-eth-address={OWNER_HEX}"
                    assert given in again.request.path
                assert again.request.headers["Swarm-Pubsub-Gsoc-Topic"] == ID_HEX
                await writer.send(EMPTY)
                assert await again.recv() == EMPTY
                await again.send(EMPTY)
                assert await next_of(one) == await next_of(writer) == EMPTY
                await again.send(FORGED)
                assert await end_of(one) == await end_of(writer) == (1013, "unavailable")
        assert server.stats.broken == {"signed.forged_by_broker": 1}


async def test_a_bee_node_that_refuses_is_answered_with_502() -> None:
    upstream = "ws://127.0.0.1:1/pubsub/"
    async with node(signed_upstream=upstream, listener_identities=ADMIN) as server:
        with pytest.raises(InvalidStatus) as caught:
            async with socket(server):
                pass
        assert caught.value.response.status_code == 502
