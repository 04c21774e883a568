"""A program that reads too slowly costs at most its queue, and is notified of missed messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import Gap, Message, PubSubClient, ReceiveQueue
from tests.interop.peer import PATIENCE, eventually

if TYPE_CHECKING:
    from tests.interop.peer import Node

TOPIC = "system.announcements"
MESSAGES = 60


@pytest.mark.parametrize("size", [100, 8_000], ids=["small", "large"])
async def test_an_unread_queue_stays_within_its_bytes_and_reports_the_gap(
    node: Node, size: int
) -> None:
    bound = 64 * 1024
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.token(), rest_url=node.http) as ps,
        ps.subscribe(TOPIC, queue=ReceiveQueue(bytes=bound)) as sub,
        node.socket(node.iam.service()) as service,
    ):
        for n in range(MESSAGES):
            data = {"n": n, "text": "x" * size}
            await service.send({"type": "publish", "message": {"topic": TOPIC, "data": data}})

        async def arrived() -> bool:
            return sub.stats.received == MESSAGES

        await eventually(arrived)
        assert sub.stats.queued_bytes <= bound
        kept: list[int] = []
        missed = 0
        async for event in sub.events():
            if isinstance(event, Gap):
                missed += event.missed or 0
            elif isinstance(event, Message):
                kept.append(event.data["n"])
                if event.data["n"] == MESSAGES - 1:
                    break
    assert kept == list(range(MESSAGES - len(kept), MESSAGES))
    assert missed == MESSAGES - len(kept)
    assert bool(missed) == (size * MESSAGES > bound)
