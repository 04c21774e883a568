"""A store that loses its last acknowledged messages: clients get a gap; positions are unique."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hanzoai.pubsub import Unavailable
from pubsub_server.backplane import Published
from pubsub_server.backplanes.redis import wire
from pubsub_server.backplanes.redis.layout import Layout, Packer
from pubsub_server.backplanes.redis.link import Link
from pubsub_server.backplanes.redis.writer import Memory, Writer
from pubsub_server.backplanes.retention import Keep, Retention
from pubsub_server.shared.answers import Answer
from pubsub_server.shared.requests import Draft
from pubsub_server.testing import running_server
from tests import forked
from tests.cluster.balancers import program
from tests.cluster.fleet import nodes, peer, present
from tests.cluster.front import front
from tests.cluster.redis_cluster import redis_cluster
from tests.cluster.store import Store, running
from tests.cluster.test_backplane import Traffic, collect, differences, settled
from tests.cluster.test_feed import readiness
from tests.cluster.test_presence import users
from tests.cluster.test_redis_cluster import base, client, on, topics
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from hanzoai.pubsub import PubSubClient
    from pubsub_server.errors import ServiceError
    from pubsub_server.testing import RunningServer
    from tests.cluster.front import Front
    from tests.cluster.redis_cluster import Cluster

BOUND = 60
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
LOSSY: dict[str, Any] = {"redis_durable": False, "publish_rate_service": 10_000}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """A store that writes to disk only on request, so that a restart loses messages."""
    async with running("redis", tmp_path / "store") as store:
        yield store


@asynccontextmanager
async def pair(kind: str, folder: Path) -> AsyncGenerator[tuple[Front, Store, Store]]:
    """Run a primary and its replica behind one address."""
    primary = Store(kind, folder / "primary", "--repl-diskless-sync-delay", "0")
    replica = Store(kind, folder / "replica", "--replicaof", f"127.0.0.1 {primary.port}")
    try:
        for store in (primary, replica):
            await store.start()
        async with front(primary) as address:
            yield address, primary, replica
    finally:
        for store in (primary, replica):
            await store.end()


async def replicated(primary: Store, replica: Store) -> None:
    """Wait until the replica has all data of the primary."""

    async def offset(store: Store) -> str:
        async with store.client() as redis:
            return str((await redis.info("replication"))["master_repl_offset"])

    async def level() -> bool:
        # Read the replica's offset first, so that it cannot match by chance.
        behind = await offset(replica)
        return behind != "0" and behind == await offset(primary)

    await until(level)


async def publish(ps: PubSubClient, topic: str, *numbers: int) -> list[int]:
    """Publish messages with these numbers, and return their positions."""
    return [await _publish_one(ps, topic, n) for n in numbers]


async def _publish_one(ps: PubSubClient, topic: str, n: int) -> int:
    id, repeats = uuid4().hex, 0
    while True:
        try:
            done = await ps.publish(topic, {"data": n}, id=id, timeout=BOUND)
        except Unavailable as error:
            # On a busy machine, the node may not reach the store in time.
            repeats += 1
            await asyncio.sleep(error.retry_after or 0)
        else:
            assert repeats or not done.duplicate
            return done.seq or 0


async def history(node: RunningServer, topic: str, **params: int) -> tuple[list[Any], bool]:
    """Return the data of retained messages, and whether some may be missing."""
    headers = {"Authorization": f"Bearer {node.service_token()}"}
    async with httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND) as rest:
        answer = await rest.get(f"/v1/topics/{topic}/history", params=params)
    if answer.status_code == 503:
        return [], False
    page = answer.json()
    return [message["data"] for message in page["messages"]], bool(
        {"truncated", "reset"} & page.keys()
    )


def ascending(positions: list[int]) -> bool:
    return all(one < other for one, other in pairwise(positions))


@asynccontextmanager
async def followed(folder: Path, *stores: Store) -> AsyncGenerator[str]:
    """Run HAProxy with the configuration of the manual in front of these stores; yield its URL."""
    [text] = re.findall(r'title="redis.cfg"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    port = free_port()
    text = text.replace("127.0.0.1:6380", f"127.0.0.1:{port}")
    places = [f"127.0.0.1:{store.port}" for store in stores]
    given = re.findall(r"10\.\S+", text)
    for place, mine in zip_longest(given, places, fillvalue=f"127.0.0.1:{free_port()}"):
        text = text.replace(place, mine)
    file = folder / "redis.cfg"
    file.write_text(text, encoding="utf-8")
    with (folder / "haproxy.log").open("wb") as log:
        process = await forked.command(program("haproxy"), "-db", "-f", str(file), log=log)
    url = f"redis://127.0.0.1:{port}"
    client = Redis.from_url(url)
    try:
        await until(partial(role, client), "master")
        yield url
    finally:
        await client.aclose()
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def role(client: Redis) -> str:
    try:
        return str((await client.info("replication"))["role"])
    except RedisError:
        return "none"


async def test_nodes_follow_the_primary_behind_the_proxy_of_the_manual(tmp_path: Path) -> None:
    primary = Store("redis", tmp_path / "primary", "--repl-diskless-sync-delay", "0")
    replica = Store("redis", tmp_path / "replica", "--replicaof", f"127.0.0.1 {primary.port}")
    try:
        async with asyncio.timeout(BOUND):
            await primary.start()
            await replica.start()
            async with (
                followed(tmp_path, replica, primary) as url,
                running_server(redis_url=url, **LOSSY) as node,
                client(node) as ps,
            ):
                await publish(ps, "demo.x", 0)
                await replicated(primary, replica)
                await primary.end()
                await replica.command("REPLICAOF", "NO", "ONE")
                await publish(ps, "demo.x", 1)
                data, _ = await history(node, "demo.x")
                assert data == [0, 1]
    finally:
        for store in (primary, replica):
            await store.end()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_promoted_replica_that_lacks_messages_shows_one_gap_per_topic(
    kind: str, tmp_path: Path
) -> None:
    received: dict[str, list[object]] = {}
    wild: dict[str, list[object]] = {}
    async with (
        asyncio.timeout(BOUND),
        pair(kind, tmp_path) as (address, primary, replica),
        nodes(address, **LOSSY) as (a, b),
        client(a) as here,
        client(b) as there,
    ):
        tasks = [
            asyncio.create_task(collect(await there.subscribe("demo.x"), received)),
            asyncio.create_task(collect(await there.subscribe("demo.*"), wild)),
        ]
        positions = await publish(here, "demo.x", 1, 2, 3)
        others = await publish(here, "demo.y", 1, 2)
        await replicated(primary, replica)
        await replica.command("REPLICAOF", "NO", "ONE")
        # These are acknowledged and delivered, and then lost.
        lost = await publish(here, "demo.x", 4, 5)
        await until(
            lambda: (received["demo.x"], wild["demo.x"]), ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
        )
        await primary.end()
        address.turn(replica)
        # Nothing on this node knows the last position of the topic.
        positions += await publish(here, "demo.x", 6, 7, 8, 9)
        others += await publish(here, "demo.y", 3)
        shown = {"demo.x": [1, 2, 3, 4, 5, "gap", 6, 7, 8, 9], "demo.y": [1, 2, "gap", 3]}
        await until(lambda: wild, shown)
        await until(lambda: received, {"demo.x": shown["demo.x"]})
        for task in tasks:
            task.cancel()
        assert ascending(positions)
        assert ascending(others)
        assert max(lost) < positions[3]
        # A subscriber at a lost position or before it gets a reset; a new one gets what is left.
        for mark in (positions[0], lost[0], lost[1]):
            async with peer(b, b.service_token()) as late:
                answer = await late.subscribe("demo.x", after={"demo.x": mark})
                assert answer["reset"] == ["demo.x"]
                assert [message["data"] for message in answer["history"]] == [6, 7, 8, 9]
        assert await history(a, "demo.x") == ([1, 2, 3, 6, 7, 8, 9], False)
        assert await history(a, "demo.x", since=1) == ([1, 2, 3, 6, 7, 8, 9], True)
        assert await history(a, "demo.x", after=lost[0]) == ([6, 7, 8, 9], True)
        assert await history(a, "demo.x", after=positions[3]) == ([7, 8, 9], False)


async def test_connections_that_survive_to_a_demoted_primary_move_to_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    received: dict[str, list[object]] = {}
    wild: dict[str, list[object]] = {}
    async with (
        asyncio.timeout(BOUND),
        pair("redis", tmp_path) as (address, primary, replica),
        nodes(address, **LOSSY) as (a, b),
        client(a) as here,
        client(b) as there,
        peer(b, b.token("ann")) as ann,
    ):
        tasks = [
            asyncio.create_task(collect(await there.subscribe("demo.x"), received)),
            asyncio.create_task(collect(await there.subscribe("demo.*"), wild)),
        ]
        positions = await publish(here, "demo.x", 1, 2, 3)
        await replicated(primary, replica)
        await replica.command("REPLICAOF", "NO", "ONE")
        # The new primary lacks these, and a member.
        positions += await publish(here, "demo.x", 4, 5)
        await ann.subscribe("demo.x")
        await until(lambda: (received["demo.x"], wild["demo.x"]), ([1, 2, 3, 4, 5],) * 2)
        connections = b.stats.connections_total
        address.store = replica
        await primary.command("REPLICAOF", "127.0.0.1", replica.port)
        positions += await publish(here, "demo.x", 6, 7)
        shown = {"demo.x": [1, 2, 3, 4, 5, "gap", 6, 7]}
        await until(lambda: (received, wild), (shown, shown))
        for node in (a, b):
            token = node.token("bob")
            await until(partial(_users, node, token), ["ann", "service"])
            assert await readiness(node) == 200
        for task in tasks:
            task.cancel()
        assert ascending(positions)
        assert b.stats.connections_total == connections
        # Only the replication and this client are left.
        await until(partial(_clients, primary), 1)
    lost = [each for each in caplog.messages if "lost the feed connection" in each]
    assert any("Redis is a replica" in each for each in lost)


async def _users(node: RunningServer, token: str) -> list[Any]:
    return sorted(users(await present(node, "demo.x", token)))


async def _clients(store: Store) -> int:
    """Return the number of its clients, without replicas and primaries."""
    return len((await store.command("CLIENT", "LIST", "TYPE", "normal")).splitlines()) + len(
        (await store.command("CLIENT", "LIST", "TYPE", "pubsub")).splitlines()
    )


async def test_the_log_of_a_promoted_replica_is_reported_as_incomplete_before_any_message(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        pair("redis", tmp_path) as (address, primary, replica),
        nodes(address, 1, **LOSSY) as (a,),
        client(a) as here,
    ):
        await publish(here, "demo.x", 1, 2)
        await replicated(primary, replica)
        assert await history(a, "demo.x", since=1) == ([1, 2], False)
        await replica.command("REPLICAOF", "NO", "ONE")
        await primary.end()
        address.turn(replica)
        await until(lambda: history(a, "demo.x", since=1), ([1, 2], True))


async def test_a_snapshot_that_lacks_messages_gives_no_position_twice(store: Store) -> None:
    received: dict[str, list[object]] = {}
    async with (
        asyncio.timeout(BOUND),
        nodes(store, **LOSSY) as (a, b),
        client(a) as here,
        client(b) as there,
    ):
        task = asyncio.create_task(collect(await there.subscribe("demo.x"), received))
        positions = await publish(here, "demo.x", 1, 2)
        await store.command("SAVE")
        positions += await publish(here, "demo.x", 3, 4, 5)
        await until(lambda: received, {"demo.x": [1, 2, 3, 4, 5]})
        await store.end()
        await store.start()
        positions += await publish(here, "demo.x", 6, 7, 8, 9)
        await until(lambda: received, {"demo.x": [1, 2, 3, 4, 5, "gap", 6, 7, 8, 9]})
        task.cancel()
        assert ascending(positions)


async def test_a_client_ahead_of_a_restored_backup_gets_a_gap_and_no_message_again(
    store: Store,
) -> None:
    [script] = re.findall(r"`(redis-cli --scan .*)`", PAGE.read_text(encoding="utf-8"))
    pattern = re.findall(r"--pattern '(.*?)'", script)[0]
    async with asyncio.timeout(BOUND):
        # Clients survive nodes that stop while Redis is restored as the manual says.
        durable: dict[str, Any] = {**LOSSY, "redis_durable": True}
        async with nodes(store, 1, **durable) as (a,), client(a) as ps:
            positions = await publish(ps, "demo.x", 1, 2)
            await store.command("SAVE")
            positions += await publish(ps, "demo.x", 3, 4)
        await store.end()
        await store.start()
        async with store.client() as redis:
            marks = [key async for key in redis.scan_iter(pattern)]
            assert await redis.delete(*marks)
        async with nodes(store, 1, **durable) as (b,), client(b) as ps:
            for mark in positions[2:]:
                async with peer(b, b.service_token()) as late:
                    answer = await late.subscribe("demo.x", after={"demo.x": mark})
                    assert (answer["reset"], answer["history"]) == (["demo.x"], [])
            async with peer(b, b.service_token()) as late:
                answer = await late.subscribe("demo.x", after={"demo.x": positions[0]})
                assert [message["data"] for message in answer["history"]] == [2]
            positions += await publish(ps, "demo.x", 5)
            assert ascending(positions)
            async with peer(b, b.service_token()) as late:
                answer = await late.subscribe("demo.x", after={"demo.x": positions[3]})
                assert answer["reset"] == ["demo.x"]
                assert [message["data"] for message in answer["history"]] == [5]


@asynccontextmanager
async def sender(
    store: Store | Front,
) -> AsyncGenerator[Callable[[str | None], Awaitable[Published]]]:
    """A node without subscribers, so that nothing else requests the lineage."""
    link = Link(store.url, cluster=False, durable=False)
    layout, retention = Layout("test", 1), Retention(Keep(10, 3_600_000))
    packer = Packer(layout, retention)
    writer = Writer(link, layout, Memory(100_000, 3_600_000, 7_200_000), BOUND)

    async def send(id: str | None) -> Published:
        draft = Draft("demo.x", "row", b"1", None, id, None)
        answer: Answer[list[Published | ServiceError]] = Answer()
        writer.publish([packer.pack(draft, ("service", "spark"), 0)], answer)
        (result,) = await answer
        assert isinstance(result, Published)
        return result

    try:
        yield send
    finally:
        await writer.close()
        await link.close()


async def test_a_call_that_arrives_after_its_repetition_publishes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network or a proxy may deliver what a closed connection had sent."""
    monkeypatch.setattr(wire, "ANSWER_WITHIN", 0.5)
    async with asyncio.timeout(BOUND), front(store) as way, sender(way) as send:
        # The first one connects, loads the script, and starts the numbering.
        positions = [(await send(None)).seq for _ in range(2)]
        late = way.hold(b"demo.x")
        positions.append((await send(None)).seq)
        processed = await calls(store)
        late.set()
        await until(lambda: called_since(store, processed))
        positions.append((await send(None)).seq)
        first = positions[0] or 0
        assert positions == list(range(first, first + 4))


async def calls(store: Store) -> int:
    """Return the number of script calls that the store has processed."""
    async with store.client() as redis:
        return int((await redis.info("commandstats"))["cmdstat_evalsha"]["calls"])


async def called_since(store: Store, before: int) -> bool:
    return await calls(store) > before


async def test_a_repeat_that_comes_first_after_a_snapshot_does_not_stand_for_its_lineage(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), sender(store) as send:
        await send("first")
        await store.command("SAVE")
        lost = await send("second")
        await store.end()
        await store.start()
        # The first one connects, and loads the script.
        for _ in range(2):
            assert (await send("first")).duplicate
        assert ((await send("third")).seq or 0) > (lost.seq or 0)


async def test_a_snapshot_that_is_loaded_within_a_second_of_the_first_message_counts_as_a_loss(
    store: Store,
) -> None:
    """Redis reports the age of its process in whole seconds."""
    async with asyncio.timeout(BOUND), sender(store) as send, sender(store) as later:
        await asyncio.sleep((0.5 - time.time()) % 1)
        await send("first")
        await store.command("SAVE")
        lost = await send("second")
        await store.end()
        await store.start()
        # In the next second, Redis reports the age of one second.
        await until(lambda: aged(store))
        assert ((await later("third")).seq or 0) > (lost.seq or 0)


async def aged(store: Store) -> bool:
    """Whether the store reports an age of at least a second."""
    async with store.client() as redis:
        return bool((await redis.info("server"))["uptime_in_seconds"])


async def kill(cluster: Cluster) -> None:
    await cluster.servers[0].end()


async def hand_over(cluster: Cluster) -> None:
    await cluster.hand_over()


@pytest.mark.parametrize("end", [kill, hand_over])
async def test_a_primary_of_a_cluster_that_ends_amid_traffic_costs_a_gap_at_most(
    tmp_path: Path, end: Callable[[Cluster], Coroutine[Any, Any, None]]
) -> None:
    received: dict[str, list[object]] = {}
    async with (
        asyncio.timeout(BOUND),
        redis_cluster("redis", tmp_path / "cluster") as cluster,
        nodes(cluster, **on(history_max_messages=10_000)) as (a, b),
        client(a) as here,
        client(a) as other,
        client(b) as there,
    ):
        names = await topics(cluster, 2)
        safe = [*names[1], *names[2]]
        task = asyncio.create_task(
            collect(await there.subscribe([names[0][0], "demo.*"]), received)
        )
        async with Traffic(here, *names[0], again=True) as hit, Traffic(other, *safe) as rest:
            await hit.more()
            await rest.more()
            ending = asyncio.create_task(end(cluster))
            # The other topics continue meanwhile.
            await rest.more(20)
            await ending
            await cluster.promoted()
            await hit.more()
        for each in (hit, rest):
            await settled(received, each)
        task.cancel()
        assert b.stats.connections_total == 1
        assert await cluster.owner(base(names[0][0])) == 3
    assert differences(received, rest) == {}
    for topic in names[0]:
        # Each message arrives in order; missing ones are at the gap. The last one before the gap
        # arrives again if the primary ended after it delivered the message, before it replicated
        # it, and before its answer left: its node publishes it again on the new primary.
        row = received[topic]
        assert row.count("gap") == 1
        at = row.index("gap")
        before, after = [*row[:at]], [*row[at + 1 :]]
        acknowledged = hit.acknowledged[topic]
        assert before == acknowledged[: len(before)]
        assert after == acknowledged[-len(after) :]
        again = before[-1:] == after[:1]
        assert len(before) + len(after) <= len(acknowledged) + again
