"""Publishes that wait for Redis: what is refused, and what is not."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as RedisConnectionError

from pubsub_server.backplanes.redis.records import Parts
from pubsub_server.backplanes.redis.writer import Item, Lane, Load, Memory
from pubsub_server.backplanes.retention import Keep
from pubsub_server.interfaces import Published
from pubsub_server.shared.answers import Answer
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pubsub_server.errors import ServiceError

PATIENCE = 5.0


class Store:
    """In place of Redis: away until it is back, and then it numbers what comes."""

    def __init__(self) -> None:
        self.away = True
        self.asked = asyncio.Event()
        self.taken: list[str] = []

    def send_publish(self, bases: Sequence[str], arguments: Sequence[Any], done: object) -> bool:
        """It has to be dialed each time."""
        return False

    async def publish(self, bases: Sequence[str], arguments: Sequence[Any]) -> list[bytes]:
        self.asked.set()
        if self.away:
            raise RedisConnectionError
        ids = [str(each) for each in arguments if str(each).startswith("id")]
        self.taken += ids
        return [b"n %d 1" % len(self.taken) for _ in ids]


class Place:
    """One shard."""

    bases = ("base",)

    def shard(self, topic: str) -> int:
        return 0


class Keeps:
    """Logs of one kind."""

    def of(self, topic: str) -> Keep:
        return Keep(1, 1)


def item(id: str, sender: str) -> Item:
    return Item("demo.x", id, sender, -1, Parts(b"", b"", b"", b""), 0)


class Publisher:
    """A connection."""

    closed = False


def lane_to(store: Store, load: Load, tasks: Tasks) -> Lane:
    place: Any = Place()
    keep: Any = Keeps()
    link: Any = store
    return Lane(link, place, keep, Memory(1, 1, 1), PATIENCE, load, tasks)


def publish(
    lane: Lane, items: Sequence[Item], origin: Publisher | None = None
) -> Answer[list[Published | ServiceError]]:
    answer: Answer[list[Published | ServiceError]] = Answer()
    lane.publish(items, answer, origin)
    return answer


async def test_a_publisher_that_repeats_is_not_overtaken_by_what_its_former_connection_sent() -> (
    None
):
    # The answer to id1 was lost with its connection, and then the store was lost.
    store, load = Store(), Load()
    tasks = Tasks(asyncio.get_running_loop(), logging.getLogger("test"), "writer")
    lane = lane_to(store, load, tasks)
    former = Publisher()
    asked = publish(lane, [item("id2", "ana")], former)
    await store.asked.wait()
    waiting, other = (
        publish(lane, [item("id3", "ana")], former),
        publish(lane, [item("id9", "ben")]),
    )
    former.closed = True
    repeated = [publish(lane, [item(id, "ana")], Publisher()) for id in ("id1", "id2", "id3")]
    store.away = False
    for each in (other, *repeated):
        assert isinstance((await each)[0], Published)
    assert store.taken == ["id9", "id1", "id2", "id3"]
    results = await asked + await waiting
    assert {getattr(each, "code", "") for each in results} == {"unavailable"}
    assert (load.messages, load.bytes) == (0, 0)
    await lane.close()
    await tasks.stop()


async def test_what_a_publisher_sent_behind_a_refused_message_is_refused_too() -> None:
    loop = asyncio.get_running_loop()
    now = [loop.time()]
    store, load = Store(), Load()
    tasks = Tasks(loop, logging.getLogger("test"), "writer")
    lane = lane_to(store, load, tasks)

    class Clock:
        time = staticmethod(lambda: now[0])
        call_soon = staticmethod(loop.call_soon)
        create_future = staticmethod(loop.create_future)

    clock: Any = Clock
    lane._loop = clock
    first = publish(lane, [item("id1", "ana")])
    await store.asked.wait()
    now[0] += PATIENCE / 2
    second, other = publish(lane, [item("id2", "ana")]), publish(lane, [item("id3", "ben")])
    # Only the first has waited too long.
    now[0] += PATIENCE / 2
    results = await first + await second
    assert {getattr(each, "code", "") for each in results} == {"unavailable"}
    store.away = False
    assert isinstance((await other)[0], Published)
    assert store.taken == ["id3"]
    assert (load.messages, load.bytes) == (0, 0)
    # What it sends after the refusal is taken.
    assert isinstance((await publish(lane, [item("id4", "ana")]))[0], Published)
    await lane.close()
    await tasks.stop()
