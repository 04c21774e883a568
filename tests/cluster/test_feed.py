"""The feed from other nodes: after stalls, resets and failures, and when it is silent."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from pubsub_server.auth import dev_tokens
from pubsub_server.backplanes.redis import failure_log
from pubsub_server.backplanes.redis.feed import Feed
from pubsub_server.backplanes.redis.wire import Wire
from pubsub_server.tasks import FAILURES
from pubsub_server.testing import running_server
from tests.cluster.fleet import node_process, peer, settings, stream
from tests.cluster.front import front
from tests.cluster.nodes import Node
from tests.cluster.processes import children
from tests.cluster.store import Store, running
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path
    from typing import Literal

    from pubsub_server.testing import RunningServer
    from tests.cluster.fleet import Process
    from tests.interop.peer import Socket

BOUND = 60
COUNT = 60
TOPIC = "demo.x"
FEED_TIMEOUT = 1_600
HANDLER_IS_CLOSED = RuntimeError("unable to perform operation; the handler is closed")
"""The error that uvloop raises for a write to a connection that was reset."""
STALL = 2.4
"""Seconds; longer than the allowed silence of a listening connection and of a feed."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """One kind of store is enough: the tested code is not in the store."""
    async with running("valkey", tmp_path / "store") as store:
        yield store


async def test_a_request_with_many_patterns_waits_for_each_shard_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirmed(feed: Feed, channel: str) -> bool:
        return False

    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        backplane: Any = node.hub.core.backplane
        feed = backplane._feed
        monkeypatch.setattr(Feed, "_confirmed", confirmed)
        for lane in feed._lanes:
            lane.join_pattern()
        shards = sum(len(lane._shards) for lane in feed._lanes)
        assert len(feed.ready(f"demo.{n}.*" for n in range(100))) == shards
        assert len(feed.ready(f"demo.{n}" for n in range(100))) == shards


async def follow(node: RunningServer | Process | Node, token: str, ready: list[str]) -> list[Any]:
    """Run a client that subscribes; return the data of its first `COUNT` messages."""
    async with peer(node, token) as socket:
        await socket.subscribe(TOPIC)
        ready.append(socket.client_id)
        return [(await socket.message())["data"] for _ in range(COUNT)]


async def publish(socket: Socket, numbers: range) -> None:
    """Publish these, each after the previous one is acknowledged; repeat those that are refused."""
    for number in numbers:
        message = {"topic": TOPIC, "type": "t", "id": f"m{number}", "data": number}
        while True:
            await socket.send({"type": "publish", "ref": str(number), "message": message})
            while (answer := await socket.next())["type"] not in {"published", "error"}:
                pass
            if answer["type"] == "published":
                break
            # On a busy machine, the node may not reach the store in time.
            assert answer["code"] == "unavailable", answer
            await asyncio.sleep(answer["retry_after_ms"] / 1000)


async def shown(node: RunningServer, name: str) -> float:
    """Return a metric of a node."""
    async with http_client(base_url=node.http) as http:
        text = (await http.get("/metrics")).text
    samples = (each for one in text_string_to_metric_families(text) for each in one.samples)
    return next(each.value for each in samples if each.name == f"hanzo_pubsub_{name}")


async def readiness(node: RunningServer) -> int:
    """Return the status of `/readyz`."""
    async with http_client(base_url=node.http) as http:
        return (await http.get("/readyz")).status_code


async def test_a_node_that_was_stopped_while_clients_came_delivers_everything_to_all(
    store: Store,
) -> None:
    more = {"feed_timeout": FEED_TIMEOUT}
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings(store, **more)) as other,
        node_process(store, **more) as node,
        peer(other, other.service_token()) as publisher,
        asyncio.TaskGroup() as group,
    ):
        ready: list[str] = []
        token = other.token()
        clients = [group.create_task(follow(node, token, ready)) for _ in range(3)]
        await until(lambda: len(ready), 3)
        node.stall()
        clients += [group.create_task(follow(node, token, ready)) for _ in range(3)]
        await asyncio.sleep(STALL)
        node.go_on()
        await until(lambda: len(ready), 6)
        await publish(publisher, range(COUNT))
        assert [await each for each in clients] == [[*range(COUNT)]] * 6


async def test_a_worker_that_was_stopped_while_clients_came_delivers_everything_to_all(
    tmp_path: Path,
) -> None:
    key = tmp_path / "dev.key"
    flags = ("--workers", "2", "--dev-key-file", str(key), "--publish-rate-user", "1000")
    node = Node("node", tmp_path, *flags, "--feed-timeout", f"{FEED_TIMEOUT}ms")
    # Three processes start, which is slow on a busy machine; `start` has its own timeout.
    await node.start()
    try:
        token = dev_tokens.mint(dev_tokens.load_key(key), "ann", kind="service")
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            ready: list[str] = []
            clients = [group.create_task(follow(node, token, ready)) for _ in range(6)]
            await until(lambda: len(ready), 6)
            worker = min(children(node.pid))
            os.kill(worker, signal.SIGSTOP)
            clients += [group.create_task(follow(node, token, ready)) for _ in range(6)]
            await asyncio.sleep(STALL)
            os.kill(worker, signal.SIGCONT)
            await until(lambda: len(ready), 12)
            async with peer(node, token) as publisher:
                await publish(publisher, range(COUNT))
            assert [await each for each in clients] == [[*range(COUNT)]] * 12
    finally:
        await node.end()


async def test_connections_that_are_reset_on_their_way_to_the_store_lose_nothing(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings(store)) as other,
        front(store) as way,
        node_process(way) as node,
        peer(other, other.service_token()) as publisher,
        peer(node, other.token()) as reader,
    ):
        await reader.subscribe(TOPIC, "demo.*")
        for start in range(0, COUNT, 4):
            await publish(publisher, range(start, start + 2))
            way.reset()
            await publish(publisher, range(start + 2, start + 4))
        received = [(await reader.message())["data"] for _ in range(COUNT)]
        assert received == [*range(COUNT)]


@pytest.mark.parametrize(
    ("of", "method", "error", "failed"),
    [
        # An error of a transport means a lost connection, not a failed task.
        (Wire, "open", HANDLER_IS_CLOSED, 0),
        (Wire, "open", KeyError("type"), 3),
        (Wire, "ended", KeyError("type"), 3),
        (Feed, "_take_push", KeyError("type"), 3),
    ],
)
async def test_a_feed_whose_connection_fails_in_any_way_is_dialed_again(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    of: type,
    method: str,
    error: Exception,
    failed: int,
) -> None:
    faults: list[Exception] = []
    real = getattr(of, method)

    def fail(self: object, *arguments: object) -> object:
        answer = real(self, *arguments)
        task = asyncio.current_task()
        if method == "open" and (task is None or "_listen_by" not in repr(task.get_coro())):
            # The publisher opens the same connection.
            return answer
        if method == "_take_push":
            if faults:
                raise faults.pop()
            return answer
        return fail_later(answer)

    async def fail_later(work: Awaitable[object]) -> object:
        if method == "ended" and faults:
            raise faults.pop()
        answer = await work
        if faults:
            raise faults.pop()
        return answer

    monkeypatch.setattr(of, method, fail)
    failures = FAILURES.count
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings(store)) as node,
        running_server(**settings(store)) as other,
        peer(other, other.service_token()) as publisher,
        peer(node, node.token()) as reader,
    ):
        await reader.subscribe(TOPIC)
        for number in range(3):
            faults.append(error)
            if method in {"open", "ended"}:
                await store.command("CLIENT", "KILL", "TYPE", "pubsub")
            await publish(publisher, range(number, number + 1))
            assert (await reader.message())["data"] == number
            await until(lambda: faults, [])
        await until(lambda: shown(node, "feed_up"), 1)
    assert FAILURES.count - failures == failed


@pytest.mark.parametrize("swallows", ["all", "channels"])
async def test_a_node_that_receives_nothing_is_not_ready_disconnects_its_clients_and_recovers(
    store: Store, swallows: Literal["all", "channels"]
) -> None:
    async with (
        asyncio.timeout(BOUND),
        front(store) as way,
        # Long enough that a busy machine does not end the connections before the fault.
        running_server(**settings(way, feed_timeout=2 * FEED_TIMEOUT, drain_spread=100)) as node,
        AsyncExitStack() as stack,
    ):
        token = node.token()
        sockets = [await stack.enter_async_context(peer(node, token)) for _ in range(3)]
        for each in sockets:
            await each.subscribe(TOPIC)
        events = await stack.enter_async_context(stream(node, token, topics=TOPIC))
        assert (await readiness(node), await shown(node, "feed_up")) == (200, 1)
        way.swallows = swallows
        for each in sockets:
            assert (await each.until("error"))["code"] == "going_away"
            assert await each.closed() == 1001
        assert (await events.event("error")).json["code"] == "going_away"
        assert await readiness(node) == 503
        values = [await shown(node, name) for name in ("ready", "feed_up", "feed_silences_total")]
        assert values == [0, 0, 1]
        with pytest.raises(InvalidStatus, match="503"):
            async with peer(node, token):
                pass
        async with http_client(headers={"Authorization": f"Bearer {token}"}) as http:
            answer = await http.get(f"{node.http}/v1/subscribe", params={"topics": TOPIC})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        way.swallows = "nothing"
        async with asyncio.timeout(BOUND / 2):
            await until(lambda: readiness(node), 200)
        async with peer(node, token) as reader, peer(node, node.service_token()) as publisher:
            await reader.subscribe(TOPIC)
            await publish(publisher, range(1))
            assert (await reader.message())["data"] == 0


async def test_connections_that_are_lost_one_after_the_other_are_logged_once_until_one_stays_lost(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_log, "LOSS_EVERY", 10 * BOUND)

    def reported(line: str) -> int:
        return [line in each for each in caplog.messages].count(True)

    async with asyncio.timeout(BOUND), running_server(**settings(store)) as node:
        await until(lambda: shown(node, "feed_up"), 1)
        for losses in range(1, 4):
            await store.command("CLIENT", "KILL", "TYPE", "pubsub")
            await until(partial(has_lost, node, losses))
            await until(lambda: shown(node, "feed_up"), 1)
        lost, reconnected = "lost the feed connection", "reconnected the feed"
        assert (reported(lost), reported(reconnected)) == (1, 1)
        backplane: Any = node.hub.core.backplane
        backplane._feed._lanes[0]._log._losses_again_at.clear()
        await store.end()
        await until(lambda: reported(lost), 2)


async def has_lost(node: RunningServer, count: int) -> bool:
    """Whether a node has lost this many connections."""
    return await shown(node, "feed_losses_total") >= count


async def test_a_store_that_is_unreachable_for_less_than_the_timeout_disconnects_no_client(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings(store)) as node,
        peer(node, node.service_token()) as publisher,
        peer(node, node.token()) as reader,
    ):
        await reader.subscribe(TOPIC)
        await store.end()
        await until(lambda: shown(node, "feed_up"), 0)
        assert await readiness(node) == 200
        await store.start()
        await publish(publisher, range(1))
        assert (await reader.message())["data"] == 0


class Channels:
    """A connection to the store, and its server, that confirm what the test tells them to."""

    address = "store"

    def __init__(self) -> None:
        self.requested: list[tuple[str, str]] = []
        self._push: Callable[[list[Any]], None] = lambda push: None

    async def server(self, key: str) -> Channels:
        return self

    def listen(self, push: Callable[[list[Any]], None]) -> Channels:
        self._push = push
        return self

    def stop_listening(self, wire: Channels) -> None:
        pass

    def still(self, key: str, server: Channels) -> bool:
        return True

    async def open(self) -> None:
        pass

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def publish_time(self, channel: str) -> None:
        pass

    def change_channels(self, words: tuple[str, ...]) -> None:
        command, *channels = words
        self.requested += [(command, channel) for channel in channels]

    async def confirm(self, command: str, channel: str) -> None:
        """Wait until this is requested, and confirm it."""
        await until(lambda: (command, channel) in self.requested)
        self.requested.remove((command, channel))
        self._push([command.lower().encode(), channel.encode(), 0])


@pytest.fixture
async def listening() -> AsyncGenerator[tuple[Any, Channels]]:
    """A feed of one shard whose connection is open."""
    channels = Channels()
    link: Any = channels
    log: Any = Mock()
    feed = Feed(link, ["b"], Mock(), AsyncMock(), BOUND, Mock(), log)
    feed.start()
    async with asyncio.timeout(BOUND):
        await until(lambda: len(channels.requested), 1)
        await channels.confirm(*channels.requested[0])
        yield feed, channels
    await feed.close()


@pytest.mark.parametrize(
    ("wanted", "confirmed"),
    [("b:t:demo.x", True), ("b:t:demo.x", False), ("b:a", True)],
)
async def test_a_channel_that_is_wanted_again_while_it_ends_is_not_ready_before_it_has_begun_again(
    listening: tuple[Any, Channels], wanted: str, confirmed: bool
) -> None:
    feed, channels = listening
    pattern = wanted == "b:a"
    join = feed.join_pattern if pattern else partial(feed.join, wanted)
    leave = feed.leave_pattern if pattern else partial(feed.leave, wanted)
    join()
    if confirmed:
        await channels.confirm("SSUBSCRIBE", wanted)
    else:
        await until(lambda: channels.requested, [("SSUBSCRIBE", wanted)])
    leave()
    await until(lambda: ("SUNSUBSCRIBE", wanted) in channels.requested)
    join()
    (ready,) = feed.ready(None if pattern else [wanted])
    if not confirmed:
        await channels.confirm("SSUBSCRIBE", wanted)
    changed: asyncio.Event = feed._changed
    await until(changed.is_set, False)
    assert not ready.done()
    await channels.confirm("SUNSUBSCRIBE", wanted)
    assert not ready.done()
    await channels.confirm("SSUBSCRIBE", wanted)
    assert ready.done()


async def test_a_cancelled_wait_for_a_channel_leaves_nothing(
    listening: tuple[Any, Channels],
) -> None:
    feed, channels = listening
    feed.join("b:t:demo.x")
    cancelled, ready = (feed.ready(["b:t:demo.x"])[0] for _ in range(2))
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert [list(waiters) for waiters in feed._waiters.values()] == [[ready]]
    await channels.confirm("SSUBSCRIBE", "b:t:demo.x")
    await ready
    assert feed._waiters == {}
