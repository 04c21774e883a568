from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.python.sse.rig import Client, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
async def client(peer: Peer) -> AsyncGenerator[Client]:
    async with asyncio.timeout(60):
        client = Client(peer)
        await client.open()
        yield client
        await client.transport.close()
        left = [t for t in asyncio.all_tasks() if t.get_name().startswith("hanzoai.pubsub")]
        assert left == []


@pytest.fixture
def plain(peer: Peer) -> Peer:
    peer.plain = True
    return peer
