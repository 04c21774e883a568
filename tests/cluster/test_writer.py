"""Publishes that wait for Redis: what is refused, and what is not."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from pubsub_server.backplanes.redis.records import Parts
from pubsub_server.backplanes.redis.writer import Item, Lane, Load, Memory
from pubsub_server.backplanes.retention import Keep
from pubsub_server.interfaces import Published
from pubsub_server.shared.answers import Answer
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from pubsub_server.errors import ServiceError

PATIENCE = 5.0


class Store:
    """In place of Redis: away until it is back, and then it numbers what comes."""

    def __init__(self) -> None:
        self.away = True
        self.asked = asyncio.Event()
        self.failures: list[tuple[str, Exception]] = []
        self.taken: list[str] = []

    def send_publish(self, bases: Sequence[str], arguments: Sequence[Any], done: object) -> bool:
        """It has to be dialed each time."""
        return False

    async def publish_failed(self, key: str, error: Exception) -> None:
        self.failures.append((key, error))

    async def publish(self, bases: Sequence[str], arguments: Sequence[Any]) -> list[bytes]:
        self.asked.set()
        if self.away:
            raise RedisConnectionError
        ids = [str(each) for each in arguments if str(each).startswith("id")]
        self.taken += ids
        return [b"n %d 1" % len(self.taken) for _ in ids]


class Open(Store):
    """In place of Redis with an open connection: it answers when the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Any = None

    def send_publish(self, bases: Sequence[str], arguments: Sequence[Any], done: object) -> bool:
        self.done = done
        self.asked.set()
        return True


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


@pytest.fixture
async def tasks() -> AsyncGenerator[Tasks]:
    tasks = Tasks(asyncio.get_running_loop(), logging.getLogger("test"), "writer")
    yield tasks
    await tasks.stop()


async def test_a_close_that_is_given_up_leaves_the_next_one_waiting_for_the_call(
    tasks: Tasks,
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    answer = publish(lane, [item("id1", "ana")])
    async with asyncio.timeout(PATIENCE):
        await store.asked.wait()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await lane.close()
        closing = asyncio.ensure_future(lane.close())
        store.done([b"n 1 1"])
        await closing
    assert isinstance((await answer)[0], Published)


async def test_a_call_that_cannot_be_made_is_answered_and_the_next_one_is_made(
    tasks: Tasks,
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    broken = Item("demo.x", "id1", "\ud800", -1, Parts(b"", b"", b"", b""), 0)
    async with asyncio.timeout(PATIENCE):
        (refused,) = await publish(lane, [broken])
        assert getattr(refused, "code", "") == "internal"
        answer = publish(lane, [item("id2", "ana")])
        await store.asked.wait()
        store.done([b"n 1 1"])
        assert isinstance((await answer)[0], Published)
        await lane.close()


@pytest.mark.parametrize("said", [[], [b"n"], [b"n 1 1", b"n 2 1"], None])
async def test_an_answer_that_cannot_be_read_still_answers_every_publisher(
    tasks: Tasks, said: object
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    answers = [publish(lane, [item(id, "ana"), item(id + "b", "ana")]) for id in ("id1", "id2")]
    async with asyncio.timeout(PATIENCE):
        await store.asked.wait()
        store.done(said)
        results = [await answer for answer in answers]
        assert [getattr(each, "code", "") for each in results[1]] == ["internal", "internal"]
        await lane.close()


async def test_a_publish_whose_time_is_used_up_by_a_stalled_call_is_refused_without_another(
    tasks: Tasks,
) -> None:
    loop = asyncio.get_running_loop()
    now = [loop.time()]
    store = Open()
    lane = lane_to(store, Load(), tasks)

    class Clock:
        time = staticmethod(lambda: now[0])
        call_soon = staticmethod(loop.call_soon)

    clock: Any = Clock
    lane._loop = clock
    answer = publish(lane, [item("id1", "ana")])
    async with asyncio.timeout(PATIENCE):
        await store.asked.wait()
        store.asked.clear()
        now[0] += PATIENCE
        failure = RedisConnectionError("no answer")
        store.done(failure)
        assert getattr((await answer)[0], "code", "") == "unavailable"
        assert not store.asked.is_set()
        # In a cluster another server may have the shard.
        assert store.failures == [("base", failure)]
        await lane.close()
