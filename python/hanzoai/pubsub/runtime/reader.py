"""Dials, reads and closes the transport of a client: one at a time, with one reading task."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthOkFrame,
    MessageFrame,
    PublishedFrame,
)
from hanzoai.pubsub.session.events import action_of
from hanzoai.pubsub.transports import TransportEnd

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import AuthFrame, ClientFrame, Message, ServerFrame
    from hanzoai.pubsub.runtime.deliveries import Deliveries
    from hanzoai.pubsub.runtime.tasks import Tasks
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.transports import Incoming, Transport

logger = logging.getLogger("hanzoai.pubsub")

_TURN: Final = 128
"""Frames after which other tasks of the loop run.

Measured: with more waiting messages, each costs more, because the garbage collector visits them.
"""


def _is_answer(frame: Incoming) -> bool:
    if isinstance(frame, AuthErrorFrame):
        return action_of(frame.code) != "retry"
    return isinstance(frame, AuthOkFrame)


class Receiver(Protocol):
    """Processes received data; implemented by the driver."""

    busy: bool
    """Whether a step of the session runs; calls in the meantime wait."""

    waiting: deque[Callable[[], None]]
    """Calls that wait for the end of the step."""

    messages: Callable[[Sequence[Message]], None]
    """Handle consecutive live messages, in a step."""

    published: Callable[[PublishedFrame], None]
    """Handle the answer to a publish, in a step."""

    def receive(self, frame: ServerFrame, at: int) -> None:
        """Handle one frame that arrived at this time, Unix ms, in a step."""

    def run_waiting(self) -> None:
        """Handle waiting calls."""

    def malformed(self, reason: str) -> None:
        """Invalid data was skipped, for this reason."""

    def opened(self, *, incremental: bool) -> None:
        """The transport is open."""

    def dropped(self, code: int | None, reason: str, retry_after: int | None) -> None:
        """The transport has closed or did not open; ``retry_after`` in milliseconds."""


class Reader:
    """Owns the transport of the current connection; waits for full inboxes before it reads on."""

    def __init__(
        self,
        receiver: Receiver,
        deliveries: Deliveries,
        dial: Callable[[TransportName], Transport],
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._receiver = receiver
        self._deliveries = deliveries
        self._dial = dial
        self._tasks = tasks
        self._clock = clock
        self._transport: Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        self._paused = False

    @property
    def idle(self) -> int:
        """Milliseconds since the last byte; 0 while the program itself delays reading."""
        if self._transport is None or self._paused:
            return 0
        return max(0, round((self._clock.now() - self._transport.last_heard) * 1000))

    def send(self, frame: ClientFrame) -> None:
        """Pass a frame to the transport, if there is one."""
        if self._transport is not None:
            self._transport.send(frame)

    def dial(self, name: TransportName) -> None:
        """Open a transport and read it."""
        transport = self._transport = self._dial(name)
        transport.malformed = self._receiver.malformed
        self._task = self._tasks.spawn(self._serve(transport), f"reader ({name})")

    def hang_up(self, code: int) -> None:
        """Close the transport, or stop opening it; it reports nothing afterwards."""
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
        receiver, deliveries = self._receiver, self._deliveries
        largest: int | None = 0
        try:
            await transport.open()
            if self._transport is transport:
                receiver.opened(incremental=transport.incremental)
            while self._transport is transport:
                frames = await transport.receive()
                if transport.largest != largest:
                    largest = transport.largest
                    deliveries.expect(largest)
                for item in frames:
                    steps: Sequence[Incoming] = (item,)
                    if isinstance(item, list) and deliveries.near_limit:
                        # One by one, the reading stops at the message that fills an inbox.
                        steps = [[message] for message in item]
                    for frame in steps:
                        if self._transport is not transport:
                            return
                        receiver.busy = True
                        try:
                            if isinstance(frame, list):
                                receiver.messages(frame)
                                self._turn += len(frame) - 1
                            elif type(frame) is MessageFrame:
                                receiver.messages((frame.message,))
                            elif type(frame) is PublishedFrame:
                                receiver.published(frame)
                            else:
                                receiver.receive(frame, self._clock.wall_ms())
                        finally:
                            receiver.busy = False
                        if receiver.waiting:
                            receiver.run_waiting()
                        self._turn += 1
                        if self._turn >= _TURN or deliveries.give_way:
                            await self._let_others_run()
        except TransportEnd as end:
            after = end.retry_after
            wait = None if after is None else round(after * 1000)
            self._lost(transport, end.code, end.reason, wait)
        except Exception:
            logger.exception("closing the connection after an unexpected exception")
            self._lost(transport, None, "an unexpected exception in the client", None)

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

    def _lost(
        self, transport: Transport, code: int | None, reason: str, retry_after: int | None
    ) -> None:
        if self._transport is not transport:
            return
        self._transport = None
        self._tasks.spawn(transport.close(), "closing transport")
        self._receiver.dropped(code, reason, retry_after)
