"""The WebSocket listener on a real port, a JSON client, and a client that writes raw bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close, Frame, Opcode

from pubsub_server.backplanes.memory import open_memory
from pubsub_server.hub.hub import Hub
from pubsub_server.listeners.origins import Origins
from pubsub_server.listeners.websocket.connections import SocketConnections
from pubsub_server.listeners.websocket.listener import WebSocketListener
from pubsub_server.listeners.websocket.protocol import SocketProtocol
from pubsub_server.settings.config import Settings
from pubsub_server.shared.limits import ConnectionLimiter, RateLimiter
from pubsub_server.shared.wall_clock import never_back, now_ms
from tests.server.hub_rig import People, Rules

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from pubsub_server.listeners.websocket.connections import Open


BOUND = 60.0


class Watched(SocketConnections):
    """Reports when a connection has ended."""

    changed: asyncio.Event

    def gone(self, connection: Open) -> None:
        super().gone(connection)
        self.changed.set()


class Server:
    """A hub and its WebSocket listener in this event loop."""

    def __init__(self, settings: dict[str, Any], tls: ssl.SSLContext | None = None) -> None:
        self.settings = Settings.model_validate({"ws_port": 0, "publish_rate_user": 1e6} | settings)
        self.people = People()
        self.rules = Rules()
        wall = never_back(now_ms)
        self.hub = Hub(
            self.settings,
            authenticator=self.people,
            policy=self.rules,
            rates=RateLimiter(self.settings.publish_rate_user, 1e6),
            limiter=ConnectionLimiter(self.settings.connections_per_user, 1_000_000),
            backplane=open_memory(self.settings, wall),
            wall=wall,
        )
        origins = Origins(self.settings.cors_origins, self.hub.clock)
        self.connections = Watched(self.hub, self.settings, origins)
        self.connections.changed = asyncio.Event()
        self.listener = WebSocketListener(self.connections)
        self.tls = tls
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws{'s' if self.tls else ''}://localhost:{self.port}/ws"

    @property
    def protocol(self) -> SocketProtocol:
        """Its only connection."""
        (found,) = self.connections.open
        assert isinstance(found, SocketProtocol)
        return found

    async def start(self) -> None:
        self.port = await self.listener.start(self.tls)

    async def stop(self) -> None:
        await self.listener.stop_listening()
        await self.hub.drain(1)
        await self.listener.stop(1)
        await self.hub.close()

    async def until_gone(self, rest: int = 0) -> None:
        """Wait until the server has only this number of connections."""
        async with asyncio.timeout(BOUND):
            while len(self.connections.open) > rest:
                self.connections.changed.clear()
                await self.connections.changed.wait()
        assert len(self.hub._open) <= rest


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, **settings: Any) -> AsyncGenerator[Server]:
    server = Server(settings, tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Client:
    """A JSON client that uses the `websockets` library."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": kind, **fields}).decode())

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND):
            frame: dict[str, Any] = orjson.loads(await self.socket.recv())
            return frame

    async def receive_kind(self, kind: str) -> dict[str, Any]:
        """Return the next frame of this type; ignore others."""
        while (frame := await self.receive())["type"] != kind:
            pass
        return frame

    async def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        await self.say(kind, **fields)
        return await self.receive()

    async def ended(self) -> tuple[int, str]:
        """Return close code and reason; ignore earlier frames."""
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
    """A client that writes arbitrary bytes."""

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
        """Return all data until the server closes."""
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

    async def receive(self) -> tuple[int, bytes]:
        """Return opcode and payload of the next frame."""
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


async def still_serving(server: Server) -> None:
    async with client(server, "witness") as witness:
        await witness.ask("subscribe", topics=["w"], presence=False)
        await witness.say("publish", topic="w", data=1)
        assert (await witness.receive())["message"]["data"] == 1
