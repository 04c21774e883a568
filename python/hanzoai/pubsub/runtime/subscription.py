"""`Subscription`: messages of the topics that a program subscribed to."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.model import Data_co
from hanzoai.pubsub.runtime.ownership import refuse_copy, running_loop
from hanzoai.pubsub.values import Gap, Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping

    from hanzoai.pubsub.generated.wire import Denial
    from hanzoai.pubsub.payload_models import PayloadModel
    from hanzoai.pubsub.runtime.subscribing import Feed
    from hanzoai.pubsub.values import Event, SubscriptionStats

T = TypeVar("T")


class Subscription(Generic[Data_co]):
    """Messages of one or more topics: an async iterator, a context manager and an awaitable.

    ``PubSubClient.subscribe`` returns it::

        async with ps.subscribe("agent.**.events") as sub:  # unsubscribes at the end
            async for message in sub: ...

        sub = await ps.subscribe("chat.1", on_message=show)  # waits until the server has answered
        await sub.unsubscribe()

    An iteration ends after the waiting messages when you unsubscribe or close the client. It raises
    the error if the client or the subscription fails. It skips gaps and logs them, unless
    ``on_gap`` or ``state_loader`` handles them. ``break`` in an ``async for`` does not unsubscribe.
    If you drop the last reference to a subscription without ``on_message`` and ``on_presence``, it
    unsubscribes with a ResourceWarning (which Python shows with ``-X dev``). If ``await sub`` is
    cancelled, a subscription with handlers also unsubscribes when you drop it.
    """

    def __init__(self, feed: Feed, *, warns: bool) -> None:
        self._feed = feed
        self._inbox = feed.inbox
        self._handlers = feed.handlers
        self._ready = deque[Message]() if feed.handlers.on_message else feed.inbox.ready
        self.outage = feed.outage
        """Since when there has been no connection, and why; None with a connection."""
        self._warns = warns
        self._cancelled = False
        """Whether the last wait for the answer was cancelled."""
        self._model: PayloadModel[Any] | None = None
        self._cut: tuple[Gap, asyncio.Task[None]] | None = None
        """A gap whose handlers run although the wait for them was cancelled."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The requested patterns."""
        return self._inbox.topics

    @property
    def denied(self) -> tuple[Denial, ...]:
        """The patterns that the server rejected while it granted others."""
        return self._inbox.denied

    @property
    def active(self) -> bool:
        """Whether more messages can arrive."""
        return not self._inbox.finished

    @property
    def positions(self) -> Mapping[str, int]:
        """Position of the last message that the program has taken, by topic.

        Pass it as ``after`` to continue in another program.
        """
        return dict(self._inbox.positions)

    @property
    def stats(self) -> SubscriptionStats:
        """Counters of received, handled, dropped and waiting messages."""
        return self._inbox.stats()

    async def unsubscribe(self) -> None:
        """End the subscription, and drop the waiting messages.

        You can call it several times, and from handlers.
        """
        self._cut = None
        self._inbox.finish()
        self._inbox.clear()
        self._feed.leave()

    def events(self) -> AsyncIterator[Event[Data_co]]:
        """Iterate over messages, gaps and, if requested, presence changes, in one order.

        Presence changes arrive here unless ``on_presence`` receives them.
        """
        self._begin_reading()
        return _Events(partial(self.__anext__, True))

    def __aiter__(self) -> Self:
        self._begin_reading()
        return self

    async def __anext__(self, every: bool = False, /) -> Message[Data_co]:
        if self._ready and self._cut is None:
            return self._ready.popleft()
        if self._handlers.on_message is not None:
            self._refuse_handled()
        inbox = self._inbox
        while True:
            entry = inbox.take() if self._cut is None else self._cut[0]
            if type(entry) is Message:
                read = entry if self._model is None else self._model.read(entry)
                if read is not None:
                    return read
            elif entry is None:
                waiter = self._wait_entry()
                if waiter is not None:
                    await waiter
            else:
                if type(entry) is Gap:
                    await self._call_handlers(entry, seen=every)
                if every:
                    return cast("Message[Data_co]", entry)

    def take_nowait(self) -> Message[Data_co] | None:
        """Return the next message if one is waiting and no gap precedes it, otherwise None.

        Raises:
            UsageError: The messages go to ``on_message``.
        """
        self._refuse_handled()
        peek = self._inbox.peek
        while self._cut is None and (entry := peek()) is not None and type(entry) is not Gap:
            taken = self._inbox.take()
            if type(taken) is Message:
                read = taken if self._model is None else self._model.read(taken)
                if read is not None:
                    return read
        return None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._wait_joined().__await__()

    async def __aenter__(self) -> Self:
        try:
            return await self._wait_joined()
        except BaseException:
            await self.unsubscribe()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.unsubscribe()

    def __reduce__(self) -> NoReturn:
        refuse_copy(self, "Subscribe in each process, from `positions` if needed.")

    def __repr__(self) -> str:
        state = "ended" if self._inbox.finished else "joined" if self._inbox.joined else "joining"
        return f"<Subscription {' '.join(self.topics[:3])} {state}>"

    def __del__(self) -> None:
        # Runs in any thread and at any time, so it only schedules a call in the loop.
        feed: Feed | None = getattr(self, "_feed", None)
        if feed is None or feed.loop is None or self._inbox.finished:
            return
        handlers = self._handlers
        # A cancelled `await ps.subscribe(..., on_message=f)` returned nothing to end it with.
        if not self._cancelled and (handlers.on_message or handlers.on_presence):
            return
        if feed.is_foreign:  # the parent process still uses it
            return
        if self._warns and not self._cancelled:
            warnings.warn(
                f"{self!r} was dropped without unsubscribe(); use `async with`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
        self._inbox.finish()
        feed.leave(collected=True)

    # ------------------------------------------------------------ inside

    def typed(self, model: PayloadModel[T]) -> Subscription[T]:
        """Return this subscription, whose messages from now on are parsed with the model."""
        self._model = model
        self._ready = deque[Message]()
        return cast("Subscription[T]", self)

    def _begin_reading(self) -> None:
        self._refuse_handled()
        self._inbox.observed = True

    def _refuse_handled(self) -> None:
        if self._handlers.on_message is not None:
            raise UsageError(
                "This subscription passes its messages to `on_message`.",
                remedy="Iterate it, or pass `on_message`, not both.",
            )

    async def _call_handlers(self, gap: Gap, *, seen: bool) -> None:
        """Call the handlers of a gap, or raise it; after a cancelled wait, continue to wait."""
        handlers = self._handlers
        if handlers.handle_gaps:
            cut, self._cut = self._cut, None
            if cut is None:
                spawn = self._feed.begin().driver.spawn
                cut = gap, spawn(handlers.gap(gap, self._inbox.positions), "handlers of a gap")
            try:
                await asyncio.wait({cut[1]})
            except asyncio.CancelledError:
                self._cut = cut
                raise
        handlers.pass_gap(gap, seen=seen)

    def _wait_entry(self) -> Awaitable[None] | None:
        """Start waiting for an entry; None if there is one. At the end, raise instead."""
        inbox = self._inbox
        inbox.observed = True
        if inbox.finished:
            if inbox.error is not None:
                raise inbox.error.with_traceback(None)
            raise StopAsyncIteration
        feed = self._feed
        if feed.loop is None or running_loop() is not feed.loop:
            feed.begin()
        return inbox.wait() if inbox.empty else None

    async def _wait_joined(self) -> Self:
        inbox = self._inbox
        observed, inbox.observed = inbox.observed, True
        cancelled = False
        try:
            await self._feed.joined()
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            # Here, because several tasks may wait.
            self._cancelled = cancelled
            inbox.observed = observed or inbox.error is not None
        if inbox.error is not None:
            raise inbox.error.with_traceback(None)
        return self


class _Events(Generic[Data_co]):
    """The iterator of ``Subscription.events``; the method references the subscription."""

    def __init__(self, following: Callable[[], Awaitable[Event[Data_co]]]) -> None:
        self._following = following

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[Data_co]:
        return await self._following()
