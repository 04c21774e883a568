"""Calls user code: one call at a time, in order, never while a frame is handled."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from hanzoai.pubsub.errors import MessagesMissed
from hanzoai.pubsub.runtime.gaps import describe_gap, warn
from hanzoai.pubsub.values import Gap, Message, PresenceChange

if TYPE_CHECKING:
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.values import Event

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
