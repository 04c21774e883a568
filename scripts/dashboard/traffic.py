"""Traffic that moves every graph of the dashboard: readers, publishers and rejected clients."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from hanzoai.pubsub import PubSubClient, PubSubError
from pubsub_server.auth.dev_tokens import mint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from hanzoai.pubsub import Message
    from pubsub_server.auth.identity import Kind
    from tests.cluster.nodes import Node

ROOMS: Final = 8
READERS: Final = 24
"""Readers per node; one in four reads an event stream."""
ROUNDS: Final = 20
"""Publishing rounds of a publisher per second."""
RATES: Final = (60, 40)
"""Average messages per second of each node's publisher."""
WAVE: Final = 80
"""Period in seconds with which the publish rate rises and falls."""
PAGE: Final = "x" * 20_000
UNREAD: Final = 90
"""Seconds for which a slow reader reads nothing, unless the server closes its connection first."""
SIGN_OF_LIFE: Final = 5
"""Seconds between the pings of a slow reader, which keep its connection alive."""


def room(number: int) -> str:
    """Return the name of a topic."""
    return f"demo.room.{number % ROOMS}"


def take(_message: Message) -> None:
    """Read a message and ignore it."""


class Traffic:
    """Clients of these nodes.

    Args:
        nodes: The running nodes.
        key: Key that signs the development tokens of the clients.
    """

    def __init__(self, nodes: Sequence[Node], key: bytes) -> None:
        self._nodes = nodes
        self._key = key
        self._random = random.Random(56)

    def _token(self, user: str, kind: Kind = "user", ttl: float = 3600) -> str:
        return mint(self._key, user, kind=kind, ttl=ttl)

    def _client(self, node: Node, token: str, *, streams: bool = False) -> PubSubClient:
        return PubSubClient(
            node.ready["ws"],
            token,
            rest_url=node.ready["http"],
            transport="sse" if streams else "websocket",
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run all traffic until the context ends."""
        async with AsyncExitStack() as stack:
            for place, node in enumerate(self._nodes):
                for number in range(READERS):
                    token = self._token(f"reader{place}-{number}")
                    client = self._client(node, token, streams=number % 4 == 3)
                    await stack.enter_async_context(client)
                    await client.subscribe(
                        room(number), on_message=take, on_presence=lambda _change: None
                    )
            tasks: list[asyncio.Task[None]] = []
            for place, node in enumerate(self._nodes):
                tasks.append(asyncio.create_task(self._publish(node, RATES[place])))
                ways: tuple[tuple[float, Callable[[Node], Awaitable[None]]], ...] = (
                    (0.25, self._ask),
                    (1.5, self._look_in),
                    (2.0, self._overreach),
                    (4.0, self._come_with_bad_tokens),
                    (0.0, self._wait_for_positions),
                    (0.5, self._hurry),
                )
                tasks += [asyncio.create_task(self._again(way, node, pause)) for pause, way in ways]
            tasks.append(asyncio.create_task(self._feed(self._nodes[0])))
            tasks.append(asyncio.create_task(self._again(self._dawdle, self._nodes[1], 20)))
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _again(
        self, way: Callable[[Node], Awaitable[None]], node: Node, pause: float
    ) -> None:
        """Repeat a way forever. Failures while the store is down are part of the picture."""
        while True:
            with contextlib.suppress(PubSubError, OSError, WebSocketException):
                await way(node)
            await asyncio.sleep(pause * self._random.uniform(0.7, 1.3))

    async def _publish(self, node: Node, rate: float) -> None:
        """Publish at a rising and falling rate; one id in fifty is published twice."""
        sent: set[asyncio.Task[object]] = set()
        number, due = 0, 0.0
        async with self._client(node, self._token("publisher", "service")) as ps:
            while True:
                due += rate * (1 + 0.5 * math.sin(time.time() * math.tau / WAVE)) / ROUNDS
                while due >= 1:
                    due -= 1
                    number += 1
                    again = number % 50 == 0
                    index = number - again
                    line = {"type": "line", "data": {"n": index, "text": "x" * 120}}
                    task = asyncio.create_task(
                        ps.publish(room(index), line, id=f"{node.name}-{index}")
                    )
                    sent.add(task)
                    task.add_done_callback(sent.discard)
                    task.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.sleep(1 / ROUNDS)

    async def _feed(self, node: Node) -> None:
        """Publish large messages for the reader that does not read."""
        async with self._client(node, self._token("feeder", "service")) as ps:

            async def publish(_node: Node) -> None:
                await ps.publish("demo.feed", {"type": "page", "data": PAGE})

            await self._again(publish, node, 0.1)

    async def _ask(self, node: Node) -> None:
        """A program that uses only HTTP."""
        async with self._client(node, self._token("program", "service"), streams=True) as ps:
            for number in range(ROOMS):
                await ps.publish(room(number), {"type": "line", "data": number}, via="rest")
                await anext(ps.history(room(number), limit=20).__aiter__())
                await ps.presence(room(number))
                await asyncio.sleep(0.25)

    async def _look_in(self, node: Node) -> None:
        """A user who joins, reads the history, updates their presence and leaves."""
        number = self._random.randrange(ROOMS)
        async with self._client(node, self._token(f"guest{number}")) as ps:
            sub = await ps.subscribe(room(number), history=20)
            await ps.update_presence(room(number), {"status": "typing"})
            for _ in range(30):
                await anext(sub)

    async def _overreach(self, node: Node) -> None:
        """A publish that the rules do not allow."""
        async with self._client(node, self._token("curious"), streams=True) as ps:
            await ps.publish("org.other.secret", {"type": "line", "data": 0}, via="rest")

    async def _hurry(self, node: Node) -> None:
        """More concurrent publishes than a user may make, without retries."""
        async with self._client(node, self._token("hasty")) as ps:
            async with asyncio.timeout(1):
                lines = [{"type": "line", "data": number} for number in range(12)]
                await asyncio.gather(
                    *(ps.publish("demo.hurry", line) for line in lines), return_exceptions=True
                )

    async def _come_with_bad_tokens(self, node: Node) -> None:
        """Connect with an expired token and with an invalid one."""
        for token in (self._token("late", ttl=-3600), "not.a.token"):
            async with self._client(node, token, streams=True) as ps:
                with contextlib.suppress(PubSubError):
                    await ps.publish("demo.x", {"type": "line", "data": 0}, via="rest")

    async def _wait_for_positions(self, node: Node) -> None:
        """A reader that requests the position of a quiet topic, and waits for it to change."""
        async with self._client(node, self._token("batch", "service"), streams=True) as ps:
            known: dict[str, int] = {}
            while True:
                found = await ps.positions("demo.quiet", after=known, wait=10)
                known = {at.topic: at.last for at in found.positions}

    async def _dawdle(self, node: Node) -> None:
        """A reader that reads nothing until the server closes its connection."""
        with socket.socket() as channel:
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            channel.connect(("127.0.0.1", node.ws_port))
            channel.setblocking(False)
            async with connect(
                node.ready["ws"],
                sock=channel,
                compression=None,
                ping_interval=SIGN_OF_LIFE,
                ping_timeout=None,
                max_queue=1,
                close_timeout=1,
            ) as peer:
                await peer.send(f'{{"type": "auth", "token": "{self._token("slow")}"}}')
                await peer.send('{"type": "subscribe", "topics": ["demo.feed"], "ref": "1"}')
                async with asyncio.timeout(UNREAD):
                    await peer.wait_closed()
