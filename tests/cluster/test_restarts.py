"""A node restarts with clients of both languages: all reconnect to WebSockets without a loss.

Set HANZO_PUBSUB_SOAK to use 200 clients of each language and 50 restarts.
HANZO_PUBSUB_RESTART_CLIENTS and HANZO_PUBSUB_RESTARTS set other numbers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict, deque
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hanzoai.pubsub import PubSubClient
from pubsub_server.auth import dev_tokens
from tests.chaos.peers import Peer, bundled
from tests.cluster.ledger import Publisher
from tests.cluster.nodes import Node
from tests.cluster.store import running
from tests.cluster.waiting import until
from tests.conformance.peer_process import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from tests.conformance.peer_process import Json

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
CLIENTS: Final = int(os.environ.get("HANZO_PUBSUB_RESTART_CLIENTS", "200" if SOAK else "10"))
"""Number of clients of each language."""
RESTARTS: Final = int(os.environ.get("HANZO_PUBSUB_RESTARTS", "50" if SOAK else "3"))
SHORTEST, LONGEST = 0.2, 20.0 if SOAK else 2.0
"""Seconds between the end of a node and its next start."""
GOAL: Final = 5.0
"""Seconds after a restart within which a soak test expects all clients to be back."""
CHANGES: Final = 12
"""Recorded state changes of each client, to explain a slow reconnect."""
TOPIC: Final = "demo.restarts"
BOUND: Final = 60 + RESTARTS * (LONGEST + 40) + CLIENTS


def pauses() -> list[float]:
    """Return values from the shortest to the longest, with a constant factor between them."""
    steps = max(1, RESTARTS - 1)
    return [SHORTEST * (LONGEST / SHORTEST) ** (n / steps) for n in range(RESTARTS)]


@dataclass
class Received:
    """The events that one subscription received."""

    numbers: list[int] = field(default_factory=list[int])
    gaps: list[Any] = field(default_factory=list[Any])

    def take(self, event: Json) -> None:
        """Record a message or a gap."""
        if "message" in event:
            self.numbers.append(event["message"]["data"]["n"])
        elif "gap" in event:
            self.gaps.append(event["gap"])


class Crowd:
    """Clients of both languages, each with a subscription to the same topic.

    Every second client has the HTTP URL. The others have only the WebSocket URL, on a port without
    other services.
    """

    def __init__(self, node: Node, key: bytes, peers: Sequence[Peer]) -> None:
        self.received: defaultdict[str, Received] = defaultdict(Received)
        self.changes: dict[str, deque[tuple[float, Json]]] = {}
        self._node = node
        self._key = key
        self._peers = peers

    def token(self, user: str, kind: Any = "service") -> str:
        return dev_tokens.mint(self._key, user, kind=kind)

    async def enter(self) -> None:
        """Connect and subscribe all clients."""
        for peer in self._peers:
            await asyncio.gather(*(self._enter(peer, n) for n in range(CLIENTS)))

    async def _enter(self, peer: Peer, number: int) -> None:
        name, user = f"c{number}", f"{peer.language}{number}"
        given = {"url": self._node.ws, "token": self.token(user)}
        if number % 2:
            given["rest_url"] = self._node.ready["http"]
        peer.want(f"s{number}", self.received[user].take)
        changes = self.changes[user] = deque[tuple[float, "Json"]](maxlen=CHANGES)
        peer.want(f"{name}.states", lambda event: changes.append((time.monotonic(), event)))
        for do, more in (
            ("new", given),
            ("subscribe", {"sub": f"s{number}", "topics": TOPIC}),
        ):
            answer = await peer.begin(do, name, more)
            assert "fails" not in answer, answer

    def slowest(self, since: float) -> str:
        """Return the state changes of the client that reconnected last, in seconds since then."""
        user, changes = max(self.changes.items(), key=lambda item: item[1][-1][0])
        lines = [f"    {at - since:7.2f} s {change['state']}" for at, change in changes]
        return "\n".join([f"  slowest is {user}:", *lines])

    async def standing(self, http: httpx.AsyncClient) -> tuple[int, int, set[str]]:
        """Return the open WebSockets, the open event streams, and the present users."""
        try:
            metrics = (await http.get("/metrics")).raise_for_status().text
            present = (await http.get(f"/v1/topics/{TOPIC}/presence")).raise_for_status().json()
        except httpx.HTTPError:
            return 0, 0, set()
        found = {
            sample.labels["form"]: int(sample.value)
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name == "hanzo_pubsub_connections"
        }
        members = {member["user_id"] for member in present["members"]}
        return found.get("socket", 0), found.get("event_stream", 0), members


@asynccontextmanager
async def crowd(folder: Path) -> AsyncGenerator[tuple[Crowd, Node, httpx.AsyncClient]]:
    """Run a node on a Redis that keeps running, with listening clients."""
    key = dev_tokens.load_key(folder / "dev.key")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            running("redis", folder / "store", "--appendonly", "yes")
        )
        flags = (
            *("--redis-url", store.url, "--dev-key-file", str(folder / "dev.key")),
            *("--publish-rate-service", "10000", "--history-max-messages", "5000"),
            *("--connections-per-user", "10000", "--log-level", "warning"),
        )
        node = Node("node", folder, *flags)
        await node.start()
        built = stack.enter_context(bundled())
        peers = [await Peer.start(language, built) for language in LANGUAGES]
        for peer in peers:
            stack.push_async_callback(peer.stop)
        here = Crowd(node, key, peers)
        headers = {"Authorization": f"Bearer {here.token('warden', 'admin')}"}
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=node.ready["http"], headers=headers, timeout=10)
        )
        try:
            yield here, node, http
        finally:
            if node.running:
                await node.end(signal.SIGKILL)


@dataclass
class Watch:
    """Observes a crowd that reconnects."""

    here: Crowd
    http: httpx.AsyncClient
    wanted: tuple[int, int, set[str]]
    streams: int = 0
    """Maximum concurrent event streams that were observed."""

    async def back(self) -> bool:
        """Whether all clients are back."""
        standing = await self.here.standing(self.http)
        self.streams = max(self.streams, standing[1])
        return standing == self.wanted


@pytest.mark.timeout(BOUND + 60)
async def test_after_restarts_of_a_node_all_clients_are_back_on_websockets_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    took: list[float] = []
    strays = 0
    async with asyncio.timeout(BOUND), crowd(tmp_path) as (here, node, http):
        await here.enter()
        async with PubSubClient(node.ws, here.token("writer"), rest_url=node.ready["http"]) as ps:
            publisher = Publisher(ps, "writer", [TOPIC], 0.2)
            publishing = asyncio.create_task(publisher.run())
            watching = partial(Watch, here, http, (2 * CLIENTS + 1, 0, set(here.received)))
            await until(watching().back)
            for number, pause in enumerate(pauses()):
                await node.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
                await asyncio.sleep(pause)
                await node.start()
                began = time.monotonic()
                watch = watching()
                await until(watch.back)
                took.append(time.monotonic() - began)
                strays += watch.streams
                print(f"pause {pause:.1f} s: all back after {took[-1]:.2f} s")
                if took[-1] > GOAL / 2:
                    print(here.slowest(began))
            publisher.end()
            await publishing
        assert publisher.failure is None
        (acknowledged,) = publisher.acknowledged.values()

        def complete() -> bool:
            return all(one.numbers[-1:] == acknowledged[-1:] for one in here.received.values())

        await until(complete)
    wrong = {
        user: (sorted(set(acknowledged) - set(one.numbers))[:5], one.numbers[-5:], one.gaps)
        for user, one in here.received.items()
        if one.numbers != acknowledged or one.gaps
    }
    print(
        f"{CLIENTS} clients of each language, {RESTARTS} restarts, {len(acknowledged):,} messages "
        f"acknowledged: slowest return {max(took):.2f} s, {strays} on event streams, "
        f"{len(wrong)} with losses or repeats"
    )
    assert wrong == {}
    assert strays == 0
    assert not SOAK or max(took) <= GOAL
