"""Publishes on their way to Redis: those of one loop turn in one call, one call at a time.

In a cluster each shard is written by itself, so that a server that is away holds up its own topics
and no others. While a call is under way the next ones gather, so that a slow Redis is given larger
calls, not more of them. A call whose answer was lost is made again with the same ids, which the
script knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from redis.exceptions import OutOfMemoryError

from pubsub_server.backplanes.redis.refusals import RefusedError
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Published
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from pubsub_server.backplane import Origin
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Link
    from pubsub_server.backplanes.redis.records import Parts
    from pubsub_server.backplanes.retention import Retention

    Result = Published | ServiceError

logger = logging.getLogger(__name__)

CALL_MESSAGES: Final = 500
CALL_BYTES: Final = 1_048_576
WAITING_MESSAGES: Final = 50_000
WAITING_BYTES: Final = 64 * 1_048_576
REFUSED_FOR: Final = 1_000
"""Milliseconds after which a publisher may try again that was refused for want of Redis."""
AGAIN_AFTER: Final = 0.05
AGAIN_AT_MOST: Final = 1.0
TELL_EVERY: Final = 60.0
"""Seconds between two lines of the log that say that Redis is full."""


@dataclass(slots=True)
class Item:
    """One message to be published."""

    topic: str
    id: str
    scope: str
    ttl: int
    parts: Parts
    floor: int
    tried: bool = False


@dataclass(slots=True)
class _Group:
    """What one caller waits for."""

    items: Sequence[Item]
    size: int
    deadline: float
    done: asyncio.Future[list[Result]]
    origin: Origin | None

    @property
    def forsaken(self) -> bool:
        """Whether its connection is gone, so that its publisher repeats all that is unanswered.

        Performed now it could get a position before something that was answered, was lost with the
        store, and is repeated because the answer did not arrive.
        """
        return self.origin is not None and self.origin.closed


@dataclass(frozen=True, slots=True)
class Memory:
    """How long what is known beside the logs is kept.

    Attributes:
        ids: Remembered of each shard, and as many again.
        remember: Milliseconds ids are remembered, as far as there is room.
        silence: Milliseconds a silent topic keeps its numbering.
    """

    ids: int
    remember: int
    silence: int


class Load:
    """What waits in all writers of a node."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, size: int) -> None:
        """Add to what waits, or subtract with negative numbers."""
        self.messages += messages
        self.bytes += size


class Writer:
    """Publishes so that the order of each shard holds.

    Args:
        link: To Redis.
        layout: Names of keys.
        retention: What each log keeps.
        memory: Of ids and numberings.
        patience: Seconds that a publish waits for Redis before it is refused.
    """

    def __init__(
        self, link: Link, layout: Layout, retention: Retention, memory: Memory, patience: float
    ) -> None:
        self._layout = layout
        self._patience = patience
        self._load = Load()
        self._tasks = Tasks(asyncio.get_running_loop(), logger, "writer")
        self._lanes = [
            Lane(link, layout, retention, memory, patience, self._load, self._tasks)
            for _ in range(len(layout.bases) if link.cluster else 1)
        ]

    def publish(
        self, items: Sequence[Item], origin: Origin | None = None
    ) -> asyncio.Future[list[Result]]:
        """Take messages of one publisher; the future gives an answer for each, in order.

        Args:
            items: The messages.
            origin: A connection; what waits when it closes is refused. None if all is kept.
        """
        if len(self._lanes) == 1:
            return self._lanes[0].publish(items, origin)
        by_shard: dict[int, list[int]] = {}
        for number, item in enumerate(items):
            by_shard.setdefault(self._layout.shard(item.topic), []).append(number)
        if len(by_shard) == 1:
            return self._lanes[next(iter(by_shard))].publish(items, origin)
        waiting = [
            (numbers, self._lanes[shard].publish([items[number] for number in numbers], origin))
            for shard, numbers in by_shard.items()
        ]
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Result]] = loop.create_future()
        self._tasks.spawn(_join(len(items), waiting, done))
        return done

    @property
    def waiting(self) -> tuple[int, int]:
        """Messages that wait for a call, and their bytes."""
        return self._load.messages, self._load.bytes

    async def close(self) -> None:
        """Finish what waits, refuse what comes."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))
        await self._tasks.wait(self._patience)


async def _join(
    count: int,
    waiting: Sequence[tuple[Sequence[int], asyncio.Future[list[Result]]]],
    done: asyncio.Future[list[Result]],
) -> None:
    results: list[Result | None] = [None] * count
    for numbers, future in waiting:
        for number, result in zip(numbers, await future, strict=True):
            results[number] = result
    _settle(done, cast("list[Result]", results))


class Lane:
    """One queue: all shards, or one of a cluster.

    Args:
        link: To Redis.
        layout: Names of keys.
        retention: What each log keeps.
        memory: Of ids and numberings.
        patience: Seconds that a publish waits for Redis before it is refused.
        load: What waits in all lanes.
        tasks: Keeps what writes.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        retention: Retention,
        memory: Memory,
        patience: float,
        load: Load,
        tasks: Tasks,
    ) -> None:
        self._link = link
        self._layout = layout
        self._retention = retention
        keeps = [(keep.messages, keep.age) for keep in retention.keeps]
        self._arguments = (
            memory.ids,
            memory.remember,
            memory.silence,
            len(keeps),
            *(number for keep in keeps for number in keep),
        )
        self._patience = patience
        self._load = load
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Group] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._tell_again = 0.0

    def publish(
        self, items: Sequence[Item], origin: Origin | None = None
    ) -> asyncio.Future[list[Result]]:
        """See `Writer.publish`."""
        done: asyncio.Future[list[Result]] = self._loop.create_future()
        size = sum(item.parts.size for item in items)
        load = self._load
        if self._closed:
            done.set_result([refused("the server is shutting down", item) for item in items])
            return done
        if load.messages + len(items) > WAITING_MESSAGES or load.bytes + size > WAITING_BYTES:
            done.set_result([refused("too much waits for Redis", item) for item in items])
            return done
        deadline = self._loop.time() + self._patience
        self._waiting.append(_Group(items, size, deadline, done, origin))
        load.add(len(items), size)
        if self._task is None:
            # It begins to run when this loop turn has said all that it has to say.
            self._task = self._tasks.spawn(self._run())
        return done

    async def close(self) -> None:
        """Finish what waits, refuse what comes."""
        self._closed = True
        if self._task is not None:
            await self._task

    # ------------------------------------------------------------ inside

    async def _run(self) -> None:
        try:
            while self._waiting:
                groups = self._take()
                try:
                    await self._perform(groups)
                except Exception:
                    logger.exception("cannot publish to Redis")
                    failure = ServiceError("internal", "the store failed on this publish")
                    for group in groups:
                        _settle(group.done, [failure] * len(group.items))
        finally:
            self._task = None

    def _take(self) -> list[_Group]:
        groups: list[_Group] = []
        messages = size = 0
        while self._waiting:
            group = self._waiting[0]
            fits = messages + len(group.items) <= CALL_MESSAGES and size + group.size <= CALL_BYTES
            if groups and not fits:
                break
            self._waiting.popleft()
            self._load.add(-len(group.items), -group.size)
            if not self._forsaken(group):
                groups.append(group)
                messages += len(group.items)
                size += group.size
        return groups

    def _forsaken(self, group: _Group) -> bool:
        if group.forsaken:
            said = "the connection of its publisher is gone"
            _settle(group.done, [refused(said, item) for item in group.items])
        return group.forsaken

    async def _perform(self, groups: list[_Group]) -> None:
        pause = AGAIN_AFTER
        while groups:
            try:
                await self._call(groups)
                return
            except LINK_ERRORS as error:
                reason: Exception = error
            groups = self._refuse_late(groups, reason)
            if groups:
                await asyncio.sleep(pause)
                pause = min(AGAIN_AT_MOST, pause * 2)
                groups = self._refuse_late(groups, reason)
                groups = [group for group in groups if not self._forsaken(group)]

    async def _call(self, groups: Sequence[_Group]) -> None:
        items = [item for group in groups for item in group.items]
        bases: dict[str, int] = {}
        arguments: list[str | bytes | int] = [*self._arguments]
        for item in items:
            base = self._layout.bases[self._layout.shard(item.topic)]
            parts = item.parts
            arguments += (
                bases.setdefault(base, len(bases) + 1),
                item.topic,
                item.id,
                item.scope,
                parts.fingerprint,
                self._retention.number(item.topic) + 1,
                item.ttl,
                item.floor,
                parts.head,
                parts.middle,
                parts.tail,
            )
        try:
            answers = await self._link.publish(list(bases), arguments)
        except BaseException:
            for item in items:
                item.tried = True
            raise
        at = 0
        for group in groups:
            answered = zip(group.items, answers[at:], strict=False)
            _settle(group.done, [_result(item, answer) for item, answer in answered])
            at += len(group.items)

    def _refuse_late(self, groups: list[_Group], reason: Exception) -> list[_Group]:
        """Refuse what has waited too long, and what its publisher sent after that.

        A publisher whose connection is gone repeats all of it, in its order. What it sent later
        must not be in the log before what it sent first.
        """
        now = self._loop.time()
        late = {
            item.scope
            for group in groups
            if self._closed or group.deadline <= now
            for item in group.items
        }
        if not late:
            return groups
        said = self._said(reason)
        rest: list[_Group] = []
        behind: deque[_Group] = deque()
        for group in groups:
            if not _refuse(group, late, said):
                rest.append(group)
        for group in self._waiting:
            if _refuse(group, late, said):
                self._load.add(-len(group.items), -group.size)
            else:
                behind.append(group)
        self._waiting = behind
        return rest

    def _said(self, reason: Exception) -> str:
        if isinstance(reason, OutOfMemoryError):
            self._tell(
                "Redis is full, and publishes are refused: raise its maxmemory, or retain less"
                " (history_max_messages, history_max_age, ids_max)"
            )
            return "the store is full (maxmemory of Redis); its operator has to give it more"
        if isinstance(reason, RefusedError):
            self._tell(f"{reason.why}, and publishes are refused: {reason.remedy}")
            return "the store takes nothing at present; its operator finds the cause in the log"
        return f"the store cannot be reached ({type(reason).__name__})"

    def _tell(self, line: str) -> None:
        now = self._loop.time()
        if now >= self._tell_again:
            self._tell_again = now + TELL_EVERY
            logger.error(line)


def refused(why: str, item: Item) -> ServiceError:
    """A publish that may be tried again with the same id."""
    return ServiceError("unavailable", why, topic=item.topic, retry_after_ms=REFUSED_FOR)


def _refuse(group: _Group, scopes: AbstractSet[str], why: str) -> bool:
    """Refuse what one of these publishers has sent; False for that of others."""
    if scopes.isdisjoint(item.scope for item in group.items):
        return False
    _settle(group.done, [refused(why, item) for item in group.items])
    return True


def _result(item: Item, answer: bytes) -> Result:
    kind, _, rest = answer.partition(b" ")
    if kind == b"c":
        return ServiceError(
            "conflict",
            "you have used this id before, for another message",
            topic=item.topic,
            field="id",
        )
    seq, time = map(int, rest.split(b" "))
    # Known from a call of this very publish whose answer was lost.
    again = kind == b"d" and not item.tried
    return Published(item.id, time, seq or None, again)


def _settle(done: asyncio.Future[list[Result]], results: list[Result]) -> None:
    if not done.done():
        done.set_result(results)
