"""Raw readers of a WebSocket and of an event stream, without any code of the product.

They resume as docs/protocol.md describes (`after` and `since` on a socket, Last-Event-ID on a
stream), request a replay if a position is skipped, and record a gap if the server sends `reset` or
`truncated`. Nothing else compensates for messages that the server leaves out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.chaos.records import Gap, Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from websockets.asyncio.client import ClientConnection

    from tests.chaos.records import Client, Subscription

Json = dict[str, Any]
HOST: Final = "127.0.0.1"
OPEN_WITHIN: Final = 3.0
SILENT_FOR: Final = 8.0
"""Seconds without a byte after which a connection is considered lost."""
PING_AFTER: Final = 1.0
AGAIN_AFTER: Final = 0.15


class _AgainError(Exception):
    """Close the connection, and open a new one."""


class Reader(Protocol):
    """The common part of both readers: the position of each topic, and the recorded events.

    Args:
        subscription: Records the received events.
        client: Records the state.
        token: Bearer token.
        port: Port of the node, through its network.
        now: Returns the seconds since the start of the run.
    """

    transport: str
    subscription: Subscription
    client: Client
    stopped: bool
    _token: str
    _port: int
    _now: Callable[[], float]
    _last: dict[str, int]
    _doubted: dict[str, int]

    def __init__(
        self,
        subscription: Subscription,
        client: Client,
        token: str,
        port: int,
        now: Callable[[], float],
    ) -> None:
        self.subscription = subscription
        self.client = client
        self.stopped = False
        self._token = token
        self._port = port
        self._now = now
        self._last = {}
        # By topic, the message that skipped a position and caused a new replay request.
        self._doubted = {}

    async def run(self) -> None:
        """Read until the task is cancelled."""
        while True:
            try:
                await self._attend()
            except (OSError, TimeoutError, EOFError, WebSocketException, ValueError, _AgainError):
                pass
            finally:
                self.client.state, self.client.found = "reconnecting", None
            await asyncio.sleep(AGAIN_AFTER)

    @abstractmethod
    async def _attend(self) -> None:
        """Connect, subscribe and read until the connection ends."""

    def _answered(self, frame: Mapping[str, Any]) -> None:
        """Handle a `subscribed` frame."""
        for reason, topics in (
            ("log_reset", frame.get("reset") or ()),
            ("history_trimmed", frame.get("truncated") or ()),
        ):
            for topic in topics:
                if reason == "history_trimmed" and topic in (frame.get("reset") or ()):
                    continue
                self._gap(topic, reason)
        for envelope in frame.get("history") or ():
            self._take(envelope, replayed=True)
        if self.subscription.began is None and not frame.get("more"):
            for topic, position in (frame.get("positions") or {}).items():
                self._last.setdefault(topic, position)
            self.subscription.began = self._now()
        self.client.state, self.client.found = "connected", self.transport

    def _gap(self, topic: str, reason: str) -> None:
        last = self._last.pop(topic, None)
        self._doubted.pop(topic, None)
        first = None if last is None else last + 1
        self.subscription.heard.append(Gap(self._now(), topic, first, None, None, reason))

    def _take(self, envelope: Mapping[str, Any], *, replayed: bool) -> None:
        if str(envelope.get("type", "")).startswith("presence."):
            return
        topic, seq = envelope["topic"], envelope.get("seq")
        last = self._last.get(topic)
        skipped = not replayed and last is not None and seq is not None and seq > last + 1
        if skipped and seq is not None and self._doubted.get(topic, -1) < seq:
            # The log may contain the skipped messages; after one request, it does not. An answer
            # that is older than this message proves nothing: the store may have been empty.
            self._doubted[topic] = seq
            raise _AgainError
        if seq is not None:
            self._last[topic] = max(seq, last or 0)
        sender = (envelope.get("sender") or {}).get("id")
        self.subscription.heard.append(
            Message(self._now(), topic, envelope["id"], seq, sender, envelope.get("data"))
        )


class SocketReader(Reader):
    """Reads from a WebSocket, and reconnects."""

    transport = "websocket"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._client_id: str | None = None
        self._since: int | None = None
        self._answered_here = False
        self._heard = 0.0

    async def _attend(self) -> None:
        self._answered_here = False
        async with connect(
            f"ws://{HOST}:{self._port}/ws",
            compression=None,
            ping_interval=None,
            max_size=None,
            open_timeout=OPEN_WITHIN,
            close_timeout=0.2,
            proxy=None,
        ) as socket:
            self._heard = time.monotonic()
            try:
                await self._auth(socket)
                await self._subscribe(socket)
                while True:
                    await self._frame(socket, await self._next(socket))
            finally:
                socket.transport.abort()

    async def _auth(self, socket: ClientConnection) -> None:
        frame = {"type": "auth", "token": self._token, "version": 1}
        if self._client_id is not None:
            frame["client_id"] = self._client_id
        await socket.send(json.dumps(frame))
        answer = await self._next(socket)
        if answer["type"] != "auth.ok":
            raise _AgainError
        self._client_id = answer["client_id"]

    async def _subscribe(self, socket: ClientConnection) -> None:
        frame: Json = {"type": "subscribe", "topics": self.subscription.patterns, "ref": "s"}
        if self.subscription.began is not None:
            frame |= {"after": self._last, "since": self._since}
        await socket.send(json.dumps(frame))

    async def _next(self, socket: ClientConnection) -> Json:
        while True:
            try:
                async with asyncio.timeout(PING_AFTER):
                    frame: Json = json.loads(await socket.recv())
                self._heard = time.monotonic()
                return frame
            except TimeoutError:
                if time.monotonic() - self._heard > SILENT_FOR:
                    raise _AgainError from None
                async with asyncio.timeout(PING_AFTER):
                    await socket.send('{"type": "ping"}')

    async def _frame(self, socket: ClientConnection, frame: Json) -> None:
        match frame:
            case {"type": "subscribed"}:
                if self._since is None:
                    self._since = frame["timestamp"]
                self._answered_here = True
                self._answered(frame)
            case {"type": "message", "message": envelope}:
                # Messages before the answer are in the replay, too.
                if self._answered_here:
                    self._take(envelope, replayed=False)
            case {"type": "error", "ref": "s", "code": "forbidden"}:
                # The server granted no topic, so no message may arrive.
                self._answered({})
            case {"type": "error", "ref": "s"}:
                await asyncio.sleep(frame.get("retry_after_ms", 100) / 1000)
                await self._subscribe(socket)
            case _:
                pass


class StreamReader(Reader):
    """Reads from an event stream, and resumes like an EventSource: only by Last-Event-ID.

    An `error` event does not end the connection: only the end of the stream, or silence, does.
    """

    transport = "sse"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._mark: str | None = None
        self._resumed = False
        self._single = len(self.subscription.patterns) == 1 and "*" not in self._topics

    @property
    def _topics(self) -> str:
        return ",".join(self.subscription.patterns)

    async def _attend(self) -> None:
        async with asyncio.timeout(OPEN_WITHIN):
            reader, writer = await asyncio.open_connection(HOST, self._port)
        try:
            mark = "" if self._mark is None else f"Last-Event-ID: {self._mark}\r\n"
            self._resumed = self._mark is not None
            writer.write(
                f"GET /v1/subscribe?topics={quote(self._topics)} HTTP/1.1\r\n"
                f"Host: {HOST}\r\nAuthorization: Bearer {self._token}\r\n"
                f"Accept: text/event-stream\r\n{mark}\r\n".encode()
            )
            async for event in _events(reader):
                self._event(event)
        finally:
            writer.transport.abort()

    def _event(self, event: Mapping[str, str]) -> None:
        # Update the id only for accepted events, so that a skipped position is requested again.
        match event["event"]:
            case "subscribed":
                self._answered(json.loads(event["data"]))
            case "message":
                envelope = json.loads(event["data"])
                known = self._last.get(envelope["topic"], 0)
                # With several topics, the id names one of them; the others are replayed by time.
                if self._single or not self._resumed or envelope.get("seq", known + 1) > known:
                    self._take(envelope, replayed=False)
            case _:
                pass
        if "id" in event:
            self._mark = event["id"]


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, str]]:
    """Yield the events of a response.

    Raises:
        EOFError: The stream has ended.
        TimeoutError: The stream is silent.
        ValueError: The response is not an event stream.
    """
    async with asyncio.timeout(SILENT_FOR):
        head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise ValueError(head)
    rest, event = "", dict[str, str]()
    decoded = bytearray()
    while True:
        async with asyncio.timeout(SILENT_FOR):
            size = int(await reader.readuntil(b"\r\n"), 16)
            if not size:
                raise EOFError
            decoded += (await reader.readexactly(size + 2))[:-2]
        with contextlib.suppress(UnicodeDecodeError):
            rest += decoded.decode()
            decoded.clear()
        *lines, rest = rest.split("\n")
        for line in lines:
            if not line:
                if "data" in event:
                    yield {"event": "message", **event}
                event = {}
                continue
            name, _, value = line.partition(":")
            if name:
                event[name] = value.removeprefix(" ")
