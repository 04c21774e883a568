"""Servers to compare with, and the real one.

`python -m tests.bench.servers broadcast|joined|rest` starts one. `broadcast` and `joined` send
every message of a publisher to all subscribers: `broadcast` by `websockets.broadcast`; `joined`, as
the minimum, by uvloop's transports with one write per subscriber for all messages of one read, on
WebSockets and event streams. Neither implements topics, access or history. `rest` is aiohttp on
uvloop with a handler that reads the JSON of a POST and answers with JSON.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pubsub_server.auth.dev_tokens import load_key, mint
from tests.bench.processes import Worker, worker
from tests.bench.readers import raise_limit
from tests.bench.samples import text_frame

if TYPE_CHECKING:
    from collections.abc import Generator

    from websockets.asyncio.server import ServerConnection

AUTH_OK = json.dumps({"type": "auth.ok", "client_id": "cl_1"})
SUBSCRIBED = json.dumps({"type": "subscribed", "topics": []})
MANY = 1_000_000_000
NO_TIMEOUTS = {"presence_timeout": 600_000, "program_timeout": 0}
"""A setting for readers that don't answer pings."""


@dataclass
class Server:
    """A running server of either kind."""

    worker: Worker
    ws: str
    http: str = ""
    token: str = "t"
    dialect: str = "echo"
    store: Worker | None = None


@contextmanager
def real_server(store: Server | None = None, /, **settings: object) -> Generator[Server]:
    """Start the reference server as `hanzo-pubsub serve --dev` does, with high limits.

    Args:
        store: The Redis of its backplane. By default everything is in its process.
        settings: Flags.
    """
    with tempfile.TemporaryDirectory() as folder:
        key = Path(str(settings.get("dev_key_file", Path(folder) / "dev.key")))
        token = mint(load_key(key), "bench", kind="admin", orgs=["bench"])
        given: dict[str, object] = {
            "dev_key_file": key,
            "http_port": 0,
            "ws_port": 0,
            "connections_per_user": 100_000,
            "connections_per_org": 100_000,
            "publish_rate_user": MANY,
            "publish_rate_service": MANY,
            "log_level": "warning",
            **({} if store is None else {"redis_url": store.ws}),
            **settings,
        }
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        with worker("pubsub_server", "serve", "--dev", *flags) as child:
            ready = child.read()
            held = None if store is None else store.worker
            yield Server(child, ready["ws"], ready["http"], token, "hanzo", held)


@contextmanager
def peer_server(kind: str) -> Generator[Server]:
    """Start a server of this file: `broadcast`, `joined` or `rest`."""
    with worker("tests.bench.servers", kind) as child:
        where = child.read()["ws"]
        yield Server(child, where, where.replace("ws://", "http://").removesuffix("/ws"))


async def broadcast() -> None:
    """`websockets`: one write per message and subscriber."""
    from websockets.asyncio.server import broadcast as send_all
    from websockets.asyncio.server import serve
    from websockets.exceptions import ConnectionClosed

    subscribers: set[ServerConnection] = set()

    async def handle(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for text in connection:
                start = str(text[:40])
                if '"publish"' in start:
                    send_all(subscribers, str(text))
                elif '"auth"' in start:
                    await connection.send(AUTH_OK)
                elif '"subscribe"' in start:
                    subscribers.add(connection)
                    await connection.send(SUBSCRIBED)
        subscribers.discard(connection)

    # Keepalive costs one task per connection, and these connections are too short-lived to need it.
    async with serve(handle, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(json.dumps({"ws": f"ws://127.0.0.1:{port}/ws"}), flush=True)
        await server.serve_forever()


class Joined(asyncio.Protocol):
    """Sends all messages of one read in one write per subscriber."""

    subscribers: set[asyncio.Transport] = set()  # noqa: RUF012
    streams: set[asyncio.Transport] = set()  # noqa: RUF012

    def __init__(self) -> None:
        self._rest = b""
        self._open = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        assert self._transport is not None
        self.subscribers.discard(self._transport)
        self.streams.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._rest += data
        if not self._open:
            head, found, self._rest = self._rest.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            self._open = True
            if b"text/event-stream" in head:
                self._transport.write(STREAM + _event("subscribed", b"{}"))
                self.streams.add(self._transport)
                return
            self._transport.write(_switch(head))
        out: list[bytes] = []
        events: list[bytes] = []
        for payload in self._frames():
            start = payload[:40]
            if b'"publish"' in start:
                out.append(text_frame(payload))
                if self.streams:
                    events.append(_event("message", payload))
            elif b'"auth"' in start:
                self._transport.write(text_frame(AUTH_OK.encode()))
            elif b'"subscribe"' in start:
                self.subscribers.add(self._transport)
                self._transport.write(text_frame(SUBSCRIBED.encode()))
        if out:
            joined = b"".join(out)
            for subscriber in self.subscribers:
                subscriber.write(joined)
            joined = b"".join(events)
            for stream in self.streams:
                stream.write(joined)

    def _frames(self) -> list[bytes]:
        data, at, found = self._rest, 0, list[bytes]()
        while len(data) - at >= 6:
            size, body = data[at + 1] & 0x7F, at + 2
            if size == 126:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if body + 4 + size > len(data):
                break
            found.append(data[body + 4 : body + 4 + size])
            at = body + 4 + size
        self._rest = data[at:]
        return found


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _event(name: str, data: bytes) -> bytes:
    """One event in its own chunk, as a server sends it."""
    body = b"id: 1740307200000-demo.fanout@1740307200000000\n" if name == "message" else b""
    body += b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"%x\r\n%b\r\n" % (len(body), body)


def _switch(head: bytes) -> bytes:
    lines = head.decode().split("\r\n")
    key = next(line[19:] for line in lines if line.lower().startswith("sec-websocket-key: "))
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    accept = base64.b64encode(digest).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


async def joined() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Joined, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"ws": f"ws://127.0.0.1:{port}/ws"}), flush=True)
    await server.serve_forever()


async def rest() -> None:
    """aiohttp alone: reads the JSON of a POST and answers with 201 and JSON."""
    from aiohttp import web

    async def handle(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        answer = {"id": "msg_1", "timestamp": 1, "seq": len(body), "duplicate": False}
        return web.json_response(answer, status=201)

    app = web.Application()
    app.router.add_post("/v1/topics/{topic}/messages", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(json.dumps({"ws": f"ws://{host}:{port}/ws"}), flush=True)
    await asyncio.Event().wait()


def main(kind: str) -> None:
    raise_limit()
    if kind == "broadcast":
        asyncio.run(broadcast())
        return
    import uvloop

    uvloop.run(rest() if kind == "rest" else joined())


if __name__ == "__main__":
    main(sys.argv[1])
