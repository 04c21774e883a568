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
import zlib
from abc import abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.chaos.records import Gap, Message
from tests.simulation.prng import Random

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

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


class Whims:
    """What a restless client does by itself.

    Args:
        seed: Text that determines its decisions.
        until: Seconds of the run until which it is restless.
        now: Returns the seconds since the start of the run.
    """

    def __init__(self, seed: str, until: float, now: Callable[[], float]) -> None:
        self._random = Random(zlib.crc32(seed.encode()))
        self._until = until
        self._now = now

    @property
    def restless(self) -> bool:
        """Whether it still changes anything."""
        return self._now() < self._until

    def one_in(self, number: int) -> bool:
        """Whether it does something that it does once in this many times."""
        return self.restless and self._random.below(number) == 0

    def leave_at_answer(self) -> None:
        """Leave sometimes: what waited for the answer must then come with the next one.

        Raises:
            _AgainError: It leaves.
        """
        if self.one_in(4):
            raise _AgainError

    def seconds(self, low: float, high: float) -> float:
        """Return a time between these."""
        return low + (high - low) * self._random.below(1_000) / 1_000

    def some(self, options: Sequence[str], most: int) -> list[str]:
        """Return one to `most` of these."""
        count = 1 + self._random.below(most)
        return list({options[self._random.below(len(options))]: None for _ in range(count)})

    def stay(self) -> float | None:
        """Return the seconds until it closes a new connection; None if it does not."""
        return self.seconds(0.2, 4.0) if self.restless else None


class Reconnecting(Protocol):
    """A client that reads, and connects again when its connection ends.

    Args:
        client: Records the state.
        token: Bearer token.
        port: Port of the node, through its network.
        now: Returns the seconds since the start of the run.
        whims: What it does by itself.
    """

    transport: str
    client: Client
    _token: str
    _port: int
    _now: Callable[[], float]
    _whims: Whims

    def __init__(
        self, client: Client, token: str, port: int, now: Callable[[], float], whims: Whims
    ) -> None:
        self.client = client
        self._token = token
        self._port = port
        self._now = now
        self._whims = whims

    async def run(self) -> None:
        """Read until the task is cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._whims.stay()):
                    await self._attend()
            except (OSError, TimeoutError, EOFError, WebSocketException, ValueError, _AgainError):
                pass
            finally:
                self.client.state, self.client.found = "reconnecting", None
            await asyncio.sleep(AGAIN_AFTER)

    @abstractmethod
    async def _attend(self) -> None:
        """Connect, subscribe and read until the connection ends."""


class Reader(Reconnecting, Protocol):
    """A reader with one subscription: the position of each topic, and the recorded events.

    Args:
        subscription: Records the received events.
        *given: See `Reconnecting`.
    """

    subscription: Subscription
    _last: dict[str, int]
    _doubted: dict[str, int]

    def __init__(self, subscription: Subscription, *given: Any) -> None:
        super().__init__(*given)
        self.subscription = subscription
        self._last = {}
        # By topic, the message that skipped a position and caused a new replay request.
        self._doubted = {}

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
        self.subscription.received.append(Gap(self._now(), topic, first, None, None, reason))

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
        self.subscription.received.append(
            Message(self._now(), topic, envelope["id"], seq, sender, envelope.get("data"))
        )


class Talk:
    """An open WebSocket, which pings while nothing arrives.

    Args:
        socket: The connection.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last_received = time.monotonic()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame."""
        await self._socket.send(json.dumps(frame))

    async def next(self) -> Json:
        """Return the next frame.

        Raises:
            _AgainError: The connection is silent.
        """
        while True:
            try:
                async with asyncio.timeout(PING_AFTER):
                    frame: Json = json.loads(await self._socket.recv())
                self._last_received = time.monotonic()
                return frame
            except TimeoutError:
                if time.monotonic() - self._last_received > SILENT_FOR:
                    raise _AgainError from None
                async with asyncio.timeout(PING_AFTER):
                    await self._socket.send('{"type": "ping"}')

    async def auth(self, token: str, client_id: str | None) -> str:
        """Authenticate, resume the client with this id, and return the id.

        Raises:
            _AgainError: The server refuses.
        """
        frame = {"type": "auth", "token": token, "version": 1}
        if client_id is not None:
            frame["client_id"] = client_id
        await self.send(frame)
        answer = await self.next()
        if answer["type"] != "auth.ok":
            raise _AgainError
        return str(answer["client_id"])


@asynccontextmanager
async def talk(port: int) -> AsyncGenerator[Talk]:
    """Open a WebSocket."""
    async with connect(
        f"ws://{HOST}:{port}/ws",
        compression=None,
        ping_interval=None,
        max_size=None,
        open_timeout=OPEN_WITHIN,
        close_timeout=0.2,
        proxy=None,
    ) as socket:
        try:
            yield Talk(socket)
        finally:
            socket.transport.abort()


class SocketReader(Reader):
    """Reads from a WebSocket, and reconnects."""

    transport = "websocket"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._client_id: str | None = None
        self._since: int | None = None
        self._answered_here = False

    async def _attend(self) -> None:
        self._answered_here = False
        async with talk(self._port) as socket:
            self._client_id = await socket.auth(self._token, self._client_id)
            await self._subscribe(socket)
            while True:
                await self._frame(socket, await socket.next())

    async def _subscribe(self, socket: Talk) -> None:
        frame: Json = {"type": "subscribe", "topics": self.subscription.patterns, "ref": "s"}
        if self.subscription.began is not None:
            frame |= {"after": self._last, "since": self._since}
        await socket.send(frame)

    async def _frame(self, socket: Talk, frame: Json) -> None:
        match frame:
            case {"type": "subscribed"}:
                if self._since is None:
                    self._since = frame["timestamp"]
                self._answered_here = True
                self._answered(frame)
                self._whims.leave_at_answer()
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
    """Reads one topic from an event stream, and resumes like an EventSource: by Last-Event-ID.

    An `error` event does not end the connection: only the end of the stream, or silence, does.
    """

    transport = "sse"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._mark: str | None = None

    @property
    def _topics(self) -> str:
        return ",".join(self.subscription.patterns)

    async def _attend(self) -> None:
        async with asyncio.timeout(OPEN_WITHIN):
            reader, writer = await asyncio.open_connection(HOST, self._port)
        try:
            mark = "" if self._mark is None else f"Last-Event-ID: {self._mark}\r\n"
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
                self._take(json.loads(event["data"]), replayed=False)
            case _:
                pass
        if "id" in event:
            self._mark = event["id"]
        if event["event"] == "subscribed":
            self._whims.leave_at_answer()


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
