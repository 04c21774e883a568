"""Publishes that wait for Redis: which are rejected, and which are not."""

from __future__ import annotations

import asyncio
import logging
from struct import unpack, unpack_from
from typing import TYPE_CHECKING, Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, NoScriptError, OutOfMemoryError, ReadOnlyError

from pubsub_server.backplane import Published
from pubsub_server.backplanes.redis.errors import RefusedError
from pubsub_server.backplanes.redis.failure_log import LOG_EVERY, PublishLog
from pubsub_server.backplanes.redis.layout import PLACE, Item, Layout
from pubsub_server.backplanes.redis.writer import (
    CALL_BYTES,
    CALL_MESSAGES,
    LINEAGE_EVERY,
    REFUSED_FOR,
    WAITING_BYTES,
    WAITING_MESSAGES,
    Lane,
    Load,
    Memory,
    Writer,
)
from pubsub_server.errors import ServiceError
from pubsub_server.shared.answers import Answer
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

PATIENCE = 5.0
BOUND = 60
NEW = PLACE.pack(b"n", 1, 1)
"""Answer of the script for a message that is new."""


class Opened:
    """An open connection."""

    def __init__(self) -> None:
        self.connection = object()


class Store:
    """Replaces Redis: unreachable until `away` is False; then numbers the messages."""

    def __init__(self) -> None:
        self.away = True
        self.asked = asyncio.Event()
        self.failures: list[tuple[str, Exception]] = []
        self.taken: list[str] = []
        self.messages: list[bytes] = []
        self.answer = b"n"

    def open_writer(self, key: str) -> Opened | None:
        """Return None: there is no connection, so the writer must dial each time."""
        return None

    async def publish_failed(self, key: str, error: Exception) -> None:
        self.failures.append((key, error))

    async def dial(self, key: str) -> None:
        """Return at once: dialing succeeds, and `publish` fails."""

    async def publish(self, bases: Sequence[str], arguments: Sequence[Any]) -> list[bytes]:
        self.asked.set()
        if self.away:
            raise RedisConnectionError
        self.messages += arguments[1:]
        ids = [each.rpartition(b"demo.x")[2].decode() for each in arguments[1:]]
        self.taken += ids
        return [PLACE.pack(self.answer, len(self.taken), 1) for _ in ids]


class Open(Store):
    """Replaces Redis with an open connection; answers when the test tells it to."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Any = None
        self.opened = Opened()
        self.checks: list[bool] = []

    def open_writer(self, key: str) -> Opened | None:
        return self.opened

    def send_publish(
        self, writer: Opened, bases: Sequence[str], arguments: Sequence[Any], done: object
    ) -> bool:
        self.done = done
        self.checks.append(unpack("<dddd", arguments[0])[3] == 1)
        self.messages += arguments[1:]
        self.asked.set()
        return True


class Stuck(Open):
    """Replaces Redis that accepts connections and does not answer until the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True
        self.dialing, self.dialed = asyncio.Event(), asyncio.Event()

    def open_writer(self, key: str) -> Opened | None:
        return self.opened if self.is_open else None

    async def publish_failed(self, key: str, error: Exception) -> None:
        self.is_open = False

    async def dial(self, key: str) -> None:
        self.dialing.set()
        await self.dialed.wait()
        self.is_open, self.away = True, False


class Clock:
    """Clock of the loop, which the test sets; `set` counts the timers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.set = 0
        self.now = self._loop.time()
        self.call_soon = self._loop.call_soon

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        self._timers.append((when, work))
        self.set += 1
        return asyncio.TimerHandle(when, work, (), self._loop)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and call what is due."""
        self.now += seconds
        while due := [timer for timer in self._timers if timer[0] <= self.now]:
            self._timers.remove(min(due))
            min(due)[1]()


class Place:
    """One shard."""

    bases = ("base",)


class Places:
    """Two shards."""

    bases = ("base0", "base1")


def item(id: str, sender: str, *, shard: int = 0, fresh: bool = False) -> Item:
    return Item("demo.x", shard, id, sender, b"demo.x" + id.encode(), 0, fresh)


class Publisher:
    """A connection."""

    closed = False


def lane_to(store: Store, load: Load, tasks: Tasks, places: Any = None) -> Lane:
    place: Any = places or Place()
    link: Any = store
    return Lane(
        link, place, Memory(1, 1, 1), PATIENCE, load, tasks, PublishLog(logging.getLogger("test"))
    )


def publish(
    lane: Lane, items: Sequence[Item], origin: Publisher | None = None
) -> Answer[list[Published | ServiceError]]:
    answer: Answer[list[Published | ServiceError]] = Answer()
    lane.publish(items, answer, origin)
    return answer


async def test_a_publisher_that_repeats_is_not_overtaken_by_what_its_former_connection_sent() -> (
    None
):
    # The answer to id1 was lost with its connection, and then the store lost its data.
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
    store, load = Store(), Load()
    tasks = Tasks(loop, logging.getLogger("test"), "writer")
    lane = lane_to(store, load, tasks)

    clock: Any = Clock()
    lane._loop = clock
    first = publish(lane, [item("id1", "ana")])
    await store.asked.wait()
    clock.now += PATIENCE / 2
    second, other = publish(lane, [item("id2", "ana")]), publish(lane, [item("id3", "ben")])
    # Only the first publish has waited too long.
    clock.advance(PATIENCE / 2)
    results = await first + await second
    assert {getattr(each, "code", "") for each in results} == {"unavailable"}
    store.away = False
    assert isinstance((await other)[0], Published)
    assert store.taken == ["id3"]
    assert (load.messages, load.bytes) == (0, 0)
    # Publishes after the rejection are accepted.
    assert isinstance((await publish(lane, [item("id4", "ana")]))[0], Published)
    await lane.close()
    await tasks.stop()


async def test_what_arrives_behind_a_refused_message_is_refused_while_its_publisher_waits() -> None:
    # The publisher has left, and the server does not know it yet.
    loop = asyncio.get_running_loop()
    store, load = Store(), Load()
    tasks = Tasks(loop, logging.getLogger("test"), "writer")
    lane = lane_to(store, load, tasks)
    clock: Any = Clock()
    lane._loop = clock
    former = Publisher()
    first = publish(lane, [item("id1", "ana")], former)
    await store.asked.wait()
    clock.advance(PATIENCE)
    assert getattr((await first)[0], "code", "") == "unavailable"
    store.away = False
    behind = publish(lane, [item("id2", "ana")], former)
    repeated = [publish(lane, [item(id, "ana")], Publisher()) for id in ("id1", "id2")]
    (error,) = await behind
    assert isinstance(error, ServiceError)
    assert (error.code, error.retry_after_ms) == ("unavailable", REFUSED_FOR)
    for each in repeated:
        assert isinstance((await each)[0], Published)
    assert store.taken == ["id1", "id2"]
    # It has not left: it waited as long as the error says.
    clock.now += REFUSED_FOR / 1000
    assert isinstance((await publish(lane, [item("id3", "ana")], former))[0], Published)
    assert (load.messages, load.bytes) == (0, 0)
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
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await lane.close()
        closing = asyncio.ensure_future(lane.close())
        store.done([NEW])
        await closing
    assert isinstance((await answer)[0], Published)


async def test_a_call_that_cannot_be_made_is_answered_and_the_next_one_is_made(
    tasks: Tasks,
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    broken = Item("demo.x", 0, "id1", "ana", cast("Any", None), 0)
    async with asyncio.timeout(BOUND):
        (refused,) = await publish(lane, [broken])
        assert getattr(refused, "code", "") == "internal"
        answer = publish(lane, [item("id2", "ana")])
        await store.asked.wait()
        store.done([NEW])
        assert isinstance((await answer)[0], Published)
        await lane.close()


@pytest.mark.parametrize("expected", [[], [b"n"], [NEW, NEW], None])
async def test_an_answer_that_cannot_be_read_still_answers_every_publisher(
    tasks: Tasks, expected: object
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    answers = [publish(lane, [item(id, "ana"), item(id + "b", "ana")]) for id in ("id1", "id2")]
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        store.done(expected)
        results = [await answer for answer in answers]
        assert [getattr(each, "code", "") for each in results[1]] == ["internal", "internal"]
        await lane.close()


async def test_a_publish_whose_time_is_used_up_by_a_stalled_call_is_refused_without_another(
    tasks: Tasks,
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    answer = publish(lane, [item("id1", "ana")])
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        store.asked.clear()
        clock.advance(PATIENCE)
        failure = RedisConnectionError("no answer")
        store.done(failure)
        assert getattr((await answer)[0], "code", "") == "unavailable"
        await lane.close()
        assert not store.asked.is_set()
        # In a cluster, another server may have the shard.
        assert store.failures == [("base", failure)]


async def test_publishes_whose_deadline_passes_during_a_dial_are_refused_and_never_sent(
    tasks: Tasks,
) -> None:
    store = Stuck()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        first = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        clock.advance(PATIENCE / 2)
        second = publish(lane, [item("id2", "ben")])
        clock.advance(PATIENCE / 2)
        assert getattr((await first)[0], "code", "") == "unavailable"
        # The stuck call ends, and `second` has to wait for a new connection.
        store.done(RedisConnectionError("no answer"))
        await store.dialing.wait()
        third, repeated = (
            publish(lane, [item("id3", "eva")]),
            publish(lane, [item("id1", "ana")]),
        )
        clock.advance(PATIENCE / 2)
        assert getattr((await second)[0], "code", "") == "unavailable"
        store.asked.clear()
        store.dialed.set()
        await store.asked.wait()
        store.done([NEW, NEW])
        for answer in (third, repeated):
            assert isinstance((await answer)[0], Published)
        sent = [message.rpartition(b"demo.x")[2] for message in store.messages]
        assert sent == [b"id1", b"id3", b"id1"]
        await lane.close()


async def test_a_publish_is_refused_at_its_deadline_though_its_call_may_still_be_answered(
    tasks: Tasks,
) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        first = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        second = publish(lane, [item("id2", "ben")])
        clock.advance(PATIENCE - 1)
        store.asked.clear()
        store.done([NEW])
        assert isinstance((await first)[0], Published)
        await store.asked.wait()
        third = publish(lane, [item("id3", "eva")])
        clock.advance(1)
        assert getattr((await second)[0], "code", "") == "unavailable"
        # Its call is performed after all; the next one is not affected.
        store.asked.clear()
        store.done([NEW])
        await store.asked.wait()
        store.done([NEW])
        assert isinstance((await third)[0], Published)
        assert (load.messages, load.bytes) == (0, 0)
        await lane.close()


@pytest.mark.parametrize(
    ("groups", "sizes", "calls"),
    [
        ((CALL_MESSAGES, 1), 10, [CALL_MESSAGES, 1]),
        ((CALL_MESSAGES - 1, 1, 1), 10, [CALL_MESSAGES, 1]),
        # Publishes of one call of a client are not split.
        ((1, CALL_MESSAGES + 1, 1), 10, [1, CALL_MESSAGES + 1, 1]),
        ((1, 1, 1), CALL_BYTES // 2, [2, 1]),
        ((1, 1), CALL_BYTES // 2 + 1, [1, 1]),
        ((1, 1), CALL_BYTES + 1, [1, 1]),
    ],
)
async def test_a_call_has_a_maximum_of_messages_and_bytes_unless_one_publish_exceeds_it(
    tasks: Tasks, groups: tuple[int, ...], sizes: int, calls: list[int]
) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    answers = [
        publish(lane, [Item("demo.x", 0, "id", "ana", b"demo.xid", sizes, False)] * count)
        for count in groups
    ]
    assert (load.messages, load.bytes) == (sum(groups), sum(groups) * sizes)
    async with asyncio.timeout(BOUND):
        for count in calls:
            await store.asked.wait()
            store.asked.clear()
            assert len(store.messages) == count
            store.messages.clear()
            store.done([NEW] * count)
        assert [len(await answer) for answer in answers] == list(groups)
        await lane.close()
    assert (load.messages, load.bytes) == (0, 0)


async def test_a_message_that_is_not_stored_has_no_number(tasks: Tasks) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    answer = publish(lane, [item("id1", "ana"), item("id2", "ana")])
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        store.done([PLACE.pack(b"n", 0, 1), PLACE.pack(b"n", 7, 1)])
        assert [getattr(each, "seq", "") for each in await answer] == [None, 7]
        await lane.close()


async def test_a_refused_connection_delays_no_other_and_is_forgotten_in_time(tasks: Tasks) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    first, second = Publisher(), Publisher()
    async with asyncio.timeout(BOUND):
        # The call to Redis is not answered, and the publish of the first connection is refused.
        refused = publish(lane, [item("id1", "ana")], first)
        await store.asked.wait()
        clock.advance(PATIENCE)
        assert getattr((await refused)[0], "code", "") == "unavailable"
        assert list(lane._behind) == [first]
        behind, other = (
            publish(lane, [item("id2", "ana")], first),
            publish(lane, [item("id3", "ben")], second),
        )
        assert getattr((await behind)[0], "code", "") == "unavailable"
        store.asked.clear()
        store.done([NEW])
        await store.asked.wait()
        store.done([NEW])
        assert isinstance((await other)[0], Published)
        # Another publish removes what is over.
        clock.now += REFUSED_FOR / 1000
        store.asked.clear()
        last = publish(lane, [item("id4", "ben")], second)
        assert not lane._behind
        await store.asked.wait()
        store.done([NEW])
        assert isinstance((await last)[0], Published)
        await lane.close()


async def test_a_publish_behind_a_call_whose_publishes_are_all_refused_has_a_deadline_too(
    tasks: Tasks,
) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        former = Publisher()
        first = publish(lane, [item("id1", "ana")], former)
        await store.asked.wait()
        clock.advance(PATIENCE)
        assert getattr((await first)[0], "code", "") == "unavailable"
        second = publish(lane, [item("id2", "ana")], Publisher())
        clock.advance(PATIENCE)
        assert getattr((await second)[0], "code", "") == "unavailable"
        assert (load.messages, load.bytes) == (0, 0)
        # Only the second connection has been refused just now.
        third = publish(lane, [item("id1", "ana")], former)
        store.asked.clear()
        store.done([NEW])
        await store.asked.wait()
        store.done([NEW])
        assert isinstance((await third)[0], Published)
        await lane.close()


async def test_a_waiting_publish_whose_connection_has_closed_is_not_sent(tasks: Tasks) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    former = Publisher()
    async with asyncio.timeout(BOUND):
        first = publish(lane, [item("id1", "ana")], former)
        await store.asked.wait()
        second, third = (
            publish(lane, [item("id2", "ana")], former),
            publish(lane, [item("id3", "ben")], Publisher()),
        )
        former.closed = True
        store.asked.clear()
        store.done([NEW])
        assert isinstance((await first)[0], Published)
        await store.asked.wait()
        store.done([NEW])
        assert getattr((await second)[0], "code", "") == "unavailable"
        assert isinstance((await third)[0], Published)
        assert (load.messages, load.bytes) == (0, 0)
        await lane.close()


async def test_the_connection_that_was_refused_last_is_behind_for_the_longest_time(
    tasks: Tasks,
) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    clock: Any = Clock()
    lane._loop = clock
    first, second = Publisher(), Publisher()
    async with asyncio.timeout(BOUND):
        waiting = publish(lane, [item("id1", "ana")], first)
        await store.asked.wait()
        clock.now += PATIENCE - 0.5
        load.messages = WAITING_MESSAGES
        for origin, sender in ((first, "ana"), (second, "ben")):
            (full,) = await publish(lane, [item("id2", sender)], origin)
            assert getattr(full, "message", "") == "too many publishes wait for Redis"
        load.messages = 0
        (behind,) = await publish(lane, [item("id3", "ben")], second)
        assert getattr(behind, "code", "") == "unavailable"
        # The first connection is refused again, half a second later.
        clock.advance(0.5)
        assert getattr((await waiting)[0], "code", "") == "unavailable"
        clock.now += REFUSED_FOR / 1000 - 0.5
        (behind,) = await publish(lane, [item("id3", "ana")], first)
        assert getattr(behind, "code", "") == "unavailable"
        accepted = publish(lane, [item("id3", "ben")], second)
        store.asked.clear()
        store.done([NEW])
        await store.asked.wait()
        store.done([NEW])
        assert isinstance((await accepted)[0], Published)
        await lane.close()


async def test_a_refusal_names_the_failure_of_its_own_call_and_of_no_earlier_one(
    tasks: Tasks,
) -> None:
    store = Stuck()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    texts: list[str] = []

    async def refused(id: str, failure: Exception | None) -> None:
        store.asked.clear()
        answer = publish(lane, [item(id, "ana")])
        await store.asked.wait()
        if failure is not None:
            store.done(failure)
            await store.dialing.wait()
        clock.advance(PATIENCE)
        texts.append(getattr((await answer)[0], "message", ""))

    async with asyncio.timeout(BOUND):
        await refused("id1", OutOfMemoryError("full"))
        store.dialed.set()
        await lane._idle.wait()
        await refused("id2", None)
        store.done([NEW])
        await lane.close()
    full, away = texts
    assert full.startswith("the store is full")
    assert away == "the store cannot be reached"


async def test_a_refusal_of_redis_is_hidden_from_users_and_logged_with_its_remedy(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(Store):
        async def publish(self, bases: Sequence[str], arguments: Sequence[Any]) -> list[bytes]:
            self.asked.set()
            raise RefusedError("Redis is busy", "wait")

    store = Refusing()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        answer = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        clock.advance(PATIENCE)
        text = getattr((await answer)[0], "message", "")
        await lane.close()
    assert text == "the store accepts no messages now; the log of the server has the cause"
    assert [record.getMessage() for record in caplog.records] == [
        "Redis is busy, and publishes are rejected: wait"
    ]


async def test_a_refusal_names_the_failure_of_the_last_attempt(tasks: Tasks) -> None:
    class Full(Store):
        async def publish(self, bases: Sequence[str], arguments: Sequence[Any]) -> list[bytes]:
            self.asked.set()
            raise OutOfMemoryError("full")

    store = Full()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        answer = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        clock.advance(PATIENCE)
        assert getattr((await answer)[0], "message", "").startswith("the store is full")
        await lane.close()


async def test_rejected_publishes_are_logged_once_a_minute_and_until_one_is_accepted(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    log: Any = lane._log
    lane._loop = log._loop = log._failures._loop = clock
    logged: list[list[str]] = []

    def take_log() -> None:
        logged.append([record.getMessage() for record in caplog.records])
        caplog.clear()

    async def publish_one(late: bool) -> None:
        store.asked.clear()
        answer = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        if late:
            clock.advance(PATIENCE)
        store.done([NEW])
        assert isinstance((await answer)[0], ServiceError) is late

    async with asyncio.timeout(BOUND):
        await publish_one(late=False)
        # The timer of a publish that was answered refuses nothing.
        clock.advance(PATIENCE)
        take_log()
        for late in (True, False, False, True, False):
            await publish_one(late)
            take_log()
        clock.now += LOG_EVERY
        await publish_one(late=True)
        take_log()
        await lane.close()
    away, again = (
        "Redis cannot be reached, and publishes are rejected (no answer)",
        "Redis accepts publishes again",
    )
    assert logged == [[], [away, again], [], [], [], [], [away, again]]


async def test_rejections_of_several_shards_are_logged_once_until_all_are_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = PublishLog(logging.getLogger("test"))
    log.refused("shard 1", "Redis is away")
    log.refused("shard 2", "Redis is away")
    log.refused("shard 2", "Redis is full")
    log.accepted("shard 1")
    assert caplog.messages == ["Redis is away", "Redis is full"]
    log.accepted("shard 2")
    assert caplog.messages[2:] == ["Redis accepts publishes again"]
    # The same outage, a moment later.
    log.refused("shard 1", "Redis is away")
    log.accepted("shard 1")
    # Another log has the cause.
    log.refused("shard 1", None)
    log.accepted("shard 1")
    assert caplog.messages[3:] == ["Redis accepts publishes again"]


async def test_a_shard_without_further_publishes_delays_the_report_of_recovery_by_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log: Any = PublishLog(logging.getLogger("test"))
    log._loop = log._failures._loop = clock = Clock()
    log.refused("idle shard", "Redis is away")
    clock.advance(1)
    log.refused("shard", "Redis is away")
    log.accepted("shard")
    clock.advance(LOG_EVERY / 2)
    log.refused("late shard", "Redis is away")
    clock.advance(LOG_EVERY - 1)
    assert caplog.messages == ["Redis is away"]
    clock.advance(1)
    assert caplog.messages[1:] == ["Redis accepts publishes again"]
    # All of them count as recovered.
    log.refused("shard", "Redis is away")
    log.accepted("shard")
    assert caplog.messages[2:] == ["Redis is away", "Redis accepts publishes again"]


async def test_a_closed_writer_logs_no_recovery_later(caplog: pytest.LogCaptureFixture) -> None:
    link: Any = Store()
    writer = Writer(link, Layout("test", 1), Memory(1, 1, 1), PATIENCE)
    log: Any = writer._log
    log.refused("idle shard", None)
    log.refused("shard", None)
    log.accepted("shard")
    await writer.close()
    assert log._timer.cancelled()
    assert caplog.messages == []


async def test_a_publish_that_a_new_connection_performs_ends_the_report_of_rejections(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        late = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        clock.advance(PATIENCE)
        assert isinstance((await late)[0], ServiceError)
        store.away = False
        for id in ("id2", "id3"):
            assert isinstance((await publish(lane, [item(id, "ana")]))[0], Published)
        await lane.close()
    assert [record.getMessage() for record in caplog.records] == [
        "Redis cannot be reached, and publishes are rejected (ConnectionError)",
        "Redis accepts publishes again",
    ]


async def test_a_call_of_an_unknown_script_is_repeated_without_a_search_for_another_server(
    tasks: Tasks,
) -> None:
    store = Open()
    store.away = False
    lane = lane_to(store, Load(), tasks)
    async with asyncio.timeout(BOUND):
        answer = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        store.done(NoScriptError("no matching script"))
        assert isinstance((await answer)[0], Published)
        await lane.close()
    assert (store.failures, store.taken) == ([], ["id1"])


async def test_the_publishes_that_wait_have_one_timer(tasks: Tasks) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        answers = [publish(lane, [item(id, "ana")]) for id in ("id1", "id2", "id3")]
        await store.asked.wait()
        assert clock.set == 1
        store.done([NEW] * 3)
        for answer in answers:
            assert isinstance((await answer)[0], Published)
        await lane.close()


async def test_a_late_publish_is_refused_without_those_of_other_publishers_in_its_call(
    tasks: Tasks,
) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        first = publish(lane, [item("id0", "zoe")])
        await store.asked.wait()
        store.asked.clear()
        late = publish(lane, [item("id1", "ana")])
        clock.now += 1
        early = publish(lane, [item("id2", "ben")])
        store.done([NEW])
        await store.asked.wait()
        behind = item("id3", "ana")
        behind.size = 9
        waiting = publish(lane, [behind])
        assert load.bytes == 9
        clock.advance(PATIENCE - 1)
        for answer in (late, waiting):
            assert getattr((await answer)[0], "code", "") == "unavailable"
        assert (load.messages, load.bytes) == (0, 0)
        store.done([NEW, NEW])
        for each in (first, early):
            assert isinstance((await each)[0], Published)
        await lane.close()


async def test_a_publish_that_exceeds_the_bytes_that_may_wait_is_refused(tasks: Tasks) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    async with asyncio.timeout(BOUND):
        load.bytes = WAITING_BYTES
        fits = publish(lane, [item("id1", "ana")])
        await store.asked.wait()
        large = item("id2", "ben")
        large.size = 1
        (full,) = await publish(lane, [large])
        assert getattr(full, "message", "") == "too many publishes wait for Redis"
        store.done([NEW])
        assert isinstance((await fits)[0], Published)
        await lane.close()


async def test_a_repeat_of_a_call_that_may_have_been_performed_is_no_duplicate(
    tasks: Tasks,
) -> None:
    store = Store()
    lane = lane_to(store, Load(), tasks)
    answer = publish(lane, [item("id1", "ana")])
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        store.away, store.answer = False, b"d"
        (published,) = await answer
        assert isinstance(published, Published)
        assert not published.duplicate
        await lane.close()


async def test_a_lane_that_closes_makes_no_further_attempt_of_a_call_that_fails(
    tasks: Tasks,
) -> None:
    store = Store()
    lane = lane_to(store, Load(), tasks)
    answer = publish(lane, [item("id1", "ana")])
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        closing = asyncio.ensure_future(lane.close())
        await asyncio.sleep(0)
        store.asked.clear()
        store.away = False
        await closing
        assert getattr((await answer)[0], "code", "") == "unavailable"
        assert not store.asked.is_set()
        (late,) = await publish(lane, [item("id2", "ana")])
        assert getattr(late, "message", "") == "the server is shutting down"


async def test_each_publish_is_refused_at_its_own_deadline_in_a_call_and_behind_it(
    tasks: Tasks,
) -> None:
    store, load = Open(), Load()
    lane = lane_to(store, load, tasks)
    clock: Any = Clock()
    lane._loop = clock
    async with asyncio.timeout(BOUND):
        zeroth = publish(lane, [item("id0", "zoe")])
        await store.asked.wait()
        store.asked.clear()
        # Two publishes share a call, and two wait behind it.
        answers = []
        for number, sender in enumerate(("ana", "ben", "eva", "kim")):
            if number == 2:
                store.done([NEW])
                await store.asked.wait()
            answers.append(publish(lane, [item(f"id{number}", sender)]))
            clock.now += 1
        assert isinstance((await zeroth)[0], Published)
        clock.now += PATIENCE - 5
        for answer in answers:
            clock.advance(1)
            assert getattr((await answer)[0], "code", "") == "unavailable"
        assert (load.messages, load.bytes) == (0, 0)
        store.done([NEW, NEW])
        await lane.close()


async def test_a_connection_whose_waiting_publish_is_refused_is_behind(tasks: Tasks) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock
    waiting = Publisher()
    async with asyncio.timeout(BOUND):
        first = publish(lane, [item("id1", "ana")], Publisher())
        await store.asked.wait()
        clock.now += 1
        second = publish(lane, [item("id2", "ana")], waiting)
        clock.advance(PATIENCE - 1)
        for answer in (first, second, publish(lane, [item("id3", "ana")], waiting)):
            assert getattr((await answer)[0], "code", "") == "unavailable"
        store.done([NEW])
        await lane.close()


async def test_the_lineage_of_a_shard_is_checked_on_each_new_connection_and_now_and_then(
    tasks: Tasks,
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks)
    clock: Any = Clock()
    lane._loop = clock

    async def publish_one(number: int, replication_id: bytes = b"a") -> bool:
        store.asked.clear()
        answer = publish(lane, [item(f"id{number}", "ana")])
        await store.asked.wait()
        store.done([NEW, replication_id] if store.checks[-1] else [NEW])
        await answer
        return store.checks[-1]

    async with asyncio.timeout(BOUND):
        assert [await publish_one(n) for n in range(3)] == [True, False, False]
        clock.now += LINEAGE_EVERY
        assert [await publish_one(n) for n in range(3, 5)] == [True, False]
        store.opened = Opened()
        assert [await publish_one(n) for n in range(5, 7)] == [True, False]
        await lane.close()


async def test_an_id_that_the_node_created_is_looked_up_only_if_a_call_may_have_published_it(
    tasks: Tasks,
) -> None:
    store = Open()
    store.away = False
    lane = lane_to(store, Load(), tasks)
    looked_up: list[bool] = []

    async def publish_one(created: Item, failure: Exception | None = None) -> None:
        store.asked.clear()
        answer = publish(lane, [created])
        await store.asked.wait()
        store.done([NEW] if failure is None else failure)
        await answer
        looked_up.extend(unpack_from("<H?", message)[1] for message in store.messages)
        store.messages.clear()

    async with asyncio.timeout(BOUND):
        await publish_one(item("id1", "ana"))
        await publish_one(item("id2", "ana", fresh=True))
        assert looked_up == [True, False]
        await publish_one(item("id3", "ana", fresh=True), RedisConnectionError("lost"))
        assert looked_up[2:] == [False, True]
        await lane.close()


async def test_a_new_replication_id_makes_the_writer_check_the_lineages_of_all_shards_again(
    tasks: Tasks,
) -> None:
    store = Open()
    lane = lane_to(store, Load(), tasks, Places())
    clock: Any = Clock()
    lane._loop = clock
    replication_id = b"a"

    async def publish_to(shard: int) -> bool:
        store.asked.clear()
        answer = publish(lane, [item("id", "ana", shard=shard)])
        await store.asked.wait()
        store.done([NEW, replication_id] if store.checks[-1] else [NEW])
        await answer
        return store.checks[-1]

    async with asyncio.timeout(BOUND):
        assert [await publish_to(shard) for shard in (0, 1, 0, 1)] == [
            *(True, True),
            *(False, False),
        ]
        # One check confirms the replication id for all shards.
        clock.now += LINEAGE_EVERY
        assert [await publish_to(shard) for shard in (0, 1)] == [True, False]
        clock.now += LINEAGE_EVERY
        replication_id = b"b"
        assert [await publish_to(shard) for shard in (0, 1, 1)] == [True, True, False]
        await lane.close()


@pytest.mark.parametrize(
    ("error", "duplicate"),
    [
        (ReadOnlyError("no"), True),
        (OutOfMemoryError("no"), True),
        (MovedError("1 127.0.0.1:1"), True),
        (RedisConnectionError("no answer"), False),
    ],
)
async def test_a_repeat_is_a_duplicate_unless_this_very_publish_may_have_been_performed(
    tasks: Tasks, error: Exception, duplicate: bool
) -> None:
    store = Open()
    store.away, store.answer = False, b"d"
    lane = lane_to(store, Load(), tasks)
    answer = publish(lane, [item("id1", "ana")])
    async with asyncio.timeout(BOUND):
        await store.asked.wait()
        store.done(error)
        (result,) = await answer
        assert isinstance(result, Published)
        assert result.duplicate is duplicate
        await lane.close()
