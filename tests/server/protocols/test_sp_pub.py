"""SP subscribers of the server: a peer that only implements the wire format of NNG."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from pubsub_server.listeners.sp_pub.session import SpSession
from pubsub_server.settings.sources import SettingsError, load
from pubsub_server.testing import running_server
from tests.python.protocols.nng import nng_process
from tests.server.protocols.peers import Peer, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer

PUB, SUB = bytes.fromhex("0053500000200000"), bytes.fromhex("0053500000210000")
ADMIN = {"sp_pub": {"user": "feed", "kind": "admin"}}


@asynccontextmanager
async def feed(url: str = "tcp://127.0.0.1:0", **settings: Any) -> AsyncGenerator[RunningServer]:
    given = {"sp_pub": url, "listener_identities": ADMIN, **settings}
    async with running_server(**given) as server:
        yield server


@asynccontextmanager
async def dialed(server: RunningServer, hello: bytes = SUB) -> AsyncGenerator[Peer]:
    url = server.server.others["sp_pub"]
    scheme, _, rest = url.partition("://")
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    else:
        path = rest if scheme == "ipc" else f"\0{rest}"
        reader, writer = await asyncio.open_unix_connection(path)
    peer = Peer(reader, writer)
    peer.write(hello)
    try:
        yield peer
    finally:
        writer.close()


@pytest.mark.parametrize("transport", ["tcp", "ipc", "abstract"])
async def test_a_subscriber_gets_topic_space_and_envelope_of_what_is_published(
    transport: str, tmp_path: Path
) -> None:
    url = {
        "tcp": "tcp://127.0.0.1:0",
        "ipc": f"ipc://{tmp_path / 'feed.sock'}",
        "abstract": f"abstract://hanzo-{tmp_path.name}-{id(tmp_path)}",
    }[transport]
    async with (
        feed(url) as server,
        PubSubClient(url=server.ws, token=server.service_token()) as ps,
        dialed(server) as peer,
    ):
        assert await peer.read(8) == PUB
        await until(lambda: server.stats.subscriptions == 1)
        for number in range(3):
            published = await ps.publish("demo.a", {"type": "t", "data": {"n": number}})
            if transport != "tcp":
                assert await peer.read(1) == b"\x01"
            topic, _, envelope = (await peer.read(await peer.number(8))).partition(b" ")
            assert topic == b"demo.a"
            message = json.loads(envelope)
            assert (message["id"], message["data"]) == (published.id, {"n": number})


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (bytes.fromhex("0053500000200000"), "bad_hello"),
        (bytes.fromhex("0053500000100000"), "bad_hello"),
        (bytes.fromhex("0053500100210000"), "bad_hello"),
        (bytes.fromhex("0053500000210001"), "bad_hello"),
        (b"GET / HTTP/1.1\r\n\r\n", "bad_hello"),
        (SUB + b"\0", "unexpected_data"),
    ],
)
async def test_another_peer_is_closed(hello: bytes, reason: str) -> None:
    async with feed() as server, dialed(server, hello) as peer:
        assert await peer.ended() in {PUB, b""}
        assert server.stats.broken == {f"sp_pub.{reason}": 1}


async def test_a_subscriber_that_sends_no_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_server.listeners.sp_pub.listener.HELLO_SECONDS", 0.05)
    async with feed() as server, dialed(server, SUB[:3]) as peer:
        assert await peer.ended() == PUB
        assert server.stats.broken == {"sp_pub.no_hello": 1}


async def test_a_subscriber_without_permission_gets_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alice = {"sp_pub": {"user": "alice", "orgs": ["acme"]}}
    async with (
        feed(listener_identities=alice) as server,
        PubSubClient(url=server.ws, token=server.service_token()) as ps,
        dialed(server) as peer,
    ):
        assert await peer.read(8) == PUB
        await until(lambda: server.stats.subscriptions == 1)
        await ps.publish("org.other.news", {"type": "t", "data": 1})
        await ps.publish("org.acme.news", {"type": "t", "data": 2})
        body = await peer.read(await peer.number(8))
        assert body.startswith(b"org.acme.news ")
    async with feed(listener_identities={}) as server, dialed(server) as peer:
        assert await peer.read(8) == PUB
        await until(lambda: server.stats.refused.get("forbidden") == 1)
        assert server.stats.broken == {}
    assert "listener sp_pub: the access rules do not allow anonymous to read **" in caplog.text


async def test_a_hello_that_comes_before_its_connection_has_entered_subscribes() -> None:
    async with (
        feed() as server,
        PubSubClient(url=server.ws, token=server.service_token()) as ps,
        dialed(server, b"") as peer,
    ):
        assert await peer.read(8) == PUB
        (listener,) = server.server._byte_listeners
        session = next(iter(listener.connections.open))
        assert isinstance(session, SpSession)
        session._working = True
        session.data_received(SUB)
        assert server.stats.subscriptions == 0
        session._working = False
        session._advance()
        await until(lambda: server.stats.subscriptions == 1)
        await ps.publish("demo.a", {"data": 1})
        assert (await peer.read(await peer.number(8))).startswith(b"demo.a ")


async def test_a_stalled_subscriber_has_a_bounded_queue_and_delays_no_other() -> None:
    async with (
        feed(send_queue_bytes=1_000_000, publish_rate_service=100_000) as server,
        PubSubClient(url=server.ws, token=server.service_token()) as ps,
        dialed(server) as stopped,
        dialed(server) as reader,
    ):
        stopped.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert await reader.read(8) == PUB
        await until(lambda: server.stats.subscriptions == 2)
        text = "x" * 200_000
        for _ in range(100):
            await ps.publish("demo.a", {"data": text})
            assert len(await reader.read(await reader.number(8))) > len(text)
        await until(lambda: server.stats.slow_consumers == 1)
        assert sum(each.held for each in server.hub._open) == 0


@pytest.mark.parametrize("url", ["udp://a:1", "tcp://", "ipc://", "7000", "ws://127.0.0.1:1"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"tcp://HOST:PORT"):
        load({"sp_pub": url})


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
async def test_a_sub_socket_of_nng_selects_topics_by_prefix(transport: str, tmp_path: Path) -> None:
    url = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{tmp_path / 'feed.sock'}"
    with nng_process() as nng:
        async with (
            feed(url) as server,
            PubSubClient(url=server.ws, token=server.service_token()) as ps,
            nng.socket("sub") as sub,
        ):
            await sub.call("subscribe", b"demo.weather.")
            await sub.call("dial", server.server.others["sp_pub"])
            await until(lambda: server.stats.subscriptions == 1)
            large = "x" * 100_000
            for topic in ("demo.other", "demo.weather.a", "dev.a", "demo.weather.b"):
                await ps.publish(topic, {"type": "t", "data": large})
            for topic, received in zip(
                ("demo.weather.a", "demo.weather.b"), await sub.call("receive", 2), strict=True
            ):
                name, _, envelope = received.partition(b" ")
                assert (name.decode(), json.loads(envelope)["data"]) == (topic, large)
