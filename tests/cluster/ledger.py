"""Compares the acknowledged messages with the messages that each subscriber received."""

from __future__ import annotations

import asyncio
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from hanzoai.pubsub import Gap, Message
from hanzoai.pubsub.topics import matches
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub import PubSubClient, Subscription

Stream: TypeAlias = tuple[str, str]
"""Topic and publisher: the messages of one publisher on one topic are in order."""

PATIENCE = 300.0
"""Maximum seconds that a publish waits until nodes and store are back."""


class Publisher:
    """Publishes consecutive numbers, and repeats each one until it is acknowledged.

    Args:
        ps: The client.
        name: Name in the messages.
        topics: Topics to use in turn.
        pause: Seconds between two messages.
    """

    def __init__(self, ps: PubSubClient, name: str, topics: Sequence[str], pause: float) -> None:
        self.ps = ps
        self.name = name
        self.pause = pause
        self.acknowledged: dict[Stream, list[int]] = {(topic, name): [] for topic in topics}
        self._ending = False
        self.failure: Exception | None = None

    @property
    def count(self) -> int:
        """Number of acknowledged messages."""
        return sum(map(len, self.acknowledged.values()))

    def end(self) -> None:
        """Stop publishing once the current message is acknowledged."""
        self._ending = True

    async def run(self) -> None:
        """Publish until `end`; store an error in `failure`."""
        try:
            await self._run()
        except Exception as error:
            self.failure = error

    async def _run(self) -> None:
        number = 0
        while not self._ending:
            number += 1
            for (topic, _), numbers in self.acknowledged.items():
                data = {"by": self.name, "n": number}
                await self.ps.publish(topic, {"data": data}, timeout=PATIENCE)
                numbers.append(number)
                await asyncio.sleep(self.pause)


class Subscriber:
    """Records the messages that it receives.

    Args:
        ps: The client.
        name: Name in reports.
        pattern: The subscribed pattern.
        streams: Whether it reads an event stream.
    """

    def __init__(self, ps: PubSubClient, name: str, pattern: str, *, streams: bool = False) -> None:
        self.ps = ps
        self.streams = streams
        self.name = name
        self.pattern = pattern
        self.received: dict[Stream, list[int]] = {}
        self.gaps: list[Gap] = []

    async def run(self, sub: Subscription) -> None:
        """Listen until the task is cancelled."""
        async for event in sub.events():
            if isinstance(event, Gap):
                self.gaps.append(event)
            elif isinstance(event, Message):
                self.received.setdefault((event.topic, event.data["by"]), []).append(
                    event.data["n"]
                )


def gather(publishers: Sequence[Publisher]) -> dict[Stream, list[int]]:
    """Return all acknowledged messages."""
    return {key: numbers for each in publishers for key, numbers in each.acknowledged.items()}


def faults(subscriber: Subscriber, acknowledged: dict[Stream, list[int]]) -> list[str]:
    """Describe the differences between the received and the acknowledged messages."""
    wanted = {k: v for k, v in acknowledged.items() if matches(subscriber.pattern, k[0]) and v}
    found = [f"{subscriber.name}: {gap}" for gap in subscriber.gaps]
    for stream in wanted.keys() | subscriber.received.keys():
        numbers, received = wanted.get(stream, []), subscriber.received.get(stream, [])
        if received != numbers:
            pairs = enumerate(zip_longest(received, numbers))
            at = next(n for n, (here, there) in pairs if here != there)
            some = slice(max(0, at - 2), at + 6)
            reported = f"received {received[some]}, acknowledged {numbers[some]}"
            found.append(f"{subscriber.name} {stream} at {at}: {reported}")
    return found


async def settled(
    subscribers: Sequence[Subscriber], acknowledged: dict[Stream, list[int]], seconds: float
) -> None:
    """Wait, with a timeout, until each subscriber has the last message of all its streams."""
    waiting = list(subscribers)

    def all_told() -> bool:
        waiting[:] = [each for each in waiting if not complete(each, acknowledged)]
        return not waiting

    try:
        async with asyncio.timeout(seconds):
            await until(all_told)
    except TimeoutError:
        # `faults` reports the missing messages.
        return


def complete(subscriber: Subscriber, acknowledged: dict[Stream, list[int]]) -> bool:
    """Whether the subscriber has the last message of each stream."""
    return all(
        (subscriber.received.get(stream) or [0])[-1] >= numbers[-1]
        for stream, numbers in acknowledged.items()
        if numbers and matches(subscriber.pattern, stream[0])
    )
