"""Servers that send prepared messages at full speed: `python -m tests.bench.blasters`.

Each implements just enough of its protocol for a client to subscribe. Then each writes the same
number of messages in pieces of the same size, so that the client is the bottleneck.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

from websockets.frames import Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.bench.samples import FIRST_SEQ, START, TOPIC, WIRE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
PIECE = 65_536
AUTH_OK: Json = {
    "type": "auth.ok",
    "client_id": "cl_1",
    "version": 1,
    "features": ["ref", "ack", "seq", "idempotency", "batch", "resume", "meta"],
    "server_time": START,
    "limits": {},
}
NATS_INFO = (
    b'INFO {"server_id":"b","version":"2.10.0","proto":1,"max_payload":1048576,'
    b'"host":"127.0.0.1","port":4222,"headers":true}\r\n'
)


def main(protocol: str, count: int) -> None:
    stream = b"".join(map(WIRE[protocol], range(count)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            SUBSCRIBED[protocol](connection)
            try:
                for start in range(0, len(stream), PIECE):
                    connection.sendall(stream[start : start + PIECE])
                while connection.recv(PIECE):
                    pass
            except OSError:
                pass


def _frames(connection: socket.socket, protocol: ServerProtocol) -> Iterator[str]:
    """Yield the frames that the client sends after the handshake."""
    while data := connection.recv(PIECE):
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
            elif isinstance(event, Frame) and event.data:
                yield bytes(event.data).decode()
        for out in protocol.data_to_send():
            connection.sendall(out)


def _hip56(connection: socket.socket) -> None:
    protocol = ServerProtocol()
    for text in _frames(connection, protocol):
        frame: dict[str, Any] = json.loads(text)
        answer: dict[str, Any] | None = None
        match frame["type"]:
            case "auth":
                answer = dict(AUTH_OK)
            case "subscribe":
                answer = {"type": "subscribed", "topics": frame["topics"], "history": []}
                answer |= {"positions": {TOPIC: FIRST_SEQ - 1}, "timestamp": START}
            case _:
                pass
        if answer is not None:
            if "ref" in frame:
                answer["ref"] = frame["ref"]
            protocol.send_text(json.dumps(answer).encode())
            for out in protocol.data_to_send():
                connection.sendall(out)
        if frame["type"] == "subscribe":
            return


def _centrifugo(connection: socket.socket) -> None:
    protocol = ServerProtocol()
    for text in _frames(connection, protocol):
        commands = [json.loads(line) for line in text.strip().split("\n")]
        for command in commands:
            if "connect" in command:
                reply = {
                    "id": command["id"],
                    "connect": {"client": "c", "version": "0", "ping": 25},
                }
            else:
                reply = {"id": command["id"], "subscribe": {}}
            protocol.send_text(json.dumps(reply).encode())
        for out in protocol.data_to_send():
            connection.sendall(out)
        if any("subscribe" in command for command in commands):
            return


def _nats(connection: socket.socket) -> None:
    connection.sendall(NATS_INFO)
    output = b""
    while data := connection.recv(PIECE):
        output += data
        *lines, output = output.split(b"\r\n")
        if b"PING" in lines:
            connection.sendall(b"PONG\r\n")
        if any(line.startswith(b"SUB ") for line in lines):
            return


SUBSCRIBED: dict[str, Callable[[socket.socket], None]] = {
    "hip56": _hip56,
    "centrifugo": _centrifugo,
    "nats": _nats,
}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
