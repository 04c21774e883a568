"""The WebSocket listener through real sockets: what is right, and everything that is wrong."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from pubsub_server.hub.hub import Hub
from pubsub_server.hub.limits import ConnectionLimiter, RateLimiter
from pubsub_server.listeners import websocket
from pubsub_server.listeners.socket_protocol import SocketProtocol
from pubsub_server.listeners.websocket import WebSocketListener
from pubsub_server.settings.config import Settings
from tests.server.hub_rig import People, Rules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BOUND = 10.0


class Watched(WebSocketListener):
    """Says when a connection has ended."""

    changed: asyncio.Event

    def gone(self, protocol: SocketProtocol) -> None:
        super().gone(protocol)
        self.changed.set()


class Server:
    """A hub and its WebSocket listener, in this loop."""

    def __init__(self, settings: dict[str, Any], tls: ssl.SSLContext | None = None) -> None:
        self.settings = Settings.model_validate({"ws_port": 0, "publish_rate_user": 1e6} | settings)
        self.people = People()
        self.rules = Rules()
        self.hub = Hub(
            self.settings,
            authenticator=self.people,
            policy=self.rules,
            rates=RateLimiter(self.settings.publish_rate_user, 1e6),
            limiter=ConnectionLimiter(self.settings.connections_per_user, 1_000_000),
        )
        self.listener = Watched(self.hub, self.settings)
        self.listener.changed = asyncio.Event()
        self.tls = tls
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws{'s' if self.tls else ''}://localhost:{self.port}/ws"

    async def start(self) -> None:
        self.port = await self.listener.start(self.tls)

    async def stop(self) -> None:
        await self.listener.stop_listening()
        await self.hub.drain(1)
        await self.listener.stop(1)
        await self.hub.close()

    async def until_gone(self, rest: int = 0) -> None:
        """Until the server holds no more connections than these."""
        async with asyncio.timeout(BOUND):
            while len(self.listener.protocols) > rest:
                self.listener.changed.clear()
                await self.listener.changed.wait()
        assert len(self.hub._open) <= rest


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, **settings: Any) -> AsyncGenerator[Server]:
    server = Server(settings, tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as running:
        yield running


class Client:
    """A client of the `websockets` library that speaks JSON."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": kind, **fields}).decode())

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND):
            frame: dict[str, Any] = orjson.loads(await self.socket.recv())
            return frame

    async def hear_kind(self, kind: str) -> dict[str, Any]:
        """The next frame of this kind; others are passed over."""
        while (frame := await self.hear())["type"] != kind:
            pass
        return frame

    async def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        await self.say(kind, **fields)
        return await self.hear()

    async def ended(self) -> tuple[int, str]:
        """Close code and reason; what came before is passed over."""
        async with asyncio.timeout(BOUND):
            try:
                while True:
                    await self.socket.recv()
            except ConnectionClosed as closed:
                return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")


@contextlib.asynccontextmanager
async def client(
    server: Server, token: str | None = "alice", **options: Any
) -> AsyncGenerator[Client]:
    async with connect(server.url, max_size=None, **options) as socket:
        speaker = Client(socket)
        if token is not None:
            assert (await speaker.ask("auth", token=token))["type"] == "auth.ok"
        yield speaker


class Raw:
    """A client that writes bytes as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def frame(self, data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> None:
        self.write(Frame(opcode, data, fin).serialize(mask=True))

    async def line(self) -> bytes:
        async with asyncio.timeout(BOUND):
            return await self.reader.readline()

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(BOUND):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    async def shake(self, server: Server) -> None:
        key = base64.b64encode(b"0123456789abcdef")
        self.write(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        async with asyncio.timeout(BOUND):
            head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")

    async def hear(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame."""
        async with asyncio.timeout(BOUND):
            first, length = await self.reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self.reader.readexactly(2), "big")
            elif length == 127:
                length = int.from_bytes(await self.reader.readexactly(8), "big")
            return first & 15, await self.reader.readexactly(length)


@contextlib.asynccontextmanager
async def raw(server: Server, *, shake: bool = True) -> AsyncGenerator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**24)
    speaker = Raw(reader, writer)
    try:
        if shake:
            await speaker.shake(server)
        yield speaker
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def close_code(payload: bytes) -> int:
    return Close.parse(payload).code


# ---------------------------------------------------------------- what is right


async def test_the_life_of_a_connection_as_hip_56_draws_it(server: Server) -> None:
    async with client(server, None) as alice:
        ok = await alice.ask("auth", token="Bearer alice")
        assert ok["client_id"]
        answer = await alice.ask("subscribe", topics=["chat.session.*"])
        assert (answer["topics"], answer["history"]) == (["chat.session.*"], [])
        await alice.say("publish", topic="chat.session.a", data={"content": "Hello"})
        frame = await alice.hear()
        assert frame["type"] == "message"
        assert frame["message"]["data"] == {"content": "Hello"}
        await alice.say("unsubscribe", topics=["chat.session.*"])
        assert (await alice.ask("ping"))["type"] == "pong"
        await alice.socket.close()
    await server.until_gone()


@pytest.mark.parametrize("size", [0, 10, 125, 126, 127, 65_000, 65_535, 65_536, 262_000])
async def test_every_length_of_a_frame_passes(server: Server, size: int) -> None:
    async with client(server) as alice:
        await alice.ask("subscribe", topics=["*"], presence=False)
        await alice.say("publish", topic="a", data="x" * size)
        assert (await alice.hear())["message"]["data"] == "x" * size


async def test_fragments_and_binary_frames_are_read(server: Server) -> None:
    async with client(server) as alice:
        await alice.socket.send(['{"type":', '"ping","ref":', '"é1"}'])
        assert (await alice.hear())["ref"] == "é1"
        await alice.socket.send(b'{"type":"ping","ref":"2"}')
        assert (await alice.hear())["ref"] == "2"
        await alice.socket.send([b'{"type":"ping",', b'"ref":"3"}'])
        assert (await alice.hear())["ref"] == "3"


async def test_bytes_may_come_one_by_one_and_frames_many_at_once(server: Server) -> None:
    async with raw(server) as one, raw(server) as two:
        data = Frame(Opcode.TEXT, b'{"type":"auth","token":"alice"}').serialize(mask=True)
        for byte in data:
            one.write(bytes([byte]))
            await asyncio.sleep(0)
            two.frame(b"", Opcode.PING)
        two.write(
            data + Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True) * 50 + data[:9]
        )
        assert b"auth.ok" in (await one.hear())[1]
        frames = [await two.hear() for _ in range(len(data))]
        assert {opcode for opcode, _ in frames} == {Opcode.PONG}
        assert b"auth.ok" in (await two.hear())[1]
        for _ in range(50):
            assert b"pong" in (await two.hear())[1]
        two.write(data[9:])
        assert b"auth.ok" in (await two.hear())[1]


async def test_a_control_frame_may_come_between_fragments(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"au', fin=False)
        peer.frame(b"hello", Opcode.PING)
        assert await peer.hear() == (Opcode.PONG, b"hello")
        peer.frame(b'th","token":"alice"}', Opcode.CONT)
        assert b"auth.ok" in (await peer.hear())[1]


async def test_an_idle_connection_has_no_parser_of_its_own(server: Server) -> None:
    async with client(server) as alice:
        await alice.ask("ping")
        (protocol,) = server.listener.protocols
        assert protocol._parser is None
        assert protocol._head is None
        assert protocol._fragments is None
        (connection,) = server.hub._open
        assert (connection.pending, connection.waiting, connection.backlog) == (None, None, None)


async def test_a_client_that_answers_pings_lives_on() -> None:
    async with (
        serving(server_ping_interval=50, presence_timeout=200) as server,
        raw(server) as peer,
    ):
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.hear()
        for _ in range(10):
            assert await peer.hear() == (Opcode.PING, b"")
            peer.frame(b"", Opcode.PONG)


async def test_the_middle_of_a_frame_is_not_taken_for_a_pong(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.hear()
        (protocol,) = server.listener.protocols
        text = b'{"type":"ping","ref":"12"}'
        begin = len(text) - 6
        assert begin % 4 == 0
        # With this mask the last six bytes are on the wire what a pong begins with, and four more.
        mask = bytes((text[begin] ^ 0x8A, text[begin + 1] ^ 0x80, 0, 0))
        wire = bytes(byte ^ mask[place % 4] for place, byte in enumerate(text))
        assert wire[begin:].startswith(b"\x8a\x80")
        protocol.data_received(bytes((0x81, 0x80 | len(text))) + mask + wire[:begin])
        protocol.data_received(wire[begin:])
        assert orjson.loads((await peer.hear())[1])["ref"] == "12"


async def test_a_half_open_connection_is_given_up() -> None:
    async with serving(server_ping_interval=50, presence_timeout=150) as server:
        async with raw(server) as peer, client(server, "bob") as bob:
            peer.frame(b'{"type":"auth","token":"alice"}')
            peer.frame(b'{"type":"subscribe","topics":["a"]}')
            await bob.say("subscribe", topics=["*"])
            async with asyncio.timeout(BOUND):
                while (await bob.hear_kind("message"))["message"]["type"] != "presence.leave":
                    pass
            data = await peer.rest()
        assert b"idle_timeout" in data
        assert (4408).to_bytes(2, "big") in data


async def test_a_client_that_closes_is_answered_and_forgotten(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(Close(1000, "bye").serialize(), Opcode.CLOSE)
        opcode, payload = await peer.hear()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 1000)
        assert await peer.rest() == b""
    await server.until_gone()


async def test_a_client_that_vanishes_is_forgotten(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.hear()
        transport: Any = peer.writer.transport
        transport.abort()
    await server.until_gone()


async def test_tls_is_served() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with serving(tls) as server, client(server, ssl=trusting) as alice:
        await alice.ask("subscribe", topics=["*"], presence=False)
        await alice.say("publish", topic="a", data="x" * 200_000)
        assert (await alice.hear())["message"]["data"] == "x" * 200_000


# ---------------------------------------------------------------- the handshake


async def test_a_plain_request_is_told_what_this_is(server: Server) -> None:
    async with raw(server, shake=False) as peer:
        peer.write(b"GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await peer.rest()
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"Upgrade: websocket" in answer
    assert b"WebSocket client" in answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /ws HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"400"),
        (b"GET /ws HTTP/1.1\r\n" + b"X: y\r\n" * 6000 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", b"414"),
    ],
)
async def test_a_wrong_request_has_its_status(server: Server, head: bytes, status: bytes) -> None:
    async with raw(server, shake=False) as peer:
        peer.write(head)
        assert (await peer.rest()).startswith(b"HTTP/1.1 " + status)
    await server.until_gone()


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01\x00", b"\x00" * 100, b"HELO there\r\n\r\n"]
)
async def test_what_is_no_http_does_no_harm(junk: bytes) -> None:
    async with serving(auth_deadline=100) as server:
        async with raw(server, shake=False) as peer:
            peer.write(junk)
            await peer.rest()
        await server.until_gone()
        async with client(server):
            pass


async def test_a_handshake_that_trickles_is_cut() -> None:
    async with serving(auth_deadline=100) as server:
        async with raw(server, shake=False) as peer:
            for byte in b"GET /ws HTTP/1.1\r\nHost: ":
                peer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert await peer.rest() == b""
        await server.until_gone()


async def test_a_handshake_that_never_ends_is_cut(server: Server) -> None:
    async with raw(server, shake=False) as peer:
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                peer.write(b"GET /ws HTTP/1.1\r\nX: " + b"y" * 1000)
                await peer.writer.drain()
        await peer.rest()
    await server.until_gone()


async def test_a_connection_without_auth_is_closed() -> None:
    async with serving(auth_deadline=100) as server, client(server, None) as stranger:
        assert (await stranger.hear())["code"] == "auth_timeout"
        assert await stranger.ended() == (4401, "auth_timeout")


async def test_only_listed_origins_may_connect() -> None:
    async with serving(cors_origins=["https://app.example"]) as server:
        async with client(server, origin="https://app.example"):
            pass
        async with client(server):
            pass
        with pytest.raises(InvalidStatus) as caught:
            async with client(server, origin="https://evil.example"):
                pass
        assert caught.value.response.status_code == 403


async def test_connections_of_the_listener_are_bounded() -> None:
    async with serving(max_connections=2) as server:
        async with client(server, "a"), client(server, "b"):
            with pytest.raises(InvalidStatus) as caught:
                async with client(server, "c"):
                    pass
            assert caught.value.response.status_code == 503
        await server.until_gone()
        async with client(server, "c"):
            pass


async def test_what_follows_the_request_at_once_is_read(server: Server) -> None:
    async with raw(server, shake=False) as peer:
        frame = Frame(Opcode.TEXT, b'{"type":"auth","token":"alice"}').serialize(mask=True)
        peer.write(
            b"GET /ws?x=y HTTP/1.1\r\nHost: x\r\nUpgrade: WebSocket\r\n"
            b"Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n" + frame
        )
        async with asyncio.timeout(BOUND):
            await peer.reader.readuntil(b"\r\n\r\n")
        assert b"auth.ok" in (await peer.hear())[1]


# ---------------------------------------------------------------- what is wrong


async def still_serving(server: Server) -> None:
    async with client(server, "witness") as witness:
        await witness.ask("subscribe", topics=["w"], presence=False)
        await witness.say("publish", topic="w", data=1)
        assert (await witness.hear())["message"]["data"] == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{nope", "invalid_frame"),
        ("[]", "invalid_frame"),
        ('{"type":"levitate"}', "unsupported"),
        ('{"type":"subscribe","topics":"a"}', "invalid_frame"),
        ('{"type":"subscribe","topics":[1]}', "invalid_frame"),
        ('{"type":"publish","topic":"a.*","data":1}', "invalid_topic"),
        ('{"type":"publish","topic":"a","data":' + "[" * 5000, "invalid_frame"),
        ('{"type":"publish","topic":"a","data":"' + "x" * 262_144 + '"}', "payload_too_large"),
    ],
)
async def test_a_wrong_frame_has_its_error_and_the_connection_lives(
    server: Server, text: str, code: str
) -> None:
    async with client(server) as alice:
        await alice.socket.send(text)
        assert (await alice.hear())["code"] == code
        assert (await alice.ask("ping"))["type"] == "pong"


async def test_text_that_is_no_utf_8_ends_the_connection(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"\xff"}')
        opcode, payload = await peer.hear()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 1007)
    await still_serving(server)


async def test_binary_that_is_no_utf_8_is_an_error(server: Server) -> None:
    async with client(server) as alice:
        await alice.socket.send(b'{"type":"\xff"}')
        assert (await alice.hear())["code"] == "invalid_frame"


@pytest.mark.parametrize("length", [100 * 2**20, 2**40, 2**62])
async def test_a_giant_frame_is_refused_by_its_header(server: Server, length: int) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.hear()
        peer.write(b"\x81\xff" + length.to_bytes(8, "big") + b"mask" + b"x" * 1000)
        opcode, payload = await peer.hear()
        assert orjson.loads(payload)["code"] == "payload_too_large"
        opcode, payload = await peer.hear()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 4413)
    await server.until_gone()
    await still_serving(server)


async def test_a_stranger_may_send_less_than_a_friend(server: Server) -> None:
    size = server.settings.max_payload + websocket.FRAME_EXTRA
    async with raw(server) as peer:
        peer.frame(b"x" * (size + 1))
        assert orjson.loads((await peer.hear())[1])["code"] == "payload_too_large"
    async with client(server) as alice:
        messages = [{"topic": "a", "data": "x" * 200_000} for _ in range(3)]
        assert len((await alice.ask("publish", ref="1", messages=messages))["results"]) == 3


async def test_fragments_are_bounded_together(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b"x" * 100_000, fin=False)
        for _ in range(5):
            peer.frame(b"x" * 100_000, Opcode.CONT, fin=False)
        assert orjson.loads((await peer.hear())[1])["code"] == "payload_too_large"
    await still_serving(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x05hello",  # without a mask
        b"\xf1\x80mask",  # reserved bits
        b"\x83\x80mask",  # an opcode that does not exist
        b"\x80\x80mask",  # nothing to continue
        b"\x09\x80mask",  # a ping in fragments
        b"\x89\xfe\x00\x80mask" + b"x" * 128,  # a ping too long
        b"\x01\x80mask\x81\x80mask",  # a second message inside the first
    ],
)
async def test_broken_frames_end_the_connection(server: Server, data: bytes) -> None:
    async with raw(server) as peer:
        peer.write(data)
        opcode, payload = await peer.hear()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 1002)
    await server.until_gone()
    await still_serving(server)


async def test_a_million_subscriptions_are_refused_beyond_the_limit() -> None:
    async with serving(max_subscriptions=100) as server, client(server) as alice:
        for number in range(0, 5_000, 1000):
            topics = [f"t{n}" for n in range(number, number + 1000)]
            answer = await alice.ask("subscribe", topics=topics, ref="1", presence=False)
            assert len(answer["topics"]) == (100 if number == 0 else 0)
            assert {d["code"] for d in answer["denied"]} == {"subscription_limit"}
        topics = ["a"] * 1_000_000
        answer = await alice.ask("subscribe", topics=topics, ref="2")
        assert (answer["code"], answer["ref"]) == ("invalid_frame", "2")
        assert server.hub.stats.subscriptions == 100
        await still_serving(server)


async def test_a_slow_consumer_is_cut_the_others_go_on_and_it_catches_up() -> None:
    async with serving(send_queue_bytes=300_000) as server:
        async with raw(server) as slow, client(server, "quick") as quick:
            slow.writer.get_extra_info("socket").setsockopt(1, 8, 4096)
            slow.frame(b'{"type":"auth","token":"slow"}')
            slow.frame(b'{"type":"subscribe","topics":["a"],"presence":false}')
            await slow.hear()
            start = orjson.loads((await slow.hear())[1])["timestamp"]
            await quick.ask("subscribe", topics=["a"], presence=False)
            transport: Any = slow.writer.transport
            transport.pause_reading()
            for number in range(100):
                await quick.say("publish", topic="a", data=[number, "x" * 100_000])
                assert (await quick.hear())["message"]["data"][0] == number
            assert server.hub.stats.slow_consumers == 1
            await server.until_gone(rest=1)
        async with client(server, "slow") as again:
            await again.say("subscribe", topics=["a"], since=start, ref="1", presence=False)
            got: list[int] = []
            more = True
            while more:
                frame = await again.hear()
                got += [message["data"][0] for message in frame["history"]]
                more = frame.get("more", False)
            assert got == list(range(100))


async def test_a_large_replay_to_a_slow_reader_is_no_slow_consumer() -> None:
    async with serving(send_queue_bytes=50_000) as server, client(server, "bot") as bot:
        for number in range(100):
            await bot.ask("publish", ref="1", topic="a", data=[number, "x" * 100_000])
        async with client(server, "late", max_queue=1) as late:
            await late.say("subscribe", topics=["a"], history=100, ref="1", presence=False)
            await late.say("ping", ref="after")
            got: list[int] = []
            while (frame := await late.hear())["type"] == "subscribed":
                got += [message["data"][0] for message in frame["history"]]
            assert got == list(range(100))
            assert frame["ref"] == "after"
        assert server.hub.stats.slow_consumers == 0


async def test_a_stopped_listener_says_good_bye() -> None:
    async with serving() as server:
        async with client(server) as alice, client(server, None) as stranger:
            stop = asyncio.create_task(server.stop())
            assert await alice.ended() == (1001, "going_away")
            assert await stranger.ended() == (1001, "going_away")
            await stop
        assert not server.listener.protocols
        with pytest.raises(ConnectionRefusedError):
            await connect(server.url)


async def test_a_client_that_never_answers_a_close_is_cut() -> None:
    async with serving(auth_deadline=50) as server, raw(server) as peer:
        transport: Any = peer.writer.transport
        transport.pause_reading()
        await server.until_gone()


# ---------------------------------------------------------------- any bytes in any pieces


class Wire:
    """A transport without a network."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


def plugged(server: Server) -> tuple[SocketProtocol, Wire]:
    wire: Any = Wire()
    protocol = SocketProtocol(server.listener)
    protocol.connection_made(wire)
    return protocol, wire


def heard(wire: Wire) -> list[Frame]:
    """Frames that the server has sent since the handshake."""
    parser = Protocol(CLIENT, max_size=None)
    parser.receive_data(bytes(wire.sent).partition(b"\r\n\r\n")[2])
    return [event for event in parser.events_received() if isinstance(event, Frame)]


@settings(deadline=None, max_examples=25)
@given(st.data())
async def test_connections_whose_bytes_come_interleaved_share_parsers_without_mixing(
    data: st.DataObject,
) -> None:
    server = Server({})
    count = data.draw(st.integers(2, 4))
    plugs = [plugged(server) for _ in range(count)]
    streams: list[bytes] = []
    expected: list[list[str]] = []
    for number in range(count):
        stream, refs = UPGRADE, []
        for step in range(data.draw(st.integers(1, 6))):
            ref = f"{number}.{step}"
            text = orjson.dumps({"type": "ping", "ref": ref})
            padding = data.draw(st.sampled_from([0, 1, 100, 130, 70_000]))
            text += b" " * padding
            cut = data.draw(st.integers(0, len(text)))
            if data.draw(st.booleans()):
                stream += Frame(Opcode.TEXT, text).serialize(mask=True)
            else:
                stream += Frame(Opcode.TEXT, text[:cut], False).serialize(mask=True)
                stream += Frame(Opcode.PING, b"p").serialize(mask=True)
                stream += Frame(Opcode.CONT, text[cut:]).serialize(mask=True)
            refs.append(ref)
        streams.append(stream)
        expected.append(refs)
    while any(streams):
        number = data.draw(st.sampled_from([n for n in range(count) if streams[n]]))
        size = data.draw(st.integers(1, len(streams[number])))
        piece, streams[number] = streams[number][:size], streams[number][size:]
        plugs[number][0].data_received(piece)
    server.hub.core.delivery.flush()
    for (protocol, wire), refs in zip(plugs, expected, strict=True):
        answers = [orjson.loads(bytes(f.data)) for f in heard(wire) if f.opcode is Opcode.TEXT]
        assert [(a["code"], a["ref"]) for a in answers] == [("unauthenticated", r) for r in refs]
        assert protocol._parser is None
        protocol.connection_lost(None)
    server.hub.core.wheel.stop()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.binary(max_size=50) | st.just(UPGRADE), max_size=8), st.booleans())
async def test_any_bytes_are_survived(chunks: list[bytes], opened: bool) -> None:
    server = Server({})
    protocol, wire = plugged(server)
    for chunk in [UPGRADE, *chunks] if opened else chunks:
        protocol.data_received(chunk)
    server.hub.core.delivery.flush()
    protocol.connection_lost(None)
    assert not server.hub._open
    assert not server.listener.protocols
    server.hub.core.wheel.stop()
    del wire
