"""WebSocket written by hand on a blocking socket, so that reading costs little."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections import deque
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
PIECE = 262_144


def masked(payload: bytes, opcode: int = 1) -> bytes:
    """A client's text frame. With the key 0, masking leaves the payload unchanged."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The payloads of a server's complete frames, and the rest."""
    payloads: list[bytes] = []
    at = 0
    while len(data) - at >= 2:
        size, body = data[at + 1], at + 2
        if size == 126:
            size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        if body + size > len(data):
            break
        if data[at] & 0x0F == 1:
            payloads.append(data[body : body + size])
        at = body + size
    return payloads, data[at:]


class Connection:
    """One authenticated connection."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self._payloads: deque[bytes] = deque()
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._receive()
        head, _, self.rest = answer.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise ConnectionError(head[:100].decode())
        self.send({"type": "auth", "token": token})
        self.until("auth.ok")

    def _receive(self) -> bytes:
        data = self.socket.recv(PIECE)
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data

    def send(self, frame: Json) -> None:
        self.socket.sendall(masked(json.dumps(frame, separators=(",", ":")).encode()))

    def until(self, kind: str) -> Json:
        """Return the next frame of this type."""
        while True:
            frame: Json = json.loads(self.next_payload())
            if frame["type"] in {"error", "auth.error"}:
                raise ConnectionError(f"{frame}")
            if frame["type"] == kind:
                return frame

    def next_payload(self) -> bytes:
        """Return the payload of the next frame."""
        while not self._payloads:
            payloads, self.rest = split(self.rest)
            if payloads:
                self._payloads.extend(payloads)
            else:
                self.rest += self._receive()
        return self._payloads.popleft()

    def subscribe(self, topic: str, **more: object) -> Json:
        self.send({"type": "subscribe", "topics": [topic], "presence": False, **more})
        return self.until("subscribed")

    def close(self) -> None:
        self.socket.close()
