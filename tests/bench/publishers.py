"""Clients that publish to an answerer: `python -m tests.bench.publishers NAME PORT COUNT WINDOW`.

At most WINDOW publishes are unanswered at a time. Prints the CPU time of this process per publish,
without the first tenth, which is a warm-up.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from tests.bench.receivers import Meter
from tests.bench.samples import TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def publish_all(meter: Meter, window: int, publish: Callable[[Any], Awaitable[Any]]) -> None:
    """Publish until every message is answered."""
    indexes = iter(range(meter.count))

    async def one_by_one() -> None:
        for index in indexes:
            await publish({"content": " straightforward", "index": index})
            meter.tick(meter.seen)

    await asyncio.gather(*(one_by_one() for _ in range(window)))


async def bare(port: int, meter: Meter, window: int) -> None:
    """`websockets` and `json`, with answers matched by `ref`: the cost of a hand-written loop."""
    from websockets.asyncio.client import connect

    async with connect(f"ws://127.0.0.1:{port}/ws", compression=None) as connection:
        loop = asyncio.get_running_loop()
        waiting: dict[str, asyncio.Future[None]] = {}
        refs = 0

        async def publish(data: object) -> None:
            nonlocal refs
            refs += 1
            ref = f"p{refs}"
            message = {"topic": TOPIC, "type": "token", "data": data, "id": f"msg_{refs}"}
            answered = waiting[ref] = loop.create_future()
            await connection.send(json.dumps({"type": "publish", "message": message, "ref": ref}))
            await answered

        async def read() -> None:
            async for text in connection:
                waiting.pop(json.loads(text)["ref"]).set_result(None)

        await connection.send(json.dumps({"type": "auth", "token": "t"}))
        await connection.recv()
        reading = asyncio.ensure_future(read())
        await publish_all(meter, window, publish)
        reading.cancel()


async def sdk(port: int, meter: Meter, window: int, speed: Literal["on", "off"] = "off") -> None:
    from hanzoai.pubsub import PubSubClient

    url = f"ws://127.0.0.1:{port}/ws"
    async with PubSubClient(url, "t", transport="websocket", speed=speed) as ps:
        await ps.connect()
        await publish_all(
            meter, window, lambda data: ps.publish(TOPIC, {"type": "token", "data": data})
        )


async def sdk_speed(port: int, meter: Meter, window: int) -> None:
    """The same with the extra `speed`: picows and msgspec."""
    await sdk(port, meter, window, "on")


async def nats(port: int, meter: Meter, window: int) -> None:
    peer: Any = importlib.import_module("nats")
    connection = await peer.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
    await publish_all(
        meter,
        window,
        lambda data: connection.request(
            TOPIC, json.dumps({"type": "token", "data": data}).encode(), timeout=60
        ),
    )


async def centrifuge(port: int, meter: Meter, window: int) -> None:
    peer: Any = importlib.import_module("centrifuge")
    client = peer.Client(f"ws://127.0.0.1:{port}/connection/websocket")
    await client.connect()
    await client.ready()
    await publish_all(
        meter, window, lambda data: client.publish(TOPIC, {"type": "token", "data": data})
    )


BASELINES: dict[str, tuple[str, Callable[[int, Meter, int], Awaitable[None]]]] = {
    "websockets + json, answers by ref": ("hip56", bare),
    "hanzoai.pubsub": ("hip56", sdk),
    "hanzoai.pubsub[speed]": ("hip56", sdk_speed),
    "nats-py, request": ("nats", nats),
    "centrifuge-python": ("centrifugo", centrifuge),
}


async def main(name: str, port: int, count: int, window: int) -> None:
    meter = Meter(count)
    baseline = asyncio.ensure_future(BASELINES[name][1](port, meter, window))
    finished = asyncio.ensure_future(meter.done.wait())
    await asyncio.wait((baseline, finished), timeout=120, return_when=asyncio.FIRST_COMPLETED)
    if not meter.result:
        raise RuntimeError(f"{name} published {meter.seen} of {count}: {baseline}")
    print(json.dumps(meter.result), flush=True)
    # An answerer doesn't answer closing handshakes, so the sockets are closed without one.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
