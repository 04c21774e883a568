"""The log lines of nodes about Redis and about each other."""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from redis.exceptions import BusyLoadingError, ClusterDownError
from redis.exceptions import ConnectionError as RedisConnectionError

from pubsub_server.access.setup import StartError
from pubsub_server.backplanes.redis import wire
from pubsub_server.backplanes.redis.errors import ForbiddenError, RefusedError
from pubsub_server.backplanes.redis.failure_log import FailureLog, FeedLog
from pubsub_server.testing import running_server
from tests.cluster.fleet import peer, present
from tests.cluster.store import running
from tests.cluster.test_refusals import publish
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

BOUND = 60
QUICK = {"node_heartbeat": 50, "node_timeout": 2_000, "presence_grace": 100}


def node_changed(lease: Any, former: str) -> bool:
    return bool(lease.node != former)


async def present_users(node: RunningServer, topic: str) -> list[str]:
    return [member["user_id"] for member in await present(node, topic, node.token("ann"))]


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[int]:
    return [each.levelno for each in caplog.records if text in each.getMessage()]


async def test_a_node_that_is_stopped_in_order_is_no_warning_to_the_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pubsub_server")
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url, log_level="info", **QUICK),
    ):
        await until(lambda: bool(lines(caplog, "the id of this node")))
        async with running_server(redis_url=store.url, log_level="info", **QUICK):
            await until(lambda: len(lines(caplog, "the id of this node")), 2)
        await until(lambda: lines(caplog, "left with 0 members"), [logging.INFO])
        # A killed node logs nothing.
        await store.command("ZADD", "hanzo-pubsub:{0}:nodes", 1, "dead")
        await until(lambda: lines(caplog, "node dead sent no heartbeat for 2"), [logging.WARNING])


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["FLUSHALL"], "Redis does not know this node, so it has probably lost data"),
        (
            ["ZADD {base}:nodes 1 {node}"],
            "no heartbeat of this node has reached Redis for 2 s",
        ),
        (
            ["ZADD {base}:d 1 {node}", "ZREM {base}:nodes {node}"],
            "another node has removed this node, because no heartbeat of it arrived",
        ),
    ],
)
async def test_a_node_that_registers_again_logs_why(
    commands: list[str], expected: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url, **QUICK) as node:
        backplane: Any = node.hub.core.backplane
        lease = backplane._lease
        await until(lambda: bool(lease.last_heartbeat))
        former = lease.node
        async with store.client() as redis, redis.pipeline(transaction=True) as calls:
            for command in commands:
                text = command.format(base="hanzo-pubsub:{0}", node=former)
                calls.execute_command(*text.split(" "))
            await calls.execute()
        await until(lambda: lease.node != former)
    assert lines(caplog, f"{expected}; registering this node again") == [logging.WARNING]


async def test_a_lost_feed_reports_when_it_is_back(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        backplane: Any = node.hub.core.backplane
        await until(lambda: backplane._feed.up)
        await store.end()
        await until(lambda: bool(lines(caplog, "lost the feed connection to Redis")))
        await store.start()
        await until(lambda: bool(lines(caplog, "reconnected the feed to Redis")))


async def test_a_full_redis_is_reported_as_full(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        await store.command("CONFIG", "SET", "maxmemory", "1")
        async with httpx.AsyncClient(timeout=BOUND) as http:
            answer = await http.post(
                f"{node.http}/v1/topics/demo.x/messages",
                headers={"Authorization": f"Bearer {node.service_token()}"},
                json={"data": 1},
            )
    assert answer.status_code == 503
    assert "the store is full" in answer.text
    assert lines(caplog, "publishes are rejected: raise its maxmemory") == [logging.ERROR]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("CONFIG SET maxmemory 1", "Redis is full (maxmemory); raise its maxmemory"),
        ("REPLICAOF 127.0.0.1 1", "Redis is a replica, which accepts no writes; use its primary"),
        (
            "CONFIG SET replica-serve-stale-data no; REPLICAOF 127.0.0.1 1",
            "Redis is a replica that has lost its primary; use its primary",
        ),
    ],
)
async def test_a_heartbeat_that_redis_rejects_is_logged_with_the_remedy(
    store: Store, caplog: pytest.LogCaptureFixture, change: str, expected: str
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url, **QUICK):
        for command in change.split("; "):
            await store.command(*command.split())
        # A heartbeat that is under way may meet another state first, and log it.
        line = f"cannot write the heartbeat of this node: {expected}"
        await until(lambda: bool(lines(caplog, line)))
        assert lines(caplog, line) == [logging.WARNING]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BusyLoadingError("loading"), "Redis loads its data; wait until it has finished"),
        (
            ClusterDownError("Hash slot not served"),
            "the Redis Cluster is incomplete (Hash slot not served); check `redis-cli cluster info`"
            " and cluster-require-full-coverage",
        ),
    ],
)
async def test_a_state_in_which_redis_does_not_work_is_logged_with_its_remedy(
    error: Exception, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    FailureLog(logging.getLogger("test")).failed("cannot read", error)
    assert caplog.messages == [f"cannot read: {expected}"]


async def test_a_failure_that_repeats_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = FailureLog(logging.getLogger("pubsub_server"))
    for line in ("cannot read: a", "cannot read: a", "cannot read: b", "cannot read: a"):
        failures.note(line)
    assert lines(caplog, "cannot read: a") == lines(caplog, "cannot read: b") == [logging.WARNING]
    failures.succeeded()
    failures.note("cannot read: a")
    assert lines(caplog, "cannot read: a") == [logging.WARNING] * 2
    other = FailureLog(logging.getLogger("pubsub_server"), every=0)
    other.note("cannot read: c")
    other.note("cannot read: c")
    assert lines(caplog, "cannot read: c") == [logging.WARNING] * 2


async def test_a_refused_subscription_is_logged_once_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FeedLog(logging.getLogger("test"))
    for _ in range(2):
        log.failed("feed", RefusedError("the user lacks a permission", "give it"))
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (
            logging.ERROR,
            "cannot receive messages from Redis: the user lacks a permission: give it",
        )
    ]


async def test_a_lost_permission_is_logged_once_with_the_remedy_whatever_fails_without_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url, **QUICK) as node:
        backplane: Any = node.hub.core.backplane
        catching_up, lease = backplane._catching_up, backplane._lease
        rights = ("on", "nopass", "resetkeys", "~other*", "&*", "+@all")
        await store.command("ACL", "SETUSER", "default", *rights)
        try:
            await until(lambda: not lease.up)
            # The node also searches by itself.
            for _ in range(3):
                assert not await catching_up._catch_up(range(2))
            assert (await publish(node)).status_code == 503
        finally:
            await store.command("ACL", "SETUSER", "default", "~*")
        assert (await publish(node)).status_code == 201
    assert lines(caplog, "lacks a permission") == [logging.ERROR]
    assert lines(caplog, "give it the commands, keys and channels") == [logging.ERROR]
    assert lines(caplog, "Redis accepts publishes again") == [logging.WARNING]


async def test_reads_that_keep_failing_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(logging.getLogger("test"))
    refused = RefusedError("Redis is busy with a script", "wait")
    for _ in range(2):
        log.failed("cannot read", refused, RedisConnectionError("gone"), ForbiddenError("no", "do"))
    log.failed("cannot read", ForbiddenError("no", "do"))
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, "cannot read: Redis is busy with a script: wait, gone")
    ]


async def test_a_redis_that_accepts_a_connection_and_stays_silent_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "ANSWER_WITHIN", 0.05)
    async with asyncio.timeout(BOUND):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(StartError, match=r"\(no answer in time\); does it require TLS"):
                async with running_server(redis_url=url):
                    pass


async def test_a_redis_that_cannot_be_reached_is_named_with_the_cause_and_no_secret() -> None:
    port = free_port()
    async with asyncio.timeout(BOUND):
        for scheme, hint in (("redis", "is it running?"), ("rediss", "does this port use TLS?")):
            with pytest.raises(StartError) as caught:
                async with running_server(redis_url=f"{scheme}://user:hush@127.0.0.1:{port}"):
                    pass
            expected = str(caught.value)
            assert f"Redis cannot be reached at 127.0.0.1:{port} (Connection refused)" in expected
            assert hint in expected
            assert "hush" not in expected


async def test_the_error_for_a_redis_without_tls_suggests_tls_as_the_cause(store: Store) -> None:
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match="does this port use TLS"):
            async with running_server(redis_url=store.url.replace("redis:", "rediss:")):
                pass


async def test_a_command_that_redis_rejects_is_logged_once_even_if_the_node_works_without_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url) as node,
        peer(node, node.token("ann")) as ann,
    ):
        await store.command("ACL", "SETUSER", "default", "-hset")
        try:
            for topic in ("demo.x", "demo.y"):
                await ann.subscribe(topic)
            await until(lambda: bool(lines(caplog, "Redis rejects calls of this node")))
        finally:
            await store.command("ACL", "SETUSER", "default", "+hset")
        await until(partial(present_users, node, "demo.y"), ["ann"])
    said = lines(caplog, "Redis rejects calls of this node: the user of redis_url lacks a perm")
    assert said == [logging.ERROR]


async def test_a_redis_that_evicts_what_nodes_write_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
    async with (
        asyncio.timeout(BOUND),
        running("redis", tmp_path / "store", *options) as store,
        running_server(redis_url=store.url, **QUICK) as node,
    ):
        lease = cast("Any", node.hub.core.backplane)._lease
        await until(lambda: bool(lease.last_heartbeat))
        async with store.client() as redis:
            for number in range(60):
                await redis.set(f"other{number}", "x" * 100_000)
            for _ in range(3):
                former = lease.node
                await redis.delete("hanzo-pubsub:{0}:nodes")
                await until(partial(node_changed, lease, former))
        await until(lambda: bool(lines(caplog, "has evicted keys since it started")))
    assert lines(caplog, "(maxmemory-policy allkeys-lru); set noeviction") == [logging.WARNING]
    assert lines(caplog, "so it has probably lost data") == [logging.WARNING]


@pytest.mark.parametrize("appendonly", ["yes", "no"])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_redis_that_counts_as_durable_and_writes_no_file_is_named_at_the_start(
    appendonly: str, durable: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running("redis", tmp_path / "store", "--appendonly", appendonly) as store,
        running_server(redis_url=store.url, redis_durable=durable),
    ):
        pass
    named = durable and appendonly == "no"
    assert lines(caplog, "redis_durable is set, but") == [logging.WARNING] * named
