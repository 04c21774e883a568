"""The stream between nodes: this node is the broker; its peers do not use the product's code."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.links.unparsed import FrameError
from pubsub_server.listeners.signed.stream_codec import (
    BrokerDecoder,
    Opening,
    SubscriberDecoder,
    encode_opening,
    split,
)
from pubsub_server.testing import running_server
from tests.server.protocols.peers import BOUND, until
from tests.server.signed.peers import (
    EMPTY,
    FORGED,
    HELLO,
    ID,
    NAME,
    OWNER,
    PUBLISHER,
    SUBSCRIBER,
    TOPIC,
    headers,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.testing import RunningServer

ADMIN = {"signed": {"user": "bus", "kind": "admin"}}


@asynccontextmanager
async def broker(**settings: Any) -> AsyncGenerator[tuple[RunningServer, str]]:
    given = {"signed": True, "signed_listen": "0", "listener_identities": ADMIN, **settings}
    async with running_server(**given) as server:
        yield server, server.server.others["signed_stream"]


@pytest.mark.statement("B-01", "B-02", "B-04", "B-10", "B-11", "B-14", "B-15", "B-16")
@pytest.mark.parametrize(("wire", "shake", "data"), [("head", 0, 1), ("seed", 2, 3)])
async def test_each_receiver_gets_one_handshake_and_then_data(
    wire: str, shake: int, data: int
) -> None:
    handshake = bytes((shake,)) + ID + OWNER
    async with (
        broker(pubsub_wire=wire) as (server, url),
        stream(url, PUBLISHER) as publisher,
        stream(url, SUBSCRIBER) as one,
    ):
        assert await publisher.read(1) == await one.read(1) == b"\0"
        await until(lambda: server.stats.subscriptions == 2)
        publisher.write(HELLO)
        expected = handshake + HELLO
        assert await publisher.read(len(expected)) == expected
        assert await one.read(len(expected)) == expected
        publisher.write(EMPTY)
        assert await one.read(1 + len(EMPTY)) == bytes((data,)) + EMPTY
        async with stream(url, SUBSCRIBER) as late:
            await late.read(1)
            await until(lambda: server.stats.subscriptions == 3)
            publisher.write(HELLO)
            assert await late.read(len(expected)) == expected
            assert await one.read(1 + len(HELLO)) == bytes((data,)) + HELLO


@pytest.mark.statement("B-12", "B-13")
@pytest.mark.parametrize(("wire", "ping"), [("head", b"\xff"), ("seed", b"\1")])
async def test_every_stream_gets_pings_and_a_ping_before_the_handshake_spoils_nothing(
    wire: str, ping: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pubsub_server.listeners.signed.stream_listener.Streams.__init__.__defaults__",
        (0.05,),
    )
    async with broker(pubsub_wire=wire) as (_, url), stream(url, SUBSCRIBER) as one:
        assert await one.read(4) == b"\0" + 3 * ping
        async with stream(url, PUBLISHER + HELLO):
            read = await one.read(1)
            while read == ping:
                read = await one.read(1)
            assert await one.read(52 + len(HELLO)) == ID + OWNER + HELLO


@pytest.mark.statement("B-05")
async def test_data_from_a_subscriber_is_ignored() -> None:
    async with (
        broker() as (server, url),
        stream(url, SUBSCRIBER + HELLO) as quiet,
        stream(url, PUBLISHER) as publisher,
    ):
        quiet.write(HELLO + b"anything")
        await until(lambda: server.stats.subscriptions == 2)
        publisher.write(EMPTY)
        await quiet.read(1)
        assert (await quiet.read(53 + len(EMPTY)))[53:] == EMPTY
        assert server.stats.published == 1


async def test_a_bad_signature_ends_that_stream_and_no_other() -> None:
    async with (
        broker() as (server, url),
        stream(url, PUBLISHER) as bad,
        stream(url, PUBLISHER) as good,
        stream(url, SUBSCRIBER) as one,
    ):
        await until(lambda: server.stats.subscriptions == 3)
        bad.write(FORGED)
        assert await bad.ended() == b"\0"
        good.write(HELLO)
        await one.read(1)
        assert (await one.read(53 + len(HELLO)))[53:] == HELLO
        assert server.stats.broken == {"signed_stream.bad_signature": 1}


async def test_frames_arrive_whole_in_single_bytes_and_joined() -> None:
    async with (
        broker() as (server, url),
        stream(url, SUBSCRIBER) as one,
        stream(url) as publisher,
    ):
        for byte in PUBLISHER + HELLO[:9]:
            publisher.write(bytes((byte,)))
            await publisher.writer.drain()
        publisher.write(HELLO[9:] + EMPTY + HELLO)
        await until(lambda: server.stats.published == 3)
        await one.read(1 + 53)
        joined = HELLO + b"\1" + EMPTY + b"\1" + HELLO
        assert await one.read(len(joined)) == joined


@pytest.mark.statement("B-07")
@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (headers(mode=2), "unknown_mode"),
        (headers(writes=True, owner=bytes(20)), "wrong_owner"),
        (headers(writes=True, id=bytes(32)), "wrong_owner"),
        (headers(writes=True, id=bytes(31)), "bad_headers"),
        (headers(TOPIC[:-1]), "bad_headers"),
        (b"\x00", "bad_headers"),
        (b"\xff\xff\xff\xff\xff\xff", "bad_headers"),
        (b"\x03abc", "bad_headers"),
        (PUBLISHER + HELLO[:65] + (5000).to_bytes(8, "little") + bytes(4096), "bad_span"),
    ],
    ids=[
        "an unknown mode",
        "an owner of another topic",
        "an id of another topic",
        "an id of 31 bytes",
        "a topic of 31 bytes",
        "no headers",
        "an endless length",
        "not a valid protobuf",
        "a span of 5,000",
    ],
)
async def test_an_opening_or_frame_that_makes_no_sense_ends_the_stream(
    opening: bytes, reason: str
) -> None:
    async with broker() as (server, url), stream(url, opening) as one:
        assert await one.ended() in {b"", b"\0"}
        assert server.stats.broken == {f"signed_stream.{reason}": 1}
        assert server.stats.published == 0


async def test_a_stream_without_headers_is_closed_in_time() -> None:
    async with broker(auth_deadline=50) as (server, url), stream(url) as one:
        assert await one.ended() == b""
        assert server.stats.broken == {"signed_stream.no_headers": 1}


@pytest.mark.statement("B-27")
async def test_a_topic_takes_as_many_streams_as_are_configured() -> None:
    async with (
        broker(pubsub_max_connections=1) as (server, url),
        stream(url, SUBSCRIBER) as first,
    ):
        assert await first.read(1) == b"\0"
        async with stream(url, SUBSCRIBER) as second:
            assert await second.ended() == b""
        assert server.stats.broken == {"signed_stream.too_many": 1}
        first.close()
        await until(lambda: server.stats.subscriptions == 0)
        async with stream(url, SUBSCRIBER) as third:
            assert await third.read(1) == b"\0"


async def test_a_stream_without_an_identity_is_an_unauthenticated_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker(listener_identities={}) as (server, url), stream(url, SUBSCRIBER) as one:
        assert await one.ended() == b""
        assert server.stats.broken == {"signed_stream.forbidden": 1}
    assert "do not allow anonymous to use signed." in caplog.text


async def test_a_message_of_a_stream_reaches_clients_of_hip_56_and_theirs_the_stream() -> None:
    async with (
        broker() as (server, url),
        stream(url, SUBSCRIBER) as one,
        stream(url, PUBLISHER) as publisher,
        PubSubClient(
            server.ws, server.admin_token(), rest_url=server.http, allow_insecure=True
        ) as ps,
    ):
        sub = ps.subscribe(NAME)
        await sub
        await until(lambda: server.stats.subscriptions == 3)
        publisher.write(HELLO)
        async with asyncio.timeout(BOUND):
            message = await anext(aiter(sub))
        assert message.data == {
            "owner": OWNER.hex(),
            "id": ID.hex(),
            "signature": HELLO[:65].hex(),
            "payload": "hello",
        }
        await ps.publish(NAME, {"type": "message", "data": message.data})
        await one.read(54)
        joined = HELLO + b"\1" + HELLO
        assert await one.read(len(joined)) == joined


# ---------------------------------------------------------------- the codec alone


def test_the_opening_of_a_subscriber_is_the_captured_one() -> None:
    assert encode_opening(Opening(TOPIC, 1, False, None)) == SUBSCRIBER
    decoder = BrokerDecoder()
    decoder.feed(SUBSCRIBER)
    assert decoder.decode() == [Opening(TOPIC, 1, False, None)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\xff\1" + HELLO, "no_handshake"),
        (b"\0\5" + HELLO, "bad_type"),
        (b"\0\0" + ID + OWNER + HELLO + b"\3" + HELLO, "bad_type"),
        (b"\0\0" + ID + OWNER + HELLO[:65] + b"\xff" * 8, "bad_span"),
    ],
    ids=["data first", "unknown type", "type of the other revision", "span too large"],
)
def test_a_broker_that_breaks_the_protocol_is_noticed(data: bytes, reason: str) -> None:
    decoder = SubscriberDecoder()
    decoder.feed(data)
    with pytest.raises(FrameError) as caught:
        decoder.decode()
    assert caught.value.reason == reason


@pytest.mark.parametrize("numbers", [(0xFF, 0, 1), (1, 2, 3)])
@pytest.mark.parametrize("pings", [0, 2])
def test_either_revision_is_recognized_by_its_first_byte(
    numbers: tuple[int, int, int], pings: int
) -> None:
    ping, shake, data = (bytes((each,)) for each in numbers)
    decoder = SubscriberDecoder()
    decoder.feed(
        b"\0" + pings * ping + shake + ID + OWNER + HELLO + ping + data + EMPTY + data + HELLO
    )
    assert [each.frame for each in decoder.decode()] == [HELLO, EMPTY, HELLO]


@pytest.mark.parametrize(
    "message",
    [b"", HELLO[:-1], HELLO + EMPTY[:20], HELLO + b"\0"],
    ids=["nothing", "a byte less", "one and a half", "a byte more"],
)
def test_half_a_frame_is_not_a_message(message: bytes) -> None:
    with pytest.raises(FrameError, match="complete frames"):
        split(message)
