"""Handles frames of clients: decodes, checks, performs and answers them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from pubsub_server.backplane import Published
from pubsub_server.errors import ServiceError
from pubsub_server.hub.large_subscriptions import MANY, LargeSubscriptions
from pubsub_server.hub.subscriptions import not_yet
from pubsub_server.shared.codec import decode_object, error_frame, parse, publish_result, ref_of
from pubsub_server.shared.connection import about
from pubsub_server.shared.requests import (
    AuthRequest,
    PingRequest,
    PresenceRequest,
    PublishRequest,
    Ref,
    Request,
    SubscribeRequest,
    UnsubscribeRequest,
)
from pubsub_server.shared.turns import SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from pubsub_server.hub.admission import Admission
    from pubsub_server.hub.attendance import Attendance
    from pubsub_server.hub.core import Core
    from pubsub_server.hub.publish_frames import PublishFrames
    from pubsub_server.hub.subscriptions import Groundwork, Subscriptions
    from pubsub_server.shared.connection import Connection

logger = logging.getLogger(__name__)

BAD_FRAMES: Final = 20
"""Number of consecutive unreadable frames that end a connection."""
WAITING_FRAMES: Final = 256
"""Inbound frames kept while the first ``auth`` is being checked."""
WAITING_BYTES: Final = 1_048_576
"""Maximum bytes of these frames of one connection."""
HEAVY: Final = 4_096
"""Bytes of a frame with a list of topics or messages above which it waits for its turn."""
LONG: Final = 1_048_576
"""Bytes of a frame above which it waits for its turn before it is parsed."""
BYTES_PER_SECOND: Final = 5e6
"""Bytes of such frames that are handled in a second."""


class End(Protocol):
    """Ends a connection; see `hub.Hub.end`."""

    def __call__(self, connection: Connection, error: ServiceError, ref: str | None = None) -> None:
        """Send the reason, then close."""
        ...


class Inbound:
    """Handles the frames of all connections.

    Args:
        core: The parts of the hub.
        admission: Performs `auth`.
        subscriptions: Performs `subscribe` and `unsubscribe`.
        publishes: Performs `publish`.
        attendance: Performs `presence.update`.
        end: Ends a connection.
        spawn: Runs asynchronous work in a task.

    Attributes:
        stopped: Whether frames are ignored, because the node ends.
    """

    def __init__(
        self,
        core: Core,
        admission: Admission,
        subscriptions: Subscriptions,
        publishes: PublishFrames,
        attendance: Attendance,
        end: End,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._core = core
        self._admission = admission
        self._subscriptions = subscriptions
        self._publishes = publishes
        self._attendance = attendance
        self._end = end
        self._spawn = spawn
        self._surveying = asyncio.Lock()
        self._large = LargeSubscriptions()
        self.stopped = False

    def receive(self, connection: Connection, data: str | bytes) -> None:
        """Handle one frame; see `service.Service`."""
        if connection.closed:
            return
        core = self._core
        core.stats.frames_in += 1
        connection.last_spoke = connection.last_received
        if connection.busy:
            # Reading stops until it is done, so these are few.
            _wait(connection, data)
        elif connection.authenticating and connection.identity is None:
            waiting = connection.waiting or ()
            size = len(data) + sum(len(each) for each in waiting if isinstance(each, str | bytes))
            if len(waiting) < WAITING_FRAMES and size <= WAITING_BYTES:
                _wait(connection, data)
            else:
                core.refuse(connection, not_yet())
        else:
            self._take(connection, data)

    def subscribe(self, connection: Connection, request: SubscribeRequest) -> None:
        """Perform a subscribe, immediately or in its turn; see `service.Service`."""
        core = self._core
        if connection.busy:
            _wait(connection, request)
            return
        groundwork = self._subscriptions.groundwork(connection, request)
        many = len(request.topics) > MANY
        if (
            groundwork is None
            and core.turns.free
            and not core.delivery.crowded(connection)
            and not (many and self._large.full)
        ):
            rest = self._subscriptions.subscribe(connection, request)
            if rest is not None:
                work = self._large.run(rest) if many else rest
                self._begin(connection, self._finish(connection, request, work))
            return
        self._begin(
            connection,
            self._finish(
                connection, request, self._subscribe_later(connection, request, groundwork)
            ),
        )

    def _begin(self, connection: Connection, work: Coroutine[Any, Any, None]) -> None:
        connection.busy = True
        connection.sink.hold(True)
        self._spawn(work)

    def _subscribe_failed(self, connection: Connection, error: ServiceError, ref: Ref) -> None:
        if connection.encoder.resubscribes:
            self._core.refuse(connection, error, ref)
        else:
            # A reader of a stream cannot subscribe again on it; it reconnects and resumes.
            self._end(connection, error)

    async def _finish(
        self, connection: Connection, request: SubscribeRequest, work: Awaitable[None]
    ) -> None:
        """Await a slow subscribe, then handle the frames that arrived in the meantime."""
        try:
            await work
        except ServiceError as error:
            self._subscribe_failed(connection, error, request.ref)
        except Exception:
            logger.exception("cannot handle a subscription", extra=about(connection))
            failure = ServiceError("internal", "the server failed to process this frame")
            self._subscribe_failed(connection, failure, request.ref)
        self._resume(connection)

    def _resume(self, connection: Connection) -> None:
        """Handle the frames that arrived during a slow request."""
        core, identity = self._core, connection.identity
        connection.busy = False
        # The server did not read from the client in the meantime.
        connection.last_received = connection.last_spoke = core.clock()
        self._go_on(connection)
        if connection.busy:
            return
        connection.sink.hold(False)
        if connection.closed and identity is not None:
            core.rates.forget(identity, connection.client_id)

    async def _subscribe_later(
        self, connection: Connection, request: SubscribeRequest, groundwork: Groundwork | None
    ) -> None:
        core = self._core

        async def turn(seconds: float) -> None:
            await core.turns.wait(seconds)
            if connection.closed:
                raise ServiceError("unauthenticated", "the connection has ended")

        rest: Awaitable[None] | None
        with groundwork or contextlib.nullcontext():
            await core.delivery.room(connection)
            if groundwork is not None:
                # Only one at a time: each holds the names of all topics in memory.
                async with self._surveying:
                    await groundwork.run(turn)
                    rest = self._subscriptions.subscribe(connection, request, groundwork)
            elif len(request.topics) > MANY:
                await self._large.run_in_turn(
                    lambda: turn(SECONDS),
                    lambda: self._subscriptions.subscribe(connection, request),
                )
                return
            else:
                await turn(SECONDS)
                rest = self._subscriptions.subscribe(connection, request)
        if rest is not None:
            await rest

    def _go_on(self, connection: Connection) -> None:
        """Handle waiting frames, until one of them is slow again.

        Also after the end of the connection: its client may have published and closed.
        """
        # A frame may end the connection, and with it the frames after it.
        while (waiting := connection.waiting) and not connection.busy:
            frame = waiting.popleft()
            if not isinstance(frame, SubscribeRequest):
                self._take(connection, frame)
            elif not connection.closed:
                self.subscribe(connection, frame)
        if not waiting:
            connection.waiting = None

    def _take(self, connection: Connection, data: str | bytes, *, in_turn: bool = False) -> None:
        if self.stopped:
            return
        core = self._core
        frame: dict[str, Any] = {}
        heavy = len(data) > HEAVY and connection.identity is not None
        may_wait = heavy and not in_turn and not core.turns.free
        if may_wait and len(data) > LONG:
            # Parsing it twice could take a tenth of a second more.
            self._begin(connection, self._take_later(connection, data))
            return
        try:
            frame = parse(data)
            if may_wait and _has_list(frame):
                self._begin(connection, self._take_later(connection, data))
                return
            request = decode_object(frame, max_payload=core.settings.max_payload)
        except ServiceError as error:
            ref = ref_of(frame)
            connection.bad_frames += error.code == "invalid_frame"
            if connection.bad_frames >= BAD_FRAMES:
                self._end(connection, error)
            elif connection.identity is None and error.code != "invalid_frame":
                core.refuse(connection, not_yet(), ref)
            else:
                core.refuse(connection, error, ref)
            return
        except Exception:
            logger.exception("cannot decode a frame", extra=about(connection))
            failure = ServiceError("internal", "the frame could not be read")
            core.refuse(connection, failure, ref_of(frame))
            return
        connection.bad_frames = 0
        identity = connection.identity
        if identity is None and not isinstance(request, AuthRequest):
            core.refuse(connection, not_yet(), request.ref)
            return
        try:
            if identity is not None and isinstance(request, PublishRequest):
                self._publishes.perform(connection, identity, request)
            elif not connection.closed:
                self._perform(connection, request)
        except ServiceError as error:
            core.refuse(connection, error, request.ref)
        except Exception as error:
            self._failed(connection, request.ref, error)

    async def _take_later(self, connection: Connection, data: str | bytes) -> None:
        """Handle a long frame in its turn."""
        await self._core.turns.wait(len(data) / BYTES_PER_SECOND)
        connection.busy = False
        self._take(connection, data, in_turn=True)
        if not connection.busy:
            self._resume(connection)

    def _failed(self, connection: Connection, ref: Ref, error: Exception) -> None:
        logger.error("cannot handle a frame", exc_info=error, extra=about(connection))
        failure = ServiceError("internal", "the server failed to process this frame")
        self._core.refuse(connection, failure, ref)

    def _perform(self, connection: Connection, request: Request) -> None:
        match request:
            case PingRequest():
                self._ping(connection, request)
            case SubscribeRequest():
                self.subscribe(connection, request)
            case UnsubscribeRequest():
                self._subscriptions.unsubscribe(connection, request)
            case PresenceRequest():
                # It may change the state on a thousand topics.
                many = self._attendance.changes_many(connection, request.topic)
                if self._core.turns.free and not many:
                    self._presence(connection, request)
                else:
                    self._begin(connection, self._presence_later(connection, request, many))
            case AuthRequest():
                self._auth(connection, request)
            case PublishRequest():
                raise AssertionError("publishes need an identity")

    def _auth(self, connection: Connection, request: AuthRequest) -> None:
        if connection.authenticating:
            raise ServiceError(
                "rate_limited", "the server is still checking another `auth`", retry_after_ms=1000
            )
        connection.authenticating = True
        if connection.identity is None:
            # An unauthenticated client may send anything.
            connection.sink.hold(True)
        self._spawn(self._authenticate(connection, request))

    async def _authenticate(self, connection: Connection, request: AuthRequest) -> None:
        first = connection.identity is None
        try:
            ok = await self._admission.admit(connection, request.token, request.client_id)
        except ServiceError as error:
            self._refuse_auth(connection, error, request.ref, first)
            return
        except Exception:
            logger.exception("cannot check a token", extra=about(connection))
            failure = ServiceError("internal", "the token could not be checked")
            self._refuse_auth(connection, failure, request.ref, first)
            return
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
        if ok.node is not None:
            frame["node"] = ok.node
        if request.ref is not None:
            frame["ref"] = request.ref
        self._core.send(connection, frame)
        self._go_on(connection)
        if first and not connection.busy:
            connection.sink.hold(False)

    def _refuse_auth(
        self, connection: Connection, error: ServiceError, ref: str | None, first: bool
    ) -> None:
        if connection.closed:
            return
        if first:
            self._end(connection, error, ref)
            return
        # The old token is valid until it expires.
        connection.authenticating = False
        self._core.count(error)
        self._core.send(connection, error_frame(error, ref, type="auth.error"))

    def _presence(self, connection: Connection, request: PresenceRequest) -> None:
        identity = connection.identity
        assert identity is not None
        core = self._core
        granted, wait = core.rates.take(identity, connection.client_id, 1)
        if not granted:
            raise ServiceError(
                "rate_limited",
                f"more than {core.rates.rate(identity)} updates per second",
                topic=request.topic,
                retry_after_ms=wait,
            )
        id, timestamp = self._attendance.update(connection, request.topic, dict(request.data))
        if request.ref is not None:
            done = publish_result(Published(id, timestamp, None, False))
            core.send(connection, {"type": "published", **done, "ref": request.ref})

    async def _presence_later(
        self, connection: Connection, request: PresenceRequest, many: bool
    ) -> None:
        core = self._core
        try:
            await core.turns.wait()
            if many:
                await self._room(connection)
            if not connection.closed:
                self._presence(connection, request)
        except ServiceError as error:
            core.refuse(connection, error, request.ref)
        except Exception as error:
            self._failed(connection, request.ref, error)
        self._resume(connection)

    async def _room(self, connection: Connection) -> None:
        try:
            await self._attendance.room(connection)
        except ServiceError as error:
            # After `unavailable`, clients forget the change; now, they send it again.
            raise ServiceError(
                "rate_limited", error.message, retry_after_ms=error.retry_after_ms
            ) from None

    def _ping(self, connection: Connection, request: PingRequest) -> None:
        frame: dict[str, object] = {"type": "pong", "server_time": self._core.today()}
        if request.ref is not None:
            frame["ref"] = request.ref
        self._core.send(connection, frame)


def _has_list(frame: Mapping[str, Any]) -> bool:
    """Whether a frame can contain a thousand topics or messages."""
    return frame.get("type") in ("subscribe", "unsubscribe") or "messages" in frame


def _wait(connection: Connection, frame: str | bytes | SubscribeRequest) -> None:
    if connection.waiting is None:
        connection.waiting = deque()
    connection.waiting.append(frame)
