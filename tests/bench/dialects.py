"""Subscribers and publishers of each protocol: HIP-56, Centrifugo, NATS over WebSocket, Redis, SSE.

A mark in the content identifies a delivery, so that nothing measured needs to be decoded.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tests.bench.samples import FIRST_SEQ, START
from tests.bench.wire import PIECE, masked

if TYPE_CHECKING:
    from collections.abc import Sequence

    Step = tuple[bytes, bytes]
    """A request, and a part of its answer."""

MARK: Final = b"@M@"
END: Final = b"@M@END@"
ENVELOPE_BYTES: Final = 250
AT_ONCE: Final = 200
"""Connections that are opened at the same time."""
UPGRADE: Final = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def steps(
    dialect: str, url: str, token: str, topic: str, *, presence: bool = False
) -> Sequence[Step]:
    """The requests from a new connection to a subscription of the topic."""
    parts = urlsplit(url)
    upgrade = UPGRADE.format(path=parts.path or "/", host=parts.netloc).encode()
    match dialect:
        case "hanzo" | "echo":
            auth = json.dumps({"type": "auth", "token": token})
            wish = json.dumps({"type": "subscribe", "topics": [topic], "presence": presence})
            return [
                (upgrade, b"\r\n\r\n"),
                (masked(auth.encode()), b'"auth.ok"'),
                (masked(wish.encode()), b'"subscribed"'),
            ]
        case "centrifugo":
            # Its configuration decides on presence.
            connect = _compact({"id": 1, "connect": {"token": token}})
            subscribe = _compact({"id": 2, "subscribe": {"channel": topic}})
            return [
                (upgrade, b"\r\n\r\n"),
                (masked(connect), b'"connect":{'),
                (masked(subscribe), b'"subscribe":{'),
            ]
        case "nats":
            options = b'{"verbose":false,"pedantic":false,"lang":"c","version":"1","protocol":1}'
            hello = b"CONNECT %b\r\nSUB %b 1\r\nPING\r\n" % (options, topic.encode())
            return [(upgrade, b"INFO"), (masked(hello, opcode=2), b"PONG")]
        case "redis":
            return [
                (b"HELLO 3\r\n", b"modules\r\n*0\r\n"),
                (b"SUBSCRIBE %b\r\n" % topic.encode(), b":1\r\n"),
            ]
        case "sse":
            ask = (
                f"GET /v1/subscribe?topics={topic}&presence=false HTTP/1.1\r\n"
                f"Host: {parts.netloc}\r\nAccept: text/event-stream\r\n"
                f"Authorization: Bearer {token}\r\n\r\n"
            )
            return [(ask.encode(), b"event: subscribed")]
        case _:
            raise ValueError(dialect)


def publication(
    dialect: str, topic: str, content: str, *, ref: str | None = None, stamp: int = 42
) -> bytes:
    """The bytes that publish one message.

    The real server answers each that has a ``ref``; Centrifugo answers each.
    """
    data: dict[str, object] = {"content": content, "stamp": stamp}
    if dialect == "centrifugo":
        return masked(_compact({"id": 3, "publish": {"channel": topic, "data": data}}))
    if dialect == "hanzo":
        message: dict[str, object] = {"topic": topic, "type": "token", "data": data}
        frame: dict[str, object] = {"type": "publish", "message": message}
        return masked(_compact(frame if ref is None else {**frame, "ref": ref}))
    body = envelope(topic, content, stamp)
    match dialect:
        case "echo":
            return masked(b'{"type":"publish","message":%b}' % body)
        case "nats":
            return masked(b"PUB %b %d\r\n%b\r\n" % (topic.encode(), len(body), body), opcode=2)
        case "redis":
            given = (b"PUBLISH", topic.encode(), body)
            return b"*3\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in given)
        case _:
            raise ValueError(dialect)


def envelope(topic: str, content: str, stamp: int = 42) -> bytes:
    """The envelope that the real server makes of a message. Other servers receive it ready-made."""
    return _compact(
        {
            "id": "msg_01JMZ3X8Q20000000000000000",
            "topic": topic,
            "type": "token",
            "data": {"content": content, "stamp": stamp},
            "sender": {"type": "admin", "id": "bench"},
            "timestamp": START,
            "seq": FIRST_SEQ,
        }
    )


def content(topic: str, size: int = ENVELOPE_BYTES) -> str:
    """Marked content that gives the envelope this size."""
    rest = size - len(envelope(topic, MARK.decode()))
    return MARK.decode() + "x" * max(0, rest)


def dial(
    dialect: str, url: str, token: str, topics: Sequence[str]
) -> list[tuple[socket.socket, bytes]]:
    """Subscribed connections, one per topic, and the bytes that each has already read."""
    return perform(url, [steps(dialect, url, token, topic) for topic in topics])


def perform(url: str, ways: Sequence[Sequence[Step]]) -> list[tuple[socket.socket, bytes]]:
    """Connections that have performed these steps, and the bytes that each has already read."""
    opened: list[tuple[socket.socket, bytes]] = []
    for start in range(0, len(ways), AT_ONCE):
        opened += _perform(url, ways[start : start + AT_ONCE])
    return opened


def _perform(url: str, ways: Sequence[Sequence[Step]]) -> list[tuple[socket.socket, bytes]]:
    parts = urlsplit(url)
    where = (parts.hostname or "", parts.port or 80)
    sockets = [socket.create_connection(where, timeout=60) for _ in ways]
    rests = [b""] * len(ways)
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(len(ways[0])):
        for each, way in zip(sockets, ways, strict=True):
            each.sendall(way[number][0])
        for index, (each, way) in enumerate(zip(sockets, ways, strict=True)):
            rests[index] = _until(each, way[number][1], rests[index])
    return list(zip(sockets, rests, strict=True))


def _until(connection: socket.socket, mark: bytes, output: bytes) -> bytes:
    """Read past the mark; return the rest, from the next line or frame."""
    while mark not in output:
        data = connection.recv(PIECE)
        if not data:
            raise ConnectionError(f"closed before {mark!r}: {output[:200]!r}")
        output += data
    return output[output.index(mark) + len(mark) :]


class Publisher:
    """Publishes, and reads as a subscriber of the same topic."""

    def __init__(self, dialect: str, url: str, token: str, topic: str) -> None:
        ((self.socket, _),) = dial(dialect, url, token, [topic])
        self._buffer = memoryview(bytearray(PIECE))

    def send(self, frames: bytes) -> None:
        """Send the bytes of a publish."""
        self.socket.sendall(frames)

    def back(self, messages: int) -> None:
        """Wait until this number of messages has come back."""
        tail = b""
        while messages > 0:
            size = self.socket.recv_into(self._buffer)
            if not size:
                raise ConnectionError("the server has closed the connection")
            data = tail + bytes(self._buffer[:size])
            messages -= data.count(MARK)
            # A mark that is split between two reads counts when its rest arrives.
            tail = data[-(len(MARK) - 1) :]

    def close(self) -> None:
        self.socket.close()


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
