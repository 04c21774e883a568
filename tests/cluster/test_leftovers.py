"""Presence after the store lost its data: a live connection wins over stale members elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.cluster.fleet import BOUND, nodes, peer, present
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    import pytest

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store
    from tests.interop.peer import Socket

TOPIC = "demo.x"
USERS = [f"user{n}" for n in range(5)]
LONG = 60_000
"""Milliseconds of grace, longer than a test: no member that has left is removed."""


class Renewal:
    """Delays the writes of a node that has found out that the store no longer knows it."""

    def __init__(self, node: RunningServer, patch: pytest.MonkeyPatch) -> None:
        self.lease: Any = node.hub.core.backplane._lease  # type: ignore[attr-defined]
        self.name: str = self.lease.node
        self._replace = self.lease._replace
        self._allowed = asyncio.Event()
        patch.setattr(self.lease, "_replace", self._wait)

    async def _wait(self) -> None:
        await self._allowed.wait()
        await self._replace()

    async def run(self) -> None:
        """Let the node write, and wait until it has written everything."""
        self._allowed.set()
        await until(
            lambda: self.lease.node != self.name and bool(self.lease._released or self._done())
        )

    def _done(self) -> bool:
        return not self.lease._former


async def move(
    stack: AsyncExitStack, here: RunningServer, there: RunningServer, users: Sequence[str]
) -> list[Socket]:
    """Run clients that were members at one node, were disconnected, and are back at the other."""
    moved: list[Socket] = []
    for user in users:
        async with peer(here, here.token(user)) as socket:
            await socket.subscribe(TOPIC)
            client_id = socket.client_id
            socket.cut()
        back = await stack.enter_async_context(peer(there, there.token(user), client_id))
        await back.subscribe(TOPIC)
        assert back.client_id == client_id
        moved.append(back)
    return moved


@asynccontextmanager
async def moved(
    store: Store, patch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[RunningServer, list[Socket], Renewal, Renewal]]:
    """Run clients that moved from one node to another; either node may write first."""
    async with (
        asyncio.timeout(BOUND),
        nodes(store, presence_grace=LONG) as (x, y),
        AsyncExitStack() as stack,
    ):
        clients = await move(stack, x, y, USERS)
        await until(lambda: x.hub.core.connections, {})
        yield y, clients, Renewal(x, patch), Renewal(y, patch)


async def members(node: RunningServer) -> list[str]:
    return sorted(each["user_id"] for each in await present(node, TOPIC, node.service_token()))


async def test_what_clients_left_behind_does_not_end_their_connections_elsewhere(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with moved(store, monkeypatch) as (y, clients, x_renewal, y_renewal):
        await store.command("FLUSHALL")
        await x_renewal.run()
        assert await members(y) == []
        await y_renewal.run()
        for client in clients:
            await client.fence()
        assert await members(y) == USERS


async def test_what_clients_left_behind_does_not_take_their_places_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with moved(store, monkeypatch) as (y, clients, x_renewal, y_renewal):
        await store.command("FLUSHALL")
        await y_renewal.run()
        await x_renewal.run()
        for client in clients:
            await client.fence()
        assert await members(y) == USERS


async def test_the_newer_of_two_connections_of_a_client_stays_in_any_order_of_writes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (0, 1):
        async with asyncio.timeout(BOUND), nodes(store) as (x, y):
            with monkeypatch.context() as patch:
                await _newer_stays(store, x, y, patch, first)


async def _newer_stays(
    store: Store, x: RunningServer, y: RunningServer, patch: pytest.MonkeyPatch, first: int
) -> None:
    attendance: Any = x.hub.attendance
    received: Callable[[Any], None] = attendance.received

    def received_without_moves(reported: Any) -> None:
        if reported.change != "move":
            received(reported)

    # This node does not learn of the move, so it considers the old connection alive.
    patch.setattr(attendance, "received", received_without_moves)
    async with peer(x, x.token("alice")) as old:
        await old.subscribe(TOPIC)
        # The nodes know the times of connections only with an accuracy of some milliseconds.
        connection: Any = x.hub.core.connections[old.client_id]
        connection.steady_since -= 1_000
        async with peer(y, y.token("alice"), old.client_id) as new:
            await new.subscribe(TOPIC)
            await old.fence()
            renewals = [Renewal(x, patch), Renewal(y, patch)]
            patch.setattr(attendance, "received", received)
            await store.command("FLUSHALL")
            await renewals[first].run()
            await renewals[1 - first].run()
            assert await old.closed() == 4409
            await new.fence()
            assert await members(y) == ["alice"]


async def test_a_join_that_waited_for_the_store_is_not_written_after_its_client_has_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, presence_grace=LONG) as (x, y):
        roster: Any = x.hub.core.roster
        lane = roster._lanes[0]
        call, go_on = lane._perform, asyncio.Event()

        async def wait(sent: Any) -> bool:
            await go_on.wait()
            done: bool = await call(sent)
            return done

        roster.join("demo.other", "cl_other", b"{}")
        monkeypatch.setattr(lane, "_perform", wait)
        async with peer(x, x.token("alice")) as old:
            await old.send({"type": "subscribe", "topics": [TOPIC]})
            await until(lambda: bool(x.hub.core.presence.members(TOPIC, lambda _: None)))
            client_id = old.client_id
            old.cut()
        await until(lambda: x.hub.core.connections, {})
        async with peer(y, y.token("alice"), client_id) as new:
            await new.subscribe(TOPIC)
            go_on.set()
            await until(lambda: lane._task, None)
            await new.fence()
            await new.fence()
            assert await members(y) == ["alice"]


async def test_a_member_within_its_grace_stays_one_when_its_node_takes_another_name(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, presence_grace=LONG) as (x, y):
        async with peer(x, x.token("alice")) as socket:
            await socket.subscribe(TOPIC)
            socket.cut()
        await until(lambda: x.hub.core.connections, {})
        lease: Any = x.hub.core.backplane._lease  # type: ignore[attr-defined]
        name = lease.node

        def renewed() -> bool:
            return bool(lease.node != name and not lease._former)

        lease.lose("the test requests it")
        await until(renewed)
        assert await members(y) == ["alice"]


async def test_a_client_shown_an_emptied_store_is_shown_itself_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, presence_grace=LONG) as (node, _),
        peer(node, node.token("alice")) as alice,
    ):
        await alice.subscribe(TOPIC)
        await alice.fence()
        renewal = Renewal(node, monkeypatch)
        await store.command("FLUSHALL")
        # Simulate a catch-up before the node writes its members again.
        node.hub.attendance.missed([TOPIC], anything=False)  # type: ignore[attr-defined]
        assert (await alice.until("presence.snapshot"))["members"] == []
        await renewal.run()
        (member,) = (await alice.until("presence.snapshot"))["members"]
        assert member["client_id"] == alice.client_id
