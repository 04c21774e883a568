"""The SDK with a server that implements only HIP-56: ordered delivery, exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from hanzoai.pubsub import Message, PubSubClient, RetryOptions
from tests.interop.peer import eventually
from tests.interop.plain_server import PlainServer, Shape

TOPICS = ("chat.session.a", "chat.session.b", "chat.session.c")
MESSAGES, CUTS = 3_000, 30


@pytest.mark.statement("H-009", "H-018")
@pytest.mark.parametrize("shape", ["flat", "nested"])
async def test_thirty_random_cuts_lose_and_repeat_nothing_even_within_a_millisecond(
    shape: Shape,
) -> None:
    rng = random.Random(56)
    got: dict[str, list[int]] = defaultdict(list)
    gaps: list[object] = []
    done = asyncio.Event()

    def keep(message: Message) -> None:
        got[message.topic].append(message.data["n"])
        if sum(map(len, got.values())) >= MESSAGES:
            done.set()

    retry = RetryOptions(base=0.02, cap=0.05)

    async def subscribed() -> bool:
        return server.subscribers > 0

    async with (
        PlainServer(shape) as server,
        PubSubClient(server.url, "Bearer t", transport="websocket", retry=retry) as ps,
    ):
        await ps.subscribe("chat.session.*", on_message=keep, on_gap=gaps.append)
        cuts = set(rng.sample(range(1, MESSAGES), CUTS))
        done_cuts = 0
        for n in range(MESSAGES):
            server.publish(rng.choice(TOPICS), "token", {"n": n})
            if rng.random() < 0.1:
                server.now += 1
            if n % 10 == 0:
                await asyncio.sleep(0)
            if n in cuts:
                await eventually(subscribed)
                done_cuts += server.cut()
        async with asyncio.timeout(60):
            await done.wait()

    received = sorted(n for numbers in got.values() for n in numbers)
    assert received == list(range(MESSAGES))
    assert all(numbers == sorted(numbers) for numbers in got.values())
    assert done_cuts == CUTS
    assert server.connections == CUTS + 1
    assert gaps == []
