"""What an operator does to a running Redis, and what stops it for a while: it costs no message."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from redis.exceptions import RedisError

from pubsub_server.backplanes.redis.wire import ANSWER_WITHIN
from pubsub_server.tasks import FAILURES
from tests.cluster.fleet import nodes, peer, present
from tests.cluster.store import LOADS, fill, running
from tests.cluster.test_backplane import Traffic, client, collect, differences, settled
from tests.cluster.test_feed import readiness
from tests.cluster.test_presence import users
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

BOUND: Final = 100
NODES: Final[dict[str, Any]] = {"publish_rate_service": 10_000, "history_max_messages": 10_000}
ENDLESS: Final = "while true do end"
OUTAGE: Final = 1.0
"""Seconds for which a script occupies Redis, so that requests of the nodes meet it."""
SECRET: Final = "a-secret-in-a-payload"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    options = ("--appendonly", "yes", *LOADS)
    async with running("redis", tmp_path / "store", *options) as store:
        yield store


async def forget_scripts(store: Store) -> None:
    await store.command("SCRIPT", "FLUSH")


async def kill_listeners(store: Store) -> None:
    await store.command("CLIENT", "KILL", "TYPE", "pubsub")


async def kill_others(store: Store) -> None:
    await store.command("CLIENT", "KILL", "TYPE", "normal")


async def pause_writes(store: Store) -> None:
    await store.command("CLIENT", "PAUSE", 1_500, "WRITE")


async def pause_all(store: Store) -> None:
    await store.command("CLIENT", "PAUSE", 1_500, "ALL")


async def stall_briefly(store: Store) -> None:
    await stall(store, ANSWER_WITHIN / 3)


async def stall_for_long(store: Store) -> None:
    await stall(store, ANSWER_WITHIN + 1.5)


async def stall(store: Store, seconds: float) -> None:
    store.stall()
    try:
        await asyncio.sleep(seconds)
    finally:
        store.go_on()


async def run_a_long_script(store: Store) -> None:
    await store.command("CONFIG", "SET", "busy-reply-threshold", 20)
    running = asyncio.create_task(store.command("EVAL", ENDLESS, 0))
    await until(store.busy)
    await asyncio.sleep(OUTAGE)
    await store.command("SCRIPT", "KILL")
    await asyncio.wait([running])
    assert isinstance(running.exception(), RedisError)


async def load_slowly(store: Store) -> None:
    await fill(store)
    await store.command("BGREWRITEAOF")
    await until(lambda: rewritten(store))
    await store.end(signal.SIGTERM)
    await store.start()


async def rewritten(store: Store) -> bool:
    output = await store.command("INFO", "persistence")
    return b"aof_rewrite_in_progress:0" in output and b"aof_rewrite_scheduled:0" in output


async def run_out_of_memory(store: Store) -> None:
    await store.command("CONFIG", "SET", "maxmemory", 1)
    await until(partial(refused_writes, store))
    await store.command("CONFIG", "SET", "maxmemory", 0)


async def refused_writes(store: Store) -> bool:
    return b"errorstat_OOM:" in await store.command("INFO", "errorstats")


@pytest.mark.parametrize(
    "disturb",
    [
        *(forget_scripts, kill_listeners, kill_others, pause_writes, pause_all),
        *(stall_briefly, stall_for_long, run_a_long_script, load_slowly, run_out_of_memory),
    ],
)
async def test_what_stops_a_store_for_a_while_costs_no_message(
    store: Store, disturb: Callable[[Store], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    received: dict[str, list[object]] = {}
    wild: dict[str, list[object]] = {}
    failed = FAILURES.count
    async with (
        asyncio.timeout(BOUND),
        nodes(store, **NODES) as (a, b),
        client(a) as here,
        client(b) as there,
        peer(b, b.token("ann")) as ann,
    ):
        tasks = [
            asyncio.create_task(collect(await there.subscribe(["demo.x", "demo.y"]), received)),
            asyncio.create_task(collect(await there.subscribe("demo.*"), wild)),
        ]
        await ann.subscribe("demo.x")
        connections = b.stats.connections_total
        async with Traffic(here, "demo.x", "demo.y", again=True) as traffic:
            await traffic.more(20)
            await disturb(store)
            assert await readiness(a) == 200
            await traffic.more(20)
        for each in (received, wild):
            await settled(each, traffic)
        for task in tasks:
            task.cancel()
        assert (differences(received, traffic), differences(wild, traffic)) == ({}, {})
        assert b.stats.connections_total == connections
        for node in (a, b):
            await until(partial(_users, node), ["ann", "service"])
        # A subscription that begins afterwards does not meet a dead connection.
        fresh = await there.subscribe("demo.z", history=1)
        await here.publish("demo.z", {"data": SECRET})
        assert (await anext(fresh)).data == SECRET
    assert FAILURES.count == failed
    assert [each for each in caplog.records if each.exc_info] == []
    assert SECRET not in caplog.text


async def _users(node: RunningServer) -> list[Any]:
    return sorted(users(await present(node, "demo.x", node.token("ann"))))
