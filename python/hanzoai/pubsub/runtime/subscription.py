"""`Subscription`: messages of the topics that a program subscribed to.

Its `Feed` connects it to the client.
"""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar, cast

from hanzoai.pubsub.errors import OperationTimeout, UsageError
from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.model import Data_co
from hanzoai.pubsub.runtime.arguments import PATTERNS_MAX, pattern_list, position_map, unix_ms
from hanzoai.pubsub.runtime.environment import refuse_copy, running_loop
from hanzoai.pubsub.runtime.handlers import Handlers
from hanzoai.pubsub.runtime.inbox import Inbox
from hanzoai.pubsub.session.ports import Subscribe
from hanzoai.pubsub.settings.checks import (
    check_function,
    check_instance,
    check_whole,
    invalid,
    kind,
)
from hanzoai.pubsub.settings.options import ReceiveQueue
from hanzoai.pubsub.topics import is_wildcard
from hanzoai.pubsub.values import Gap, Message
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

    from hanzoai.pubsub.generated.wire import Denial
    from hanzoai.pubsub.payload_models import PayloadModel
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.runtime.operations import Operations
    from hanzoai.pubsub.values import Event, PresenceChange, Since, SubscriptionStats, Topics, Types

_HISTORY_MAX: Final = 10_000
_TYPE_MAX: Final = 128
_REMEDY: Final = "Try again, or wait longer; `hanzo-pubsub doctor` finds the first cause."
_numbers: Final = itertools.count(1)


class Feed:
    """The inboxes, handlers and request of one subscription.

    Tasks and the driver reference it, but not the subscription, which is thus collected when the
    program drops it. `ready` returns the operations of the client, in the running loop.
    """

    def __init__(
        self,
        topics: Topics,
        *,
        types: Types | None,
        since: Since | None,
        history: int | None,
        after: Mapping[str, int] | None,
        on_message: Handler[Message] | None,
        on_presence: Handler[PresenceChange] | None,
        on_gap: GapHandler | None,
        presence: bool | Mapping[str, Any] | None,
        state_loader: StateLoader | None,
        queue: ReceiveQueue,
        now_ms: int,
        ready: Callable[[], Operations],
    ) -> None:
        check_function("on_message", on_message)
        check_function("on_presence", on_presence)
        _check_on_gap(on_gap, iterated=on_message is None)
        check_function("state_loader", state_loader, arguments=2)
        if history is not None:
            check_whole("history", history, low=0, high=_HISTORY_MAX, unit="a number of messages")
        check_instance("queue", queue, ReceiveQueue)
        positions = position_map(after)
        request = self._request = Subscribe(
            next(_numbers),
            pattern_list(topics),
            since=None if since is None else unix_ms(since, now_ms),
            history=history,
            after=positions,
            presence=on_presence is not None if presence is None else presence is not False,
        )
        self._own_presence = _own(presence, request.topics)
        self._ready = ready
        self._operations: Operations | None = None
        self.loop: asyncio.AbstractEventLoop | None = None  # until the subscription is sent
        inbox = self.inbox = Inbox(request.topics, queue, self.leave)
        inbox.positions.update(positions)
        inbox.history = history
        inbox.types = _type_set(types)
        self.handlers = Handlers(on_message, on_presence, on_gap, state_loader, self._report)
        if on_presence is not None and on_message is None:
            # An iteration does not call `on_presence`. Each change contains all members, so a full
            # inbox keeps the latest one of each topic.
            inbox.presence = Inbox(request.topics, replace(queue, policy="gap"), self.leave)

    def outage(self) -> str | None:
        """Since when there has been no connection, and why; None with a connection."""
        return None if self._operations is None else self._operations.driver.failures.outage()

    def begin(self) -> Operations:
        """Send the subscription, once, from the running loop; return the client's operations."""
        operations = self._operations
        if operations is not None:
            operations.driver.owner.check()
            return operations
        operations = self._ready()
        driver = operations.driver
        driver.check_open()
        self._operations = operations
        self.loop = driver.loop
        driver.subscribe(self._request, self.inbox)
        if self._own_presence is not None:
            driver.spawn(self._set_presence(operations, self._own_presence), "own presence")
        if self.handlers.on_message is not None or self.inbox.presence is not None:
            driver.spawn(self._run_handlers(operations), "handlers")
        return operations

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that subscribed."""
        return self._operations is not None and self._operations.driver.owner.is_foreign

    def leave(self, *, collected: bool = False) -> None:
        """End the subscription; from any thread.

        A collected one ends in the next turn, because the garbage collector interrupts anything.
        """
        if self._operations is None or self.is_foreign:
            return
        driver, sub = self._operations.driver, self._request.sub
        if running_loop() is driver.loop and not collected:
            driver.unsubscribe(sub)
        elif not driver.loop.is_closed():
            driver.loop.call_soon_threadsafe(self.inbox.finish)
            driver.loop.call_soon_threadsafe(driver.unsubscribe, sub)

    async def joined(self) -> None:
        """Wait until the server has answered, or the subscription has ended."""
        inbox, driver = self.inbox, self.begin().driver
        failures, seconds = driver.failures, driver.options.operation_timeout
        if not await inbox.answered(driver.clock, seconds):
            problem = f"did not answer the subscription within {seconds:g} s"
            state = driver.session.subscriptions.all.get(self._request.sub)
            if state is not None and (refusal := state.refusal) is not None:
                why = (refusal.message or refusal.code).rstrip(".")
                problem = f"rejected the subscription for now: {why} ({refusal.code})"
            raise OperationTimeout(
                f"The server {problem}; it stays active and may still be answered. "
                f"{failures.describe_state()}",
                topic=inbox.topics[0],
                remedy=failures.remedy(_REMEDY),
                cause=failures.cause,
                outcome_unknown=True,
            )

    async def _set_presence(self, operations: Operations, own: dict[str, Any]) -> None:
        await self.inbox.answered(operations.driver.clock)
        if self.inbox.finished:
            return
        for topic in itertools.filterfalse(is_wildcard, self.inbox.granted):
            operations.publisher.set_presence(topic, own)

    async def _run_handlers(self, operations: Operations) -> None:
        await self.handlers.run(self.inbox.presence or self.inbox)
        error = self.inbox.error
        if error is not None and not self.inbox.observed:
            self.inbox.observed = True
            operations.report_end(error, self._request.topics)

    def _report(self, error: Exception, topic: str | None) -> None:
        if self._operations is not None:
            self._operations.driver.listeners.report(error, topic)


def _own(presence: object, topics: tuple[str, ...]) -> dict[str, Any] | None:
    if presence is None or isinstance(presence, bool):
        return None
    if not isinstance(presence, Mapping):
        raise invalid(
            "presence",
            f"is {kind(presence)}",
            "Pass True, False, or a mapping of what members see of this client.",
        )
    if all(map(is_wildcard, topics)):
        raise invalid(
            "presence",
            "is an object, and every topic has a wildcard",
            "Give a topic by its name: only its subscribers are members.",
        )
    own = dict(cast("Mapping[str, Any]", presence))
    check_data(own, LIMITS.max_payload, path="presence")
    return own


def _type_set(types: object) -> frozenset[str] | None:
    if types is None:
        return None
    given: object = (types,) if isinstance(types, str) else types
    listed = not isinstance(given, bytes) and isinstance(given, Sequence | AbstractSet)
    if not listed or not given:
        problem = "empty" if listed else kind(types)
        raise invalid("types", f"is {problem}", "Pass a message type or several.")
    several = cast("Sequence[object]", given)
    if len(several) > PATTERNS_MAX:
        problem = f"has {len(several):,} types; a subscription has at most {PATTERNS_MAX:,}"
        raise invalid("types", problem, f"Pass 1 to {PATTERNS_MAX:,} message types.")
    for one in several:
        if not isinstance(one, str) or not 0 < len(one) <= _TYPE_MAX:
            problem = f"a text of {len(one)} characters" if isinstance(one, str) else kind(one)
            raise invalid(
                "types",
                f"contains {problem}",
                f"Pass message types of 1 to {_TYPE_MAX} characters.",
            )
    return frozenset(cast("Sequence[str]", given))


def _check_on_gap(on_gap: object, *, iterated: bool) -> None:
    if on_gap != "raise":
        check_function(
            "on_gap", on_gap, remedy='Pass a function, a coroutine function, or "raise".'
        )
    elif not iterated:
        raise invalid(
            "on_gap",
            'is "raise", and `on_message` leaves no iteration that could raise',
            "Pass a function as `on_gap`, or iterate the subscription.",
        )


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
        ready = self._ready
        if ready and self._cut is None:
            return ready.popleft()
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
