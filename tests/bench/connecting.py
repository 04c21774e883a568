"""Time to connect, and time to replay a hundred messages, with the real server.

`python -m tests.bench.connecting NAME TIMES WS HTTP TOKEN` is the client of one round.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.processes import Json, interleave, percentile, worker
from tests.bench.servers import real_server
from tests.bench.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from websockets.asyncio.client import ClientConnection

TOPIC = "demo.replay"
REPLAYED = 100


def measure(*, quick: bool) -> Json:
    times, rounds = (50, 1) if quick else (300, 3)

    def run(name: str) -> Mapping[str, float]:
        with real_server() as server:
            publisher = Connection(server.ws, server.token)
            data = {"content": "x" * 150, "index": 42}
            for n in range(REPLAYED):
                message = {"topic": TOPIC, "type": "token", "data": data}
                publisher.send({"type": "publish", "message": message, "ref": str(n)})
                publisher.until("published")
            publisher.close()
            command = (name, str(times), server.ws, server.http, server.token)
            with worker("tests.bench.connecting", *command) as client:
                return client.read()

    return {
        "rounds": rounds,
        "times": times,
        "replayed": REPLAYED,
        "baselines": interleave(list(RUNS), rounds, run),
    }


@dataclass(frozen=True)
class Target:
    """The server to connect to."""

    ws: str
    http: str
    token: str


async def _ask(connection: ClientConnection, frame: Json, kind: str) -> Json:
    await connection.send(json.dumps(frame))
    while True:
        answer: Json = json.loads(await connection.recv())
        if answer["type"] == kind:
            return answer


async def connect_bare(target: Target) -> float:
    """Connect, `auth.ok`, `subscribed`, with `websockets` alone."""
    from websockets.asyncio.client import connect

    begin = time.perf_counter()
    async with connect(target.ws, compression=None, close_timeout=1) as connection:
        await _ask(connection, {"type": "auth", "token": target.token}, "auth.ok")
        await _ask(connection, {"type": "subscribe", "topics": [TOPIC]}, "subscribed")
        return time.perf_counter() - begin


async def connect_sdk(target: Target) -> float:
    """Build the client and wait for its first subscription."""
    from hanzoai.pubsub import PubSubClient

    begin = time.perf_counter()
    async with PubSubClient(target.ws, target.token, rest_url=target.http) as ps:
        await ps.subscribe(TOPIC)
        return time.perf_counter() - begin


async def replay_bare(target: Target) -> float:
    """`subscribe` with `since` on an open socket, until the history is parsed."""
    from websockets.asyncio.client import connect

    async with connect(target.ws, compression=None, close_timeout=1) as connection:
        await _ask(connection, {"type": "auth", "token": target.token}, "auth.ok")
        begin = time.perf_counter()
        request = {"type": "subscribe", "topics": [TOPIC], "since": 1}
        answer = await _ask(connection, request, "subscribed")
        took = time.perf_counter() - begin
    assert len(answer["history"]) == REPLAYED
    return took


async def replay_sdk(target: Target) -> float:
    """`subscribe(history=100)` on a connected client, until `async for` returns the last one."""
    from hanzoai.pubsub import PubSubClient

    async with PubSubClient(target.ws, target.token, rest_url=target.http) as ps:
        await ps.connect()
        begin = time.perf_counter()
        seen = 0
        async for _ in ps.subscribe(TOPIC, history=REPLAYED):
            seen += 1
            if seen == REPLAYED:
                break
        return time.perf_counter() - begin


async def replay_rest(target: Target) -> float:
    """`GET /v1/topics/:topic/history?limit=100` on an open connection."""
    import httpx

    headers = {"Authorization": f"Bearer {target.token}"}
    async with httpx.AsyncClient(base_url=target.http, headers=headers) as client:
        path = f"/v1/topics/{TOPIC}/history"
        await client.get(path, params={"limit": 1})
        begin = time.perf_counter()
        answer = (await client.get(path, params={"limit": REPLAYED})).json()
        took = time.perf_counter() - begin
    assert len(answer["messages"]) == REPLAYED
    return took


RUNS: dict[str, Callable[[Target], Awaitable[float]]] = {
    "connect, bare websockets": connect_bare,
    "connect, hanzoai.pubsub": connect_sdk,
    "replay, bare websockets": replay_bare,
    "replay, hanzoai.pubsub": replay_sdk,
    "replay, REST": replay_rest,
}


async def main(name: str, times: int, target: Target) -> None:
    run = RUNS[name]
    taken = [await run(target) for _ in range(times + 5)][5:]
    milliseconds = [seconds * 1000 for seconds in taken]
    result = {
        "p50_ms": percentile(milliseconds, 0.5),
        "p99_ms": percentile(milliseconds, 0.99),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Target(*sys.argv[3:6])))
