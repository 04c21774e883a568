"""Helpers for the common steps of the rule tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from hanzoai.pubsub.testing import MemoryServer, VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from hanzoai.pubsub import Message, PubSubClient, Subscription

T = TypeVar("T")

TOPIC = "chat.1"


def clock_of(server: MemoryServer) -> VirtualClock:
    clock = server.clock
    assert isinstance(clock, VirtualClock)
    return clock


async def soon(awaitable: Awaitable[T]) -> T:
    """Wait a moment of real time for everything that does not depend on virtual time."""
    async with asyncio.timeout(60):
        return await awaitable


async def connected(server: MemoryServer, ps: PubSubClient, limit: float = 3600) -> float:
    """Return the virtual seconds until the client is connected."""
    return await clock_of(server).advance_until(lambda: ps.state == "connected", limit)


async def read(sub: Subscription, count: int) -> list[Message]:
    """Return the next messages."""

    async def take() -> list[Message]:
        return [await anext(sub) for _ in range(count)]

    return await soon(take())


def waiting(sub: Subscription) -> list[Message]:
    """Return the messages that have already arrived."""
    found: list[Message] = []
    while (message := sub.take_nowait()) is not None:
        found.append(message)
    return found


async def drain(iterator: AsyncIterator[T], count: int) -> list[T]:
    """Return the next values of any iterator."""

    async def take() -> list[T]:
        return [await anext(iterator) for _ in range(count)]

    return await soon(take())


def say(number: int) -> dict[str, object]:
    """Return a message that contains its number."""
    return {"type": "token", "data": {"n": number}}


def numbers(messages: list[Message]) -> list[int]:
    """Return the numbers of messages that `say` created."""
    return [message.data["n"] for message in messages]
