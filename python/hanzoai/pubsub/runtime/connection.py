"""Dials, reads and closes the transport of a client: one at a time.

The session gets its frames in order, through the dialect that the server needs, if any.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from hanzoai.pubsub.dialects import needs_dialect
from hanzoai.pubsub.errors import ProtocolError
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    ErrorFrame,
    MessageFrame,
    PublishedFrame,
    SubscribedFrame,
)
from hanzoai.pubsub.http.problems import without_token
from hanzoai.pubsub.model import Model
from hanzoai.pubsub.session.events import action_of
from hanzoai.pubsub.transports import TransportEnd
from hanzoai.pubsub.wire.codec import Malformed, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.dialects.plain.plain_dialect import PlainDialect
    from hanzoai.pubsub.generated.wire import ClientFrame, ServerFrame
    from hanzoai.pubsub.runtime.failures import Failures
    from hanzoai.pubsub.runtime.handlers import Listeners
    from hanzoai.pubsub.runtime.inbox import Deliveries
    from hanzoai.pubsub.runtime.tasks import Tasks
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.session.session import Session
    from hanzoai.pubsub.transports import Incoming, Transport
    from hanzoai.pubsub.wire.codec import Decoded

logger = logging.getLogger("hanzoai.pubsub")

_LOST: Final = 1006
"""Close code of a connection that ended without one (docs/errors.md)."""

_TURN: Final = 64
"""Frames after which other tasks of the loop run.

Measured: with more waiting messages, each costs more, because the garbage collector visits them.
"""


P = ParamSpec("P")
_Error = TypeVar("_Error", bound=Model)


class Steps:
    """Calls into a session: what calls it during a step waits for the end of the step."""

    def __init__(self) -> None:
        self.busy = False  # a step runs
        self.waiting: deque[Callable[[], None]] = deque()  # the calls that wait for its end

    def call(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Perform a step, now or after those that run and wait."""
        self.waiting.append(partial(step, *args, **kwargs))
        if not self.busy:
            self.run_waiting()

    def run_waiting(self) -> None:
        """Perform the steps that wait."""
        while self.waiting:
            self.busy = True
            try:
                self.waiting.popleft()()
            finally:
                self.busy = False


class _Probe:
    """The receiver of a probe."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def frames(self, frames: Iterable[Incoming], /) -> None:
        """See ``Receiver``."""
        if not self.answered.done():
            self.answered.set_result(any(map(_is_answer, frames)))

    def ended(self, end: TransportEnd, /) -> None:
        """See ``Receiver``."""
        self.frames(())


def _is_answer(frame: Incoming) -> bool:
    rejected = isinstance(frame, AuthErrorFrame) and action_of(frame.code) != "retry"
    return rejected or isinstance(frame, AuthOkFrame)


class Connection:
    """Owns and reads the current transport; waits for full inboxes before it reads on."""

    def __init__(
        self,
        session: Session,
        steps: Steps,
        deliveries: Deliveries,
        failures: Failures,
        listeners: Listeners,
        tasks: Tasks,
        clock: Clock,
        dial: Callable[[TransportName], Transport],
        prepare: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._session = session
        self._steps = steps
        self._deliveries = deliveries
        self._failures = failures
        self._listeners = listeners
        self._tasks = tasks
        self._clock = clock
        self._dial = dial
        self._prepare = prepare
        self._transport: Transport | None = None
        self._dialect: PlainDialect | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        self._paused = False
        self._tokens: tuple[str, ...] = ()  # the last two: a server may still quote the older

    @property
    def idle(self) -> int:
        """Milliseconds since the last byte; 0 while the program itself delays reading."""
        if self._transport is None or self._paused:
            return 0
        return max(0, round((self._clock.now() - self._transport.last_received) * 1000))

    def send(self, frame: ClientFrame, /) -> None:
        """See ``Ports``."""
        if type(frame) is AuthFrame:
            self._tokens = tuple(dict.fromkeys((frame.token, *self._tokens)))[:2]
        if self._dialect is not None:
            self._dialect.send(frame)
        elif self._transport is not None:
            self._transport.send(frame)

    def dial(self, name: TransportName, /) -> None:
        """See ``Ports``."""
        self._dialect = None
        self._paused = False
        self._failures.dialed(name)
        transport = self._transport = self._dial(name)
        self._task = self._tasks.spawn(self._open(transport), f"opening transport ({name})")

    def hang_up(self, code: int, /) -> None:
        """See ``Ports``."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        transport.pause()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._tasks.spawn(transport.close(code), "closing transport")

    async def probe(self, auth: AuthFrame | None, seconds: float) -> bool:
        """Whether a WebSocket can be opened in addition to the current transport.

        With `auth`: whether the HTTP address answers as a PubSub service, even if it rejects it.
        """
        if auth is not None:
            await self._prepare()
        transport = self._dial("websocket" if auth is None else "sse")
        probe = _Probe()
        try:
            async with asyncio.timeout(seconds):
                await transport.open(probe)
                if auth is None:
                    return True
                transport.resume()
                transport.send(auth)
                return await probe.answered
        except (TransportEnd, TimeoutError):
            return False
        finally:
            await transport.close()

    async def _open(self, transport: Transport) -> None:
        try:
            await transport.open(self)
            if self._transport is transport:
                self._steps.call(self._session.opened, incremental=transport.incremental)
            if self._transport is transport:
                transport.resume()
        except TransportEnd as end:
            if self._transport is transport:
                self.ended(end)
                # Before the event stream that may follow.
                self._tasks.spawn(self._prepare(), "import of httpx")
        except Exception as error:
            self._fail(transport, error)

    # ------------------------------------------------------------ from the transport

    def frames(self, frames: Iterable[Incoming], /) -> None:
        """See ``Receiver``."""
        # A single function from the transport to the session, because it runs for each frame.
        transport = self._transport
        if transport is None:
            return
        session, steps, deliveries = self._session, self._steps, self._deliveries
        if transport.largest > deliveries.largest:
            deliveries.expect(transport.largest)
        rest = iter(frames)
        try:
            for frame in rest:
                if self._transport is not transport:
                    return
                if isinstance(frame, list) and deliveries.near_limit and len(frame) > 1:
                    # One by one, the reading stops at the message that fills an inbox.
                    self.frames(chain(([message] for message in frame), rest))
                    return
                steps.busy = True
                try:
                    if isinstance(frame, list):
                        session.messages(frame)
                        self._turn += len(frame) - 1
                    elif type(frame) is MessageFrame:
                        session.messages((frame.message,))
                    elif (
                        type(frame) is PublishedFrame
                        and frame.results is None
                        and self._dialect is None
                    ):
                        session.published(frame)
                    else:
                        self._receive(frame, transport)
                finally:
                    steps.busy = False
                if steps.waiting:
                    steps.run_waiting()
                self._turn += 1
                if (self._turn >= _TURN or deliveries.give_way) and self._transport is transport:
                    self._turn = 0
                    deliveries.give_way = False
                    self._paused = True
                    transport.pause()
                    asyncio.get_running_loop().call_soon(self._read_on, transport, rest)
                    return
        except Exception as error:
            self._fail(transport, error)

    def ended(self, end: TransportEnd, /) -> None:
        """See ``Receiver``."""
        self.hang_up(1000)
        reason = self._failures.dropped(end.code, without_token(end.reason, *self._tokens))
        wait = None if end.retry_after is None else round(end.retry_after * 1000)
        code = _LOST if end.code is None else end.code
        self._steps.call(self._session.dropped, code, reason, wait)

    # ------------------------------------------------------------ inside

    def _receive(self, frame: Decoded, transport: Transport) -> None:
        """Pass a frame to the session; `auth.ok` shows whether the server needs a dialect."""
        if isinstance(frame, Malformed):
            error = ProtocolError(f"A frame of the server was skipped: {frame.reason}.")
            self._listeners.report(error, None)
            return
        if isinstance(frame, Unknown):
            logger.debug("a frame of unknown type %r was ignored", frame.type)
            return
        if type(frame) is AuthOkFrame:
            if not needs_dialect(frame):
                self._dialect = None
            elif self._dialect is None:
                from hanzoai.pubsub.dialects.plain.plain_dialect import PlainDialect

                self._dialect = PlainDialect(self._session, transport.send)
        (self._dialect or self._session).receive(self._without_tokens(frame), self._clock.wall_ms())

    def _without_tokens(self, frame: ServerFrame) -> ServerFrame:
        """The frame with texts that do not quote the token."""
        if isinstance(frame, AuthErrorFrame | ErrorFrame):
            return self._redacted(frame)
        if type(frame) is SubscribedFrame and frame.denied:
            denied = [*map(self._redacted, frame.denied)]
            return frame.model_copy(update={"denied": denied})
        results = frame.results if type(frame) is PublishedFrame else None
        if results and any(one.error for one in results):
            plain = [
                one.model_copy(update={"error": self._redacted(one.error)}) if one.error else one
                for one in results
            ]
            return frame.model_copy(update={"results": plain})
        return frame

    def _redacted(self, error: _Error) -> _Error:
        texts = {
            name: without_token(text, *self._tokens)
            for name, text in error
            if isinstance(text, str)
        }
        return error.model_copy(update=texts)

    def _read_on(self, transport: Transport, rest: Iterator[Incoming], *_: object) -> None:
        """Read on when the program has run; with ``block``, when no inbox is full."""
        if self._transport is not transport:
            return
        if full := self._deliveries.blocking():
            full[0].wait().add_done_callback(partial(self._read_on, transport, rest))
            return
        self._paused = False
        try:
            self.frames(rest)
            if self._transport is transport and not self._paused:
                transport.resume()
        except Exception as error:
            self._fail(transport, error)

    def _fail(self, transport: Transport, error: Exception) -> None:
        logger.error("closing the connection after an unexpected exception", exc_info=error)
        if self._transport is transport:
            self.ended(TransportEnd(None, "an unexpected exception in the client"))
