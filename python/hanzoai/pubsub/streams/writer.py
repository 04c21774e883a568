"""`StreamWriter`: publishes one answer while it grows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Self

from hanzoai.pubsub.errors import (
    ClosedError,
    Conflict,
    InvalidOption,
    InvalidPayload,
    PayloadTooLarge,
    PubSubError,
    UsageError,
)
from hanzoai.pubsub.log_text import log_text
from hanzoai.pubsub.runtime.handlers import call, check_allow, decide
from hanzoai.pubsub.runtime.tasks import Waiters
from hanzoai.pubsub.settings.checks import check_function, check_seconds, check_whole
from hanzoai.pubsub.streams.messages import answered, incoming, sender_of
from hanzoai.pubsub.streams.parts import Part, Piece, text_of
from hanzoai.pubsub.streams.reading import EPOCH_MAX, Reading
from hanzoai.pubsub.streams.sources import check_source, close_source, invalid_piece
from hanzoai.pubsub.streams.writing import (
    LARGEST,
    PATIENCE,
    WINDOW,
    WISHES,
    EndKind,
    Publish,
    WriterEffect,
    Writing,
)
from hanzoai.pubsub.topics import validate_topic
from hanzoai.pubsub.wire.ids import message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.clock import TimerHandle
    from hanzoai.pubsub.durations import Duration
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.streams.reading import Incoming
    from hanzoai.pubsub.values import Gap, Message

logger = logging.getLogger("hanzoai.pubsub")

RETAINED: Final = 100
"""Requested messages per topic: the number that a server keeps by default."""

_warned: Final[weakref.WeakSet[PubSubClient]] = weakref.WeakSet()
"""Clients that have logged the warning that readers cannot cancel."""

_slow: Final[weakref.WeakSet[PubSubClient]] = weakref.WeakSet()
"""Clients that have logged the warning that publishes are slow."""

_PARTING: Final = 5.0
"""Seconds that an interrupted program waits until the abort is published."""

_END: Final = object()
"""Marks the end of an iterator."""

_ID_MAX: Final = 100
"""Maximum characters of the id of a stream: the ids of its messages begin with it."""


def _check_id(id: object) -> None:
    if not isinstance(id, str) or not 0 < len(id) <= _ID_MAX or id in {"latest", "next"}:
        raise InvalidOption(
            f"`id` is not the id of a stream: 1 to {_ID_MAX} characters, except `latest` and "
            "`next`, with which a reader chooses.",
            remedy="Pass such an id, for example that of the response, or leave it out.",
            field="id",
        )


class StreamCancelled(PubSubError):
    """A reader cancelled the stream; the abort is published.

    Attributes:
        reason: The reason of the reader; may be empty.
        by: Id of the reader, set by the server.
    """

    def __init__(self, reason: str, by: str, *, topic: str | None = None) -> None:
        super().__init__(
            "cancelled",
            "A reader cancelled the stream.",
            remedy="Stop the model; nothing more is published.",
            topic=topic,
        )
        self.reason = reason
        self.by = by

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.by), {"topic": self.topic}


class StreamWriter:
    """Publishes one answer token by token; ``stream_writer`` creates it.

    ::

        async with stream_writer(ps, "chat.session.abc", id=response_id) as w:
            async for chunk in llm:
                await w.write(chunk)

    If the block ends normally, the stream is complete. If it raises an exception, the stream is
    aborted, and the exception continues. The block suppresses only ``StreamCancelled``.
    """

    def __init__(
        self,
        client: PubSubClient,
        topic: str,
        *,
        id: str | None = None,
        epoch: int = 0,
        take_over: bool = False,
        sender: str = "",
        meta: Mapping[str, Any] | None = None,
        window: Duration = WINDOW / 1000,
        listen: bool = True,
        allow: Callable[[str], bool] | None = None,
        on_steer: Callable[[Any, str], Any] | None = None,
    ) -> None:
        check_whole("epoch", epoch, low=0, high=EPOCH_MAX)
        check_allow(allow)
        check_function("on_steer", on_steer, arguments=2)
        if take_over and id is None:
            raise UsageError("`take_over` needs the `id` of the stream.")
        if id is not None:
            _check_id(id)
        self._client = client
        self._topic = validate_topic(topic)
        self._id = id or message_id().replace("msg_", "st_")
        self._epoch = epoch
        self._take_over = take_over
        self._sender = sender
        self._meta = meta
        self._window = round(check_seconds("window", window, low=0.0) * 1000)
        self._listen = listen
        self._allow = allow
        self._on_steer = on_steer
        self._clock = client.clock
        self._core: Writing | None = None
        self._timer: TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters = Waiters()
        self._reading: asyncio.Task[Any] | None = None
        self._steering = asyncio.Lock()
        self._subscription: Subscription | None = None
        self._early: deque[Message] = deque(maxlen=RETAINED)
        self._asked: list[tuple[str, str]] = []
        self._cause: PubSubError | None = None
        self._error: PubSubError | None = None
        self._finished = False

    @property
    def id(self) -> str:
        """Id of the stream."""
        return self._id

    @property
    def epoch(self) -> int:
        """Epoch of this writer; with ``take_over``, it is known after ``open``."""
        return self._epoch

    @property
    def text(self) -> str:
        """The text so far, with that of earlier writers."""
        return "" if self._core is None else text_of(self._core.parts)

    @property
    def parts(self) -> list[Part]:
        """The parts so far, with those of earlier writers."""
        return [] if self._core is None else [dict(part) for part in self._core.parts]

    @property
    def cancelled(self) -> bool:
        """Whether a reader has cancelled the stream."""
        return isinstance(self._error, StreamCancelled)

    @property
    def stats(self) -> Mapping[str, int]:
        """Published ``tokens`` and ``snapshots``, repeated publishes (``retries``), and ``slowed``.

        ``slowed`` counts publishes that took more than a second. The first one of a client is
        logged at WARNING.
        """
        return {} if self._core is None else dict(self._core.stats)

    async def open(self) -> Self:
        """Publish the start of the stream. ``async with`` does this.

        Raises:
            Conflict: ``take_over`` of a stream that has ended.
        """
        if self._core is not None:
            raise UsageError("The stream is open already.")
        if self._listen:
            self._subscription = self._client.subscribe(
                self._topic, on_message=self._receive, on_gap=_ignore
            )
            self._begin(self._join(self._subscription))
        base: int | None = None
        parts: list[Part] = []
        before: list[Incoming] = []
        if self._take_over:
            try:
                base, parts, before = await self._read_before()
            except BaseException:
                self._leave()
                raise
        core = self._core = Writing(
            self._id,
            self._epoch,
            secrets.token_hex(6),
            base=base,
            parts=parts,
            meta=self._meta,
            window=self._window,
        )
        self._perform(core.open(self._now()))
        self._perform(core.inherit(before))
        for reason, by in self._asked:
            self._cancel(reason, by, own=not by)
        while self._early:
            self._receive(self._early.popleft())
        return self

    async def write(self, piece: Piece) -> None:
        """Add text, a new part, or ``{"text": ...}`` to continue the last part.

        Returns at once, unless 64 KB wait to be sent.

        Args:
            piece: Text of any length; half of a surrogate pair waits for the other half.

        Raises:
            StreamCancelled: A reader has cancelled the stream.
            Conflict: Another writer of the stream has a higher epoch.
            InvalidPayload: The argument is not a piece, is not plain JSON, or has half of a
                surrogate pair; the stream is aborted.
            PayloadTooLarge: The answer is larger than 192 KB as JSON; the stream is aborted.
            UsageError: The stream is not open, or has ended.
            PubSubError: Publishing failed for a minute, or permanently.
        """
        core = self._writable()
        self._perform(core.write(piece, self._now()), piece)
        while core.full and self._error is None:
            await self._waiters.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def pipe(
        self, source: AsyncIterable[Piece] | Iterable[Piece], *, finish_reason: str = "stop"
    ) -> None:
        """Write everything that an iterator yields, and complete the stream.

        A plain iterator is read in a thread. When a reader cancels, an asynchronous iterator is
        closed at once, and a plain one after its current item.

        Args:
            source: Yields text or other pieces; ``from_openai``, ``from_anthropic`` and
                ``from_langchain`` convert the stream of a model.
            finish_reason: Passed to ``complete``, unless the source has its own.

        Raises:
            StreamCancelled: A reader has cancelled the stream.
            InvalidOption: ``source`` is not an iterator.
            Exception: What the iterator raises; the stream is aborted with the reason ``error``.
        """
        check_source("source", source)
        # One task for the whole source, which may hold an `asyncio.timeout` over several pieces.
        reading = asyncio.get_running_loop().create_task(self._write_all(source))
        try:
            await asyncio.wait({reading})
            if self._error is None:  # otherwise, `complete` raises it
                reading.result()
            stated = getattr(source, "finish_reason", None)
            await self.complete(stated or finish_reason, usage=getattr(source, "usage", None))
        except Exception:
            await self.abort("error")
            raise
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()

    async def complete(self, finish_reason: str = "stop", *, usage: object = None) -> None:
        """Complete the stream, and wait until everything is published.

        Args:
            finish_reason: Why the model ended.
            usage: JSON that readers receive with the end, for example token counts.

        Raises:
            StreamCancelled: A reader has cancelled the stream before.
            InvalidPayload: The text ends with half of a surrogate pair; the stream is aborted.
            PubSubError: As with ``write``.
        """
        fields: dict[str, Any] = {"finish_reason": finish_reason}
        if usage is not None:
            fields["usage"] = usage
        await self._finish("complete", fields)

    async def abort(self, reason: str = "error") -> None:
        """End the stream before the answer is complete. After the end, this has no effect.

        Args:
            reason: Text for the readers.
        """
        if self._core is not None:
            with contextlib.suppress(PubSubError):
                await self._finish("abort", {"reason": reason})
            await self._drain()

    async def cancel(self, reason: str = "cancelled", by: str = "") -> None:
        """End the stream as a reader's ``cancel`` does, for example from your own route.

        A stream that is not open yet ends as soon as it is.

        Args:
            reason: Text for the readers.
            by: Id of the user who cancelled it.
        """
        if self._core is None:
            self._asked.append((reason, by))
        else:
            self._cancel(reason, by, own=not by)
            if self._error is not None:  # `allow` may reject the user
                await self._drain()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            if exc is None:
                with contextlib.suppress(StreamCancelled):
                    if not self._finished:
                        await self.complete()
                await self._drain()
            elif isinstance(exc, Exception):
                await self.abort("error")
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PARTING):
                        await self.abort("interrupted")
        finally:
            self._leave()
        return isinstance(exc, StreamCancelled) and exc is self._error

    def __repr__(self) -> str:
        return f"<StreamWriter {self._id} {self._topic}>"

    # ------------------------------------------------------------ inside

    def _now(self) -> int:
        return int(self._clock.now() * 1000)

    def _writable(self) -> Writing:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._core is None:
            raise UsageError("The stream is not open.", remedy="Write inside `async with`.")
        if self._finished:
            remedy = "Write the next answer with a new writer."
            raise UsageError("The stream has ended.", remedy=remedy)
        return self._core

    async def _read_before(self) -> tuple[int | None, list[Part], list[Incoming]]:
        """Return the tokens and parts of earlier writers, and the messages of the topic.

        Increments the epoch.
        """
        if self._subscription is not None:
            # A request that arrives while the history is read is in one of the two.
            with contextlib.suppress(PubSubError):
                await self._subscription
        messages = [
            incoming(message) async for message in self._client.history(self._topic, limit=RETAINED)
        ]
        reading = Reading(self._id, self._sender)
        reading.begin(messages, 0)
        if reading.ended or reading.epoch == EPOCH_MAX:
            problem = "has ended" if reading.ended else "has the highest epoch"
            raise Conflict(
                f"The stream {self._id} {problem}.",
                topic=self._topic,
                remedy="Use another id. If users may publish to the topic, pass `sender`.",
            )
        self._epoch = max(self._epoch, reading.epoch + 1)
        return reading.next if reading.based else None, reading.parts, messages

    async def _finish(self, kind: EndKind, fields: Mapping[str, Any]) -> None:
        if self._error is not None:
            await self._drain()
        core = self._writable()
        self._finished = True
        self._perform(core.finish(kind, fields, self._now()))
        await self._drain()
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def _drain(self) -> None:
        """Wait until the end is published or the writer has given up."""
        core = self._core
        while core is not None and not core.ended:
            await self._waiters.wait()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            self._begin(self._subscription.unsubscribe())

    async def _write_all(self, source: AsyncIterable[Piece] | Iterable[Piece]) -> None:
        iterator = aiter(source) if isinstance(source, AsyncIterable) else _threaded(iter(source))
        try:
            while (piece := await self._next(iterator)) is not _END:
                await self.write(piece)
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()

    async def _next(self, iterator: AsyncIterator[Any]) -> Any:
        """Return the next piece, or `_END`; the end of the stream cancels the wait for it."""
        self._writable()
        self._reading = asyncio.current_task()
        try:
            return await anext(iterator, _END)
        finally:
            self._reading = None

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, subscription: Subscription) -> None:
        try:
            await answered(subscription)
        except ClosedError:
            return
        except PubSubError as error:
            if not self._finished and self._client not in _warned:
                _warned.add(self._client)
                logger.warning(
                    "Readers cannot cancel or steer the stream %s: %s This applies to every topic "
                    "that this client may not read; further ones are not logged.",
                    self._id,
                    log_text(error.message),
                )

    def _receive(self, message: Message) -> None:
        if self._core is not None:
            sender = sender_of(message)
            self._perform(self._core.receive(message.type, message.data, sender))
        elif message.type in WISHES:
            self._early.append(message)

    async def _publish(self, core: Writing, frame: Publish) -> None:
        message = {name: frame[name] for name in ("type", "id", "ttl", "data")}
        try:
            # As long as the writer is patient: a publish that is repeated loses its place.
            await self._client.publish(
                self._topic, message, background=True, timeout=PATIENCE / 1000
            )
        except PubSubError as error:
            self._cause = error
            wait = None if error.retry_after is None else int(error.retry_after * 1000)
            self._perform(core.failed(error.code, error.retryable, self._now(), wait))
        except Exception as error:
            self._cause = InvalidPayload(f"The stream cannot be published: {error}", cause=error)
            self._perform(core.failed("invalid_payload", False, self._now()))
        else:
            self._perform(core.sent(self._now()))

    def _perform(self, effects: list[WriterEffect], piece: object = "") -> None:
        core = self._core
        assert core is not None
        for effect in effects:
            if effect["kind"] == "publish":
                self._begin(self._publish(core, effect))
            elif effect["kind"] == "refused":
                self._refuse(effect["code"], piece)
            elif effect["kind"] == "failed":
                self._fail(effect["code"])
            elif effect["kind"] == "cancelled":
                self._cancel(effect["reason"], effect["by"])
            elif effect["kind"] == "steered":
                self._steer(effect["data"], effect["by"])
            elif (
                effect["kind"] == "slowed"
                and not self._client.slowed  # otherwise, the client has logged the cause
                and self._client not in _slow
            ):
                _slow.add(self._client)
                logger.warning(
                    "A publish of the stream %s took %.1f s: the connection or the server was slow "
                    "or unavailable. Further ones are not logged; `stats` counts them.",
                    self._id,
                    effect["ms"] / 1000,
                )
        if self._timer is not None:
            self._timer.cancel()
        if core.due is not None:
            after = max(0, core.due - self._now()) / 1000
            self._timer = self._clock.call_later(
                after, lambda: self._perform(core.tick(self._now()))
            )
        if core.ended:
            self._leave()
        if self._error is not None and self._reading is not None:
            # Once: a second cancellation would interrupt how the source closes.
            self._reading.cancel()
            self._reading = None
        self._waiters.notify()

    def _refuse(self, code: str, piece: object) -> None:
        if code == "payload_too_large":
            self._error = PayloadTooLarge(
                f"The answer is larger than {LARGEST} bytes as JSON.",
                topic=self._topic,
                remedy="Store long results elsewhere, and write a part with their URL.",
            )
        else:
            self._error = invalid_piece(piece, self._topic)

    def _fail(self, code: str) -> None:
        if self._error is not None:
            return  # the first error ended the stream
        if code == "conflict":
            self._error = Conflict(
                f"The stream {self._id} has another writer with this epoch or a higher one.",
                topic=self._topic,
                remedy="Use another `id` for another answer. A higher `epoch` replaces this one.",
                cause=self._cause,
            )
        else:
            self._error = self._cause or PubSubError(code, topic=self._topic)

    def _cancel(self, reason: str, by: str, *, own: bool = False) -> None:
        if self._error is not None or self._finished or self._core is None:
            return
        if not own and not self._allows(by):
            who = log_text(by) or "A reader without an id"
            logger.warning("%s may not cancel the stream %s.", who, self._id)
            return
        self._error = StreamCancelled(reason, by, topic=self._topic)
        fields = {"reason": reason or "cancelled", "by": by}
        self._perform(self._core.finish("abort", fields, self._now()))

    def _steer(self, data: Any, by: str) -> None:
        handler = self._on_steer
        if handler is None or not self._allows(by):
            return

        async def steer() -> None:
            async with self._steering:
                try:
                    await call(handler, data, by)
                except Exception as error:
                    self._report(error)

        self._begin(steer())

    def _allows(self, by: str) -> bool:
        try:
            return self._allow is None or decide(self._allow, by)
        except Exception as error:
            self._report(error)
            return False

    def _report(self, error: Exception) -> None:
        self._client._report(error, self._topic)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def _ignore(gap: Gap) -> None:
    """A program cannot act on a gap in the requests of readers: they ask again."""


async def _threaded(source: Iterator[Any]) -> AsyncIterator[Any]:
    """Read a blocking iterator in a thread; close a generator after its current item."""
    turn = threading.Lock()

    def read() -> Any:
        with turn:
            return next(source, _END)

    def close() -> None:
        with turn:
            close_source(source)

    try:
        while (piece := await asyncio.to_thread(read)) is not _END:
            yield piece
    finally:
        asyncio.get_running_loop().run_in_executor(None, close)


__all__ = ["StreamCancelled", "StreamWriter"]
