"""`RedisRoster`: the members of all nodes, kept in Redis."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from itertools import compress, count, islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from pubsub_server.backoff import Backoff
from pubsub_server.backplanes.redis.layout import read_changes, read_members
from pubsub_server.backplanes.redis.lease import EMPTIED_MS, REMOVED, REVOKED_MS
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.backplanes.redis.writer import REFUSED_FOR
from pubsub_server.errors import ServiceError
from pubsub_server.shared.client_ids import ClientIds
from pubsub_server.shared.roster import Present
from pubsub_server.tasks import Tasks, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from pubsub_server.backplanes.redis.feed import Feeds
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.lease import Lease
    from pubsub_server.backplanes.redis.link import Argument, Link
    from pubsub_server.shared.roster import Audience, Change

logger = logging.getLogger(__name__)

CALL_CHANGES: Final = 500
WAITING_CHANGES: Final = 100_000
"""Maximum changes that wait for Redis; with more, the node writes all its members again instead."""
CROWDED: Final = 5_000
"""Waiting changes above which a client must wait before it makes many more."""
READ_TOPICS: Final = 100
MARGIN_MS: Final = 10_000
"""Maximum milliseconds for which a dead connection may be undetected."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Step:
    """One operation of `members.lua`."""

    op: Literal["j", "u", "a", "l"]
    topic: str
    client_id: str
    id: str
    shown: bytes
    done: asyncio.Future[None] | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of `members.lua`; a repetition has the same number and steps."""

    number: int
    steps: Sequence[_Step]


class RedisRoster:
    """See `hub.roster.Roster`.

    Args:
        link: To Redis.
        layout: Names of keys.
        feed: Listens to the channels.
        lease: The name of this node.
        max_members: Maximum members per topic, on all nodes.
        secret: Seals client ids; the same on all nodes.
        patience: Seconds that a subscription waits for Redis.

    Attributes:
        ids: See `hub.roster.Roster`.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        feed: Feeds,
        lease: Lease,
        *,
        max_members: int,
        secret: str,
        patience: float,
    ) -> None:
        self._link = link
        self._layout = layout
        self._feed = feed
        self._lease = lease
        self._max_members = max_members
        self.ids = ClientIds(secret)
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._audience: Audience | None = None
        self._steps: deque[_Step] = deque()
        self._numbers = count(1)
        # Calls that Redis may have executed: they are repeated before later changes.
        self._unanswered: list[_Call] = []
        self._tasks = Tasks(self._loop, logger, "roster")
        self._task: asyncio.Task[None] | None = None
        self._entering = asyncio.Lock()
        # Set when some of the waiting changes have been written.
        self._written = asyncio.Event()
        self._renewed = False
        self._listening: set[int] = set()
        # Shards of which changes may be missing, and the Redis time since then, ms.
        self._unsure: dict[int, int] = {}
        self._closed = False

    def attend(self, audience: Audience) -> None:
        """See `hub.roster.Roster`."""
        self._audience = audience

    def store_time(self, at: int) -> int:
        """See `hub.roster.Roster`."""
        return self._lease.clock.redis_time(at)

    async def close(self) -> None:
        """Write pending changes, if Redis is available."""
        self._closed = True
        if self._task is not None:
            await self._task

    # ------------------------------------------------------------ changes of this node

    def join(self, topic: str, client_id: str, shown: bytes) -> asyncio.Future[None]:
        """See `hub.roster.Roster`."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._add(_Step("j", topic, client_id, "", shown, done))
        return done

    def update(self, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """See `hub.roster.Roster`."""
        self._add(_Step("u", topic, client_id, id, shown))

    def leave(self, topic: str, client_id: str) -> None:
        """See `hub.roster.Roster`."""
        self._add(_Step("l", topic, client_id, "", b""))

    def renew(self, former: Sequence[str]) -> asyncio.Future[None]:
        """See `lease.Tenant`."""
        self._drop()
        self._renewed = True
        done: asyncio.Future[None] = self._loop.create_future()
        # The members of this node are not in the store before that.
        done.add_done_callback(
            lambda _: self._doubt(self._listening, self._lease.last_heartbeat - MARGIN_MS)
        )
        names = f",{','.join(former)},"
        if self._audience is not None:
            for topic, client_id, shown in self._audience.everybody():
                self._steps.append(_Step("a", topic, client_id, names, shown))
        if self._steps:
            self._steps[-1].done = done
            self._run()
        else:
            done.set_result(None)
        return done

    def recorded(self, change: Change, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """See `lease.Tenant`."""
        if self._audience is not None:
            self._audience.recorded(change, topic, client_id, id, shown)

    def _add(self, step: _Step) -> None:
        if len(self._steps) >= WAITING_CHANGES:
            self._drop()
            self._lease.lose("too many changes of presence wait for Redis")
        self._steps.append(step)
        self._run()

    def _run(self) -> None:
        if self._task is None:
            # The task starts after this loop turn, and so writes all its changes together.
            self._task = self._tasks.spawn(self._write())

    def _drop(self) -> None:
        for step in self._steps:
            _finish(step)
        self._steps.clear()
        self._give_up()

    def _give_up(self) -> None:
        for call in self._unanswered:
            _finish_all(call)
        self._unanswered = []

    async def _write(self) -> None:
        backoff = Backoff()
        try:
            while self._unanswered or self._steps:
                calls = [*self._unanswered, *self._new_calls()]
                node = self._lease.node
                try:
                    failed = await run_all(map(self._call, calls))
                    self._unanswered = list(compress(calls, failed))
                    if not self._unanswered:
                        backoff.reset()
                    elif self._closed:
                        self._drop()
                    elif node != self._lease.node:
                        # With a new lease, all members are written again.
                        self._give_up()
                    else:
                        await backoff.wait()
                except Exception:
                    logger.exception("cannot write members to Redis")
                    self._unanswered = calls
                    self._give_up()
                finally:
                    self._written.set()
        finally:
            self._task = None

    def _new_calls(self) -> list[_Call]:
        """Calls for waiting changes, in order: none that an unanswered call has to precede."""
        busy = {self._queue(call.steps[0]) for call in self._unanswered}
        queues: dict[int, list[_Step]] = {}
        waiting: list[_Step] = []
        for _ in range(min(CALL_CHANGES, len(self._steps))):
            step = self._steps.popleft()
            queue = self._queue(step)
            (waiting if queue in busy else queues.setdefault(queue, [])).append(step)
        self._steps.extendleft(reversed(waiting))
        return [_Call(next(self._numbers), steps) for steps in queues.values()]

    def _queue(self, step: _Step) -> int:
        return self._layout.shard(step.topic) if self._link.cluster else 0

    async def _call(self, call: _Call) -> bool:
        """Whether Redis has not answered this call."""
        node = self._lease.node
        bases: dict[str, int] = {}
        arguments: list[Argument] = [node, call.number, REVOKED_MS, self._max_members, EMPTIED_MS]
        for step in call.steps:
            base = self._layout.bases[self._layout.shard(step.topic)]
            number = bases.setdefault(base, len(bases) + 1)
            op = step.op if self._live(step) else step.op.upper()
            arguments += (number, op, step.topic, step.client_id, step.id, step.shown)
        try:
            outcome, *answers = await self._link.call("members.lua", list(bases), arguments)
        except LINK_ERRORS:
            return True
        if outcome == b"dead" and node == self._lease.node:
            # The current members are written when the node has a new lease.
            self._drop()
            self._lease.lose(REMOVED)
        if outcome == b"ok":
            for step, answer in zip(call.steps, answers, strict=True):
                self._answered(step, cast("bytes", answer))
        _finish_all(call)
        return False

    def _live(self, step: _Step) -> bool:
        return step.op == "l" or self._audience is None or self._audience.connected(step.client_id)

    def _answered(self, step: _Step, answer: bytes) -> None:
        audience = self._audience
        kind, _, rest = answer.partition(b" ")
        if audience is not None:
            topic, client_id = step.topic, step.client_id
            if kind == b"n":
                audience.recorded("join", topic, client_id, step.id, step.shown)
                if step.op == "a":
                    # The store had lost the member, so snapshots sent in the meantime do not
                    # contain it, and a client does not receive its own join.
                    audience.missed([topic], anything=False)
            elif kind == b"u" and step.op == "u":
                audience.recorded("update", topic, client_id, step.id, step.shown)
            elif kind == b"l":
                audience.recorded("leave", topic, client_id, step.id, rest)
            elif kind == b"k":
                audience.restored(topic, client_id, rest)
            elif kind == b"f":
                audience.refused(topic, client_id)
            elif kind == b"o":
                audience.overruled(topic, client_id)

    # ------------------------------------------------------------ what the others do

    def receive(self, payload: bytes) -> None:
        """Process a payload of a channel.

        Raises:
            ValueError: See `layout.read_changes`.
        """
        if self._audience is not None:
            for change in read_changes(payload):
                self._audience.received(change)

    def interrupted(self, shards: Sequence[int], since: int) -> None:
        """Listening to these shards has begun.

        Args:
            shards: Which.
            since: Redis time since which changes may be missing after a reconnection, ms.
        """
        self._doubt(self._listening.intersection(shards), since)
        self._listening.update(shards)

    def _doubt(self, shards: Iterable[int], since: int) -> None:
        for shard in shards:
            self._unsure[shard] = min(since, self._unsure.get(shard, since))

    async def catch_up(self) -> None:
        """Search for missed changes; the next call repeats a search that fails.

        Raises:
            Exception: One of `LINK_ERRORS`, or unexpected.
        """
        audience, unsure = self._audience, self._unsure
        if audience is None or not unsure:
            return
        self._unsure = {}
        anything, self._renewed = self._renewed, False
        since = min(unsure.values())
        try:
            # Redis no longer knows all topics that were left before.
            anything = anything or since < await self._link.time(self._layout.nodes) - EMPTIED_MS
            since = 0 if anything else since
            found = await self._indexed(
                (self._layout.attended, self._layout.emptied), since, unsure
            )
        except BaseException:
            self._renewed |= anything
            self._doubt(unsure, since)
            raise
        audience.missed(found, anything=anything)

    # ------------------------------------------------------------ read

    async def room(self) -> None:
        """See `hub.roster.Roster`."""
        # The next caller continues in a later turn, when this one has made its changes.
        await self._soon(
            self._wait_for_room(), "earlier changes of presence still wait for the store"
        )

    async def _wait_for_room(self) -> None:
        async with self._entering:
            while len(self._steps) >= CROWDED:
                self._written.clear()
                await self._written.wait()

    async def wait_joined(
        self, joins: Sequence[asyncio.Future[None]], patterns: Sequence[str]
    ) -> None:
        """See `hub.roster.Roster`."""
        waiting = (*joins, *self._feed.ready(patterns))
        if waiting:
            await self._soon(_all(waiting))

    async def read(self, topics: Sequence[str]) -> Present:
        """See `hub.roster.Roster`."""
        return await self._soon(self._read(topics))

    async def matching(self, wanted: Callable[[str], bool], limit: int) -> list[str]:
        """See `hub.roster.Roster`."""
        return await self._soon(self._search(wanted, limit))

    async def elsewhere(self, topic: str, client_id: str) -> bool:
        """See `hub.roster.Roster`."""
        found = await self._soon(self._link.member(self._layout.members(topic), client_id))
        return found is not None and not found.startswith(f"{self._lease.node} ".encode())

    async def _read(self, topics: Sequence[str]) -> Present:
        by_shard: dict[int, list[str]] = {}
        for topic in topics:
            by_shard.setdefault(self._layout.shard(topic), []).append(topic)
        calls = [
            self._read_some(shard, names[start : start + READ_TOPICS])
            for shard, names in by_shard.items()
            for start in range(0, len(names), READ_TOPICS)
        ]
        found = await run_all(calls)
        members = {topic: row for each in found for topic, row in each.members.items()}
        return Present(min((each.at for each in found), default=0), members)

    async def _read_some(self, shard: int, topics: Sequence[str]) -> Present:
        base = self._layout.bases[shard]
        time, *rows = await self._link.call("present.lua", [base], topics)
        node = self._lease.node
        members = {t: read_members(row, node) for t, row in zip(topics, rows, strict=True)}
        return Present(int(time), members)

    async def _search(self, wanted: Callable[[str], bool], limit: int) -> list[str]:
        names = await self._indexed((self._layout.attended,), 0, range(len(self._layout.bases)))
        return list(islice(filter(wanted, names), limit))

    async def _indexed(
        self, indexes: Sequence[Callable[[int], str]], since: int, shards: Iterable[int]
    ) -> list[str]:
        calls = [
            self._link.topics(index(shard), since=since) for index in indexes for shard in shards
        ]
        return [name.decode() for names in await run_all(calls) for name in names]

    async def _soon(
        self,
        work: Coroutine[Any, Any, _T],
        outcome: str = "the store cannot be reached, so the members are unknown",
    ) -> _T:
        try:
            async with asyncio.timeout(self._patience):
                return await work
        except (TimeoutError, *LINK_ERRORS):
            raise ServiceError("unavailable", outcome, retry_after_ms=REFUSED_FOR) from None


async def _all(waiting: Sequence[asyncio.Future[None]]) -> None:
    # A join continues even if its caller no longer waits.
    await asyncio.wait(waiting)


def _finish(step: _Step) -> None:
    if step.done is not None and not step.done.done():
        step.done.set_result(None)


def _finish_all(call: _Call) -> None:
    for step in call.steps:
        _finish(step)
