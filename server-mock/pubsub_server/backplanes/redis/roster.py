"""`RedisRoster`: the members of all nodes, kept in Redis."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from pubsub_server.backplanes.redis.availability import available, unavailable
from pubsub_server.backplanes.redis.layout import read_changes, read_members
from pubsub_server.backplanes.redis.lease import EMPTIED_MS, REMOVED, REVOKED_MS
from pubsub_server.backplanes.redis.member_lanes import Call, Lane, Step
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.backplanes.redis.topic_search import matching
from pubsub_server.shared.client_ids import ClientIds
from pubsub_server.shared.roster import Present
from pubsub_server.tasks import Tasks, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from pubsub_server.backplanes.redis.feed import Feeds
    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.lease import Lease
    from pubsub_server.backplanes.redis.link import Argument, Link
    from pubsub_server.shared.roster import Audience

logger = logging.getLogger(__name__)

WAITING_CHANGES: Final = 100_000
"""Maximum changes that wait for Redis, besides the members of the node after a new lease. If there
are more, the node writes all its members again.
"""
READ_TOPICS: Final = 100
MARGIN_MS: Final = 10_000
"""Maximum milliseconds for which a dead connection may be undetected."""

UNKNOWN: Final = "the store cannot be reached, so the members are unknown"


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
        self._tasks = Tasks(self._loop, logger, "roster")
        numbers = count(1)
        self._lanes = [Lane(self._call, lease, numbers, self._tasks) for _ in layout.lanes]
        self._renewed = False
        # Members that were to be written again after the last new lease.
        self._rewritten = 0
        self._listening: set[int] = set()
        # Shards of which changes may be missing, and the Redis time since then, ms.
        self._unsure: dict[int, int] = {}

    def attend(self, audience: Audience) -> None:
        """See `hub.roster.Roster`."""
        self._audience = audience

    def steady(self) -> int:
        """See `hub.roster.Roster`."""
        return self._lease.clock.steady()

    def store_time(self, steady: int) -> tuple[int, int]:
        """See `hub.roster.Roster`."""
        return self._lease.clock.bounds_at(steady)

    async def close(self) -> None:
        """Write pending changes, if Redis is available."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))

    # ------------------------------------------------------------ changes of this node

    def join(self, topic: str, client_id: str, shown: bytes) -> asyncio.Future[None]:
        """See `hub.roster.Roster`."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._add(Step("j", topic, client_id, "", shown, done))
        return done

    def update(self, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """See `hub.roster.Roster`."""
        self._add(Step("u", topic, client_id, id, shown))

    def leave(self, topic: str, client_id: str) -> None:
        """See `hub.roster.Roster`."""
        self._add(Step("l", topic, client_id, "", b""))

    def renew(self, former: Sequence[str]) -> asyncio.Future[None]:
        """See `lease.Tenant`."""
        self._drop()
        self._renewed = True
        names = f",{','.join(former)},"
        last: dict[Lane, Step] = {}
        if self._audience is not None:
            for topic, client_id, shown in self._audience.everybody():
                step = Step("a", topic, client_id, names, shown)
                lane = self._lane(topic)
                lane.add(step)
                last[lane] = step
        self._rewritten = self.waiting
        # A call may be answered long after those of other shards.
        written = [self._wait_for(lane, last.get(lane)) for lane in self._lanes]
        done: asyncio.Future[None] = self._loop.create_future()
        asyncio.gather(*written).add_done_callback(lambda _: done.set_result(None))
        return done

    def _wait_for(self, lane: Lane, last: Step | None) -> asyncio.Future[None]:
        """The end of the writes of a lane after a renewal, of which this step is the last one."""
        written: asyncio.Future[None] = self._loop.create_future()
        # The members of this node are not in the store before that.
        written.add_done_callback(lambda _: self._doubt_lane(lane))
        if last is None:
            written.set_result(None)
        else:
            last.done = written
        return written

    def _doubt_lane(self, lane: Lane) -> None:
        shards = self._layout.lanes[self._lanes.index(lane)]
        self._doubt(self._listening.intersection(shards), self._lease.last_heartbeat - MARGIN_MS)

    def left(self, topic: str, client_id: str, shown: bytes) -> None:
        """See `Lease.start`."""
        if self._audience is not None:
            self._audience.recorded("leave", topic, client_id, "", shown)

    def _add(self, step: Step) -> None:
        if self.waiting >= WAITING_CHANGES + self._rewritten:
            self._drop()
            self._lease.lose("too many changes of presence wait for Redis")
        self._lane(step.topic).add(step)

    @property
    def waiting(self) -> int:
        """Changes that wait for Redis."""
        return sum(map(len, self._lanes))

    def _lane(self, topic: str) -> Lane:
        return self._lanes[self._layout.lane(topic)]

    def _drop(self) -> None:
        for lane in self._lanes:
            lane.drop()

    async def _call(self, call: Call) -> bool:
        """Send a call; whether Redis has answered it."""
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
            return False
        if outcome == b"dead" and node == self._lease.node:
            # The current members are written when the node has a new lease.
            self._drop()
            self._lease.lose(REMOVED)
        # The reports may start work for clients that no longer join.
        call.finish()
        if outcome == b"ok":
            for step, answer in zip(call.steps, answers, strict=True):
                self._answered(step, cast("bytes", answer))
        return True

    def _live(self, step: Step) -> bool:
        return step.op == "l" or self._audience is None or self._audience.connected(step.client_id)

    def _answered(self, step: Step, answer: bytes) -> None:
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
        if self._audience is not None:
            self._audience.interrupted()
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
        failure: Exception | None = None
        try:
            # Redis no longer knows all topics that were left before.
            forgotten = self._lease.clock.now() - EMPTIED_MS
            anything = anything or since < forgotten
            since = 0 if anything else since
            groups = [some for lane in self._layout.lanes if (some := unsure.keys() & lane)]
            results = await run_all(self._changed(shards, since) for shards in groups)
            found: list[str] = []
            for shards, names in zip(groups, results, strict=True):
                if isinstance(names, Exception):
                    failure = names
                    self._doubt(shards, since)
                else:
                    found += names
        except BaseException:
            self._renewed |= anything
            self._doubt(unsure, since)
            raise
        if failure is not None:
            # Topics without members are searched for when all shards answer.
            self._renewed |= anything
            audience.missed(found, anything=False)
            raise failure
        audience.missed(found, anything=anything)

    async def _changed(self, shards: Iterable[int], since: int) -> list[str] | Exception:
        """The topics of these shards with changes, or why a shard does not answer."""
        bases = [self._layout.bases[shard] for shard in shards]
        try:
            return await self._names(self._link.call("changed.lua", [b], [since]) for b in bases)
        except LINK_ERRORS as error:
            return error

    # ------------------------------------------------------------ read

    async def room(self, topics: Iterable[str]) -> None:
        """See `hub.roster.Roster`."""
        lanes = dict.fromkeys(map(self._lane, topics))
        async with available(
            self._patience, "earlier changes of presence still wait for the store"
        ):
            for lane in lanes:
                await lane.room()

    async def wait_joined(
        self, joins: Sequence[asyncio.Future[None]], patterns: Sequence[str]
    ) -> None:
        """See `hub.roster.Roster`."""
        confirmed = self._feed.ready(patterns)
        if waiting := (*joins, *confirmed):
            try:
                async with available(self._patience, UNKNOWN):
                    # A join continues even if its caller no longer waits.
                    await asyncio.wait(waiting)
            finally:
                for each in confirmed:
                    each.cancel()

    async def read(self, topics: Sequence[str]) -> Present:
        """See `hub.roster.Roster`."""
        by_shard: dict[int, list[str]] = {}
        for topic in topics:
            by_shard.setdefault(self._layout.shard(topic), []).append(topic)
        calls = [
            self._try_to_read(shard, names[start : start + READ_TOPICS])
            for shard, names in by_shard.items()
            for start in range(0, len(names), READ_TOPICS)
        ]
        found = [each for each in await run_all(calls) if each is not None]
        if calls and not found:
            raise unavailable(UNKNOWN)
        members = {topic: row for each in found for topic, row in each.members.items()}
        return Present({topic: at for each in found for topic, at in each.at.items()}, members)

    async def matching(self, wanted: Callable[[str], bool], limit: int) -> list[str]:
        """See `hub.roster.Roster`."""
        async with available(self._patience, UNKNOWN):
            return await self._search(wanted, limit)

    async def elsewhere(self, topic: str, client_id: str) -> bool:
        """See `hub.roster.Roster`."""
        async with available(self._patience, UNKNOWN):
            found = await self._link.member(self._layout.members(topic), client_id)
        return found is not None and not found.startswith(f"{self._lease.node} ".encode())

    async def _try_to_read(self, shard: int, topics: Sequence[str]) -> Present | None:
        """The members of topics; None if their shard does not answer."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._read_some(shard, topics)
        except (TimeoutError, *LINK_ERRORS):
            return None

    async def _read_some(self, shard: int, topics: Sequence[str]) -> Present:
        base = self._layout.bases[shard]
        time, *rows = await self._link.call("present.lua", [base], topics)
        node = self._lease.node
        members = {t: read_members(row, node) for t, row in zip(topics, rows, strict=True)}
        return Present(dict.fromkeys(topics, int(time)), members)

    async def _search(self, wanted: Callable[[str], bool], limit: int) -> list[str]:
        shards = range(len(self._layout.bases))
        names = await self._names(self._link.topics(self._layout.attended(s)) for s in shards)
        return await matching(names, wanted, limit)

    async def _names(self, calls: Iterable[Coroutine[Any, Any, list[bytes]]]) -> list[str]:
        return [name.decode() for names in await run_all(calls) for name in names]
