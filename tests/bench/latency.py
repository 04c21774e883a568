"""Publish to delivery through the real server, at a paced load."""

from __future__ import annotations

import time

from tests.bench.processes import Json, interleave, worker
from tests.bench.servers import real_server
from tests.bench.wire import Connection

TOPIC = "demo.latency"
WARM_UP = 10
LOADS = {1: 100, 100: 100, 1_000: 10}
"""Messages a second by number of subscribers."""


def measure(*, quick: bool) -> Json:
    seconds, rounds = (2, 1) if quick else (6, 3)

    def run(name: str) -> dict[str, float]:
        subscribers = int(name)
        return _run(subscribers, LOADS[subscribers], LOADS[subscribers] * seconds)

    return {
        "rounds": rounds,
        "loads": LOADS,
        "subscribers": interleave([*map(str, LOADS)], rounds, run),
    }


def _run(subscribers: int, rate: int, messages: int) -> dict[str, float]:
    with real_server() as server, worker("tests.bench.readers") as readers:
        readers.ask(do="open", url=server.ws, token=server.token, topics=[TOPIC], count=subscribers)
        publisher = Connection(server.ws, server.token)
        readers.ask(do="latency", messages=messages + WARM_UP, skip=WARM_UP)
        begin = time.monotonic()
        for n in range(messages + WARM_UP):
            pause = begin + n / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            data = {"content": "x" * 120, "stamp": time.monotonic_ns()}
            message = {"topic": TOPIC, "type": "token", "data": data}
            publisher.send({"type": "publish", "message": message})
        answer = readers.read()
        publisher.close()
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return {name: float(answer[name]) for name in ("p50_ms", "p99_ms", "max_ms")}
