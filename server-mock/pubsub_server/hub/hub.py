"""The hub: connects clients, access rules, logs and presence, without sockets."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from time import perf_counter
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.errors import CODES
from pubsub_server.errors import ServiceError
from pubsub_server.hub.admission import Admission
from pubsub_server.hub.attendance import Attendance
from pubsub_server.hub.core import Core
from pubsub_server.hub.delivery import Delivery
from pubsub_server.hub.draining import end_all
from pubsub_server.hub.echoes import Echoes
from pubsub_server.hub.floors import Floors
from pubsub_server.hub.gauges import gauges
from pubsub_server.hub.inbound import Inbound
from pubsub_server.hub.interests import Interests
from pubsub_server.hub.open_connections import OpenConnections
from pubsub_server.hub.positions import Positions
from pubsub_server.hub.presence import Presence
from pubsub_server.hub.publish_frames import PublishFrames
from pubsub_server.hub.publishing import Publishing
from pubsub_server.hub.queries import Queries
from pubsub_server.hub.routing import NOWHERE, Router
from pubsub_server.hub.shared_attendance import SharedAttendance
from pubsub_server.hub.subscriptions import Subscriptions
from pubsub_server.interfaces import AuthOk, Member, PositionList, Sink, Stats
from pubsub_server.shared.answers import Answer
from pubsub_server.shared.client_ids import ClientIds
from pubsub_server.shared.codec import error_frame
from pubsub_server.shared.connection import AWAITING, PAUSED, Connection
from pubsub_server.shared.turns import Turns
from pubsub_server.shared.wall_clock import now_ms
from pubsub_server.shared.wheel import Wheel
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from pubsub_server.backplane import Backplane, Entry, Page, Published, TopicReport
    from pubsub_server.instruments import Instrument
    from pubsub_server.interfaces import (
        Audit,
        AuditAction,
        Authenticator,
        Caller,
        ConnectionLimiter,
        ConnectionReport,
        Identity,
        Inspector,
        Policy,
        RateLimiter,
        Tracing,
        Webhooks,
    )
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.encoder import Encoder
    from pubsub_server.shared.requests import (
        Draft,
        PositionsRequest,
        SubscribeRequest,
        UnsubscribeRequest,
    )
    from pubsub_server.shared.roster import Roster

logger = logging.getLogger(__name__)

EXPIRE_EVERY: Final = 5.0
BATCH_BYTES_PER_SECOND: Final = 15e6
"""Bytes of batches of small messages that are handled in a second."""
FEW: Final = 50
"""Maximum subscriptions of a connection that are removed as soon as it ends."""
AUTH_ERRORS: Final = frozenset(
    {"auth_timeout", "token_expired", "token_invalid", "connection_limit", "unauthenticated"}
)
REPLACED: Final = 4409
NOT_RECEIVING: Final = "this node receives no messages from Redis"
CLEAN: Final = frozenset({1000, 1001, 4408})
"""Close codes of clients that will not return: their members leave presence immediately."""


class Hub:
    """See `service.Service`, which documents each method.

    Create and use it inside a running event loop.

    Args:
        settings: Limits and deadlines.
        authenticator: Checks tokens and API keys.
        policy: The access rules.
        rates: The publish rates.
        limiter: The limits of connections.
        backplane: Keeps the logs and connects the nodes.
        roster: Presence of all nodes, if there are several.
        audit: Records of sensitive topics.
        webhooks: Receive the events of the hub.
        tracing: Traces messages that carry a trace context.
        inspectors: Check publications before they are accepted.
        clock: Monotonic seconds; the loop's by default.
        wall: Unix ms for messages, which never decreases; the backplane uses the same clock.
        today: Unix ms of the machine, which may decrease.

    Attributes:
        refusing: Reject new connections.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        authenticator: Authenticator,
        policy: Policy,
        rates: RateLimiter,
        limiter: ConnectionLimiter,
        backplane: Backplane,
        roster: Roster | None = None,
        audit: Audit | None = None,
        webhooks: Webhooks | None = None,
        tracing: Tracing | None = None,
        inspectors: Sequence[Inspector] = (),
        clock: Callable[[], float] | None = None,
        wall: Callable[[], int],
        today: Callable[[], int] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._tasks = Tasks(loop, logger, "hub")
        self._open: set[Connection] = set()
        self._received = True
        self._draining = False
        self.refusing = False
        clock_ = clock or loop.time
        stats = Stats()
        interests = Interests(
            lambda pattern: core.backplane.join(pattern),
            lambda pattern: core.backplane.leave(pattern),
        )
        router = Router(
            lambda connection, topic: core.may_read(connection, topic),
            interests.join,
            interests.leave,
        )
        # uvloop reads its own time only once per turn.
        turns = Turns(loop, clock or perf_counter)
        delivery = Delivery(loop.call_soon, settings.send_queue_bytes, self._slow, stats, turns)
        core = Core(
            settings=settings,
            authenticator=authenticator,
            policy=policy,
            inspectors=inspectors,
            rates=rates,
            limiter=limiter,
            audit=audit,
            webhooks=webhooks,
            tracing=tracing,
            backplane=backplane,
            delivery=delivery,
            router=router,
            presence=Presence(settings.presence_max_members),
            echoes=Echoes(router),
            floors=Floors(settings.send_queue_bytes, delivery.give_up),
            roster=roster,
            ids=ClientIds(secrets.token_hex(32)) if roster is None else roster.ids,
            wheel=Wheel(clock_, loop.call_at if clock is None else None),
            stats=stats,
            turns=turns,
            connections={},
            clock=clock_,
            wall=wall,
            today=today or now_ms,
        )
        self.core = core
        self.attendance = (
            Attendance(core)
            if roster is None
            else SharedAttendance(core, roster, self.end, self._tasks.spawn)
        )
        self.subscriptions = Subscriptions(core, self.attendance)
        self.admission = Admission(core, self.end, self.subscriptions.drop)
        self.publishing = Publishing(core, self.attendance)
        self._publishes = PublishFrames(core, self.publishing)
        self._positions = Positions(core, interests)
        self._queries = Queries(core, self.attendance)
        self._connections = OpenConnections(core, self.end)
        self.inbound = Inbound(
            core,
            self.admission,
            self.subscriptions,
            self._publishes,
            self.attendance,
            self.end,
            self._tasks.spawn,
        )
        # Each frame takes this path, so it has no method between.
        self.receive: Final = self.inbound.receive
        core.backplane.start(self.deliver, self._lacks)
        core.backplane.watch(self._receiving_changed)
        core.wheel.add(self, clock_() + EXPIRE_EVERY)

    @property
    def stats(self) -> Stats:
        """Counters."""
        return self.core.stats

    def due(self, now: float) -> float:
        """See `wheel.Waiting`: remove expired messages periodically."""
        self.core.backplane.logs.expire()
        self._positions.expire()
        return now + EXPIRE_EVERY

    # ------------------------------------------------------------ connections

    @property
    def wheel(self) -> Wheel:
        """See `service.Service`."""
        return self.core.wheel

    @property
    def clock(self) -> Callable[[], float]:
        """See `service.Service`."""
        return self.core.clock

    @property
    def node(self) -> str | None:
        """See `service.Service`."""
        return self.core.backplane.node

    def settled(self) -> int:
        """See `service.Service`."""
        return self.core.backplane.settled()

    def open(self, sink: Sink, encoder: Encoder) -> Connection:
        """See `service.Service`."""
        if self._draining:
            raise ServiceError("going_away", "the server is shutting down")
        if self.refusing:
            raise ServiceError("unavailable", "the server accepts no new connections now")
        if not self.receiving:
            raise ServiceError("unavailable", NOT_RECEIVING)
        connection = Connection(sink, encoder, self.admission, self.core.clock())
        self._open.add(connection)
        stats = self.core.stats
        stats.connections[encoder.name] = stats.connections.get(encoder.name, 0) + 1
        stats.connections_total += 1
        self.admission.expect(connection)
        return connection

    def touch(self, connection: Connection) -> None:
        """See `service.Service`."""
        connection.last_received = self.core.clock()

    def pause(self, connection: Connection) -> None:
        """See `service.Service`."""
        self.core.delivery.stall(connection, PAUSED)

    def resume(self, connection: Connection) -> None:
        """See `service.Service`."""
        # The client has read, so it is running, even if nothing was received from it.
        connection.last_received = self.core.clock()
        self.core.delivery.release(connection, PAUSED)

    def mute(self, connection: Connection) -> None:
        """See `service.Service`."""
        core = self.core
        core.delivery.close_run()
        core.delivery.forget(connection)
        core.floors.forget(connection)
        patterns, connection.patterns = connection.patterns, ()
        core.stats.subscriptions -= len(patterns)
        # Until its turn, the connection is in routes, but receives nothing.
        discard = functools.partial(self._discard, connection, patterns)
        if len(patterns) > FEW:
            core.turns.do(discard)
        else:
            discard()

    def _discard(self, connection: Connection, patterns: Iterable[str]) -> None:
        core = self.core
        core.delivery.close_run()
        for pattern in patterns:
            core.router.discard(connection, pattern)

    def closed(self, connection: Connection, code: int | None = None) -> None:
        """See `service.Service`."""
        if connection.closed:
            return
        core = self.core
        self.mute(connection)
        connection.closed = True
        core.echoes.forget(connection)
        if not connection.busy:
            connection.waiting = None
        self._open.discard(connection)
        core.stats.connections[connection.encoder.name] -= 1
        identity = connection.identity
        if identity is None:
            return
        core.stats.authenticated -= 1
        core.limiter.release(identity)
        if not connection.busy:
            core.rates.forget(identity, connection.client_id)
        if core.connections.get(connection.client_id) is connection:
            del core.connections[connection.client_id]
            if self._draining:
                return
            grace = core.settings.presence_grace / 1000
            if code in CLEAN or not grace:
                self.attendance.depart(connection.client_id)
            else:
                self.attendance.lose(connection, grace)

    def end(self, connection: Connection, error: ServiceError, ref: str | None = None) -> None:
        """End a connection: send the error, then close with its code.

        Args:
            connection: The connection.
            error: The reason.
            ref: The `ref` of the frame that this answers.
        """
        if connection.closed:
            return
        core = self.core
        core.count(error)
        record = CODES.get(error.code)
        code = REPLACED if record is None else record.close or 4401
        entering = connection.identity is None and connection.authenticating
        about_auth = entering or error.code in AUTH_ERRORS
        kind = "auth.error" if about_auth else "error"
        if error.code == "slow_consumer":
            core.stats.slow_consumers += 1
        core.delivery.close_run()
        if connection.stalled & AWAITING and not connection.encoder.resubscribes:
            # The ids of events that wait would move Last-Event-ID past messages that were not
            # replayed.
            core.delivery.drop(connection)
        core.send(connection, error_frame(error, ref, type=kind))
        core.delivery.finish(connection)
        sink = connection.sink
        # After `going_away`, the client resumes on another node: keep its members for the grace.
        self.closed(connection, None if error.code == "going_away" else code)
        connection.waiting = None
        sink.close(code, error.code)

    def _slow(self, connection: Connection) -> None:
        self.end(
            connection,
            ServiceError(
                "slow_consumer", "the client reads too slowly; its queue on the server is full"
            ),
        )

    # ------------------------------------------------------------ operations

    async def identify(self, token: str, caller: Caller | None = None) -> Identity:
        """See `service.Service`."""
        return await self.admission.identify(token, caller)

    def session(self, identity: Identity, client_id: str | None = None) -> AuthOk:
        """See `service.Service`."""
        return self.admission.answer(identity, self.admission.client_id(identity, client_id))

    async def authenticate(
        self, connection: Connection, token: str, *, client_id: str | None = None
    ) -> AuthOk:
        """See `service.Service`."""
        return await self.admission.admit(connection, token, client_id)

    async def enter(self, connection: Connection, identity: Identity) -> None:
        """See `service.Service`."""
        await self.admission.enter(connection, identity)

    def subscribe(self, connection: Connection, request: SubscribeRequest) -> None:
        """See `service.Service`."""
        self.inbound.subscribe(connection, request)

    def unsubscribe(self, connection: Connection, request: UnsubscribeRequest) -> None:
        """See `service.Service`."""
        self.subscriptions.unsubscribe(connection, request)

    async def publish(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        *,
        connection: Connection | None = None,
        batch: bool = False,
    ) -> list[Published | ServiceError]:
        """See `service.Service`."""
        if connection is None:
            return self._ended(drafts) or await self.publishing.request(
                identity, drafts, batch=batch
            )
        answer: Answer[list[Published | ServiceError]] = Answer()
        self.put(identity, drafts, connection, answer)
        return await answer

    def put(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        connection: Connection,
        done: Callable[[list[Published | ServiceError]], None],
    ) -> None:
        """See `service.Service`."""
        ended = self._ended(drafts)
        if ended:
            done(ended)
        else:
            self.publishing.publish(identity, drafts, connection, done)

    def _ended(self, drafts: Sequence[Draft]) -> list[Published | ServiceError]:
        """Rejections if the node is stopping and its listeners would miss these, else empty."""
        if self._draining and not self.core.backplane.lasting:
            return [ServiceError("going_away", "the server is shutting down") for _ in drafts]
        return []

    def send(self, connection: Connection, data: bytes) -> None:
        """See `service.Service`."""
        self.core.delivery.close_run()
        self.core.delivery.send(connection, data)

    async def turn(self, size: int) -> None:
        """See `service.Service`."""
        if not self.core.turns.free:
            await self.core.turns.wait(size / BATCH_BYTES_PER_SECOND)

    def budget(self, connection: Connection, count: int) -> tuple[int, int]:
        """See `service.Service`."""
        identity = connection.identity
        if identity is None:
            return 0, 1000
        return self.core.rates.take(identity, connection.client_id, count)

    def note(
        self,
        action: AuditAction,
        connection: Connection,
        topic: str,
        refused: str | None = None,
    ) -> None:
        """See `service.Service`."""
        if refused is not None:
            self.core.count(ServiceError(refused, "", topic=topic))
        if connection.identity is not None:
            self.core.note(action, connection.identity, topic, connection, refused=refused)

    def reach(self, topic: str) -> int:
        """See `service.Service`."""
        return len(self.core.router.route(topic))

    def deliver(self, entry: Entry) -> None:
        """Send a message, which has its position, to the subscribers."""
        core = self.core
        self._positions.moved(entry)
        route = core.router.route(entry.topic)
        if route is NOWHERE:
            return
        but = core.echoes.publisher(entry.id)
        if not core.floors.idle:
            route = core.floors.above(route, entry, but)
        if core.tracing is None:
            core.delivery.message(route, entry, but)
        else:
            core.tracing.delivering(
                entry, len(route), functools.partial(core.delivery.message, route, entry, but)
            )

    def _lacks(self, topic: str) -> None:
        """Handle missing messages of a topic: close the connections that cannot detect the gap."""
        for connection in list(self.core.router.route(topic)):
            if topic not in connection.patterns:
                detail = f"this node missed messages of {topic}; reconnect to replay them"
                self.end(connection, ServiceError("going_away", detail, topic=topic))

    async def history(
        self,
        identity: Identity,
        topic: str,
        *,
        since: int | None = None,
        before: str | int | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Page:
        """See `service.Service`."""
        return await self._queries.history(
            identity, topic, since=since, before=before, after=after, limit=limit
        )

    async def positions(
        self, identity: Identity, wanted: PositionsRequest, gone: asyncio.Future[None]
    ) -> PositionList:
        """See `service.Service`."""
        return await self._positions.answer(identity, wanted, gone)

    async def presence(self, identity: Identity, topic: str) -> list[Member]:
        """See `service.Service`."""
        return await self._queries.presence(identity, topic)

    async def topics(
        self, identity: Identity, *, prefix: str = "", limit: int = 100
    ) -> tuple[list[TopicReport], bool]:
        """See `service.Service`."""
        return await self._queries.topics(identity, prefix=prefix, limit=limit)

    async def connections(
        self,
        identity: Identity,
        *,
        user: str | None = None,
        topic: str | None = None,
        limit: int = 100,
    ) -> tuple[list[ConnectionReport], int]:
        """See `service.Service`."""
        return await self._connections.reports(identity, user=user, topic=topic, limit=limit)

    def cut(self, identity: Identity, client_id: str, caller: Caller | None = None) -> None:
        """See `service.Service`."""
        self._connections.cut(identity, client_id, caller)

    def instruments(self) -> Sequence[Instrument]:
        """Measurements of the hub and of its backplane, in addition to the counters."""
        core = self.core
        return (*gauges(core, self._open, self._positions), *core.backplane.instruments())

    # ------------------------------------------------------------ receiving

    @property
    def receiving(self) -> bool:
        """Whether published messages reach the clients of this node."""
        return self.core.backplane.receiving

    def _receiving_changed(self) -> None:
        received, self._received = self._received, self.receiving
        if self._received and not received:
            logger.warning("this node receives published messages again, and accepts clients")
        elif received and not self._received:
            logger.error("%s; it is not ready, and closes its connections", NOT_RECEIVING)
        if not self._draining:
            unserved = [each for each in self._open if not self._serves(each)]
            if unserved:
                self._tasks.spawn(self._let_go(unserved))

    def _serves(self, connection: Connection) -> bool:
        """Whether messages of any of its subscriptions reach this node."""
        patterns = connection.patterns
        return self._received and (not patterns or any(map(self.core.backplane.receives, patterns)))

    async def _let_go(self, unserved: Collection[Connection]) -> None:
        settings = self.core.settings
        await end_all(
            unserved,
            self.end,
            self._publishes.unanswered,
            seconds=settings.drain_timeout / 1000,
            spread=settings.spread / 1000,
            hurry=asyncio.Event(),
            why=NOT_RECEIVING,
        )

    # ------------------------------------------------------------ end

    async def conclude(self, barrier: Callable[[], Awaitable[None]]) -> None:
        """Call it before `drain` if all nodes stop together and their logs are lost.

        Afterwards no node acknowledges a publish, and all acknowledged messages are delivered.

        Args:
            barrier: Called when this node accepts no more publishes; returns when no node does.
        """
        backplane = self.core.backplane
        backplane.lasting = False
        self._draining = True
        self._stop_reading()
        await backplane.finish_writing()
        await barrier()
        await backplane.deliver_rest()

    async def drain(
        self, seconds: float, spread: float = 0.0, hurry: asyncio.Event | None = None
    ) -> None:
        """See `service.Service`."""
        self._draining = True
        self._positions.end()
        if not self.core.backplane.lasting:
            self._stop_reading()
        last = self._loop.time() + seconds
        await end_all(
            self._open,
            self.end,
            self._publishes.unanswered,
            seconds=seconds,
            spread=spread,
            hurry=hurry or asyncio.Event(),
        )
        await self._tasks.wait(max(0.0, last - self._loop.time()))
        self._tasks.cancel()

    def _stop_reading(self) -> None:
        """Read no further frames, because subscribers would miss what they publish."""
        self.inbound.stopped = True
        for connection in self._open:
            connection.sink.hold(True)

    async def close(self) -> None:
        """Stop the hub, after `drain`."""
        self.core.wheel.stop()
        await self.core.backplane.close()
