"""Sends publishes to Redis: those of one loop turn in one call, one call at a time.

A call needs no task: it is sent when the loop turn ends, and its answer arrives by callback. A task
takes over only if Redis must be dialed, refuses, or does not answer.

In a cluster each shard is written separately, so that an unavailable server delays only its own
topics. Publishes that arrive during a call are batched, so that a slow Redis gets larger calls, not
more calls. A call whose answer was lost is repeated with the same ids, which the script recognizes.

A publish that has waited too long is refused even if a call or a dial is still in progress.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from struct import pack
from typing import TYPE_CHECKING, Final, cast

import msgspec
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    MasterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from pubsub_server.backoff import Backoff
from pubsub_server.backplane import Published
from pubsub_server.backplanes.redis.errors import ForbiddenError, RefusedError, answers, cause
from pubsub_server.backplanes.redis.failure_log import PublishLog
from pubsub_server.backplanes.redis.layout import PLACE
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.errors import ServiceError
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Any

    from pubsub_server.backplane import Origin
    from pubsub_server.backplanes.redis.layout import Item, Layout
    from pubsub_server.backplanes.redis.link import Link

    Result = Published | ServiceError
    Done = Callable[[list[Result]], None]

logger = logging.getLogger(__name__)

CALL_MESSAGES: Final = 500
CALL_BYTES: Final = 1_048_576
WAITING_MESSAGES: Final = 50_000
WAITING_BYTES: Final = 64 * 1_048_576
REFUSED_FOR: Final = 1_000
"""Milliseconds after which a publisher may try again if Redis was unavailable."""
LINEAGE_EVERY: Final = 0.5
"""Seconds for which the lineages of shards are valid on one connection after a check. A restarted
server has new connections; a server that is demoted, synchronized and promoted again needs longer.
"""
UNPERFORMED: Final = (
    NoScriptError,
    ReadOnlyError,
    OutOfMemoryError,
    MovedError,
    AskError,
    BusyLoadingError,
    MasterDownError,
)
"""Errors of a server that has not performed any part of a call."""
_REFUSES: Final = "the store accepts no messages now; the log of the server has the cause"


class _Group(msgspec.Struct):
    """The publishes that one caller waits for."""

    items: Sequence[Item]
    size: int
    deadline: float
    done: Done
    origin: Origin | None
    answered: bool = False

    def is_of(self, scopes: AbstractSet[str]) -> bool:
        """Whether it contains a message of one of these publishers."""
        return not scopes.isdisjoint(item.scope for item in self.items)


@dataclass(frozen=True, slots=True)
class Memory:
    """How long ids and numberings are kept.

    Attributes:
        ids: Minimum ids remembered per shard; up to twice as many are kept.
        remember: Milliseconds for which ids are remembered, if there is room.
        silence: Milliseconds for which a silent topic keeps its numbering.
    """

    ids: int
    remember: int
    silence: int


class Load:
    """Messages that wait in all lanes of a node.

    Attributes:
        messages: Their number.
        bytes: Bytes of their envelopes.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class Writer:
    """Publishes, and keeps the order of each shard.

    Args:
        link: To Redis.
        layout: Names of keys.
        memory: Of ids and numberings.
        patience: Seconds that a publish waits for Redis before it is refused.
    """

    def __init__(self, link: Link, layout: Layout, memory: Memory, patience: float) -> None:
        self._patience = patience
        self._load = Load()
        self._tasks = Tasks(asyncio.get_running_loop(), logger, "writer")
        self._log = log = PublishLog(logger)
        self._lanes = [
            Lane(link, layout, memory, patience, self._load, self._tasks, log) for _ in layout.lanes
        ]

    def publish(self, items: Sequence[Item], done: Done, origin: Origin | None = None) -> None:
        """Queue messages of one publisher.

        Args:
            items: The messages.
            done: Called once, with an answer for each, in order.
            origin: Its connection; waiting messages are rejected when it closes. None to keep them.
        """
        if len(self._lanes) == 1:
            self._lanes[0].publish(items, done, origin)
            return
        by_shard: dict[int, list[int]] = {}
        for number, item in enumerate(items):
            by_shard.setdefault(item.shard, []).append(number)
        if len(by_shard) == 1:
            self._lanes[next(iter(by_shard))].publish(items, done, origin)
            return
        joined = _Join(len(items), len(by_shard), done)
        for shard, places in by_shard.items():
            some = [items[place] for place in places]
            self._lanes[shard].publish(some, partial(joined.put_results, places), origin)

    @property
    def waiting(self) -> tuple[int, int]:
        """Messages that wait for a call, and their bytes."""
        return self._load.messages, self._load.bytes

    async def close(self) -> None:
        """Finish what waits, refuse what comes."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))
        await self._tasks.wait(self._patience)
        self._log.close()


class _Join:
    """The answers of several lanes to one caller."""

    def __init__(self, items: int, lanes: int, done: Done) -> None:
        self._results: list[Result | None] = [None] * items
        self._lanes = lanes
        self._done = done

    def put_results(self, places: Sequence[int], results: Sequence[Result]) -> None:
        """Answers of one lane, to the items at these places."""
        for place, result in zip(places, results, strict=True):
            self._results[place] = result
        self._lanes -= 1
        if not self._lanes:
            self._done(cast("list[Result]", self._results))


class _Lineage:
    """The shards whose lineage was checked on one connection.

    `lineage.lua` compares it with the replication id of the server. While this id is the same, all
    checks on this connection remain valid.
    """

    def __init__(self) -> None:
        self._connection: object | None = None
        self._at = 0.0
        self._id = b""
        self._bases: set[str] = set()

    def covers(self, bases: Iterable[str], connection: object | None, now: float) -> bool:
        """Whether a call to these shards need not check."""
        return (
            connection is self._connection
            and now - self._at < LINEAGE_EVERY
            and self._bases.issuperset(bases)
        )

    def checked(
        self, bases: Iterable[str], connection: object | None, at: float, replication_id: bytes
    ) -> None:
        """A call that was sent at this time has checked these shards."""
        if connection is not self._connection or replication_id != self._id:
            self._connection, self._id, self._bases = connection, replication_id, set()
        self._at = at
        self._bases.update(bases)


class Lane:
    """One queue: of all shards, or of one shard of a cluster.

    Args:
        link: To Redis.
        layout: Names of keys.
        memory: Of ids and numberings.
        patience: Seconds that a publish waits for Redis before it is refused.
        load: Messages that wait in all lanes.
        tasks: Runs the writes.
        log: Logs rejections of all lanes.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        memory: Memory,
        patience: float,
        load: Load,
        tasks: Tasks,
        log: PublishLog,
    ) -> None:
        self._link = link
        self._layout = layout
        numbers = memory.ids, memory.remember, memory.silence
        self._relying, self._checking = (pack("<dddd", *numbers, check) for check in (0, 1))
        self._lineage = _Lineage()
        self._patience = patience
        self._load = load
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Group] = deque()
        # Cleared while a call is in progress or scheduled.
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        # The publishes of the last call, and why Redis has not answered them, if that is known.
        self._calling: Sequence[_Group] = ()
        self._failure: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        # By connection with a refused publish: until when its later publishes are rejected, too.
        self._behind: OrderedDict[Origin, float] = OrderedDict()
        self._log = log
        # Whether the last publishes were rejected.
        self._refusing = False

    def publish(self, items: Sequence[Item], done: Done, origin: Origin | None = None) -> None:
        """See `Writer.publish`."""
        size = items[0].size if len(items) == 1 else sum(each.size for each in items)
        load = self._load
        if self._closed:
            done([refused("the server is shutting down", item) for item in items])
            return
        if self._behind and origin is not None and self._is_behind(origin):
            done([refused("an earlier publish of this connection was refused", i) for i in items])
            return
        if load.messages + len(items) > WAITING_MESSAGES or load.bytes + size > WAITING_BYTES:
            done([refused("too many publishes wait for Redis", item) for item in items])
            self._refuse_next(origin)
            return
        deadline = self._loop.time() + self._patience
        self._waiting.append(_Group(items, size, deadline, done, origin))
        load.messages += len(items)
        load.bytes += size
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)
        if self._idle.is_set():
            self._idle.clear()
            # Send after this loop turn, with all its publishes.
            self._loop.call_soon(self._next)

    async def close(self) -> None:
        """Finish what waits, refuse what comes."""
        self._closed = True
        await self._idle.wait()

    # ------------------------------------------------------------ inside

    def _next(self) -> None:
        """Send the waiting messages to Redis."""
        groups = self._next_call()
        if not groups:
            self._idle.set()
            return
        self._calling = groups
        try:
            bases, arguments = self._call_of(groups)
            writer, sent = self._link.open_writer(bases[0]), False
            if writer is not None:
                now, connection = self._loop.time(), writer.connection
                if self._lineage.covers(bases, connection, now):
                    arguments[0] = self._relying
                done = partial(self._answered, groups, bases, connection, now)
                sent = self._link.send_publish(writer, bases, arguments, done)
        except Exception as error:
            # Later messages wait for this call to end.
            _fail(groups, error)
            self._loop.call_soon(self._next)
            return
        if not sent:
            self._tasks.spawn(self._try(groups))

    def _answered(
        self,
        groups: Sequence[_Group],
        bases: Sequence[str],
        connection: object | None,
        sent: float,
        answer: Any,
    ) -> None:
        if isinstance(answer, Exception):
            _tried(groups, answer)
            self._tasks.spawn(self._try(list(groups), answer))
            return
        if self._refusing:
            self._recovered()
        if self._waiting:
            self._loop.call_soon(self._next)
        else:
            self._idle.set()
        try:
            replication_id = _settle_all(groups, answer)
            if replication_id is not None:
                self._lineage.checked(bases, connection, sent, replication_id)
        except Exception as error:
            _fail(groups, error)

    async def _try(self, groups: list[_Group], failure: Exception | None = None) -> None:
        """Dial, or find the cause of a failure; then continue.

        Args:
            groups: The publishes.
            failure: Error of a previous call.
        """
        self._failure = failure
        try:
            if isinstance(failure, LINK_ERRORS):
                base = self._layout.bases[groups[0].items[0].shard]
                await self._link.publish_failed(base, failure)
            await self._perform(groups)
        except Exception as error:
            _fail(groups, error)
        finally:
            self._failure = None
            self._loop.call_soon(self._next)

    def _expire(self) -> None:
        """Refuse what has waited too long, and look again at the next deadline."""
        now = self._loop.time()
        late = takewhile(lambda each: each.deadline <= now, self._unanswered())
        self._refuse(late, self._failure or RedisConnectionError("no answer"))
        self._timer = None
        for oldest in self._unanswered():
            self._timer = self._loop.call_at(oldest.deadline, self._expire)
            break

    def _unanswered(self) -> Iterator[_Group]:
        """The publishes of the call in progress and the waiting ones, the oldest first."""
        yield from (group for group in self._calling if not group.answered)
        yield from self._waiting

    def _next_call(self) -> list[_Group]:
        groups: list[_Group] = []
        load = self._load
        messages = size = 0
        while self._waiting:
            group = self._waiting[0]
            fits = messages + len(group.items) <= CALL_MESSAGES and size + group.size <= CALL_BYTES
            if groups and not fits:
                break
            self._waiting.popleft()
            load.messages -= len(group.items)
            load.bytes -= group.size
            if not self._forsaken(group):
                groups.append(group)
                messages += len(group.items)
                size += group.size
        return groups

    def _refuse_next(self, origin: Origin | None) -> None:
        """Reject what this connection sends until its publisher may try again.

        A publisher that has left without reading the refusal repeats the refused publish on its
        next connection. What it sent behind that publish may still arrive on this one, and must not
        be in the log before the repeat.
        """
        if origin is not None:
            self._behind[origin] = self._loop.time() + REFUSED_FOR / 1000
            self._behind.move_to_end(origin)

    def _is_behind(self, origin: Origin) -> bool:
        behind, now = self._behind, self._loop.time()
        # The oldest refusals come first.
        while behind and next(iter(behind.values())) <= now:
            behind.popitem(last=False)
        return origin in behind

    def _forsaken(self, group: _Group) -> bool:
        """Reject a publish whose connection is gone: its publisher repeats all unanswered ones.

        If performed now, it could get a position before an earlier message that the store lost
        after its answer, and that is repeated because the answer did not arrive.
        """
        if group.origin is None or not group.origin.closed:
            return False
        _reject(group, "the connection of its publisher is closed")
        return True

    async def _perform(self, groups: Sequence[_Group]) -> None:
        backoff = Backoff()
        while groups := self._remaining(groups):
            try:
                await self._link.dial(self._layout.bases[groups[0].items[0].shard])
                # Dialing may take longer than some of them wait.
                if groups := self._remaining(groups):
                    await self._call(groups)
                    if self._refusing:
                        self._recovered()
                return
            except LINK_ERRORS as error:
                self._failure = failure = error
            await backoff.wait()
            if self._closed:
                self._refuse(groups, failure)

    def _remaining(self, groups: Sequence[_Group]) -> list[_Group]:
        """The publishes that are neither refused nor forsaken."""
        return [group for group in groups if not (group.answered or self._forsaken(group))]

    async def _call(self, groups: Sequence[_Group]) -> None:
        bases, arguments = self._call_of(groups)
        try:
            answers = await self._link.publish(bases, arguments)
        except BaseException as error:
            _tried(groups, error)
            raise
        _settle_all(groups, answers)

    def _call_of(self, groups: Sequence[_Group]) -> tuple[list[str], list[str | bytes | int]]:
        """Keys and arguments of `publish.lua`."""
        names = self._layout.bases
        bases: dict[str, int] = {}
        arguments: list[str | bytes | int] = [self._checking]
        for group in groups:
            for item in group.items:
                index = bases.setdefault(names[item.shard], len(bases) + 1)
                arguments.append(item.argument(index))
        return list(bases), arguments

    def _refuse(self, late: Iterable[_Group], reason: Exception) -> None:
        """Reject publishes, and later ones of the same publishers.

        A publisher whose connection is gone repeats all of them in order, so a later one must not
        be in the log before an earlier one; see `_refuse_next`.

        Args:
            late: The publishes.
            reason: Why they are not performed.
        """
        scopes = {item.scope for group in late for item in group.items}
        if not scopes:
            return
        rejected = [each for each in self._calling if not each.answered and each.is_of(scopes)]
        waiting, self._waiting = self._waiting, deque()
        for group in waiting:
            if group.is_of(scopes):
                self._load.messages -= len(group.items)
                self._load.bytes -= group.size
                rejected.append(group)
            else:
                self._waiting.append(group)
        detail = self._explain(reason)
        for group in rejected:
            self._refuse_next(group.origin)
            _reject(group, detail)

    def _explain(self, reason: Exception) -> str:
        """Log the reason, and return the detail for the publishers."""
        line, detail = _reason(reason)
        self._refusing = True
        self._log.refused(self, line)
        return detail

    def _recovered(self) -> None:
        self._refusing = False
        self._log.accepted(self)


def _reason(error: Exception) -> tuple[str | None, str]:
    """Why publishes are rejected: the line of the log, if no other log has it, and the detail."""
    if isinstance(error, OutOfMemoryError):
        return (
            "Redis is full, and publishes are rejected: raise its maxmemory, or retain less"
            " (history_max_messages, history_max_age, ids_max)",
            "the store is full (maxmemory of Redis); its operator must increase it",
        )
    if isinstance(error, RefusedError):
        # `link` logs missing permissions.
        known = isinstance(error, ForbiddenError)
        line = f"{error.why}, and publishes are rejected: {error.remedy}"
        return None if known else line, _REFUSES
    if answers(error):
        return f"publishes are rejected: {cause(error)}", _REFUSES
    rejects = isinstance(error, AuthenticationError)
    problem = "rejects this node" if rejects else "cannot be reached"
    line = f"Redis {problem}, and publishes are rejected ({cause(error)})"
    return line, "the store cannot be reached"


def refused(why: str, item: Item) -> ServiceError:
    """The error for a publish that may be repeated with the same id."""
    return ServiceError("unavailable", why, topic=item.topic, retry_after_ms=REFUSED_FOR)


def _reject(group: _Group, why: str) -> None:
    _answer(group, [refused(why, item) for item in group.items])


def _result(item: Item, answer: bytes) -> Result:
    if answer == b"c":
        return ServiceError(
            "conflict",
            "you have used this id for another message",
            topic=item.topic,
            field="id",
        )
    kind, seq, time = PLACE.unpack(answer)
    # The id is known from an earlier call of the same publish whose answer was lost.
    again = kind == b"d" and not item.tried
    return Published(item.id, int(time), int(seq) or None, again)


def _tried(groups: Sequence[_Group], error: BaseException) -> None:
    """Whether a call that ended with this error may have been performed."""
    if isinstance(error, UNPERFORMED):
        return
    for group in groups:
        for item in group.items:
            item.tried = True


def _settle_all(groups: Sequence[_Group], answers: Sequence[bytes]) -> bytes | None:
    """Answer all callers; return the replication id of the server, if the script has read it."""
    at = 0
    for group in groups:
        end = at + len(group.items)
        answered = zip(group.items, answers[at:end], strict=True)
        _answer(group, [_result(item, answer) for item, answer in answered])
        at = end
    return answers[at] if at < len(answers) else None


def _fail(groups: Sequence[_Group], error: Exception) -> None:
    """Answer publishes that an unexpected error has left unanswered."""
    logger.error("cannot publish to Redis", exc_info=error)
    failure = ServiceError("internal", "the store failed on this publish")
    for group in groups:
        _answer(group, [failure] * len(group.items))


def _answer(group: _Group, results: list[Result]) -> None:
    """Answer a caller, once."""
    if not group.answered:
        group.answered = True
        try:
            group.done(results)
        except Exception:
            logger.exception("cannot answer a publish")
