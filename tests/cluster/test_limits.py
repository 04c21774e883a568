"""Limits on several nodes: connections of a user and an organization, publishes over REST."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pubsub_server.backplanes.redis import wire
from pubsub_server.backplanes.redis.lease import Lease
from tests.cluster.fleet import BOUND, RefusedError, node_process, nodes, peer
from tests.cluster.front import front
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from pubsub_server.testing import RunningServer
    from tests.cluster.fleet import Process
    from tests.cluster.store import Store


async def refusal(node: RunningServer | Process, token: str) -> str | None:
    """Return the reason for which a connection is rejected; None if it is accepted."""
    try:
        async with peer(node, token):
            return None
    except RefusedError as error:
        output = f"{error.frame['code']}: {error.frame['message']}"
    assert output.startswith("connection_limit"), output
    return output


async def counted(store: Store, name: str) -> list[int]:
    """Return the values of a counter on the nodes."""
    async with store.client() as redis:
        keys = await redis.keys(f"*:u:{name}")
        rows = [await redis.hvals(key) for key in keys]
    return sorted(int(value) for row in rows for value in row)


async def test_the_connections_of_a_user_are_limited_over_all_nodes(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, connections_per_user=2) as (a, b),
        peer(b, b.token("ann")) as first,
    ):
        async with peer(a, a.token("ann")):
            output = await refusal(b, b.token("ann"))
            assert output is not None
            assert "which is the maximum for a user" in output
            assert await refusal(a, a.token("ann")) is not None
            assert await refusal(b, b.token("bob")) is None
        await until(lambda: counted(store, "user user ann"), [1])
        assert await refusal(b, b.token("ann")) is None
        # A connection that authenticates again is counted once.
        await first.send({"type": "auth", "token": b.token("ann")})
        await first.until("auth.ok")
        assert await counted(store, "user user ann") == [1]


async def test_a_late_copy_of_a_count_does_not_replace_a_newer_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ANSWER_WITHIN", 0.5)
    quiet: dict[str, Any] = {"node_timeout": 120_000, "node_heartbeat": 60_000}
    async with (
        asyncio.timeout(BOUND),
        front(store) as way,
        nodes(way, 1, **quiet) as (node,),
        store.client() as redis,
        redis.monitor() as monitor,
    ):
        async with peer(node, node.token("ann")):
            # The store receives the first copy of the second count last.
            late = way.hold(b"user user ann\r\n$1\r\n2\r\n")
            async with peer(node, node.token("ann")):
                await until(lambda: counted(store, "user user ann"), [2])
        await until(lambda: counted(store, "user user ann"), [])
        late.set()
        copies = 0
        while copies < 2:
            command: str = (await monitor.next_command())["command"]
            copies += command.startswith("EVAL") and "user user ann 2 " in command
        assert await counted(store, "user user ann") == []


async def test_the_connections_of_an_organization_are_limited_over_all_nodes(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, connections_per_org=1) as (a, b),
        peer(a, a.token("ann", orgs=["acme"])),
    ):
        output = await refusal(b, b.token("bob", orgs=["acme"]))
        assert output is not None
        assert "the organization acme" in output
        # The rejected connection is not counted.
        await until(lambda: counted(store, "user user bob"), [])
        async with peer(b, b.token("bob")) as bob:
            await bob.send({"type": "auth", "token": b.token("bob", orgs=["acme"])})
            assert (await bob.until("auth.error"))["code"] == "connection_limit"
            assert await counted(store, "user user bob") == [1]


@pytest.mark.parametrize("early", [False, True])
async def test_many_at_once_are_admitted_up_to_the_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    if early:
        # The nodes have not sent a heartbeat yet.
        monkeypatch.setattr(Lease, "_beat", asyncio.Event().wait)
    async with asyncio.timeout(BOUND), nodes(store, connections_per_user=7) as (a, b):
        async with AsyncExitStack() as stack:

            async def one(node: RunningServer) -> bool:
                try:
                    await stack.enter_async_context(peer(node, node.token("ann")))
                except RefusedError:
                    return False
                return True

            got = await asyncio.gather(*(one(node) for node in (a, b) for _ in range(10)))
            assert sum(got) == 7
            await until(lambda: _sum(store, "user user ann"), 7)
        await until(lambda: _sum(store, "user user ann"), 0)


async def test_connections_of_a_node_that_died_count_no_more(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1, connections_per_user=1) as (a,),
        node_process(store, connections_per_user=1) as doomed,
        peer(doomed, a.token("ann")),
    ):
        await until(lambda: counted(store, "user user ann"), [1])
        assert await refusal(a, a.token("ann")) is not None
        await doomed.end(signal.SIGKILL)
        await until(lambda: counted(store, "user user ann"), [])
        assert await refusal(a, a.token("ann")) is None


async def test_a_node_counts_alone_while_the_store_is_unreachable_and_reports_afterwards(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, connections_per_user=2) as (a, b),
    ):
        await store.end()
        async with peer(a, a.token("ann")), peer(a, a.token("ann")):
            assert await refusal(a, a.token("ann")) is not None
            assert await refusal(b, b.token("ann")) is None
            await store.start()
            await until(lambda: counted(store, "user user ann"), [2])
            await until(lambda: b.hub.core.backplane._lease.up)  # type: ignore[attr-defined]
            limiter: Any = b.hub.core.limiter
            await until(lambda: any(lane.failing for lane in limiter._lanes), False)
            assert await refusal(b, b.token("ann")) is not None


async def test_a_store_that_lost_its_data_gets_the_counts_again(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.token("ann")),
        peer(b, b.token("ann")),
    ):
        await until(lambda: counted(store, "user user ann"), [1, 1])
        async with store.client() as redis:
            await redis.flushall()
        await until(lambda: counted(store, "user user ann"), [1, 1])


async def published(node: RunningServer, user: str, count: int) -> tuple[int, list[int]]:
    """Publish `count` messages in a request; return the accepted number and the retry delays."""
    token = node.token(user, kind="service")
    headers = {"Authorization": f"Bearer {token}"}
    messages = [{"topic": "demo.x", "data": {}} for _ in range(count)]
    async with httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND) as rest:
        answer = await rest.post("/v1/messages:batch", json={"messages": messages})
    results: list[dict[str, Any]] = answer.json()["results"]
    errors = [each["error"] for each in results if "error" in each]
    assert {error["code"] for error in errors} <= {"rate_limited"}
    return len(results) - len(errors), [error["retry_after_ms"] for error in errors]


async def test_what_a_user_publishes_over_rest_shares_a_budget_on_all_nodes(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, publish_rate_service=0.01, publish_burst="1000s") as (a, b),
    ):
        assert await published(a, "ann", 6) == (6, [])
        taken, waits = await published(b, "ann", 6)
        assert taken == 4
        assert len(waits) == 2
        assert all(0 < wait <= 100_000 for wait in waits)
        assert (await published(a, "ann", 1))[0] == 0
        assert await published(b, "bob", 10) == (10, [])


async def test_a_budget_that_is_used_up_comes_back(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, publish_rate_service=5, publish_burst=1_000) as (a, b),
    ):
        assert (await published(a, "ann", 10))[0] == 5
        await until(lambda: _some(b), True)


async def test_each_connection_has_its_own_budget(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, publish_rate_service=0.01, publish_burst="100s") as (a, b),
        peer(b, b.token("ann", kind="service")) as socket,
    ):
        assert (await published(a, "ann", 2))[0] == 1
        await socket.send({"type": "publish", "topic": "demo.x", "data": {}, "ref": "1"})
        assert "seq" in await socket.until("published")


async def _some(node: RunningServer) -> bool:
    return (await published(node, "ann", 1))[0] == 1


async def _sum(store: Store, name: str) -> int:
    return sum(await counted(store, name))


async def test_bulk_batches_share_a_separate_budget_on_all_nodes(
    store: Store,
) -> None:
    settings: dict[str, Any] = {
        "publish_rate_service": 0.01,
        "publish_rate_bulk": 0.01,
        "publish_burst": "1000s",
    }
    async with asyncio.timeout(BOUND), nodes(store, **settings) as (a, b):
        token = a.token("ann", kind="service", bulk=True)
        answers: list[tuple[int, int]] = []
        for node, count in ((a, 6), (b, 6), (a, 1)):
            headers = {"Authorization": f"Bearer {token}"}
            messages = [{"topic": "demo.x", "data": {}} for _ in range(count)]
            async with http_client(base_url=node.http, headers=headers) as rest:
                answer = await rest.post("/v1/messages:batch", json={"messages": messages})
            results = answer.json().get("results", [])
            answers.append((answer.status_code, sum("seq" in each for each in results)))
        assert answers == [(200, 6), (200, 4), (429, 0)]
        # None of that was taken from the common budget.
        assert await published(b, "ann", 10) == (10, [])
