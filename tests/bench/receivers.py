"""Clients that read a blaster's messages: `python -m tests.bench.receivers NAME PORT COUNT`.

Prints the CPU time of this process per message, without the first tenth, which is a warm-up.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Literal, cast

from tests.bench.samples import TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Meter:
    """Counts messages, and measures those after the first tenth."""

    def __init__(self, count: int) -> None:
        self.count, self.warm = count, count // 10
        self.seen = 0
        self.done = asyncio.Event()
        self._cpu = self._wall = 0.0
        self.result: dict[str, float] = {}

    def tick(self, index: int) -> bool:
        """Count a message; return True for the last one."""
        if index != self.seen:
            raise AssertionError(f"message {index} came where {self.seen} was due")
        self.seen += 1
        if self.seen == self.warm:
            self._cpu, self._wall = time.process_time(), time.perf_counter()
        elif self.seen == self.count:
            counted = self.count - self.warm
            cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
            self.result = {"cpu_us": cpu / counted * 1e6, "per_second": counted / wall}
            self.done.set()
            return True
        return False


async def count_only(port: int, meter: Meter) -> None:
    """The minimum: `websockets`, without processing the messages."""
    from websockets.asyncio.client import connect

    async with connect(f"ws://127.0.0.1:{port}/ws", compression=None) as connection:
        await connection.send(json.dumps({"type": "auth", "token": "t"}))
        await connection.recv()
        await connection.send(json.dumps({"type": "subscribe", "topics": [TOPIC]}))
        await connection.recv()
        index = 0
        async for _ in connection:
            if meter.tick(index):
                break
            index += 1


async def decode_only(port: int, meter: Meter) -> None:
    """`websockets` and `json.loads`: the cost of a hand-written loop."""
    from websockets.asyncio.client import connect

    async with connect(f"ws://127.0.0.1:{port}/ws", compression=None) as connection:
        await connection.send(json.dumps({"type": "auth", "token": "t"}))
        await connection.recv()
        await connection.send(json.dumps({"type": "subscribe", "topics": [TOPIC]}))
        await connection.recv()
        async for text in connection:
            if meter.tick(json.loads(text)["message"]["data"]["index"]):
                break


async def decode_fast(port: int, meter: Meter) -> None:
    """picows and msgspec, into structs with the fields of a message: the minimum of `speed`."""
    from msgspec import defstruct
    from msgspec.json import Decoder
    from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

    sender = defstruct("Sender", [("type", str), ("id", str)], gc=False)
    fields = [
        *(("id", str), ("topic", str), ("type", str), ("data", Any), ("sender", sender)),
        *(("timestamp", int), ("ttl", int), ("seq", int)),
    ]
    message = defstruct("Message", fields, gc=False)
    frame = defstruct("Frame", [("message", message)], tag_field="type", tag="message", gc=False)
    decode: Callable[[memoryview], Any] = cast("Any", Decoder(frame)).decode
    subscribe = json.dumps({"type": "subscribe", "topics": [TOPIC]}).encode()

    class Reader(WSListener):
        def on_ws_connected(self, transport: WSTransport) -> None:
            self.answers = 0
            auth = json.dumps({"type": "auth", "token": "t"})
            transport.send(WSMsgType.TEXT, auth.encode())

        def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
            if self.answers == 2:
                meter.tick(decode(frame.get_payload_as_memoryview()).message.data["index"])
                return
            self.answers += 1
            if self.answers == 1:
                transport.send(WSMsgType.TEXT, subscribe)

    await ws_connect(Reader, f"ws://127.0.0.1:{port}/ws")
    await meter.done.wait()


async def sdk(port: int, meter: Meter, speed: Literal["on", "off"] = "off") -> None:
    from hanzoai.pubsub import PubSubClient, ReceiveQueue

    queue = ReceiveQueue(policy="block")
    url = f"ws://127.0.0.1:{port}/ws"
    async with PubSubClient(url, "t", transport="websocket", speed=speed) as ps:
        async for message in ps.subscribe(TOPIC, queue=queue):
            if meter.tick(message.data["index"]):
                break


async def sdk_speed(port: int, meter: Meter) -> None:
    """The same with the extra `speed`: picows and msgspec."""
    await sdk(port, meter, "on")


async def nats(port: int, meter: Meter) -> None:
    peer: Any = importlib.import_module("nats")
    connection = await peer.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
    subscription = await connection.subscribe(TOPIC)
    async for message in subscription.messages:
        if meter.tick(json.loads(message.data)["data"]["index"]):
            break


async def centrifuge(port: int, meter: Meter) -> None:
    peer: Any = importlib.import_module("centrifuge")

    class Handler(peer.SubscriptionEventHandler):  # type: ignore[misc]
        async def on_publication(self, ctx: Any) -> None:
            meter.tick(ctx.pub.data["data"]["index"])

    client = peer.Client(f"ws://127.0.0.1:{port}/connection/websocket")
    await client.connect()
    await client.new_subscription(TOPIC, events=Handler()).subscribe()
    await meter.done.wait()
    await client.disconnect()


BASELINES: dict[str, tuple[str, Callable[[int, Meter], Awaitable[None]]]] = {
    "websockets, counting only": ("hip56", count_only),
    "websockets + json.loads": ("hip56", decode_only),
    "picows + msgspec": ("hip56", decode_fast),
    "hanzoai.pubsub": ("hip56", sdk),
    "hanzoai.pubsub[speed]": ("hip56", sdk_speed),
    "nats-py + json.loads": ("nats", nats),
    "centrifuge-python": ("centrifugo", centrifuge),
}


async def main(name: str, port: int, count: int) -> None:
    meter = Meter(count)
    baseline = asyncio.ensure_future(BASELINES[name][1](port, meter))
    finished = asyncio.ensure_future(meter.done.wait())
    await asyncio.wait((baseline, finished), timeout=120, return_when=asyncio.FIRST_COMPLETED)
    if not meter.result:
        raise RuntimeError(f"{name} got {meter.seen} of {count}: {baseline}")
    print(json.dumps(meter.result), flush=True)
    # A blaster doesn't answer closing handshakes, so the sockets are closed without one.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
