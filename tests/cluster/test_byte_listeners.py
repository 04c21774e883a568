"""Protocols without answers to a publisher work on several nodes like on one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from pubsub_server.backplanes.redis import backplane as redis_backplane
from pubsub_server.listeners import paced_publishes
from pubsub_server.testing import RunningServer, running_server
from tests.cluster.waiting import until
from tests.server.protocols.peers import events, hub
from tests.server.signed.peers import EMPTY, HELLO
from tests.server.signed.test_sockets import end_of, next_of, publisher, send_and_close

if TYPE_CHECKING:
    import pytest

    from tests.cluster.store import Store

EVENTS = 300


async def node(stack: AsyncExitStack, store: Store, **settings: Any) -> RunningServer:
    who = {"user": "bus", "kind": "admin"}
    given = {
        "redis_durable": True,
        "redis_url": store.url,
        "event_stream": "0",
        "hub": "0",
        "signed": True,
        "listener_identities": {"event_stream": who, "hub": who, "signed": who},
        "publish_rate_service": 1e6,
        **settings,
    }
    return await stack.enter_async_context(running_server(**given))


async def subscribed(server: RunningServer, count: int) -> None:
    await until(lambda: server.stats.subscriptions, count)
    # Wait for the answer of the store, because the protocol does not confirm it.
    await until(lambda: any(each.busy for each in server.hub._open), False)


async def test_events_cross_nodes_in_order_and_never_come_back_to_their_sender(
    store: Store,
) -> None:
    async with AsyncExitStack() as stack:
        here, there = await node(stack, store), await node(stack, store)
        sender = await stack.enter_async_context(
            events(here.server.others["event_stream"], b"status")
        )
        near = await stack.enter_async_context(events(here.server.others["event_stream"], b"*"))
        far = await stack.enter_async_context(
            events(there.server.others["event_stream"], b"status")
        )
        await subscribed(here, 2)
        await subscribed(there, 1)
        for number in range(EVENTS):
            sender.event(b"status", b"%d" % number)
        for reader in (near, far):
            got = [await reader.next() for _ in range(EVENTS)]
            assert got == [(b"status", b"%d" % number) for number in range(EVENTS)]
        far.event(b"status", b"the first that the sender gets")
        assert await sender.next() == (b"status", b"the first that the sender gets")
        await until(lambda: here.hub.core.echoes._publishers, {})


async def test_publishes_outlast_a_store_that_stalls(store: Store) -> None:
    async with AsyncExitStack() as stack:
        here = await node(stack, store)
        sender = await stack.enter_async_context(
            events(here.server.others["event_stream"], b"other")
        )
        asking = await stack.enter_async_context(hub(here.server.others["hub"]))
        reader = await stack.enter_async_context(
            events(here.server.others["event_stream"], b"status")
        )
        signed = await stack.enter_async_context(publisher(here))
        closing = await stack.enter_async_context(publisher(here))
        await subscribed(here, 4)
        backplane: Any = here.hub.core.backplane
        (lane,) = backplane._writer._lanes
        patience, lane._patience = lane._patience, 0.1
        store.stall()
        for number in range(EVENTS):
            sender.event(b"status", b"%d" % number)
        counting = asyncio.create_task(asking.publish(b"x", b"other"))
        await signed.send(HELLO)
        await signed.send(EMPTY)
        ended = asyncio.create_task(send_and_close(closing, HELLO))
        await until(lambda: here.stats.refused.get("unavailable", 0) >= 7)
        lane._patience = patience
        store.go_on()
        got = [await reader.next() for _ in range(EVENTS)]
        assert got == [(b"status", b"%d" % number) for number in range(EVENTS)]
        assert await sender.next() == (b"other", b"x")
        assert await counting == 1
        assert sorted([await next_of(signed) for _ in range(3)]) == sorted([HELLO, HELLO, EMPTY])
        await ended


async def test_publishers_are_closed_when_the_store_stays_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_backplane, "PATIENCE", 0.1)
    monkeypatch.setattr(paced_publishes, "PATIENCE", 0.0)
    async with AsyncExitStack() as stack:
        here = await node(stack, store)
        sender = await stack.enter_async_context(
            events(here.server.others["event_stream"], b"status")
        )
        asking = await stack.enter_async_context(hub(here.server.others["hub"]))
        signed = await stack.enter_async_context(publisher(here))
        await subscribed(here, 2)
        store.stall()
        sender.event(b"status", b"x")
        await signed.send(HELLO)
        asking.request(2, b"\1\5other\0\0\0\1x")
        assert await sender.ended() == await asking.ended() == b""
        assert here.stats.broken["event_stream.unavailable"] == 1
        assert here.stats.broken["hub.unavailable"] == 1
        assert await end_of(signed) == (1013, "unavailable")
        assert here.stats.broken["signed.unavailable"] == 1
        store.go_on()


async def test_a_hub_client_counts_its_node_and_reaches_the_others(store: Store) -> None:
    async with AsyncExitStack() as stack:
        here, there = await node(stack, store), await node(stack, store)
        near = await stack.enter_async_context(hub(here.server.others["hub"]))
        far = await stack.enter_async_context(hub(there.server.others["hub"]))
        sender = await stack.enter_async_context(hub(here.server.others["hub"]))
        await near.subscribe(b"status", b"other")
        await far.subscribe(b"status")
        assert await near.add(0, b"status") == 0
        assert await sender.publish(b"x", b"status", b"other") == 2
        assert await sender.publish(b"y", b"status") == 1
        assert [await near.pushed() for _ in range(3)] == [
            (b"status", b"x"),
            (b"other", b"x"),
            (b"status", b"y"),
        ]
        assert [await far.pushed() for _ in range(2)] == [(b"status", b"x"), (b"status", b"y")]
