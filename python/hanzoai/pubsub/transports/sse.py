"""Frames over HTTP: an event stream one way, REST calls the other (HIP-56 SSE, SSE-1).

For networks that block WebSockets. The session uses the same frames as on a socket:

- `auth` requests `GET /v1/session`, whose answer becomes `auth.ok` or `auth.error`; a peer without
  that operation implements only HIP-56. A further `auth` opens the stream again with its token. The
  server replays messages published meanwhile, and the session drops duplicates.
- The `subscribe` frames of one loop turn are the complete set. They open one stream, which replaces
  the previous one. The transport reads the previous stream until the new one answers.
- `publish` and `presence.update` go through REST in order; waiting frames go in one batch.
- `ping` is not sent: keepalive comments show that the stream is open.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hanzoai.pubsub.errors import (
    ConnectionFailed,
    NotFound,
    OperationTimeout,
    ProtocolError,
    PubSubError,
    Unavailable,
    Unsupported,
)
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    ErrorFrame,
    PresenceUpdateFrame,
    PublishFrame,
    SubscribeFrame,
    UnsubscribedFrame,
    UnsubscribeFrame,
)
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.connection import LOST
from hanzoai.pubsub.http.problems import describe_answer, is_page, read_error
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.http.status import close_code_for, why_unreachable
from hanzoai.pubsub.session.events import action_of
from hanzoai.pubsub.settings.proxies import host_of, http_proxy
from hanzoai.pubsub.transports import TransportClosed
from hanzoai.pubsub.transports.event_stream import (
    EventTooLarge,
    StreamRefused,
    StreamRequest,
    open_stream,
)
from hanzoai.pubsub.transports.stream_publisher import StreamPublisher
from hanzoai.pubsub.transports.stream_subscriptions import StreamSubscriptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from contextlib import AbstractAsyncContextManager

    import httpx

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import ClientFrame, ErrorInfo, SessionInfo
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports import Receiver
    from hanzoai.pubsub.transports.event_stream import EventStream
    from hanzoai.pubsub.wire.codec import Decoded

logger = logging.getLogger("hanzoai.pubsub")

_QUEUED: Final = 256
"""Frames that may wait for `resume`; above that, reading the stream pauses."""

_REFUSALS: Final = frozenset({400, 401, 403, 422, 429})
"""Statuses with which a server with event streams rejects a stream without a topic."""

_CLOSE_TIMEOUT: Final = 1.0


class SseTransport:
    """One session over server-sent events and REST.

    Args:
        options: `http_url`, `open_timeout`, `max_frame`, `overlap` and the options of `Rest`.
        clock: For `last_received`, and between attempts of REST calls.
        transport: Carries the requests instead of the network.
    """

    incremental: bool = False
    largest = math.inf

    def __init__(
        self,
        options: ClientOptions,
        clock: Clock,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._address = urlsplit(options.http_url)
        self._netloc = self._address.netloc
        self._token: str | None = None
        self._rest = Rest(options, self, clock, transport=transport)
        self._publisher = StreamPublisher(self._rest, self._put, self._end)
        self._subscriptions = StreamSubscriptions(
            clock.wall_ms, overlap_ms=round(options.overlap * 1000)
        )
        self._outgoing: list[ClientFrame] = []
        self._arrived: list[Decoded] = []
        self._receiver: Receiver
        self._paused = True
        self._room = asyncio.Event()
        self._ended: TransportClosed | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._client_id: str | None = None
        self._greeting: AuthOkFrame | None = None
        self._greeted_at = 0.0
        self._authenticating: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._overtakes = False
        """The last request followed one without an answer, which may reach the server after it."""
        self.last_received: float = clock.now()

    # ------------------------------------------------------------ the transport

    async def open(self, receiver: Receiver) -> None:
        """Keep the receiver: the first request is that of `auth`."""
        self._receiver = receiver

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; handles the frames of one loop turn together. Ignored once closed."""
        if self._ended is not None:
            return
        if not self._outgoing:
            # A task, not a callback: at the end of a program, asyncio cancels all tasks, but runs
            # the waiting callbacks, and does not wait for the requests that those begin.
            self._start(self._turn())
        self._outgoing.append(frame)

    def pause(self) -> None:
        """Keep what arrives."""
        self._paused = True

    def resume(self) -> None:
        """Pass on what has arrived, and from now on what arrives."""
        self._paused = False
        self._pass_on()

    def _pass_on(self) -> None:
        if self._arrived and not self._paused:
            frames, self._arrived = self._arrived, []
            self._room.set()
            self._receiver.frames(frames)
        if self._ended is not None and not self._paused:
            self._paused = True
            self._receiver.ended(self._ended)

    async def close(self, code: int = 1000) -> None:
        """End the stream and every request, within two seconds."""
        self.pause()
        self._end(TransportClosed(code, "Closed by this client."))
        tasks = [*self._tasks, *self._publisher.tasks]
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await asyncio.gather(*tasks, return_exceptions=True)
        except TimeoutError:
            logger.debug("an event stream did not close within its timeout")
        finally:  # also when cancelled: otherwise, sockets stay open
            await self._rest.close()

    # ------------------------------------------------------------ tokens for Rest

    async def current(self) -> str:
        """Return the token of the last `auth`."""
        return self._token or ""

    async def replace(self, rejected: str) -> str | None:
        """Return the token of a newer `auth`; only the session renews tokens."""
        return self._token if self._token != rejected else None

    def accepted(self) -> None:
        """Do nothing: the session counts rejected tokens."""

    # ------------------------------------------------------------ frames out

    async def _turn(self) -> None:
        frames, self._outgoing = self._outgoing, []
        subscribes: list[SubscribeFrame] = []
        for frame in frames:
            match frame:
                case AuthFrame():
                    self._cancel(self._authenticating)
                    self._authenticating = self._start(self._authenticate(frame))
                case SubscribeFrame():
                    subscribes.append(frame)
                case UnsubscribeFrame():
                    self._unsubscribe(frame)
                case PublishFrame() | PresenceUpdateFrame():
                    self._publisher.put(frame)
                case _:
                    pass
        if subscribes:
            for answer in self._subscriptions.replace(subscribes):
                self._put(answer)
            self._reopen()

    def _unsubscribe(self, frame: UnsubscribeFrame) -> None:
        self._subscriptions.remove(frame.topics)
        if frame.ref is not None:
            self._put(UnsubscribedFrame(topics=frame.topics, ref=frame.ref))
        if self._subscriptions.empty:
            self._cancel(self._opening)
            self._cancel(self._reading)
            self._reading = None

    async def _authenticate(self, frame: AuthFrame) -> None:
        again = self._token is not None
        self._token = frame.token
        self._client_id = self._client_id or frame.client_id
        info: SessionInfo | None
        try:
            info = await self._rest.perform(
                rest_calls.session(self._client_id), timeout=self._options.open_timeout, attempts=1
            )
        except (NotFound, Unsupported, ProtocolError):
            info = None
        except (ConnectionFailed, OperationTimeout, Unavailable) as error:
            self._end(TransportClosed(None, error.message, error.retry_after))
            return
        except PubSubError as error:
            self._put(auth_error(rest_calls.error_info(error), frame.ref))
            return
        self.last_received = self._clock.now()
        if info is None:
            if not self._subscriptions.plain and not await self._has_streams():
                return
            self._subscriptions.plain = True
            self._rest.features = frozenset()
            self._put(AuthOkFrame(client_id="", ref=frame.ref))
        else:
            self._rest.features = frozenset(info.features or ())
            self._client_id = info.client_id[:64]
            self._greeting = AuthOkFrame(
                client_id=info.client_id,
                user_id=info.user_id,
                version=info.version,
                features=info.features,
                expires_at=info.expires_at,
                server_time=info.server_time,
                limits=info.limits,
                node=info.node,
                ref=frame.ref,
            )
            self._greeted_at = self._clock.now()
            self._put(self._greeting)
        if again and not self._subscriptions.empty:
            self._reopen()

    async def _has_streams(self) -> bool:
        """Whether a peer without sessions has event streams, like a plain peer.

        Otherwise, the transport ends: the session drops its positions for a plain peer, so it must
        not mistake a login page, a redirect or a proxy for one. A stream proves it, and so does the
        rejection of this request, which names no topic.
        """
        try:
            async with self._stream(StreamRequest("GET")):
                return True
        except StreamRefused as refused:
            page = is_page(refused.headers, refused.body)
            if refused.status in _REFUSALS and not page:
                return True
            answered = describe_answer(refused.status, refused.headers, refused.body)
            reason = (
                f"{self._netloc} answered GET /v1/subscribe with {answered}: it is not a PubSub "
                "server, check `rest_url`."
            )
        except LOST as failure:
            reason = self._why_unreachable(failure)
        self._end(TransportClosed(None, reason, None))
        return False

    # ------------------------------------------------------------ the stream

    def _reopen(self) -> None:
        self._overtakes = self._opening is not None
        self._cancel(self._opening)
        self._opening = self._start(self._run())

    async def _run(self) -> None:
        code: int | None = None
        retry_after: float | None = None
        try:
            async with self._open() as stream:
                retry_after = await self._read(stream)
            reason = "The server ended the event stream."
        except StreamRefused as refused:
            error = read_error(refused.status, refused.headers, refused.body)
            if self._refuse(refused.status, error):
                if self._opening is asyncio.current_task():
                    self._opening = None
                return
            code, retry_after = close_code_for(refused.status), error.retry_after
            reason = (
                f"The server answered HTTP {refused.status}: {error.message}"
                if refused.status != 200
                else "The server's answer is not an event stream."
            )
        except EventTooLarge:
            code, reason = 1009, f"An event has more than {self._options.max_frame:,} bytes."
        except ProtocolError as strange:
            reason = strange.message
        except LOST as failure:
            reason = self._why_unreachable(failure)
        if self._superseded():
            # The server ends a stream when another one replaces it, which is already opening.
            self._reading = None
        elif asyncio.current_task() in (self._reading, self._opening):
            self._end(TransportClosed(code, reason, retry_after))

    def _why_unreachable(self, error: Exception) -> str:
        host, port = self._address.hostname or "", self._address.port
        return why_unreachable(error, host, host_of(http_proxy(self._options)), port=port)

    def _superseded(self) -> bool:
        """Whether another stream is opening that replaces the stream of this task."""
        opening = self._opening
        replacing = opening is not None and not opening.done()
        return replacing and asyncio.current_task() is self._reading

    async def _read(self, stream: EventStream) -> float | None:
        subscriptions = self._subscriptions
        generation = subscriptions.generation
        self._cancel(self._reading)
        self._reading, self._opening = asyncio.current_task(), None
        self._introduce(stream.client_id)
        async for frame in stream.frames():
            if isinstance(frame, ErrorFrame):
                # The stream ends, and another one may be about to replace it. An event stream has
                # no `auth.error`: the server also reports the end of the token as `error`.
                if self._superseded():
                    continue
                if frame.code == "replaced" and self._overtakes:
                    self._reopen()
                else:
                    self._put(auth_error(frame) if action_of(frame.code) == "reauth" else frame)
                continue
            for translated in subscriptions.translate(frame, generation):
                self._put(translated)
            while len(self._arrived) > _QUEUED:
                self._room.clear()
                await self._room.wait()
        return stream.retry

    def _introduce(self, client_id: str | None) -> None:
        """Correct the id of this client if the stream has another one than the session."""
        greeting = self._greeting
        if greeting is None or not client_id or client_id == self._client_id:
            return
        self._client_id = client_id[:64]
        since = round((self._clock.now() - self._greeted_at) * 1000)
        then = greeting.server_time
        new = {
            "client_id": self._client_id,
            "server_time": None if then is None else then + since,
            "ref": None,
        }
        self._put(greeting.model_copy(update=new))

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[EventStream]:
        """Open a stream for the present set; if it is rejected, retry once in another way."""
        async with AsyncExitStack() as stack:
            try:
                stream = await stack.enter_async_context(self._ask())
            except StreamRefused as refused:
                if refused.status in rest_calls.MISSING and not self._subscriptions.plain:
                    self._subscriptions.plain = True
                elif refused.status == 429 and self._reading is not None:
                    # The previous stream still counts against the limit.
                    self._cancel(self._reading)
                    await asyncio.wait([self._reading])
                    self._reading = None
                else:
                    raise
                stream = await stack.enter_async_context(self._ask())
            yield stream

    def _ask(self) -> AbstractAsyncContextManager[EventStream]:
        return self._stream(self._subscriptions.request(self._client_id))

    def _stream(self, request: StreamRequest) -> AbstractAsyncContextManager[EventStream]:
        return open_stream(
            self._rest.client,
            request,
            self._token or "",
            received=self._received,
            connect_timeout=self._options.open_timeout,
            limit=self._options.max_frame,
        )

    def _refuse(self, status: int, error: PubSubError) -> bool:
        """Report a rejected stream to the session; False if the transport ends."""
        if status == 401:
            self._put(auth_error(rest_calls.error_info(error)))
            return True
        if status in (400, 403, 422):
            for frame in self._subscriptions.denied(error):
                self._put(frame)
            return True
        return False

    # ------------------------------------------------------------ help

    def _put(self, frame: Decoded) -> None:
        if self._ended is None:
            self._arrived.append(frame)
            self._pass_on()

    def _received(self) -> None:
        self.last_received = self._clock.now()

    def _end(self, ended: TransportClosed) -> None:
        if self._ended is None:
            self._ended = ended
            self._pass_on()
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Not with the task factory of the loop: a task must not begin before it is assigned.
        task = asyncio.Task(coroutine, name="hanzoai.pubsub sse")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the event stream failed", exc_info=error)
            self._end(TransportClosed(None, "an unexpected exception in the client"))

    def _cancel(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and task is not asyncio.current_task():
            task.cancel()


def auth_error(error: ErrorInfo | ErrorFrame, ref: str | None = None) -> AuthErrorFrame:
    """Return an error of a request or a stream as the answer to `auth`."""
    return AuthErrorFrame(
        code=error.code,
        message=error.message,
        remedy=error.remedy,
        retry_after_ms=error.retry_after_ms,
        ref=ref,
    )
