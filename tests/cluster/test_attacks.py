"""Malicious clients against several nodes: their cost, and the information that they don't get.

`tests/server/test_abuse.py` tests a single node.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from pubsub_server.hub.presence import METADATA_BYTES
from tests.cluster.fleet import nodes, peer, present, stream
from tests.cluster.store import Store, running
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.interop.peer import Socket

BOUND: Final = 50
SOAK: Final = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
MANY: Final = 3_000 if SOAK else 300


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with running("redis", tmp_path / "store") as store:
        yield store


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def dial(node: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = urlsplit(node.ws).port
    return await asyncio.open_connection("127.0.0.1", port)


def rest(node: RunningServer, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND)


async def test_half_open_sockets_are_cut_and_others_are_served_meanwhile(store: Store) -> None:
    begun = (b"", b"GET /ws HT", b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n")
    async with (
        asyncio.timeout(BOUND),
        nodes(store, auth_deadline=2_000) as fleet,
        AsyncExitStack() as stack,
    ):
        readers: list[asyncio.StreamReader] = []
        for number in range(MANY):
            reader, writer = await dial(fleet[number % 2])
            stack.callback(writer.close)
            writer.write(begun[number % len(begun)])
            readers.append(reader)
        for node in fleet:
            async with peer(node, node.token("ann")) as ann:
                await ann.subscribe("demo.x")
        # Each gets an answer or nothing, and is then disconnected.
        await asyncio.gather(*(reader.read() for reader in readers))
        assert all(sum(node.stats.connections.values()) == 0 for node in fleet)


async def test_a_flood_of_bad_tokens_is_rejected_and_not_cached(store: Store) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as fleet:
        good = fleet[0].token("ann")
        head, body, seal = good.split(".")
        bad = [f"{head}.{body}.{seal[:-6]}{number:06d}" for number in range(MANY)]

        async def flood(node: RunningServer) -> set[int]:
            codes: set[int] = set()
            async with httpx.AsyncClient(base_url=node.http, timeout=BOUND) as http:
                for token in bad:
                    headers = {"Authorization": f"Bearer {token}"}
                    codes.add((await http.get("/v1/session", headers=headers)).status_code)
            return codes

        assert await asyncio.gather(*map(flood, fleet)) == [{401}, {401}]
        for node in fleet:
            assert sum(node.stats.tokens_refused.values()) == MANY
            async with rest(node, good) as http:
                assert (await http.get("/v1/session")).status_code == 200


FOREIGN = ("org.globex.plans", "user.bob.inbox", "agent.spy.events", "chat.session.secret")


async def test_no_wildcard_on_any_node_reveals_topics_of_another_tenant(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.service_token()) as service,
        peer(b, b.token("bob", orgs=["globex"])) as bob,
        peer(b, b.token("alice", orgs=["acme"])) as alice,
        rest(b, b.token("alice", orgs=["acme"])) as http,
    ):

        async def publish(data: str) -> None:
            for topic in (*FOREIGN, "org.acme.plans"):
                frame = {"type": "publish", "topic": topic, "data": data, "ref": topic}
                await service.send(frame)
                await service.until("published")

        await bob.subscribe("org.globex.plans", "user.bob.inbox")
        await publish("before")
        for pattern in ("**", "*.**", "org.**", "org.*.plans", "user.**", "agent.**", "**.plans"):
            await alice.send(
                {
                    "type": "subscribe",
                    "topics": [pattern],
                    "since": 1,
                    "history": 50,
                    "ref": pattern,
                }
            )
        reported = await alice.fence()
        await publish("after")
        await bob.message()
        reported += await alice.fence()
        text = json.dumps(reported)
        assert "org.acme.plans" in text
        assert not [topic for topic in FOREIGN if topic in text]
        assert "bob" not in text
        for topic in FOREIGN:
            for path in ("history", "presence"):
                assert (await http.get(f"/v1/topics/{topic}/{path}")).status_code == 403
            answer = await http.post("/v1/positions", json={"topics": [topic]})
            assert topic not in [row["topic"] for row in answer.json().get("positions", [])]
        found = (await http.post("/v1/positions", json={"topics": ["org.**", "**"]})).json()
        assert {row["topic"] for row in found.get("positions", [])} <= {"org.acme.plans"}
        listed = await http.get("/v1/topics")
        assert listed.status_code == 403 or not [t for t in FOREIGN if t in listed.text]


async def test_a_sender_cannot_be_forged_on_any_node(store: Store) -> None:
    forged: dict[str, Any] = {
        "sender": {"type": "admin", "id": "root"},
        "timestamp": 1,
        "seq": 9,
        "meta": {"sender": "root"},
    }
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.service_token()) as mallory,
        peer(b, b.service_token()) as bob,
    ):
        await bob.subscribe("demo.x")
        message = {"topic": "demo.x", "type": "t", "data": 1, **forged}
        await mallory.send({"type": "publish", "message": message, "ref": "1", **forged})
        received = await bob.message()
        assert received["sender"]["id"] != "root"
        assert received["sender"]["type"] == "service"
        assert received["timestamp"] > 1_000_000_000_000
        assert received["seq"] != 9


async def test_presence_data_over_the_limit_is_refused_and_reaches_no_client(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.token("mallory")) as mallory,
        peer(b, b.token("bob")) as bob,
    ):
        await mallory.subscribe("demo.room")
        await bob.subscribe("demo.room")
        for number in range(50):
            # Each is small enough alone. Updates are merged, so the fourth is too much.
            data = {f"k{number}": "x" * 5_000}
            await mallory.send({"type": "presence.update", "topic": "demo.room", "data": data})
        answers = await mallory.fence()
        codes = [frame["code"] for frame in answers if frame["type"] == "error"]
        assert codes == ["payload_too_large"] * 47
        # The last change that bob gets comes after all that he could have got of the others.
        change = {"type": "presence.update", "topic": "demo.room", "data": {"last": True}}
        await mallory.send(change)
        seen: list[str] = []
        while '"last"' not in "".join(seen[-1:]):
            seen.append(json.dumps(await bob.next()))
        assert max(map(len, seen)) < METADATA_BYTES + 1_000
        members = await present(b, "demo.room", b.token("x"))
        (shown,) = [each["metadata"] for each in members if each["user_id"] == "mallory"]
        assert sorted(shown) == ["k0", "k1", "k2", "last"]


async def test_a_flood_of_subscriptions_and_of_patterns_is_bounded_and_others_continue(
    store: Store,
) -> None:
    bombs = ["**", "**.**.**.**.**.**.**.**", ".".join(["**", "a"] * 30), ".".join(["*"] * 60)]
    async with (
        asyncio.timeout(BOUND),
        nodes(store, max_subscriptions=100) as (a, b),
        peer(a, a.service_token()) as service,
        peer(b, b.service_token()) as mallory,
        peer(b, b.service_token()) as bob,
    ):
        await bob.subscribe("demo.x")
        for number in range(MANY // 5):
            names = [*bombs, *(f"**.n{number}.{n}.**" for n in range(10))]
            await mallory.send({"type": "subscribe", "topics": names, "presence": False})
        for number in range(20):
            topic = "demo.x" if number == 19 else ".".join(["a"] * 60) + f".t{number}"
            await service.send({"type": "publish", "topic": topic, "data": number, "ref": "1"})
            await service.until("published")
        assert (await bob.message())["data"] == 19
        assert b.stats.subscriptions <= 101 + 2
        frames = await mallory.fence()
        assert {f["code"] for f in frames if f["type"] == "error"} <= {
            "subscription_limit",
            "invalid_topic",
            "rate_limited",
        }
    assert b.stats.subscriptions == 0


async def test_slow_readers_by_the_hundred_are_cut_and_cost_a_bounded_amount(
    store: Store,
) -> None:
    readers, queue = (300 if SOAK else 40), 500_000
    async with (
        asyncio.timeout(BOUND),
        nodes(store, send_queue_bytes=queue, connections_per_user=1_000) as (a, b),
        AsyncExitStack() as stack,
        peer(a, a.service_token()) as service,
        peer(b, b.service_token()) as quick,
    ):
        await quick.subscribe("demo.x", presence=False)
        stalled: list[Socket] = []
        for _ in range(readers):
            slow = await stack.enter_async_context(peer(b, b.service_token()))
            await slow.subscribe("demo.x", presence=False)
            made = slow.connection.transport
            made.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            made.pause_reading()
            stalled.append(slow)
        gc.collect()
        before = resident()
        for number in range(60):
            data = [number, "x" * 200_000]
            await service.send({"type": "publish", "topic": "demo.x", "data": data, "ref": "1"})
            await service.until("published")
            assert (await quick.message())["data"][0] == number
            held = sum(each.held for each in b.hub._open)
            assert held <= readers * (queue + 500_000)
        await until(lambda: b.stats.slow_consumers, readers)
        for slow in stalled:
            slow.cut()
        # Each of them should have received twelve megabytes.
        assert resident() - before < readers * (queue + 500_000) + 100_000_000


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_nodes_whose_clocks_differ_by_minutes_agree_on_messages_and_members(
    store: Store, minutes: int
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.service_token()) as service,
        peer(a, a.token("ann")) as ann,
    ):
        wall = b.hub.core.wall
        b.hub.core.wall = lambda: wall() + minutes * 60_000
        async with peer(b, b.token("bob", ttl=7_200)) as bob:
            await ann.subscribe("demo.x")
            await bob.subscribe("demo.x")
            stamps: list[int] = []
            for number in range(5):
                frame = {"type": "publish", "topic": "demo.x", "data": number, "ref": "1"}
                await service.send(frame)
                stamps.append((await service.until("published"))["timestamp"])
                assert (await bob.message())["data"] == number
            assert stamps == sorted(stamps)
            async with peer(b, b.token("eve", ttl=7_200)) as eve:
                answer = await eve.subscribe("demo.x", since=stamps[1])
                assert [m["data"] for m in answer["history"]] == [2, 3, 4] or (
                    len(set(stamps)) < len(stamps)
                )
                # No member is removed because of the other node's clock.
                seen = await present(a, "demo.x", a.token("x"))
                assert {m["user_id"] for m in seen} == {"ann", "bob", "eve"}


@pytest.mark.parametrize("minutes", [-10, 0, 10])
@pytest.mark.parametrize("topics", ["demo.*", "demo.x,demo.y"])
async def test_a_stream_that_resumes_by_time_lacks_nothing_if_the_clock_of_its_node_jumps(
    store: Store, topics: str, minutes: int
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (node,),
        peer(node, node.service_token()) as publisher,
        store.client() as redis,
    ):
        wall = node.hub.core.wall
        node.hub.core.wall = lambda: wall() + minutes * 60_000
        began: int = (await redis.time())[0]
        # The time of the stream precedes its request by the duration of a read of Redis at most.
        await until(lambda: moved_on(redis, began + 3))
        async with stream(node, node.token("ann"), topics=topics) as events:
            mark = (await events.event("subscribed")).id
        for topic in ("demo.x", "demo.y"):
            await publisher.send({"type": "publish", "topic": topic, "data": 1, "ref": topic})
            await publisher.until("published")
        async with stream(node, node.token("ann"), mark, topics=topics) as events:
            answer = (await events.event("subscribed")).json
        assert sorted(each["topic"] for each in answer["history"]) == ["demo.x", "demo.y"]
        assert not {"reset", "truncated"} & answer.keys()


async def moved_on(redis: Any, to: int) -> bool:
    """Whether the clock of Redis shows at least this time, Unix seconds."""
    seconds: int = (await redis.time())[0]
    return seconds >= to


async def test_compressed_frames_are_not_taken(store: Store) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1) as (node,):
        reader, writer = await dial(node)
        writer.write(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head
        assert b"permessage-deflate" not in head
        # A text frame with the compression bit, masked with zeros.
        writer.write(bytes([0xC1, 0x82, 0, 0, 0, 0, 0x4A, 0x04]))
        frame = await reader.read()
        assert frame[:1] == b"\x88"
        assert int.from_bytes(frame[2:4]) == 1002
        writer.close()
