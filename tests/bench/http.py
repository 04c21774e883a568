"""Publishing over REST and fan-out over event streams, beside minimal servers of the same kind."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.bench.dialects import END, Publisher, content, publication
from tests.bench.processes import Json, cpu_seconds, interleave, percentile, worker
from tests.bench.servers import NO_TIMEOUTS, peer_server, real_server
from tests.bench.tables import measured, rounds_of, spread, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.bench.servers import Server

TOPIC = "demo.http"
POSTERS = 8
"""Keep-alive connections with one request in transit each."""
STREAMS = (100, 1_000)
BURSTS = (8, 1)
REST = {"hanzo-pubsub serve": "", "aiohttp, bare": "rest"}
SSE = {"hanzo-pubsub serve": "", "bare writer on uvloop": "joined"}


def measure(*, quick: bool) -> Json:
    share, rounds = (4, 1) if quick else (1, 3)
    posts = 2_000 // share

    def rest(name: str) -> Mapping[str, float]:
        kind = REST[name]
        with real_server(**NO_TIMEOUTS) if not kind else peer_server(kind) as server:
            return _post(server, posts)

    streams: Json = {}
    for subscribers in STREAMS:

        def stream(name: str, subscribers: int = subscribers) -> Mapping[str, float]:
            kind = SSE[name]
            with real_server(**NO_TIMEOUTS) if not kind else peer_server(kind) as server:
                return _stream(server, subscribers, max(8, 40_000 // share // subscribers))

        streams[str(subscribers)] = interleave([*SSE], rounds, stream)
    return {
        "rounds": rounds,
        "posts": posts,
        "rest": interleave([*REST], rounds, rest),
        "streams": streams,
    }


def _post(server: Server, posts: int) -> Mapping[str, float]:
    parts = urlsplit(server.http)
    body = json.dumps({"type": "token", "data": {"content": "x" * 60, "index": 42}}).encode()
    request = (
        f"POST /v1/topics/{TOPIC}/messages HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {server.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    where = (parts.hostname or "", parts.port or 80)
    posters = [socket.create_connection(where, timeout=30) for _ in range(POSTERS)]
    for each in posters:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    taken: list[float] = []

    def turn() -> None:
        begin = time.perf_counter()
        for each in posters:
            each.sendall(request)
        for each in posters:
            answer = each.recv(65_536)
            if not answer.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(answer[:200].decode())
            taken.append((time.perf_counter() - begin) * 1000)

    for _ in range(posts // 10 // POSTERS):
        turn()
    taken.clear()
    before = cpu_seconds(server.worker.pid)
    for _ in range(posts // POSTERS):
        turn()
    used = cpu_seconds(server.worker.pid) - before
    for each in posters:
        each.close()
    return {"cpu_us": used / len(taken) * 1e6, "p99_ms": percentile(taken, 0.99)}


def _stream(server: Server, subscribers: int, messages: int) -> Mapping[str, float]:
    with worker("tests.bench.readers") as readers:
        where = {"url": server.http, "token": server.token, "dialect": "sse"}
        readers.ask(do="open", **where, topics=[TOPIC], count=subscribers)
        publisher = Publisher(server.dialect, server.ws, server.token, TOPIC)
        one = publication(server.dialect, TOPIC, content(TOPIC))
        last = publication(server.dialect, TOPIC, END.decode())
        figures: dict[str, float] = {}
        # The first turn is a warm-up; its result is overwritten.
        for burst in (1, *BURSTS):
            readers.ask(do="drain")
            before = cpu_seconds(server.worker.pid)
            for _ in range(messages // burst):
                publisher.send(one * burst)
                publisher.back(burst)
            publisher.send(last)
            publisher.back(1)
            answer = readers.read()
            if "error" in answer:
                raise RuntimeError(answer["error"])
            used = cpu_seconds(server.worker.pid) - before
            deliveries = (messages // burst * burst + 1) * (subscribers + 1)
            figures[str(burst)] = used / deliveries * 1e6
        publisher.close()
    return figures


# ---------------------------------------------------------------- the page


def render(room: Json) -> str:
    """The tables of this room."""
    floor = room["rest"]["aiohttp, bare"]["median"]["cpu_us"]
    posts = [
        [
            name,
            spread(found["median"]["cpu_us"], found["values"]["cpu_us"], 0),
            f"{found['median']['cpu_us'] / floor:.2f}",
            f"{found['median']['p99_ms']:.2f}",
        ]
        for name, found in room["rest"].items()
    ]
    rows: list[list[str]] = []
    for burst in reversed(BURSTS):
        for name in SSE:
            cells: list[str] = []
            for found in room["streams"].values():
                own = found[name]["median"][str(burst)]
                bare = found["bare writer on uvloop"]["median"][str(burst)]
                text = spread(own, found[name]["values"][str(burst)])
                cells.append(f"{text}, {own / bare:.2f}")
            rows.append([f"{name}, {burst} at a time", *cells])
    head = ["server", *(f"{int(size):,} streams" for size in room["streams"])]
    return (
        "### REST and event streams\n\n"
        f"{room['posts']:,} POSTs of one small message each, on {POSTERS} keep-alive connections. "
        "The server checks the token of each request. The bare handler of aiohttp, on uvloop, only "
        f"reads the JSON and answers with JSON; {rounds_of(room)}, with the "
        f"minimum and maximum in brackets.{measured(room)}\n\n"
        + table(["server", "CPU µs per publish", "÷ aiohttp", "p99 ms"], posts)
        + "\n\nEvent streams: CPU time of the server per delivery, in µs, and its ratio to a bare "
        "writer on uvloop that joins the bytes of one read. The publisher uses a WebSocket.\n\n"
        + table(head, rows)
    )
