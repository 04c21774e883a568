"""Topics without messages: subscribers learn of lost first messages, and only of real losses."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import SecretStr

from hanzoai.pubsub import PubSubClient, RetryOptions
from pubsub_server.auth import dev_tokens
from pubsub_server.backplanes.redis.opening import open_redis
from pubsub_server.settings.config import Settings
from tests.cluster.fleet import SHARDS, peer
from tests.cluster.nodes import Node
from tests.cluster.processes import bus_of
from tests.cluster.store import Store, running
from tests.cluster.test_backplane import collect
from tests.cluster.test_failed_replays import replayed
from tests.cluster.waiting import until
from tests.interop.peer import Event, EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from pubsub_server.backplanes.redis.link import Link

BOUND = 90
TOPIC, OTHER, THIRD = "demo.x", "demo.y", "demo.z"


@dataclass
class Place:
    """A server, and a function that makes its store lose all data."""

    node: Node
    token: str
    lose: Callable[[], Awaitable[object]]

    async def publish(self, topic: str, data: int) -> int:
        """Publish until it is acknowledged; return the position of the message."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=BOUND) as rest:
            while True:
                answer = await rest.post(
                    f"{self.node.ready['http']}/v1/topics/{topic}/messages", json={"data": data}
                )
                if answer.status_code == 201:
                    found: int = answer.json()["seq"]
                    return found
                assert answer.status_code == 503, answer.text

    @asynccontextmanager
    async def stream(self, mark: str | None, *topics: str) -> AsyncGenerator[EventStream]:
        """Open an event stream that resumes after a mark."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if mark is not None:
            headers["Last-Event-ID"] = mark
        async with (
            httpx.AsyncClient(base_url=self.node.ready["http"], timeout=BOUND) as rest,
            rest.stream(
                "GET", "/v1/subscribe", params={"topics": ",".join(topics)}, headers=headers
            ) as response,
        ):
            assert response.status_code == 200, await response.aread()
            yield EventStream(response)
        await self.left()

    async def left(self) -> None:
        """Wait until the server has ended all subscriptions.

        Until then it delivers to them, and the next subscriber of the topic may get what the store
        has lost as `truncated`, followed by messages that jump.
        """
        await until(lambda: self.node.total("hanzo_pubsub_subscriptions"), 0)

    async def begin(self, mark: str | None, *topics: str) -> Event:
        """Open event streams until the store answers in time; return what the answer is."""
        while True:
            async with self.stream(mark, *topics) as stream:
                event = await stream.event()
                while event.name not in {"subscribed", "error"}:
                    event = await stream.event()
            if event.name == "subscribed":
                return event
            assert event.json["code"] == "unavailable", event

    async def subscribe(self, after: dict[str, int] | None = None) -> dict[str, Any]:
        """Subscribe on a socket until the store answers in time; close it and return the answer."""
        frame: dict[str, Any] = {"type": "subscribe", "topics": [TOPIC], "presence": False}
        if after is not None:
            frame["after"] = after
        while True:
            async with peer(self.node, self.token) as socket:
                await socket.send(frame)
                answer = await socket.next()
                while answer["type"] not in {"subscribed", "error"}:
                    answer = await socket.next()
            await self.left()
            if answer["type"] == "subscribed":
                return answer
            assert answer["code"] == "unavailable", answer


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncGenerator[Place]:
    """Run a single process, nodes on a Redis without persistence, or workers on a bus."""
    flags = ["--dev-key-file", str(folder / "dev.key"), "--log-level", "warning"]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(BOUND))
        store: Store | None = None
        if kind == "redis":
            store = await stack.enter_async_context(running("redis", folder))
            flags += ["--redis-url", store.url]
        elif kind == "bus":
            flags += ["--workers", "2"]
        node = Node("node", folder, *flags)

        async def end() -> None:
            if node.running:
                await node.end()

        stack.push_async_callback(end)
        await node.start()

        async def lose() -> None:
            if kind == "memory":
                await node.restart(signal.SIGKILL)
            elif store is not None:
                await store.end()
                await store.start()
            else:
                (bus,) = bus_of(node.pid)
                os.kill(bus, signal.SIGKILL)
                await until(lambda: len(bus_of(node.pid) - {bus}), 1)

        key = dev_tokens.load_key(folder / "dev.key")
        yield Place(node, dev_tokens.mint(key, "alice", kind="service"), lose)


@pytest.fixture(params=["memory", "redis", "bus"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Place]:
    async with place(request.param, tmp_path) as found:
        yield found


async def test_a_loss_in_a_topic_without_received_messages_is_reported_to_a_socket(
    server: Place,
) -> None:
    began = await server.subscribe()
    await server.publish(TOPIC, 1)
    await server.lose()
    await server.publish(TOPIC, 2)
    answer = await server.subscribe(began["positions"])
    assert [message["data"] for message in answer["history"]] == [2]
    assert answer["reset"] == [TOPIC]


@pytest.mark.parametrize("since", [[TOPIC, OTHER], [THIRD]], ids=["used", "not used"])
async def test_a_loss_in_topics_without_received_messages_is_reported_to_a_stream(
    server: Place, since: list[str]
) -> None:
    mark = (await server.begin(None, TOPIC, OTHER)).id
    for topic in (TOPIC, OTHER):
        await server.publish(topic, 1)
    await server.lose()
    for topic in since:
        await server.publish(topic, 2)
    event = await server.begin(mark, TOPIC, OTHER)
    assert sorted(event.json["reset"]) == [TOPIC, OTHER]
    assert replayed(event) == [2 for topic in since if topic != THIRD]


async def test_a_topic_that_starts_while_its_reader_is_disconnected_has_no_gap(
    server: Place,
) -> None:
    began = await server.subscribe()
    mark = (await server.begin(None, TOPIC, OTHER)).id
    position = await server.publish(TOPIC, 1)
    await server.publish(OTHER, 1)
    assert began["positions"] == {TOPIC: position - 1}
    answer = await server.subscribe(began["positions"])
    event = await server.begin(mark, TOPIC, OTHER)
    for frame in (answer, event.json):
        assert not {"reset", "truncated"} & set(frame)
    assert [message["data"] for message in answer["history"]] == [1]
    assert replayed(event) == [1, 1]


async def test_a_client_without_messages_of_a_topic_gets_exactly_one_gap(
    server: Place,
) -> None:
    received: dict[str, list[object]] = {}
    ready = server.node.ready
    client = PubSubClient(
        ready["ws"],
        server.token,
        rest_url=ready["http"],
        transport="websocket",
        retry=RetryOptions(base=0.05),
    )
    async with client as ps:
        task = asyncio.create_task(collect(await ps.subscribe(TOPIC), received))
        other = asyncio.create_task(collect(await ps.subscribe(OTHER), received))
        await server.publish(OTHER, 1)
        await until(lambda: received, {OTHER: [1]})
        await server.lose()
        await server.publish(TOPIC, 1)
        await server.publish(TOPIC, 2)
        await until(lambda: received.get(TOPIC, [None])[-1], 2)
        task.cancel()
        other.cancel()
    assert received == {OTHER: [1], TOPIC: ["gap", 1, 2]}


async def test_a_client_of_a_new_store_never_uses_a_shard_first(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), running("redis", tmp_path / "store") as store:
        settings = Settings(
            redis_url=SecretStr(store.url),
            redis_durable=True,
            redis_prefix="hp",
            redis_shards=SHARDS,
        )
        backplane = await open_redis(settings)
        link, reader = backplane._link, backplane._reader
        # The clock that the shards use must have moved on.
        ready = await link.time("hp")
        await until(lambda: later(link, ready))
        sweeps = [await reader.sweep(shard, 0) for shard in range(SHARDS)]
        assert all(sweep.unbroken <= ready for sweep in sweeps)
        await backplane.close()


async def later(link: Link, time: int) -> bool:
    """Whether the clock of the store is after this time."""
    return await link.time("hp") > time
