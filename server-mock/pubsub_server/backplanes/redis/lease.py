"""The lease of a node: its members and counts are valid while it sends heartbeats.

If no heartbeat arrives within the timeout, another node revokes the lease: the members leave, and
the scripts reject further writes under that id. The node then takes a lease with a new id, writes
its members and counts again, and revokes its former lease itself, so that revoked data cannot
return.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pubsub_server.backplanes.redis.failure_log import LOSS_EVERY, ClockLog, FailureLog
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.tasks import Tasks, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Link
    from pubsub_server.backplanes.redis.redis_clock import RedisClock

logger = logging.getLogger(__name__)

AT_ONCE: Final = 500
EMPTIED_MS: Final = 3_600_000
"""Milliseconds for which a topic is remembered after its last member has left."""
REVOKED_MS: Final = 86_400_000
"""Milliseconds for which a revoked id is remembered, and the number of the last call of a node, so
that late writes are rejected.
"""
SET_BACK_MS: Final = 1_000
"""Milliseconds by which the clock of Redis may go back without consequences."""
REMOVED: Final = "another node has removed this node, because no heartbeat of it arrived"

_T = TypeVar("_T")


class Tenant(Protocol):
    """A part of the node that writes under its lease."""

    def renew(self, former: Sequence[str]) -> asyncio.Future[None]:
        """The node has a new lease: write everything again, and return when it is written.

        Args:
            former: Ids of its former leases, under which some data may be stored.
        """
        ...


class Lease:
    """Keeps the lease of this node, and revokes those of dead nodes.

    Args:
        link: To Redis.
        layout: Names of keys.
        secret: Seals client ids; the same on all nodes.
        every: Seconds between two heartbeats.
        timeout: Seconds without a heartbeat after which a lease is revoked.
        clock: The time of Redis, which each heartbeat reads.

    Attributes:
        node: Id of the lease, and the name of the node.
        up: Whether the last heartbeat was written, or the first one has not failed.
        last_heartbeat: Redis time of the last written heartbeat, ms; 0 before the first.
        clock: As given.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        secret: str,
        every: float,
        timeout: float,
        clock: RedisClock,
    ) -> None:
        self._link = link
        self._layout = layout
        self._secret = secret
        self._every = every
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._tenants: Sequence[Tenant] = ()
        self._left: Callable[[str, str, bytes], None] = lambda topic, client_id, shown: None
        # Why the node needs a new lease; empty if it does not.
        self._why = ""
        self._lost = asyncio.Event()
        self._closing = False
        self._since: float | None = None
        self._tasks = Tasks(self._loop, logger, "heartbeat")
        self._failures = FailureLog(logger)
        self._left_failures = FailureLog(logger)
        self._losses = FailureLog(logger, every=LOSS_EVERY)
        self._started = False
        self._revoking: asyncio.Task[None] | None = None
        # Ids of former leases, and those of them that are no longer used for writes.
        self._former: list[str] = []
        self._released: list[str] = []
        # Ids that have data in a shard but no heartbeat, and when this node found them.
        self._unknown: dict[str, float] = {}
        self.node = _name()
        self.up = True
        self.last_heartbeat = 0
        self.clock = clock
        self._clocks = ClockLog(logger, clock)

    def start(self, *tenants: Tenant, left: Callable[[str, str, bytes], None]) -> None:
        """Start, unless it has started.

        Args:
            tenants: The parts that write under the lease.
            left: Called with topic, client id and presence data of each member of a node whose
                lease was revoked.
        """
        if self._started:
            return
        self._started = True
        self._tenants = tenants
        self._left = left
        self._tasks.keep(self._run)

    def lose(self, why: str) -> None:
        """Take a new lease soon: this one was revoked, or some of its data was lost.

        Args:
            why: The reason, for the log.
        """
        self._why = self._why or why
        self._lost.set()

    async def close(self, grace: float) -> None:
        """Stop. Other nodes revoke the lease after this many seconds."""
        # A cancelled call may end with an error of Redis.
        self._closing = True
        await self._tasks.stop()
        if self.last_heartbeat:
            with contextlib.suppress(*LINK_ERRORS):
                now = await self._link.time(self._layout.nodes)
                await self._link.add_name(self._layout.left, self.node, now)
                at = now - round((self._timeout - grace) * 1000)
                await self._link.update_name(self._layout.nodes, self.node, at)

    async def _run(self) -> None:
        while True:
            try:
                await self._beat()
            except LINK_ERRORS as error:
                if not self._closing:
                    self._failures.failed("cannot write the heartbeat of this node", error)
                self.up = False
            except Exception:
                self.up = False
                raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._lost.wait()

    async def _beat(self) -> None:
        if self._lost.is_set():
            await self._replace()
        silent = await self._renew_lease("" if self._since is not None else "new")
        if silent is None:
            await self._replace()
            silent = []
        self.up = True
        self._failures.succeeded()
        # After an outage, every node gets as much time to return as this one had.
        waited = self._loop.time() - (self._since or 0)
        names = list(self._released)
        if waited > self._timeout:
            names += silent
        if self._revoking is None or self._revoking.done():
            self._revoking = self._tasks.spawn(self._revoke(names))

    async def _renew_lease(self, first: str) -> list[str] | None:
        timeout = round(self._timeout * 1000)
        sent = self.clock.steady()
        answer = await self._link.heartbeat(
            (self._layout.nodes, self._layout.revoked), [self.node, timeout, first]
        )
        outcome, now, *silent = (each.decode() for each in answer)
        back = self.clock.read(int(now), sent)
        self._clocks.compare()
        if back > SET_BACK_MS:
            # Members are written again, with the new time. At their former time, every connection
            # at another node would count as older, until the clock has reached that time again.
            self.lose(f"the clock of Redis was set back by {back / 1000:.0f} s")
        if outcome != "ok":
            self._why = {
                "late": f"no heartbeat of this node has reached Redis for {self._timeout:g} s",
                "lost": "Redis does not know this node, so it has probably lost data",
            }.get(outcome, REMOVED)
            return None
        if first:
            self._since = self._loop.time()
        self.last_heartbeat = int(now)
        if first:
            logger.info("the id of this node is %s", self.node)
            await self._initialize()
        return [each for each in silent if each != self.node]

    async def _initialize(self) -> None:
        # The first node that returns initializes a flushed store. Nodes that start later use its
        # secret, so clients can resume on them.
        layout = self._layout
        await self._link.set_default(layout.secret, self._secret)
        found = await self._link.set_default(layout.mark_key, layout.mark)
        if found != layout.mark:
            logger.error(
                "another node has set up this Redis with version and shards %s, and this node uses"
                " %s, so they do not exchange messages. Set the same redis_shards on every node,"
                " and restart this one",
                found,
                layout.mark,
            )

    async def _replace(self) -> None:
        self._former.append(self.node)
        self.node = node = _name()
        self._since = None
        self._lost.clear()
        self._losses.note(f"{self._why}; registering this node again")
        self._tasks.spawn(self._log_evictions())
        self._why = ""
        former = tuple(self._former)
        written = asyncio.gather(*(tenant.renew(former) for tenant in self._tenants))
        written.add_done_callback(lambda _: self._written(node, former))
        await self._renew_lease("new")

    async def _log_evictions(self) -> None:
        """Name a likely cause: Redis evicts keys."""
        if names := await self._link.eviction_policies(self._layout.bases, evicted=True):
            self._losses.note(
                "Redis has evicted keys since it started, and may have evicted members, counts"
                f" and history (maxmemory-policy {names}); set noeviction, and enough memory"
            )

    def _written(self, node: str, former: Sequence[str]) -> None:
        if node == self.node and not self._lost.is_set():
            self._released = list(former)

    async def _revoke(self, names: Sequence[str]) -> None:
        try:
            await _all((self._revoke_all(names), self._revoke_without_heartbeat()))
        except LINK_ERRORS as error:
            self._left_failures.failed("cannot remove what nodes have left in Redis", error)
        else:
            self._left_failures.succeeded()

    async def _revoke_all(self, names: Iterable[str]) -> None:
        await _all(map(self._revoke_one, names))

    async def _revoke_without_heartbeat(self) -> None:
        """Revoke ids that have had data for longer than the timeout, and never had a heartbeat.

        A store that lost its data has no index of nodes. Without this search, the members of a node
        that writes there and dies before its next heartbeat would stay forever.
        """
        owners = self._layout.owners
        parts = [[owners[shard] for shard in lane] for lane in self._layout.lanes]
        found = await _outcomes(map(self._link.names_of, parts))
        known = await self._link.names_of([self._layout.nodes])
        failures = [each for each in found if isinstance(each, Exception)]
        # A shard that does not answer may still have the ids that were found there.
        unknown = set(self._unknown if failures else ())
        unknown.update(*(each for each in found if not isinstance(each, Exception)))
        unknown -= known | {self.node, *self._former}
        now = self._loop.time()
        self._unknown = {name: self._unknown.get(name, now) for name in unknown}
        expired = [name for name, since in self._unknown.items() if now - since > self._timeout]
        await self._revoke_all(expired)
        for failure in failures:
            raise failure

    async def _revoke_one(self, name: str) -> None:
        works = (self._revoke_in(name, base) for base in self._layout.bases)
        gone = sum(await _all(works) if self._link.cluster else [await each for each in works])
        known = await self._link.remove_name(self._layout.nodes, name)
        # Otherwise, another node has already revoked and logged it.
        if known or (gone and name in self._unknown):
            await self._log_removal(name, gone)
        for names_of_own in (self._released, self._former):
            if name in names_of_own:
                names_of_own.remove(name)

    async def _log_removal(self, name: str, gone: int) -> None:
        if await self._link.remove_name(self._layout.left, name):
            logger.info("node %s left with %d members", name, gone)
        elif name in self._former:
            logger.info("removed the former id %s of this node", name)
        else:
            seconds = self._timeout
            logger.warning(
                "node %s sent no heartbeat for %g s; removed it with %d members",
                *(name, seconds, gone),
            )

    async def _revoke_in(self, name: str, base: str) -> int:
        """Revoke the lease of a node in one shard; the number of members that left."""
        gone, left = 0, 1
        while left:
            left, *members = await self._link.call(
                "revoke.lua", [base], [name, AT_ONCE, EMPTIED_MS, REVOKED_MS]
            )
            for at in range(0, len(members), 3):
                topic, client_id, shown = members[at : at + 3]
                gone += 1
                self._left(topic.decode(), client_id.decode(), shown)
        return gone


async def _all(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results; the first failure is raised when all of them have ended."""
    found: list[_T] = []
    for each in await _outcomes(works):
        if isinstance(each, Exception):
            raise each
        found.append(each)
    return found


async def _outcomes(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T | Exception]:
    """The results, or why Redis gives none: no server must delay what others do."""
    return await run_all(map(_outcome, works))


async def _outcome(work: Coroutine[Any, Any, _T]) -> _T | Exception:
    try:
        return await work
    except LINK_ERRORS as error:
        return error


def _name() -> str:
    return secrets.token_hex(8)
