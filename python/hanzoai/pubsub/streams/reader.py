"""`StreamReader`: follows one answer while it grows."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from hanzoai.pubsub.errors import ClosedError, PubSubError, UsageError
from hanzoai.pubsub.log_text import log_text
from hanzoai.pubsub.runtime.handlers import call
from hanzoai.pubsub.runtime.tasks import Waiters
from hanzoai.pubsub.settings.checks import check_function
from hanzoai.pubsub.streams.events import (
    Aborted,
    Delta,
    Done,
    Final,
    Gap,
    Snapshot,
    Stalled,
    Started,
    StreamEvent,
)
from hanzoai.pubsub.streams.messages import answered, incoming
from hanzoai.pubsub.streams.parts import Part, add_piece
from hanzoai.pubsub.streams.reading import ReaderEffect, Reading
from hanzoai.pubsub.streams.writer import RETAINED
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.values import Gap as Loss
from hanzoai.pubsub.values import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.clock import TimerHandle

logger = logging.getLogger("hanzoai.pubsub")


class StreamReader:
    """Reads one answer while it grows; ``stream_reader`` creates it.

    ::

        async with stream_reader(ps, "chat.session.abc") as s:
            async for event in s:
                match event:
                    case Delta(text=text): ...
                    case Snapshot(text=text): ...

    The reader follows the stream in the background from the start of the block. If the program
    reads slowly, the reader joins deltas, and a snapshot replaces everything before it. So you can
    use ``text`` and ``final()`` without iterating. Leaving the block or the loop never cancels the
    stream.
    """

    def __init__(
        self,
        client: PubSubClient,
        topic: str,
        *,
        id: str = "latest",
        sender: str = "",
        on_cancel: Callable[[str, str], Any] | None = None,
        on_subscribed: Callable[[], None] | None = None,
    ) -> None:
        check_function("on_cancel", on_cancel, arguments=2)
        self._client = client
        self._topic = validate_topic(topic)
        self._core = Reading(id, sender)
        self._sender = sender
        self._warned = False
        self._on_cancel = on_cancel
        self._on_subscribed = on_subscribed
        self._clock = client.clock
        self._events: deque[StreamEvent] = deque()
        self._waiters = Waiters()
        self._timer: TimerHandle | None = None
        self._due = math.inf
        self._pump: asyncio.Task[None] | None = None
        self._heal: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._begun = False
        self._over = False
        self._end: Final | None = None

    @property
    def id(self) -> str | None:
        """Id of the stream that the reader follows; None before there is one."""
        return self._core.stream

    @property
    def text(self) -> str:
        """The text so far: a prefix of the answer, unless ``stale``."""
        return self._core.text

    @property
    def parts(self) -> list[Part]:
        """All parts so far, including the text."""
        return [dict(part) for part in self._core.parts]

    @property
    def stale(self) -> bool:
        """Whether tokens are missing, until the next snapshot."""
        return self._core.stale

    @property
    def meta(self) -> Any:
        """The ``meta`` of the writer."""
        return self._core.meta

    @property
    def ignored(self) -> int:
        """Number of ignored frames: not valid, or from another writer."""
        return self._core.ignored

    def open(self) -> Self:
        """Start to follow the stream. ``async with`` and the first iteration do this."""
        if self._pump is None and not self._over:
            self._pump = asyncio.get_running_loop().create_task(self._follow())
        return self

    async def final(self) -> Final:
        """Wait for the end of the stream.

        Raises:
            ClosedError: The reader or the client was closed before.
            PubSubError: The subscription failed.
        """
        self.open()
        while self._end is None:
            await self._more()
        return self._end

    async def cancel(self, reason: str = "user") -> None:
        """Ask the writer to end the stream; it then ends with ``Aborted``.

        Calls ``on_cancel`` if it was given; otherwise, publishes ``stream.cancel``. Before the
        first event, it waits for the stream: forever, if ``id`` is one that never begins.

        Args:
            reason: Text for the writer and all readers.

        Raises:
            PermissionDenied: This client may not publish to the topic.
            ClosedError: The reader was closed before it found the stream.
            UsageError: There is no ``latest`` stream, or the producer does not support this.
        """
        stream = await self._known()
        if self._on_cancel is not None:
            await call(self._on_cancel, stream, reason)
            return
        data = {"stream": stream, "epoch": self._core.epoch, "reason": reason}
        await self._client.publish(self._topic, {"type": "stream.cancel", "data": data, "ttl": 60})

    async def steer(self, data: object) -> None:
        """Send data to the writer, which receives it in ``on_steer``.

        It waits for the stream, as ``cancel`` does.

        Args:
            data: JSON.

        Raises:
            PermissionDenied: This client may not publish to the topic.
            ClosedError: The reader was closed before it found the stream.
            UsageError: There is no ``latest`` stream, or the producer does not support this.
        """
        body = {"stream": await self._known(), "epoch": self._core.epoch, "data": data}
        await self._client.publish(self._topic, {"type": "stream.steer", "data": body, "ttl": 60})

    async def close(self) -> None:
        """Stop reading. The stream continues without this reader. You can call it several times."""
        pump, self._pump = self._pump, None
        for task in (pump, self._heal):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task})
        self._stop()

    def __aiter__(self) -> Self:
        self.open()
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._events:
            if self._over or self._end is not None:
                if self._error is None:
                    raise StopAsyncIteration
                raise self._error.with_traceback(None)
            await self._waiters.wait()
        return self._events.popleft()

    async def __aenter__(self) -> Self:
        return self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<StreamReader {self._core.stream or '-'} {self._topic}>"

    # ------------------------------------------------------------ inside

    def _now(self) -> int:
        return int(self._clock.now() * 1000)

    async def _known(self) -> str:
        self.open()
        core = self._core
        # Without a retained stream, a later one is not what the program wanted to cancel.
        while core.epoch < 0 and not (self._begun and core.want == "latest"):
            await self._more()
        if not core.stream or core.epoch < 0:
            raise UsageError(
                "There is no stream to cancel or steer yet.",
                remedy="Wait for the first event, or pass the `id` of the stream.",
            )
        return core.stream

    async def _follow(self) -> None:
        core = self._core
        try:
            subscription = self._client.subscribe(self._topic, history=RETAINED)
            try:
                await answered(subscription)
                if self._on_subscribed is not None:
                    self._on_subscribed()
                batch: list[Any] = []
                while (message := subscription.take_nowait()) is not None:
                    batch.append(incoming(message))
                self._begun = True
                self._perform(core.begin(batch, self._now()))
                events = subscription.events()
                while not core.ended and (event := await anext(events, None)) is not None:
                    if isinstance(event, Message):
                        self._perform(core.take(incoming(event), self._now()))
                    elif isinstance(event, Loss):
                        self._perform(core.lost(self._now()))
            finally:
                await subscription.unsubscribe()
        except PubSubError as error:
            self._error = error
        finally:
            self._stop()

    async def _fetch(self) -> None:
        messages: list[Any] = []
        try:
            # The next connection replays what a lost one misses; requests would only fail until
            # then.
            if self._client.state == "connected":
                async for message in self._client.history(self._topic, limit=RETAINED):
                    messages.append(incoming(message))
        except PubSubError:
            # Without the history, report a gap; the next snapshot closes it.
            messages.clear()
        self._heal = None
        self._perform(self._core.healed(messages, self._now()))

    def _perform(self, effects: list[ReaderEffect]) -> None:
        core = self._core
        replaced = False
        for effect in effects:
            if effect["kind"] == "delta" and replaced:
                # The snapshot before it already contains the text of the whole step.
                continue
            replaced = replaced or effect["kind"] == "snapshot"
            if effect["kind"] == "heal":
                self._heal = asyncio.get_running_loop().create_task(self._fetch())
            else:
                self._emit(effect)
        if core.ended and self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()
        if core.foreign is not None and core.epoch < 0 and not self._warned:
            self._warned = True
            logger.warning(
                "The reader of the stream %s ignores the frames of %s, because its `sender` is %s. "
                "If they are of the writer, pass the user id in its token as `sender`.",
                core.stream,
                log_text(core.foreign) or "an unknown sender",
                self._sender,
            )
        self._set_timer()
        self._waiters.notify()

    def _emit(self, effect: ReaderEffect) -> None:
        core, events = self._core, self._events
        if effect["kind"] == "start":
            events.append(Started(effect["meta"]))
        elif effect["kind"] == "delta":
            last = events[-1] if events else None
            pieces: list[Any] = []
            if isinstance(last, Delta):
                pieces = last.pieces
                events.pop()
            for piece in effect["pieces"]:
                add_piece(pieces, piece)
            events.append(Delta(_text(pieces), pieces))
        elif effect["kind"] == "snapshot":
            events.clear()
            events.append(Snapshot(core.text, self.parts))
        elif effect["kind"] == "gap":
            events.append(Gap(effect["first"], effect["last"]))
        elif effect["kind"] == "stalled":
            events.append(Stalled(effect["ms"] / 1000))
        elif effect["kind"] == "done":
            reason, usage = effect["reason"], effect["usage"]
            self._finish("complete", effect["count"], reason, "", usage)
            events.append(Done(core.text, reason, usage))
        elif effect["kind"] == "aborted":
            self._finish("aborted", effect["count"], effect["reason"], effect["by"], None)
            events.append(Aborted(core.text, effect["reason"], effect["by"]))

    def _finish(self, status: Any, count: int, reason: str, by: str, usage: object) -> None:
        core = self._core
        self._end = Final(
            status, core.text, self.parts, count, reason, by, usage, whole=not core.stale
        )

    def _stop(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiters.notify()

    def _set_timer(self) -> None:
        due = self._core.due
        # A tick before its time has no effect, so a timer may stay that fires earlier.
        if due is None or self._due <= due or self._over:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.call_later(max(0, due - self._now()) / 1000, self._tick)

    def _tick(self) -> None:
        self._due = math.inf
        self._perform(self._core.tick(self._now()))

    async def _more(self) -> None:
        if self._over:
            if self._error is None:
                raise ClosedError("The reader was closed before the stream ended.")
            raise self._error.with_traceback(None)
        await self._waiters.wait()


def _text(pieces: list[Any]) -> str:
    return "".join(piece for piece in pieces if isinstance(piece, str))


__all__ = ["StreamReader"]
