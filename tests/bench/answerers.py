"""Servers that acknowledge publishes: `python -m tests.bench.answerers PROTOCOL`.

Each implements just enough of its protocol for a client to connect and publish. One write answers
all publishes of one read, so that the client is the bottleneck.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.bench.blasters import AUTH_OK, NATS_INFO, PIECE
from tests.bench.samples import FIRST_SEQ, START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.processes import Json

NATS_PUBLISH = re.compile(rb"PUB \S+ (\S+) (\d+)\r\n")


def main(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):
                ANSWER[protocol](connection)


def _answer(connection: socket.socket, answers: Callable[[str], Iterator[Json]]) -> None:
    """Reads WebSocket messages and answers each."""
    protocol = ServerProtocol()
    while data := connection.recv(PIECE):
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                for answer in answers(bytes(event.data).decode()):
                    protocol.send_text(json.dumps(answer, separators=(",", ":")).encode())
        connection.sendall(b"".join(protocol.data_to_send()))


def _hip56(connection: socket.socket) -> None:
    seq = FIRST_SEQ

    def answers(text: str) -> Iterator[Json]:
        nonlocal seq
        frame: dict[str, Any] = json.loads(text)
        if frame["type"] == "auth":
            yield AUTH_OK
        elif frame["type"] == "publish":
            seq += 1
            message = frame["message"]
            answer = {"type": "published", "id": message["id"], "timestamp": START, "seq": seq}
            yield {**answer, "ref": frame["ref"]}

    _answer(connection, answers)


def _centrifugo(connection: socket.socket) -> None:
    def answers(text: str) -> Iterator[Json]:
        for line in text.strip().split("\n"):
            command = json.loads(line)
            if "connect" in command:
                welcome = {"client": "c", "version": "0", "ping": 25}
                yield {"id": command["id"], "connect": welcome}
            elif "publish" in command:
                yield {"id": command["id"], "publish": {}}

    _answer(connection, answers)


def _nats(connection: socket.socket) -> None:
    connection.sendall(NATS_INFO)
    output = b""
    inbox = b"1"
    while data := connection.recv(PIECE):
        output += data
        out = b""
        while True:
            head, end, rest = output.partition(b"\r\n")
            if not end:
                break
            if publish := NATS_PUBLISH.match(output):
                size = int(publish[2])
                if len(rest) < size + 2:
                    break
                rest = rest[size + 2 :]
                ack = b'{"stream":"s","seq":1}'
                out += b"MSG %s %s %d\r\n%s\r\n" % (publish[1], inbox, len(ack), ack)
            elif head == b"PING":
                out += b"PONG\r\n"
            elif head.startswith(b"SUB "):
                inbox = head.split(b" ")[-1]
            output = rest
        connection.sendall(out)


ANSWER: dict[str, Callable[[socket.socket], None]] = {
    "hip56": _hip56,
    "centrifugo": _centrifugo,
    "nats": _nats,
}

if __name__ == "__main__":
    main(sys.argv[1])
