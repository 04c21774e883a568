"""What one delivery costs the server, when a publisher keeps it busy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.bench.processes import Json, cpu_seconds, interleave, worker
from tests.bench.readers import END
from tests.bench.servers import peer_server, real_server
from tests.bench.wire import Connection, masked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tests.bench.servers import Server

TOPIC = "demo.fanout"
WINDOWS = (50, 1)
"""Messages that are on their way at most: a burst, and one at a time."""
CONTENT = "x" * 150
CONTENDERS = ("hanzo-pubsub serve", "websockets.broadcast", "asyncio, joined writes")


def measure(*, quick: bool) -> Json:
    deliveries, rounds = (20_000, 1) if quick else (200_000, 3)
    windows: Json = {}
    for window in WINDOWS:
        sizes: Json = {}
        for subscribers in (10, 100, 1_000):
            messages = deliveries // subscribers

            def run(
                name: str,
                subscribers: int = subscribers,
                messages: int = messages,
                window: int = window,
            ) -> Mapping[str, float]:
                return _run(name, subscribers, messages, window)

            sizes[str(subscribers)] = {
                "messages": messages,
                "contenders": interleave(CONTENDERS, rounds, run),
            }
        windows[str(window)] = sizes
    return {"rounds": rounds, "windows": windows}


def _start(name: str) -> AbstractContextManager[Server]:
    match name:
        case "hanzo-pubsub serve":
            return real_server()
        case "websockets.broadcast":
            return peer_server("broadcast")
        case _:
            return peer_server("joined")


def _run(name: str, subscribers: int, messages: int, window: int) -> Mapping[str, float]:
    with _start(name) as server, worker("tests.bench.readers") as readers:
        answer = readers.ask(
            do="open", url=server.ws, token=server.token, topic=TOPIC, count=subscribers
        )
        assert answer == {"open": subscribers}
        publisher = Connection(server.ws, server.token)
        # The publisher reads along: a window is full until its last message has come back.
        publisher.subscribe(TOPIC)
        readers.ask(do="drain")
        _publish(publisher, messages // 10 or 1, window)
        _publish_window(publisher, [_frame(END.decode())])
        _checked(readers.read())
        before = cpu_seconds(server.worker.pid)
        readers.ask(do="drain")
        _publish(publisher, messages, window)
        _publish_window(publisher, [_frame(END.decode())])
        _checked(readers.read())
        used = cpu_seconds(server.worker.pid) - before
        publisher.close()
    return {"cpu_us": used / ((messages + 1) * (subscribers + 1)) * 1e6}


def _checked(answer: Json) -> None:
    if "error" in answer:
        raise RuntimeError(answer["error"])


def _frame(content: str) -> bytes:
    data = {"content": content, "index": 42}
    message = {"topic": TOPIC, "type": "token", "data": data}
    return masked(json.dumps({"type": "publish", "message": message}).encode())


def _publish(publisher: Connection, messages: int, window: int) -> None:
    frame = _frame(CONTENT)
    left = messages
    while left:
        size = min(window, left)
        _publish_window(publisher, [frame] * size)
        left -= size


def _publish_window(publisher: Connection, frames: list[bytes]) -> None:
    publisher.socket.sendall(b"".join(frames))
    for _ in frames:
        # What a peer relays is the publish frame itself.
        publisher.next_payload()
