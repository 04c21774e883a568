"""The hub: joins connections, rules, logs and presence; knows no socket and no node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.topics import validate_topic
from pubsub_server.admission import Admission
from pubsub_server.attendance import Attendance
from pubsub_server.backplanes.memory import MemoryBackplane
from pubsub_server.codec import (
    AuthRequest,
    Draft,
    PingRequest,
    PresenceRequest,
    PublishRequest,
    Request,
    SubscribeRequest,
    UnsubscribeRequest,
    decode_object,
    error_frame,
    error_info,
    parse,
    ref_of,
)
from pubsub_server.connection import PAUSED, Connection
from pubsub_server.core import Core
from pubsub_server.delivery import Delivery
from pubsub_server.errors import ServiceError
from pubsub_server.history import MemoryStore
from pubsub_server.interfaces import (
    AuthOk,
    Member,
    Page,
    Published,
    Sink,
    Stats,
    TopicReport,
    WireForm,
)
from pubsub_server.presence import Presence
from pubsub_server.publishing import Publishing
from pubsub_server.routing import Router
from pubsub_server.subscriptions import Subscriptions, not_yet
from pubsub_server.wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pubsub_server.config import Settings
    from pubsub_server.interfaces import (
        Audit,
        Authenticator,
        Backplane,
        ConnectionLimiter,
        Entry,
        Identity,
        Policy,
        RateLimiter,
        Webhooks,
    )

logger = logging.getLogger(__name__)

BAD_FRAMES: Final = 20
"""Unreadable frames in a row that end a connection."""
WAITING_FRAMES: Final = 256
"""Inbound frames kept while the first ``auth`` is being checked."""
EXPIRE_EVERY: Final = 5.0
AUTH_ERRORS: Final = frozenset(
    {"auth_timeout", "token_expired", "token_invalid", "connection_limit", "unauthenticated"}
)
REPLACED: Final = 4409
CLEAN: Final = frozenset({1000, 1001, 4408})
"""Close codes after which a client is not expected back: presence leaves at once."""


def _wall() -> Callable[[], int]:
    last = 0

    def wall() -> int:
        nonlocal last
        last = max(last, time.time_ns() // 1_000_000)
        return last

    return wall


class Hub:
    """See `interfaces.Service`, which says what each method does.

    Made and used inside a running event loop.

    Args:
        settings: Limits and deadlines.
        authenticator: Who.
        policy: What they may.
        rates: How often they may publish.
        limiter: How often they may connect.
        backplane: Default: everything in this process.
        audit: Records of sensitive topics.
        webhooks: Told of what happens.
        clock: Monotonic seconds; the loop's by default.
        wall: Unix ms, never going back.

    Attributes:
        refusing: Turn new connections away.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        authenticator: Authenticator,
        policy: Policy,
        rates: RateLimiter,
        limiter: ConnectionLimiter,
        backplane: Backplane | None = None,
        audit: Audit | None = None,
        webhooks: Webhooks | None = None,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[Connection] = set()
        self._draining = False
        self.refusing = False
        wall = wall or _wall()
        clock_ = clock or loop.time
        stats = Stats()
        core = Core(
            settings=settings,
            authenticator=authenticator,
            policy=policy,
            rates=rates,
            limiter=limiter,
            audit=audit,
            webhooks=webhooks,
            backplane=backplane or _memory(settings, wall),
            delivery=Delivery(loop.call_soon, settings.send_queue_bytes, self._slow, stats),
            router=Router(lambda connection, topic: core.may_read(connection, topic)),
            presence=Presence(settings.presence_max_members),
            wheel=Wheel(clock_, loop.call_at if clock is None else None),
            stats=stats,
            connections={},
            clock=clock_,
            wall=wall,
        )
        self.core = core
        self.attendance = Attendance(core)
        self.subscriptions = Subscriptions(core, self.attendance, self._spawn)
        self.admission = Admission(core, self.end, self.subscriptions.drop)
        self.subscriptions.admission = self.admission
        self.publishing = Publishing(core, self.attendance)
        core.backplane.start(self.deliver)
        core.wheel.add(self, clock_() + EXPIRE_EVERY)

    @property
    def stats(self) -> Stats:
        """Counters."""
        return self.core.stats

    def due(self, now: float) -> float:
        """See `wheel.Waiting`: old messages go, again and again."""
        self.core.backplane.expire()
        return now + EXPIRE_EVERY

    # ------------------------------------------------------------ connections

    def open(self, sink: Sink, form: WireForm) -> Connection:
        """See `interfaces.Service`."""
        if self._draining:
            raise ServiceError("going_away", "the server is shutting down")
        if self.refusing:
            raise ServiceError("unavailable", "no new connections are taken at the moment")
        connection = Connection(sink, form, self.admission, self.core.clock())
        self._open.add(connection)
        stats = self.core.stats
        stats.connections[form] += 1
        stats.connections_total += 1
        self.admission.expect(connection)
        return connection

    def heard(self, connection: Connection) -> None:
        """See `interfaces.Service`."""
        connection.last_heard = self.core.clock()

    def pause(self, connection: Connection) -> None:
        """See `interfaces.Service`."""
        self.core.delivery.stall(connection, PAUSED)

    def resume(self, connection: Connection) -> None:
        """See `interfaces.Service`."""
        self.core.delivery.release(connection, PAUSED)

    def closed(self, connection: Connection, code: int | None = None) -> None:
        """See `interfaces.Service`."""
        if connection.closed:
            return
        core = self.core
        core.delivery.settle()
        connection.closed = True
        core.delivery.forget(connection)
        connection.waiting = None
        self._open.discard(connection)
        core.stats.connections[connection.form] -= 1
        for pattern in connection.patterns:
            core.router.discard(connection, pattern)
        core.stats.subscriptions -= len(connection.patterns)
        connection.patterns = ()
        identity = connection.identity
        if identity is None:
            return
        core.stats.authenticated -= 1
        core.limiter.release(identity)
        core.rates.forget(identity, connection.client_id)
        if core.connections.get(connection.client_id) is connection:
            del core.connections[connection.client_id]
            grace = core.settings.presence_grace / 1000
            if code in CLEAN or not grace:
                self.attendance.depart(connection.client_id)
            else:
                self.attendance.lose(connection, grace)

    def end(self, connection: Connection, error: ServiceError) -> None:
        """End a connection: say why, close with the code of the error."""
        if connection.closed:
            return
        core = self.core
        core.count(error)
        record = CODES.get(error.code)
        code = REPLACED if record is None else record.close or 4401
        socket = connection.form is WireForm.SOCKET
        kind = "auth.error" if socket and error.code in AUTH_ERRORS else "error"
        if error.code == "slow_consumer":
            core.stats.slow_consumers += 1
            core.delivery.drop(connection)
        core.delivery.settle()
        core.send(connection, error_frame(error, type=kind))
        core.delivery.finish(connection)
        sink = connection.sink
        self.closed(connection, code)
        sink.close(code, error.code)

    def _slow(self, connection: Connection) -> None:
        self.end(
            connection,
            ServiceError("slow_consumer", "the client reads too slowly; its queue here is full"),
        )

    # ------------------------------------------------------------ frames

    def receive(self, connection: Connection, data: str | bytes) -> None:
        """See `interfaces.Service`."""
        if connection.closed:
            return
        core = self.core
        core.stats.frames_in += 1
        if connection.authenticating and connection.identity is None:
            waiting = connection.waiting
            if waiting is None:
                waiting = connection.waiting = []
            if len(waiting) < WAITING_FRAMES:
                waiting.append(data)
            else:
                core.refuse(connection, not_yet())
            return
        ref: str | None = None
        try:
            frame = parse(data)
            ref = ref_of(frame)
            request = decode_object(frame, max_payload=core.settings.max_payload)
        except ServiceError as error:
            connection.bad_frames += error.code == "invalid_frame"
            if connection.bad_frames >= BAD_FRAMES:
                self.end(connection, error)
            elif connection.identity is None and error.code != "invalid_frame":
                core.refuse(connection, not_yet(), ref)
            else:
                core.refuse(connection, error, ref)
            return
        except Exception:
            logger.exception("a frame could not be decoded")
            core.refuse(connection, ServiceError("internal", "the frame could not be read"), ref)
            return
        connection.bad_frames = 0
        if connection.identity is None and not isinstance(request, AuthRequest):
            core.refuse(connection, not_yet(), request.ref)
            return
        try:
            self._perform(connection, request)
        except ServiceError as error:
            core.refuse(connection, error, request.ref)
        except Exception:
            logger.exception("a frame could not be handled")
            core.refuse(
                connection, ServiceError("internal", "the server failed on this frame"), request.ref
            )

    def _perform(self, connection: Connection, request: Request) -> None:
        match request:
            case PublishRequest():
                self._publish(connection, request)
            case PingRequest():
                self._ping(connection, request)
            case SubscribeRequest():
                self.subscribe(connection, request)
            case UnsubscribeRequest():
                self.unsubscribe(connection, request)
            case PresenceRequest():
                self._presence(connection, request)
            case AuthRequest():
                self._auth(connection, request)

    def _auth(self, connection: Connection, request: AuthRequest) -> None:
        if connection.authenticating:
            raise ServiceError(
                "rate_limited", "another `auth` is being checked", retry_after_ms=1000
            )
        connection.authenticating = True
        self._spawn(self._authenticate(connection, request))

    async def _authenticate(self, connection: Connection, request: AuthRequest) -> None:
        first = connection.identity is None
        try:
            ok = await self.authenticate(connection, request.token, client_id=request.client_id)
        except ServiceError as error:
            if connection.closed:
                return
            if first:
                self._refuse_entry(connection, error, request.ref)
            else:
                self.core.count(error)
                self.core.send(connection, error_frame(error, request.ref, type="auth.error"))
            return
        finally:
            connection.authenticating = False
        frame: dict[str, object] = {
            "type": "auth.ok",
            "client_id": ok.client_id,
            "user_id": ok.user_id,
            "version": ok.version,
            "features": ok.features,
            "server_time": ok.server_time,
            "limits": ok.limits,
        }
        if ok.expires_at is not None:
            frame["expires_at"] = ok.expires_at
        if request.ref is not None:
            frame["ref"] = request.ref
        self.core.send(connection, frame)
        waiting, connection.waiting = connection.waiting, None
        for data in waiting or ():
            self.receive(connection, data)

    def _refuse_entry(self, connection: Connection, error: ServiceError, ref: str | None) -> None:
        core = self.core
        core.count(error)
        core.stats.auth_failures += 1
        core.send(connection, error_frame(error, ref, type="auth.error"))
        core.delivery.finish(connection)
        record = CODES.get(error.code)
        code = (record.close if record else None) or 4401
        sink = connection.sink
        self.closed(connection, code)
        sink.close(code, error.code)

    def _publish(self, connection: Connection, request: PublishRequest) -> None:
        identity = connection.identity
        assert identity is not None
        if len(request.items) > self.core.settings.max_batch:
            raise ServiceError(
                "invalid_frame",
                f"a batch has at most {self.core.settings.max_batch} messages",
                field="messages",
            )
        results = self.publishing.publish(identity, request.items, connection)
        if isinstance(results, Awaitable):
            self._spawn(self._answer_later(connection, request, results))
        else:
            self._answer(connection, request, results)

    async def _answer_later(
        self,
        connection: Connection,
        request: PublishRequest,
        results: Awaitable[list[Published | ServiceError]],
    ) -> None:
        try:
            self._answer(connection, request, await results)
        except ServiceError as error:
            self.core.refuse(connection, error, request.ref)

    def _answer(
        self,
        connection: Connection,
        request: PublishRequest,
        results: Sequence[Published | ServiceError],
    ) -> None:
        ref = request.ref
        if request.batch and ref is not None:
            frame = {
                "type": "published",
                "results": [result_json(result) for result in results],
                "ref": ref,
            }
            self.core.send(connection, frame)
            return
        for result in results:
            if isinstance(result, ServiceError):
                # Counted where it was refused.
                self.core.send(connection, error_frame(result, ref))
            elif ref is not None:
                self.core.send(connection, {"type": "published", **result_json(result), "ref": ref})

    def _presence(self, connection: Connection, request: PresenceRequest) -> None:
        identity = connection.identity
        assert identity is not None
        core = self.core
        granted, wait = core.rates.take(identity, connection.client_id, 1)
        if not granted:
            raise ServiceError(
                "rate_limited",
                f"more than {core.rates.rate(identity)} updates a second",
                topic=request.topic,
                retry_after_ms=wait,
            )
        id, timestamp = self.attendance.update(connection, request.topic, dict(request.data))
        if request.ref is not None:
            core.send(
                connection,
                {
                    "type": "published",
                    "id": id,
                    "timestamp": timestamp,
                    "duplicate": False,
                    "ref": request.ref,
                },
            )

    def _ping(self, connection: Connection, request: PingRequest) -> None:
        frame: dict[str, object] = {"type": "pong", "server_time": self.core.wall()}
        if request.ref is not None:
            frame["ref"] = request.ref
        self.core.send(connection, frame)

    # ------------------------------------------------------------ operations

    async def identify(self, token: str) -> Identity:
        """See `interfaces.Service`."""
        return await self.core.authenticator.authenticate(token)

    def session(self, identity: Identity) -> AuthOk:
        """See `interfaces.Service`."""
        return self.admission.answer(identity, f"rest_{identity.user_id}")

    async def authenticate(
        self, connection: Connection, token: str, *, client_id: str | None = None
    ) -> AuthOk:
        """See `interfaces.Service`."""
        return await self.admission.admit(connection, token, client_id)

    def subscribe(self, connection: Connection, request: SubscribeRequest) -> None:
        """See `interfaces.Service`."""
        self.subscriptions.subscribe(connection, request)

    def unsubscribe(self, connection: Connection, request: UnsubscribeRequest) -> None:
        """See `interfaces.Service`."""
        self.subscriptions.unsubscribe(connection, request)

    async def publish(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        *,
        connection: Connection | None = None,
    ) -> list[Published | ServiceError]:
        """See `interfaces.Service`."""
        results = self.publishing.publish(identity, drafts, connection)
        return await results if isinstance(results, Awaitable) else results

    def deliver(self, entry: Entry) -> None:
        """A message has its place: send it to whoever is subscribed."""
        route = self.core.router.route(entry.topic)
        if route:
            self.core.delivery.message(route, entry)

    async def history(
        self,
        identity: Identity,
        topic: str,
        *,
        since: int | None = None,
        before: str | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Page:
        """See `interfaces.Service`."""
        self._may_read(identity, topic)
        settings = self.core.settings
        limit = settings.history_page_default if limit is None else limit
        if not 1 <= limit <= settings.history_page_max:
            raise ServiceError(
                "invalid_option",
                f"`limit` is 1 to {settings.history_page_max}",
                field="limit",
            )
        if after is not None and before is not None:
            raise ServiceError(
                "invalid_option", "`after` and `before` exclude each other", field="after"
            )
        page = self.core.backplane.page(topic, since=since, before=before, after=after, limit=limit)
        return page if isinstance(page, Page) else await page

    def presence(self, identity: Identity, topic: str) -> list[Member]:
        """See `interfaces.Service`."""
        self._may_read(identity, topic)
        return self.attendance.members(topic)

    def topics(
        self, identity: Identity, *, prefix: str = "", limit: int = 100
    ) -> tuple[list[TopicReport], bool]:
        """See `interfaces.Service`."""
        core = self.core
        if not core.policy.may_administer(identity):
            raise ServiceError("forbidden", "only an admin may list topics")
        if not 1 <= limit <= _TOPICS_MAX:
            raise ServiceError("invalid_option", f"`limit` is 1 to {_TOPICS_MAX}", field="limit")
        known = {report.topic: report for report in core.backplane.reports(prefix)}
        for topic in core.router.exact_topics():
            if topic.startswith(prefix) and topic not in known:
                known[topic] = TopicReport(topic, 0, 0, None, None)
        chosen = sorted(known)[: limit + 1]
        reports = [
            TopicReport(
                name,
                len(core.router.route(name)),
                known[name].messages,
                known[name].position,
                known[name].last_message_at,
            )
            for name in chosen[:limit]
        ]
        return reports, len(chosen) > limit

    def _may_read(self, identity: Identity, topic: str) -> None:
        try:
            validate_topic(topic)
        except InvalidTopic as error:
            raise ServiceError("invalid_topic", error.message, topic=topic, field="topic") from None
        if not self.core.policy.may_subscribe(identity, topic):
            raise ServiceError(
                "forbidden", "the access rules do not allow reading this topic", topic=topic
            )

    # ------------------------------------------------------------ end

    async def drain(self, seconds: float) -> None:
        """See `interfaces.Service`."""
        self._draining = True
        for connection in list(self._open):
            self.end(connection, ServiceError("going_away", "the server is shutting down"))
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        self.core.wheel.stop()
        await self.core.backplane.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the hub failed", exc_info=error)


_TOPICS_MAX: Final = 10_000


def _memory(settings: Settings, wall: Callable[[], int]) -> MemoryBackplane:
    store = MemoryStore(
        max_messages=settings.history_max_messages,
        max_age=settings.history_max_age,
        max_bytes=settings.history_max_bytes,
        max_topics=settings.topics_max,
    )
    return MemoryBackplane(store, wall)


def result_json(result: Published | ServiceError) -> dict[str, object]:
    """`PublishResult` of the schema."""
    if isinstance(result, ServiceError):
        return {"error": error_info(result)}
    fields: dict[str, object] = {"id": result.id, "timestamp": result.timestamp}
    if result.seq is not None:
        fields["seq"] = result.seq
    fields["duplicate"] = result.duplicate
    return fields
