"""Validates the arguments of `subscribe`, and connects a subscription to its client."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from hanzoai.pubsub.errors import OperationTimeout
from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.runtime.arguments import pattern_list, position_map, unix_ms
from hanzoai.pubsub.runtime.handlers import Handlers
from hanzoai.pubsub.runtime.inbox import Inbox
from hanzoai.pubsub.runtime.ownership import running_loop
from hanzoai.pubsub.session.requests import Subscribe
from hanzoai.pubsub.settings.checks import (
    check_function,
    check_instance,
    check_whole,
    invalid,
    kind,
)
from hanzoai.pubsub.settings.options import ReceiveQueue
from hanzoai.pubsub.topics import is_wildcard
from hanzoai.pubsub.wire.payloads import check_data

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.runtime.operations import Operations
    from hanzoai.pubsub.values import Message, PresenceChange, Since, Topics, Types

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
            driver.loop.call_soon_threadsafe(driver.unsubscribe, sub)

    async def joined(self) -> None:
        """Wait until the server has answered, or the subscription has ended."""
        inbox, driver = self.inbox, self.begin().driver
        failures, seconds = driver.failures, driver.options.operation_timeout
        if not await inbox.answered(driver.clock, seconds):
            raise OperationTimeout(
                f"The server did not answer the subscription within {seconds:g} s; it stays "
                f"active and may still be answered. {failures.describe_state()}",
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
    for one in cast("Sequence[object]", given):
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
