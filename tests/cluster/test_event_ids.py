"""Event ids: a stream that resumes gets what other shards and logs had not delivered yet."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.backplanes.redis.layout import sent_at
from pubsub_server.backplanes.redis.wire import Wire
from pubsub_server.testing import running_server
from tests.cluster.fleet import BOUND, nodes, settings
from tests.cluster.redis_cluster import redis_cluster
from tests.cluster.test_failed_replays import publish, replayed, resumed
from tests.cluster.test_redis_cluster import on, topics
from tests.cluster.test_replays import FIRST, TOPIC, SlowLog, receiving_nothing
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence
    from pathlib import Path

    from pubsub_server.backplanes.redis.feed import Feed
    from pubsub_server.testing import RunningServer
    from tests.cluster.redis_cluster import Cluster
    from tests.cluster.store import Store
    from tests.interop.peer import Event

WIRES: list[Wire] = []


@pytest.fixture(autouse=True)
def wires(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Remember all connections to Redis."""
    create: Any = Wire.__init__

    def remember(wire: Wire, *given: Any) -> None:
        create(wire, *given)
        WIRES.append(wire)

    monkeypatch.setattr(Wire, "__init__", remember)
    yield
    WIRES.clear()


def mark(*events: Event) -> str | None:
    """Return what an `EventSource` sends: the last id. An event without one leaves it unchanged."""
    return [event.id for event in events if event.id is not None][-1]


@asynccontextmanager
async def limited(cluster: Cluster) -> AsyncGenerator[RunningServer]:
    """Run a node with its own user of Redis."""
    for server in cluster.servers:
        user = ("limited", "on", ">hush", "allkeys", "allchannels", "+@all")
        await server.command("ACL", "SETUSER", *user)
    url = cluster.url.replace("//", "//limited:hush@")
    async with running_server(**settings(cluster, **on(redis_url=url))) as node:
        backplane = node.hub.core.backplane
        await until(lambda: backplane.settled() > 0)
        yield node


@asynccontextmanager
async def disconnected(feed: Feed, server: Store) -> AsyncGenerator[None]:
    """Let a server end the connection of a feed, and accept no new one in this context."""
    await server.command("ACL", "SETUSER", "limited", "resetchannels")
    await until(lambda: feed.up, wanted=False)
    try:
        yield
    finally:
        await server.command("ACL", "SETUSER", "limited", "allchannels")


@asynccontextmanager
async def delayed(feed: Feed, server: Store) -> AsyncGenerator[None]:
    """Keep what a server sends to a feed in transit in this context."""
    (wire,) = [wire for wire in WIRES if wire.is_open and wire._pushed == feed._take_push]
    sent: list[Sequence[Any]] = []
    wire.listen(sent.append)
    yield
    wire.listen(feed._take_push)
    for push in sent:
        feed._take_push(push)


@pytest.mark.parametrize("interrupted", [disconnected, delayed])
async def test_a_stream_that_resumes_gets_what_a_shard_did_not_deliver(
    tmp_path: Path, interrupted: Any
) -> None:
    async with (
        asyncio.timeout(BOUND),
        redis_cluster("redis", tmp_path / "cluster") as cluster,
        nodes(cluster, 1, **on()) as (other,),
        limited(cluster) as node,
        AsyncExitStack() as stack,
    ):
        owners = await topics(cluster)
        here, away = owners[2][0], owners[1][0]
        backplane: Any = node.hub.core.backplane
        wanted = ([here, away], ["demo.*"])
        streams = [await stack.enter_async_context(resumed(node, None, *each)) for each in wanted]
        begun = [await each.event("subscribed") for each in streams]
        await publish(other, 1, topic=away)
        before = [await each.event("message") for each in streams]
        async with interrupted(backplane._feed._of(away), cluster.servers[1]):
            await publish(other, 2, topic=away)
            await publish(other, 3, topic=here)
            after = [await each.event("message") for each in streams]
            assert [each.json["data"] for each in after] == [3, 3]
            assert all(each.id and f"@{each.json['seq']}" in each.id for each in after)
        for names, *events in zip(wanted, begun, before, after, strict=True):
            async with resumed(node, mark(*events), *names) as again:
                assert 2 in replayed(await again.event("subscribed"))


async def test_a_stream_that_resumes_gets_what_waits_for_a_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        resumed(node, None, FIRST, TOPIC) as events,
    ):
        begun = await events.event("subscribed")
        await publish(other, 0, topic=FIRST)
        before = await events.event("message")
        with receiving_nothing(node) as gone:
            await publish(other, 1)
            await until(lambda: len(gone), 1)
        slow = SlowLog(node, monkeypatch)
        await publish(other, 2)
        await slow.read.wait()
        await publish(other, 3, topic=FIRST)
        after = await events.event("message")
        assert after.json["data"] == 3
        assert after.id == f"{before.json['timestamp']}-{FIRST}@{after.json['seq']}"
        async with resumed(node, mark(begun, before, after), FIRST, TOPIC) as again:
            assert {1, 2} <= set(replayed(await again.event("subscribed")))
        slow.may_end.set()
        # With nothing missing, the id again has the time of the message.
        assert [(await events.event("message")).json["data"] for _ in range(2)] == [1, 2]
        await publish(other, 4, topic=FIRST)
        last = await events.event("message")
        assert last.id == f"{last.json['timestamp']}-{FIRST}@{last.json['seq']}"


@pytest.mark.parametrize("payload", [b"", b"x", b"m", b"m" + b"\xff" * 80, b"pj x"])
def test_a_payload_in_another_format_has_no_time(payload: bytes) -> None:
    assert sent_at(payload) == 0
