"""A literal peer: implements HIP-56 with `websockets` and `httpx`, without the SDK.

`Iam` replaces hanzo.id, `Node` is one running server, `Socket` and `EventStream` are the two
transports.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

Json = dict[str, Any]
PATIENCE = float(os.environ.get("FAULT_PATIENCE", "30"))
"""Maximum seconds for an answer before a test fails; `prove` sets a lower value."""


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


class Iam:
    """Signs tokens with its own key, and serves the public key as a JWKS."""

    def __init__(self, kid: str = "test-key") -> None:
        self._kid = kid
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys = json.dumps({"keys": [{**public, "kid": kid, "use": "sig", "alg": "ES256"}]})

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(keys.encode())

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def jwks_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/.well-known/jwks.json"

    def token(
        self, user: str = "alice", *, kind: str = "user", ttl: float = 3600, **claims: object
    ) -> str:
        payload = {"sub": user, "kind": kind, "exp": int(time.time() + ttl), **claims}
        return jwt.encode(payload, self._key, algorithm="ES256", headers={"kid": self._kid})

    def service(self, name: str = "llm-gateway-01", **claims: Any) -> str:
        return self.token(name, kind="service", **claims)

    def admin(self) -> str:
        return self.token("root", kind="admin")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Socket:
    """One WebSocket, frame by frame."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.client_id = ""

    async def send(self, frame: Json) -> None:
        await self.connection.send(json.dumps(frame))

    async def next(self) -> Json:
        async with asyncio.timeout(PATIENCE):
            frame = json.loads(await self.connection.recv())
        assert isinstance(frame, dict)
        return frame

    async def until(self, kind: str) -> Json:
        """Return the next frame of this type; ignore the frames before it."""
        while (frame := await self.next())["type"] != kind:
            pass
        return frame

    async def message(self, kind: str | None = None) -> Json:
        """Return the envelope of the next message of this type, or of any type except presence."""
        while True:
            envelope: Json = (await self.until("message"))["message"]
            if envelope["type"] == kind or (
                kind is None and not envelope["type"].startswith("presence.")
            ):
                return envelope

    async def fence(self) -> list[Json]:
        """Return the frames that have arrived so far: those before the answer to a ping.

        Waits for the second of two pongs, because an answer may overtake messages of the same turn
        of the event loop.
        """
        frames: list[Json] = []
        for _ in range(2):
            await self.send({"type": "ping"})
            while (frame := await self.next())["type"] != "pong":
                frames.append(frame)
        return frames

    async def messages(self) -> list[Json]:
        """Return the application's envelopes that have arrived so far."""
        envelopes = [frame["message"] for frame in await self.fence() if frame["type"] == "message"]
        return [envelope for envelope in envelopes if not envelope["type"].startswith("presence.")]

    async def auth(self, token: str) -> Json:
        await self.send({"type": "auth", "token": token})
        answer = await self.next()
        self.client_id = answer.get("client_id", "")
        return answer

    async def subscribe(self, *topics: str, **more: object) -> Json:
        await self.send({"type": "subscribe", "topics": list(topics), **more})
        return await self.until("subscribed")

    async def closed(self) -> int:
        """Read until the end, and return the close code."""
        with suppress(ConnectionClosed):
            while True:
                await self.next()
        code = self.connection.close_code
        assert code not in {None, 1006}, "the connection broke without a close frame"
        return code or 0

    def cut(self) -> None:
        """Abort the connection without a closing handshake."""
        self.connection.transport.abort()

    def fall_silent(self) -> None:
        """Stop reading, so that pings of the server are not answered."""
        self.connection.transport.pause_reading()


@dataclass
class Event:
    """One event of an event stream."""

    name: str = "message"
    data: str = ""
    id: str | None = None

    @property
    def json(self) -> Json:
        value = json.loads(self.data)
        assert isinstance(value, dict)
        return value


@dataclass
class EventStream:
    """Reads `text/event-stream` line by line, as WHATWG specifies."""

    response: httpx.Response
    comments: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = self._split()

    async def _split(self) -> AsyncIterator[str]:
        """Yield lines. Only LF, CR and CRLF end a line: U+2028 is content."""
        rest = ""
        async for text in self.response.aiter_text():
            *lines, rest = re.split(r"\r\n|\n|\r(?!$)", rest + text)
            for line in lines:
                yield line

    async def item(self) -> Event | str:
        """Return the next event, or the text of the next comment."""
        event, dirty = Event(), False
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if not line and dirty:
                    return event
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                match name:
                    case "":
                        if line:
                            return value
                    case "event":
                        event.name, dirty = value, True
                    case "data":
                        event.data, dirty = (
                            (event.data + "\n" + value if event.data else value),
                            True,
                        )
                    case "id":
                        event.id, dirty = value, True
                    case _:
                        pass
        raise EOFError("the stream has ended")

    async def event(self, name: str | None = None) -> Event:
        while True:
            item = await self.item()
            if isinstance(item, Event) and (name is None or item.name == name):
                return item

    async def comment(self) -> str:
        while not isinstance(item := await self.item(), str):
            pass
        return item


@dataclass
class Node:
    """One running server: its addresses, and clients for it."""

    http: str
    ws: str
    iam: Iam
    stop: Callable[[], Awaitable[None]]
    cut: Callable[[], None]
    """Abort every connection of a client without a closing handshake."""
    ssl: ssl.SSLContext | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Socket]:
        """Open a socket that has sent nothing yet."""
        async with connect(
            self.ws,
            compression=None,
            ping_interval=None,
            max_size=None,
            close_timeout=1,
            ssl=self.ssl,
        ) as connection:
            yield Socket(connection)

    @asynccontextmanager
    async def socket(self, token: str) -> AsyncGenerator[Socket]:
        """Open an authenticated socket."""
        async with self.open() as socket:
            assert (await socket.auth(f"Bearer {token}"))["type"] == "auth.ok"
            yield socket

    @asynccontextmanager
    async def rest(self, token: str | None = None) -> AsyncGenerator[httpx.AsyncClient]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        verify = True if self.ssl is None else self.ssl
        async with httpx.AsyncClient(
            base_url=self.http, headers=headers, verify=verify, timeout=PATIENCE
        ) as client:
            yield client

    async def publish(
        self,
        topic: str,
        data: Json | None = None,
        kind: str = "token",
        *,
        token: str | None = None,
        **more: object,
    ) -> Json:
        """Send `POST /v1/topics/:topic/messages` as a service; return the response."""
        async with self.rest(token or self.iam.service()) as rest:
            answer = await rest.post(
                f"/v1/topics/{topic}/messages", json={"type": kind, "data": data or {}, **more}
            )
        assert answer.status_code < 300, answer.text
        body = answer.json()
        assert isinstance(body, dict)
        return body

    @asynccontextmanager
    async def events(self, token: str, **query: object) -> AsyncGenerator[EventStream]:
        """Open `GET /v1/subscribe` with the two headers of HIP-56."""
        headers = {
            "Accept": "text/event-stream",
            **{k: str(v) for k, v in query.items() if "-" in k},
        }
        params = {k: str(v) for k, v in query.items() if "-" not in k}
        async with (
            self.rest(token) as rest,
            rest.stream("GET", "/v1/subscribe", params=params, headers=headers) as response,
        ):
            assert response.status_code == 200, await response.aread()
            yield EventStream(response)
