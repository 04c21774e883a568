"""Dials, reads and closes the transport of a client: one at a time, with one reading task.

The session gets its frames in order, through the dialect that the server needs, if any.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.dialects import needs_dialect
from hanzoai.pubsub.errors import ProtocolError
from hanzoai.pubsub.generated.wire import AuthErrorFrame, AuthOkFrame, MessageFrame, PublishedFrame
from hanzoai.pubsub.session.events import action_of
from hanzoai.pubsub.transports import TransportEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.dialects.plain.plain_dialect import PlainDialect
    from hanzoai.pubsub.generated.wire import AuthFrame, ClientFrame, ServerFrame
    from hanzoai.pubsub.runtime.deliveries import Deliveries
    from hanzoai.pubsub.runtime.failures import Failures
    from hanzoai.pubsub.runtime.listeners import Listeners
    from hanzoai.pubsub.runtime.steps import Steps
    from hanzoai.pubsub.runtime.tasks import Tasks
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.session.session import Session
    from hanzoai.pubsub.transports import Incoming, Transport

logger = logging.getLogger("hanzoai.pubsub")

_LOST: Final = 1006
"""Close code of a connection that ended without one (docs/errors.md)."""

_TURN: Final = 128
"""Frames after which other tasks of the loop run.

Measured: with more waiting messages, each costs more, because the garbage collector visits them.
"""


def _is_answer(frame: Incoming) -> bool:
    if isinstance(frame, AuthErrorFrame):
        return action_of(frame.code) != "retry"
    return isinstance(frame, AuthOkFrame)


class Reader:
    """Owns the transport of the current connection; waits for full inboxes before it reads on."""

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
    ) -> None:
        self._session = session
        self._steps = steps
        self._deliveries = deliveries
        self._failures = failures
        self._listeners = listeners
        self._tasks = tasks
        self._clock = clock
        self._dial = dial
        self._transport: Transport | None = None
        self._dialect: PlainDialect | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        self._paused = False

    @property
    def idle(self) -> int:
        """Milliseconds since the last byte; 0 while the program itself delays reading."""
        if self._transport is None or self._paused:
            return 0
        return max(0, round((self._clock.now() - self._transport.last_received) * 1000))

    def send(self, frame: ClientFrame, /) -> None:
        """See ``Ports``."""
        if self._dialect is not None:
            self._dialect.send(frame)
        elif self._transport is not None:
            self._transport.send(frame)

    def _write(self, frame: ClientFrame) -> None:
        if self._transport is not None:
            self._transport.send(frame)

    def dial(self, name: TransportName, /) -> None:
        """See ``Ports``."""
        self._dialect = None
        self._failures.dialed(name)
        transport = self._transport = self._dial(name)
        transport.malformed = self._skipped
        self._task = self._tasks.spawn(self._serve(transport), f"reader ({name})")

    def hang_up(self, code: int, /) -> None:
        """See ``Ports``."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._tasks.spawn(transport.close(code), "closing transport")

    async def probe(self, auth: AuthFrame | None, seconds: float) -> bool:
        """Whether a WebSocket can be opened in addition to the current transport.

        Args:
            auth: Instead, send this to the HTTP address: whether it answers as a PubSub service,
                even if it rejects the token.
            seconds: Timeout.
        """
        transport = self._dial("websocket" if auth is None else "sse")
        try:
            async with asyncio.timeout(seconds):
                await transport.open()
                if auth is None:
                    return True
                transport.send(auth)
                return any(map(_is_answer, await transport.receive()))
        except (TransportEnd, TimeoutError):
            return False
        finally:
            await transport.close()

    # ------------------------------------------------------------ the reading task

    async def _serve(self, transport: Transport) -> None:
        # A single function from the transport to the session, because it runs for each frame.
        session, steps, deliveries = self._session, self._steps, self._deliveries
        largest: int | None = 0
        try:
            await transport.open()
            if self._transport is transport:
                steps.call(session.opened, incremental=transport.incremental)
            while self._transport is transport:
                frames = await transport.receive()
                if transport.largest != largest:
                    largest = transport.largest
                    deliveries.expect(largest)
                for item in frames:
                    parts: Sequence[Incoming] = (item,)
                    if isinstance(item, list) and deliveries.near_limit:
                        # One by one, the reading stops at the message that fills an inbox.
                        parts = [[message] for message in item]
                    for frame in parts:
                        if self._transport is not transport:
                            return
                        steps.busy = True
                        try:
                            if isinstance(frame, list):
                                session.messages(frame)
                                self._turn += len(frame) - 1
                            elif type(frame) is MessageFrame:
                                session.messages((frame.message,))
                            elif type(frame) is PublishedFrame and self._dialect is None:
                                session.published(frame)
                            else:
                                self._receive(frame)
                        finally:
                            steps.busy = False
                        if steps.waiting:
                            steps.run_waiting()
                        self._turn += 1
                        if self._turn >= _TURN or deliveries.give_way:
                            await self._let_others_run()
        except TransportEnd as end:
            self._lost(transport, end)
        except Exception:
            logger.exception("closing the connection after an unexpected exception")
            self._lost(transport, TransportEnd(None, "an unexpected exception in the client"))

    def _receive(self, frame: ServerFrame) -> None:
        """Pass a frame to the session; `auth.ok` shows whether the server needs a dialect."""
        if type(frame) is AuthOkFrame:
            if not needs_dialect(frame):
                self._dialect = None
            elif self._dialect is None:
                from hanzoai.pubsub.dialects.plain.plain_dialect import PlainDialect

                self._dialect = PlainDialect(self._session, self._write)
        (self._dialect or self._session).receive(frame, self._clock.wall_ms())

    def _skipped(self, reason: str) -> None:
        error = ProtocolError(f"A frame of the server was skipped: {reason}.")
        self._listeners.report(error, None)

    async def _let_others_run(self) -> None:
        """Let the tasks that read the inboxes run; with ``block``, until they have read."""
        self._turn = 0
        self._deliveries.give_way = False
        await asyncio.sleep(0)
        self._paused = True
        try:
            while waiting := self._deliveries.blocking():
                await waiting[0].wait()
        finally:
            self._paused = False

    def _lost(self, transport: Transport, end: TransportEnd) -> None:
        if self._transport is not transport:
            return
        self._transport = None
        self._tasks.spawn(transport.close(), "closing transport")
        self._failures.dropped(end.reason)
        wait = None if end.retry_after is None else round(end.retry_after * 1000)
        code = _LOST if end.code is None else end.code
        self._steps.call(self._session.dropped, code, end.reason, wait)
