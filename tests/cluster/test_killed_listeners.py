"""A killed node with listeners of every protocol: each gets later messages, or shows its gap."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from hanzoai.pubsub import Gap, Message, PubSubClient
from hanzoai.pubsub.eventstream import EventStreamClient
from hanzoai.pubsub.hub import HubClient
from hanzoai.pubsub.sp import SubSocket
from pubsub_server.auth import dev_tokens
from tests.cluster.nodes import Node
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.store import Store

BOUND = 400
"""Maximum seconds for the test: each of the five starts of a node may be slow."""
TOPIC = "demo.kills"
ROUNDS = 3
MORE = 20
"""Messages that each listener must get after a restart before the next restart."""
KEEPS: Final[tuple[Literal["websocket", "sse"], ...]] = ("websocket", "sse")
"""Protocols with a replay."""


class Ears:
    """Listeners of all protocols at one node, and the numbers that each has received."""

    def __init__(self, node: Node, key: bytes, stack: AsyncExitStack) -> None:
        self.received: dict[str, list[int]] = {}
        self.gaps: list[Gap] = []
        self._node = node
        self._key = key
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []

    async def enter(self, urls: dict[str, str]) -> None:
        """Connect all listeners."""
        stack, ready = self._stack, self._node.ready
        for name in KEEPS:
            ps: Any = PubSubClient(
                ready["ws"],
                dev_tokens.mint(self._key, name, kind="service"),
                rest_url=ready["http"],
                transport=name,
            )
            ps = await stack.enter_async_context(ps)
            sub = await stack.enter_async_context(ps.subscribe(TOPIC))
            self._listen(name, self._kept(sub))
        events: Any = await stack.enter_async_context(
            EventStreamClient(urls["event_stream"], reconnect_max=0.5)
        )
        self.stream = await stack.enter_async_context(events.subscribe(TOPIC))
        self._listen("event_stream", (int(json.loads(e.data)) async for e in self.stream))
        hub: Any = await stack.enter_async_context(HubClient(urls["hub"], reconnect_max=0.5))
        self.hub = await stack.enter_async_context(hub.subscribe(TOPIC))
        self._listen("hub", (int(json.loads(each.data)) async for each in self.hub))
        sp = await stack.enter_async_context(SubSocket(recv_queue_size=10_000, reconnect_max=0.5))
        sp.subscribe(TOPIC.encode() + b" ")
        await sp.dial(urls["sp_pub"])
        await sp.wait_for_peers(timeout=BOUND)
        self._listen("sp_pub", self._enveloped(sp))
        stack.push_async_callback(self._end)

    def after(self, number: int) -> set[str]:
        """Return the listeners that have received a message with this number or a later one."""
        return {
            name for name, numbers in self.received.items() if numbers and numbers[-1] >= number
        }

    def _listen(self, name: str, numbers: AsyncIterator[int]) -> None:
        found = self.received[name] = []

        async def listen() -> None:
            async for number in numbers:
                found.append(number)

        self._tasks.append(asyncio.create_task(listen()))

    async def _kept(self, sub: Any) -> AsyncIterator[int]:
        async for event in sub.events():
            if isinstance(event, Gap):
                self.gaps.append(event)
            elif isinstance(event, Message):
                yield event.data

    async def _enveloped(self, sp: SubSocket) -> AsyncIterator[int]:
        async for body in sp:
            yield json.loads(body.partition(b" ")[2])["data"]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def holes(numbers: list[int]) -> int:
    """Return the number of places at which messages are missing."""
    return sum(later != earlier + 1 for earlier, later in itertools.pairwise(numbers))


@pytest.mark.timeout(BOUND + 60)
@pytest.mark.parametrize("store", ["redis"], indirect=True)
async def test_listeners_of_a_killed_node_get_what_comes_later_or_show_their_gap(
    store: Store, tmp_path: Path
) -> None:
    key = dev_tokens.load_key(tmp_path / "dev.key")
    who = {"user": "bus", "kind": "admin"}
    common = ("--redis-url", store.url, "--dev-key-file", str(tmp_path / "dev.key"))
    urls = {name: f"127.0.0.1:{free_port()}" for name in ("event_stream", "hub", "sp_pub")}
    listeners = (
        *("--event-stream", urls["event_stream"], "--hub", urls["hub"]),
        *("--sp-pub", f"tcp://{urls['sp_pub']}"),
        *("--listener-identities", json.dumps(dict.fromkeys(urls, who))),
    )
    stays, dies = Node("stays", tmp_path, *common), Node("dies", tmp_path, *common, *listeners)
    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        for node in (stays, dies):
            await node.start()
            stack.push_async_callback(node.end, signal.SIGKILL)
        token = dev_tokens.mint(key, "writer", kind="service")
        ps = await stack.enter_async_context(
            PubSubClient(stays.ws, token, rest_url=stays.ready["http"])
        )
        ears = Ears(dies, key, stack)
        given = {"event_stream": f"events://{urls['event_stream']}", "hub": f"hub://{urls['hub']}"}
        await ears.enter({**given, "sp_pub": f"tcp://{urls['sp_pub']}"})
        count = 0

        async def publish() -> int:
            nonlocal count
            await ps.publish(TOPIC, {"data": count})
            count += 1
            return count - 1

        async def received_by_all() -> None:
            """Publish until every listener receives messages again, and then some more."""
            mark = count
            while ears.after(mark) != set(ears.received):
                await publish()
                await asyncio.sleep(0.05)
            last = [await publish() for _ in range(MORE)][-1]
            await until(lambda: ears.after(last), set(ears.received))
            for name, numbers in ears.received.items():
                assert numbers[-MORE:] == list(range(last - MORE + 1, last + 1)), name

        await received_by_all()
        for number in range(ROUNDS):
            await dies.end(signal.SIGTERM if number % 2 else signal.SIGKILL)
            for _ in range(5):
                await publish()
            await dies.start()
            await received_by_all()
        assert ears.gaps == []
        for kept in KEEPS:
            assert ears.received[kept] == list(range(count)), kept
        for name, reconnects in (
            ("event_stream", ears.stream.reconnects),
            ("hub", ears.hub.reconnects),
            ("sp_pub", ROUNDS),
        ):
            assert holes(ears.received[name]) <= reconnects, name
            assert reconnects >= ROUNDS, name
