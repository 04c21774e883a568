"""Short words for what most tests of the rules do."""

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
    """What needs no virtual time to come must be there after a moment of real time."""
    async with asyncio.timeout(60):
        return await awaitable


async def connected(server: MemoryServer, ps: PubSubClient, limit: float = 3600) -> float:
    """Virtual seconds until the client is connected."""
    return await clock_of(server).advance_until(lambda: ps.state == "connected", limit)


async def read(sub: Subscription, count: int) -> list[Message]:
    """The next messages."""

    async def take() -> list[Message]:
        return [await anext(sub) for _ in range(count)]

    return await soon(take())


def waiting(sub: Subscription) -> list[Message]:
    """The messages that are there already."""
    found: list[Message] = []
    while (message := sub.take_nowait()) is not None:
        found.append(message)
    return found


async def drain(iterator: AsyncIterator[T], count: int) -> list[T]:
    """The next values of any iterator."""

    async def take() -> list[T]:
        return [await anext(iterator) for _ in range(count)]

    return await soon(take())


def say(number: int) -> dict[str, object]:
    """A message that tells its number."""
    return {"type": "token", "data": {"n": number}}


def numbers(messages: list[Message]) -> list[int]:
    """The numbers of messages made by `say`."""
    return [message.data["n"] for message in messages]
