"""Calls functions of the program: one call at a time, in order, never while a frame is handled.

Errors and gaps that no function receives are logged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar
from weakref import WeakSet

from hanzoai.pubsub.errors import MessagesMissed, PubSubError, UsageError, names
from hanzoai.pubsub.log_text import log_error, log_text
from hanzoai.pubsub.runtime.tasks import Waiters
from hanzoai.pubsub.settings.checks import check_function, invalid
from hanzoai.pubsub.values import Gap, Message, PresenceChange

if TYPE_CHECKING:
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.values import Event, StateChange

logger = logging.getLogger("hanzoai.pubsub")

Value = TypeVar("Value")
Handler: TypeAlias = Callable[[Value], Awaitable[Any] | Any]
"""A function or a coroutine function; its result is ignored."""

GapHandler: TypeAlias = Handler[Gap] | Literal["raise"]
"""A handler of gaps, or ``"raise"``: the iteration raises ``MessagesMissed`` for each."""

StateLoader: TypeAlias = Callable[[Gap, Mapping[str, int]], Awaitable[Any] | Any]
"""``state_loader(gap, positions)``: loads the state that the missing messages led to (REC-4).

``positions`` were recorded before the call, so everything after them is delivered as messages.
"""

Report: TypeAlias = Callable[[Exception, str | None], None]
"""Receives the exceptions of handlers, with the topic."""

_REASONS: Final[Mapping[str, str]] = {
    "history_trimmed": "the history of the server no longer reaches that far back, or one replay "
    "cannot contain them",
    "log_reset": "the server lost its history, or messages of other nodes",
    "node_changed": "the client moved to a node that has its own history",
    "slow_consumer": "the program reads too slowly, and the queue of the subscription was full",
    "unproven": "the server cannot prove that none is missing",
}

_POSSIBLE: Final = ("node_changed", "unproven")
"""Reasons for which possibly no message is missing."""

_LOGGED: Final = 1_000
"""Maximum remembered topics with a logged gap; above it, a gap of the oldest may be logged
again.
"""

_RECENT: Final = 256
"""Maximum state changes or errors that wait for a slow listener; the oldest are dropped."""

_GIVE_ALLOW: Final = (
    "Pass a function that returns True or False immediately; load earlier what it needs."
)


async def call(handler: Callable[..., Awaitable[Any] | Any], *arguments: object) -> Any:
    """Call a handler, await it if it is asynchronous, and return its result."""
    try:
        result = handler(*arguments)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError as error:
        me = asyncio.current_task()
        if me is None or me.cancelling():
            raise
        # A future that it awaited was cancelled: this task, which calls all handlers, continues.
        raise RuntimeError(
            "A callback raised the CancelledError of something that it awaited"
        ) from error


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of one subscription; ``report`` receives their exceptions."""

    on_message: Handler[Message] | None
    on_presence: Handler[PresenceChange] | None
    on_gap: GapHandler | None
    state_loader: StateLoader | None
    report: Report
    _logged: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def handle_gaps(self) -> bool:
        """Whether a function of the program is called with gaps."""
        return self.state_loader is not None or callable(self.on_gap)

    async def gap(self, gap: Gap, positions: Mapping[str, int]) -> None:
        """Load the state after a gap, then call ``on_gap``; ``positions``: of the subscription."""
        await self._guard(self.state_loader, gap, dict(positions))
        if self.on_gap != "raise":
            await self._guard(self.on_gap, gap)

    def pass_gap(self, gap: Gap, *, seen: bool = False) -> None:
        """Raise or log a gap, as ``on_gap`` requires; ``seen``: the program receives it."""
        if self.on_gap == "raise":
            raise MessagesMissed(describe_gap(gap), topic=gap.topic, gap=gap)
        if not self.handle_gaps and not seen:
            warn(gap, self._logged)

    async def run(self, inbox: Inbox) -> None:
        """Pass all entries of the inbox to the handlers until it has ended."""
        while True:
            entry = inbox.take()
            if entry is None:
                if inbox.finished:
                    return
                await inbox.wait()
            elif isinstance(entry, Gap):
                await self.gap(entry, inbox.positions)
                self.pass_gap(entry)
            elif isinstance(entry, PresenceChange):
                await self._guard(self.on_presence, entry)
            else:
                await self._guard(self.on_message, entry)

    async def _guard(
        self, handler: Callable[..., Any] | None, entry: Event, *others: object
    ) -> None:
        if handler is not None:
            try:
                await call(handler, entry, *others)
            except Exception as error:
                self.report(error, entry.topic)


def describe_gap(gap: Gap) -> str:
    """The missing messages and the reason, in one sentence."""
    if gap.missed is None:
        what = "Perhaps messages" if gap.reason in _POSSIBLE else "Messages"
    else:
        what = f"{gap.missed:,} message{'s' if gap.missed != 1 else ''}"
    known = gap.missed is not None and gap.from_ is not None and gap.to is not None
    where = f" (positions {gap.from_} to {gap.to})" if known else ""
    verb = "was" if gap.missed == 1 else "were"
    return f"{what} of topic {gap.topic}{where} {verb} missed: {_REASONS[gap.reason]}."


def warn(gap: Gap, logged: dict[str, None]) -> None:
    """Log the first gap of each topic that no handler receives."""
    if gap.topic in logged:
        return
    logged[gap.topic] = None
    if len(logged) > _LOGGED:
        del logged[next(iter(logged))]
    logger.warning(
        '%s To handle gaps, pass `on_gap` (a function, or "raise") or `state_loader` to '
        "subscribe(), or iterate `sub.events()`. Further gaps of this topic are not logged for "
        "this subscription; `sub.stats` counts them.",
        log_text(describe_gap(gap)),
    )


class StateStream:
    """An async iterator over state changes."""

    def __init__(self, listeners: Listeners) -> None:
        self.changes: deque[StateChange] = deque(maxlen=_RECENT)  # not taken yet
        self._listeners = listeners

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StateChange:
        listeners = self._listeners
        while not self.changes:
            if listeners.finished:
                raise StopAsyncIteration
            await listeners.waiters.wait()
        return self.changes.popleft()


class Listener:
    """Calls one function with values, in order, from a separate task; `what`: its name."""

    def __init__(
        self,
        function: Callable[..., Awaitable[Any] | Any],
        what: str,
        spawn: Callable[[Any, str], asyncio.Task[None]],
    ) -> None:
        self._function = function
        self._what = what
        self._spawn = spawn
        self._waiting: deque[object] = deque(maxlen=_RECENT)
        self._task: asyncio.Task[None] | None = None

    def notify(self, value: object) -> None:
        """Schedule a call of the function with a value."""
        self._waiting.append(value)
        if self._task is None or self._task.done():
            self._task = self._spawn(self._run(), self._what)

    async def _run(self) -> None:
        while self._waiting:
            try:
                await call(self._function, self._waiting.popleft())
            except Exception:
                logger.exception("%s raised an exception", self._what)


class Listeners:
    """The listeners of one client, and its iterations over state changes."""

    def __init__(
        self,
        on_state: Handler[StateChange] | None,
        on_error: Handler[Exception] | None,
        spawn: Callable[[Any, str], asyncio.Task[None]],
    ) -> None:
        self._on_state = None if on_state is None else Listener(on_state, "on_state", spawn)
        self._on_error = None if on_error is None else Listener(on_error, "on_error", spawn)
        # Weak: a `break` ends an iteration without notice.
        self._streams: WeakSet[StateStream] = WeakSet()
        # Of all iterations: a task and its iteration, which refer only to each other, could be
        # collected.
        self.waiters = Waiters()
        self.finished = False

    def states(self) -> StateStream:
        """State changes from now on."""
        stream = StateStream(self)
        self._streams.add(stream)
        return stream

    def notify(self, change: StateChange) -> None:
        """Report a state change."""
        if self._on_state is not None:
            self._on_state.notify(change)
        for stream in self._streams:
            stream.changes.append(change)
        self.waiters.notify()

    def report(self, error: Exception, topic: str | None) -> None:
        """Report an error that no call can raise to the program (ERR-1)."""
        if self._on_error is not None:
            if topic is not None and not isinstance(error, PubSubError):
                error.add_note(f"topic: {topic}")
            self._on_error.notify(error)
            return
        where = "" if topic is None else f" (topic {topic})"
        if isinstance(error, PubSubError):
            # A restarting server sends this; a failed reconnect is a warning of its own.
            level = logging.INFO if error.code == "going_away" else logging.ERROR
            if topic is not None and names(error.message, topic):
                where = ""
            logger.log(level, "%s: %s%s", log_text(error.code), log_error(error), log_text(where))
        else:
            logger.error("A handler raised an exception%s", log_text(where), exc_info=error)

    def finish(self) -> None:
        """End the iterations over state changes."""
        self.finished = True
        self.waiters.notify()


def check_allow(allow: object, arguments: int = 1) -> None:
    """Check `allow`: None, or a function of this many arguments, but not a coroutine function."""
    check_function("allow", allow, _GIVE_ALLOW, arguments)
    if inspect.iscoroutinefunction(allow):
        raise invalid("allow", "is a coroutine function", _GIVE_ALLOW)


def decide(allow: Callable[..., object], *arguments: object) -> bool:
    """Call `allow`, which must not return an awaitable: it would count as True."""
    decision = allow(*arguments)
    if inspect.isawaitable(decision):
        if asyncio.iscoroutine(decision):
            decision.close()
        raise UsageError("`allow` returned an awaitable.", remedy=_GIVE_ALLOW)
    return bool(decision)
