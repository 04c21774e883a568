"""Listeners of a client: state changes, and errors that no call can raise."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from hanzoai.pubsub.errors import PubSubError, names
from hanzoai.pubsub.log_text import log_error, log_text
from hanzoai.pubsub.runtime.handlers import call
from hanzoai.pubsub.runtime.waiters import Waiters

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from hanzoai.pubsub.runtime.handlers import Handler
    from hanzoai.pubsub.values import StateChange

logger = logging.getLogger("hanzoai.pubsub")

_RECENT: Final = 256
"""Maximum state changes or errors that wait for a slow listener; the oldest are dropped."""


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
