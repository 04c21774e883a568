"""Nodes whose start or stop is cancelled: they leave no connection to Redis open."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pubsub_server.backplanes.redis import opening
from pubsub_server.testing import running_server
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from tests.cluster.store import Store

BOUND = 60


async def connections(store: Store) -> int:
    """Return the number of connections to a store other than that of the question."""
    listed: bytes = await store.command("CLIENT", "LIST")
    return len(listed.splitlines()) - 1


async def test_a_node_whose_start_is_cancelled_closes_its_connections(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = asyncio.Event()

    async def never(*_: object) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async def start() -> None:
        async with running_server(redis_url=store.url):
            pass

    monkeypatch.setattr(opening, "_begin_shards", never)
    async with asyncio.timeout(BOUND):
        node = asyncio.create_task(start())
        await stuck.wait()
        assert await connections(store) > 0
        node.cancel()
        with pytest.raises(asyncio.CancelledError):
            await node
        await until(lambda: connections(store), 0)


@pytest.mark.parametrize("turns", [1, 2, 5, 20, 100])
async def test_a_node_whose_stop_is_cancelled_closes_its_connections(
    store: Store, turns: int
) -> None:
    async with asyncio.timeout(BOUND):
        async with running_server(redis_url=store.url) as node:
            stopping = asyncio.create_task(node.server.stop())
            for _ in range(turns):
                await asyncio.sleep(0)
            stopping.cancel()
            with suppress(asyncio.CancelledError):
                await stopping
            await until(lambda: connections(store), 0)
