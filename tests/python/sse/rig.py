"""The transport of event streams, and a server with prepared responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.generated.wire import (
    AuthFrame,
    AuthOkFrame,
    ClientFrame,
    MessageFrame,
    ServerFrame,
    SubscribeFrame,
)
from hanzoai.pubsub.settings.options import RetryOptions, read_options
from hanzoai.pubsub.transports import TransportClosed
from hanzoai.pubsub.transports.sse import SseTransport
from hanzoai.pubsub.wire.codec import Malformed, Unknown
from tests.python.received import open_transport, receive

BASE = "http://127.0.0.1:8056"
TOKEN = "s3cr3t-token-value"
INFO = {
    "client_id": "cl_1",
    "user_id": "alice",
    "version": 1,
    "features": ["ref", "ack", "seq", "idempotency", "batch", "resume", "meta"],
    "limits": {"publish_rate": 10},
}


def envelope(number: int, topic: str = "a.b", **more: Any) -> dict[str, Any]:
    return {"id": f"m{number}", "topic": topic, "type": "t", "data": 1, "timestamp": number, **more}


def event(name: str, data: Any, *, id: str | None = None) -> bytes:
    lines = [f"event: {name}", *([f"id: {id}"] if id else []), f"data: {json.dumps(data)}"]
    return "\n".join([*lines, "", ""]).encode()


def message(number: int, topic: str = "a.b", **more: Any) -> bytes:
    return event("message", envelope(number, topic, **more), id=f"{number}-{topic}@{number}")


class Clock(SystemClock):
    """A clock that does not sleep; the test sets its time."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Stream(httpx.AsyncByteStream):
    """The body of one event stream, which the test writes."""

    def __init__(self, request: httpx.Request) -> None:
        self.request = request
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.taken = 0

    def write(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.queue.put_nowait(chunk)

    def end(self, error: Exception | None = None) -> None:
        self.queue.put_nowait(error)

    @property
    def body(self) -> Any:
        return json.loads(self.request.content)

    @property
    def token(self) -> str:
        return self.request.headers["Authorization"].removeprefix("Bearer ")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            chunk = await self.queue.get()
            if chunk is None:
                return
            if isinstance(chunk, Exception):
                raise chunk
            self.taken += 1
            yield chunk

    async def aclose(self) -> None:
        self.closed.set()


Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Peer:
    """A server with prepared responses; other requests succeed."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[httpx.Request] = []
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.plain = False
        self.bare_stream: int | httpx.Response = 400
        """Return the response to a stream without topics."""
        self.gate: asyncio.Event | None = None

    def answer(self, path: str, *answers: Answer) -> None:
        self.answers.setdefault(path, []).extend(answers)

    def sent(self, path: str) -> list[Any]:
        return [json.loads(r.content) for r in self.requests if r.url.path == path]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if self.gate is not None:
            await self.gate.wait()
        if path == "/v1/subscribe" and request.method == "GET" and not request.url.params:
            bare = self.bare_stream
            return httpx.Response(bare) if isinstance(bare, int) else bare
        waiting = self.answers.get(path)
        if waiting:
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, httpx.Response) else answer(request)
        if path == "/v1/session" and not self.plain:
            return httpx.Response(200, json=INFO)
        if path == "/v1/subscribe" and (request.method == "GET" or not self.plain):
            stream = Stream(request)
            self.streams.put_nowait(stream)
            return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=stream)
        if path == "/v1/messages:batch" and not self.plain:
            ids = [one["id"] for one in json.loads(request.content)["messages"]]
            return httpx.Response(200, json={"results": [{"id": i, "timestamp": 1} for i in ids]})
        if path.endswith("/messages"):
            id = json.loads(request.content).get("id") or "server-1"
            return httpx.Response(200, json={"id": id, "timestamp": 1, "seq": 7})
        return httpx.Response(404)


class Client:
    """A transport and its events."""

    def __init__(self, peer: Peer, **settings: Any) -> None:
        self.clock = Clock()
        options = read_options(
            BASE, TOKEN, settings={"retry": RetryOptions(base=0.001), **settings}, environ={}
        )
        carried = httpx.MockTransport(peer.handle)
        self.transport = SseTransport(options, self.clock, transport=carried)
        self.peer = peer
        self.came: list[ServerFrame] = []

    async def open(self) -> None:
        await open_transport(self.transport)

    def send(self, *frames: ClientFrame) -> None:
        for frame in frames:
            self.transport.send(frame)

    async def next(self, count: int = 1) -> list[ServerFrame]:
        while len(self.came) < count:
            await self._receive()
        first, self.came = self.came[:count], self.came[count:]
        return first

    async def _receive(self) -> None:
        for frame in await receive(self.transport):
            if not isinstance(frame, Malformed | Unknown | list):
                self.came.append(frame)

    async def closed(self) -> TransportClosed:
        while True:
            try:
                await self._receive()
            except TransportClosed as closed:
                return closed

    async def authenticate(self, token: str = TOKEN) -> AuthOkFrame:
        self.send(AuthFrame(token=token, version=1))
        (frame,) = await self.next()
        assert isinstance(frame, AuthOkFrame), frame
        return frame

    async def subscribe(self, *frames: SubscribeFrame) -> Stream:
        self.send(*frames)
        return await self.peer.streams.get()


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for happens inside the transport
        await asyncio.sleep(0)


def numbers(frames: list[ServerFrame]) -> list[int]:
    return [frame.message.timestamp for frame in frames if isinstance(frame, MessageFrame)]


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"title": "T", "status": status, "code": code, **more})
