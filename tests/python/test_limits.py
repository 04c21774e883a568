"""The limits of the server, and a `history` that exceeds its retention."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PayloadTooLarge, Published
from hanzoai.pubsub.testing import MemoryServer, VirtualClock

if TYPE_CHECKING:
    from hanzoai.pubsub import Message


def hints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "`history`" in record.getMessage()]


async def test_a_client_knows_what_the_server_allows_once_it_is_connected(
    pubsub_memory: MemoryServer,
) -> None:
    assert pubsub_memory.client().limits is None
    ps = pubsub_memory.client()
    async with asyncio.timeout(60):
        await ps.connect()
    limits = ps.limits
    assert limits is not None
    assert (limits.history_max, limits.max_payload) == (100, 262_144)


async def test_a_payload_may_be_as_large_over_http_as_the_server_allows() -> None:
    async with MemoryServer(max_payload=1_000_000) as server, asyncio.timeout(60):
        ps = server.client()
        await ps.connect()
        large = {"type": "t", "data": "x" * 900_000}
        assert (await ps.publish("a.b", large, via="rest")).seq is not None
        (result,) = await ps.publish_many([("a.b", large)], via="rest")
        assert isinstance(result, Published)
        with pytest.raises(PayloadTooLarge, match="the limit is 1,000,000"):
            await ps.publish("a.b", {"type": "t", "data": "x" * 1_000_000}, via="rest")


@pytest.mark.parametrize("handled", [False, True])
async def test_a_history_beyond_what_the_server_retains_is_hinted_at_once(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture, *, handled: bool
) -> None:
    def take(message: Message) -> None:
        pass

    ps = pubsub_memory.client()
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        async with asyncio.timeout(60):
            await ps.subscribe("a.b", history=10_000, on_message=take if handled else None)
            assert pubsub_memory.cut() == 1
            clock = pubsub_memory.clock
            assert isinstance(clock, VirtualClock)
            await clock.advance(60)
    assert ps.state == "connected"
    assert hints(caplog) == [
        "subscribe() to a.b asks for `history` of 10,000 messages, and the server retains 100 "
        "messages of a topic, unless its settings say otherwise for this topic "
        "(`ps.limits.history_max`)."
    ]


async def test_a_history_within_the_retention_causes_no_hint(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
        async with asyncio.timeout(60):
            await ps.subscribe("a.b", history=100)
            await ps.subscribe("a.b")
    assert hints(caplog) == []
