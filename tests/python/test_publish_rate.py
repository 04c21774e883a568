"""The information for a program that exceeds the publish rate of its token."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hanzoai.pubsub.streams import stream_writer
from hanzoai.pubsub.testing import MemoryServer, VirtualClock

if TYPE_CHECKING:
    import pytest

TOPIC = "chat.session.abc"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_publishes_that_wait_over_a_second_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryServer(publish_rate_user=10) as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        ps = server.client(server.token("alice"))
        assert ps.slowed == 0
        publishing = asyncio.gather(*(ps.publish(TOPIC, {"data": n}) for n in range(40)))
        await clock.advance_until(publishing.done, 60)
        await publishing
        assert 15 <= ps.slowed <= 25  # 9 are sent immediately, then 10 per second
        (text,) = warnings(caplog)
        assert "10 messages per second" in text
        assert server.stats.refused.get("rate_limited", 0) == 0


async def test_a_program_within_its_rate_is_never_slowed(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryServer(publish_rate_user=10) as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        ps = server.client(server.token("alice"))
        for burst in range(4):
            publishing = asyncio.gather(*(ps.publish(TOPIC, {"data": burst}) for _ in range(9)))
            await clock.advance_until(publishing.done, 1)
            await clock.advance(1)
        assert ps.slowed == 0
        assert warnings(caplog) == []


async def test_streams_that_are_slowed_by_the_rate_log_it_once_for_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryServer(publish_rate_user=2) as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        ps = server.client(server.token("alice"))

        async def answer(session: int) -> int:
            topic = f"chat.session.{session}"
            async with stream_writer(ps, topic, listen=False) as writer:
                for _ in range(20):
                    await writer.write("word ")
                    await clock.sleep(0.1)
            return writer.stats["slowed"]

        answering = asyncio.gather(*(answer(session) for session in range(4)))
        await clock.advance_until(answering.done, 60)
        assert all(await answering)
        assert ps.slowed > 0
        (text,) = warnings(caplog)
        assert "2 messages per second" in text


async def test_a_frame_that_waits_for_the_rate_keeps_its_place() -> None:
    async with MemoryServer(publish_rate_user=2) as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        ps = server.client(server.token("alice"))

        async def answer(session: int) -> int:
            async with stream_writer(ps, f"chat.session.{session}", listen=False) as writer:
                await writer.write("word")
            return writer.stats["retries"]

        # Each frame waits for about 15 s, longer than the timeout of other publishes.
        answering = asyncio.gather(*(answer(session) for session in range(30)))
        await clock.advance_until(answering.done, 60)
        assert await answering == [0] * 30


async def test_streams_on_a_slow_server_log_it_once_for_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryServer() as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        ps = server.client(server.token("alice"))
        await ps.connect()

        async def answer(session: int) -> int:
            async with stream_writer(ps, f"chat.session.{session}", listen=False) as writer:
                pass
            return writer.stats["slowed"]

        with server.frozen():
            answering = asyncio.gather(*(answer(session) for session in range(4)))
            await clock.advance(2)
        await clock.advance_until(answering.done, 60)
        assert await answering == [1] * 4
        (text,) = warnings(caplog)
        assert "the server was slow" in text
