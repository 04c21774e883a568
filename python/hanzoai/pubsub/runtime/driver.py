"""The driver: the ports of a session in one event loop, and the calls into it.

One task reads the transport and never awaits user code. Every task is referenced until it has
ended.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from typing import TYPE_CHECKING, Final, TypeVarTuple

from hanzoai.pubsub.errors import AuthRefused, ClosedError
from hanzoai.pubsub.generated.lifecycle import PUBLIC
from hanzoai.pubsub.generated.wire import Limits
from hanzoai.pubsub.log_text import log_text
from hanzoai.pubsub.runtime.connection import Connection, Steps
from hanzoai.pubsub.runtime.environment import Owner
from hanzoai.pubsub.runtime.failures import Failures, describe_failure, rejected, unavailable
from hanzoai.pubsub.runtime.handlers import Listeners
from hanzoai.pubsub.runtime.inbox import Deliveries
from hanzoai.pubsub.runtime.tasks import Tasks
from hanzoai.pubsub.runtime.tokens import TokenSource
from hanzoai.pubsub.session.session import Session
from hanzoai.pubsub.settings.checks import check_seconds
from hanzoai.pubsub.values import StateChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import TimerHandle
    from hanzoai.pubsub.errors import PubSubError
    from hanzoai.pubsub.generated.wire import AuthFrame, Denial
    from hanzoai.pubsub.runtime.environment import Environment
    from hanzoai.pubsub.runtime.handlers import Handler
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.session.ports import (
        Outcome,
        Peer,
        Ports,
        Rejected,
        StateChanged,
        Subscribe,
        TimerName,
    )
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.settings.session import SessionOptions
    from hanzoai.pubsub.values import Duration, TokenReason

Ts = TypeVarTuple("Ts")

logger = logging.getLogger("hanzoai.pubsub")

_WATCH: Final = 5.0
"""Seconds between two checks whether the machine was suspended (LIFE-5)."""

_SUSPENDED: Final = 5.0
"""Seconds by which the wall clock must get ahead of the monotonic clock to show a suspension."""


class Driver:
    """Runs one session in one event loop."""

    def __init__(
        self,
        options: ClientOptions,
        environment: Environment,
        on_state: Handler[StateChange] | None,
        on_error: Handler[Exception] | None,
        *,
        make_session: Callable[[SessionOptions, Ports, Callable[[], float]], Session] = Session,
    ) -> None:
        clock = environment.clock
        self.options = options
        self.environment = environment
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.owner = Owner(self.loop)
        tasks = self._tasks = Tasks(clock)
        self.spawn = tasks.spawn
        listeners = self.listeners = Listeners(on_state, on_error, tasks.spawn)
        self.tokens = TokenSource(options, clock)
        self.failures = Failures(options, environment)
        self.is_finished = False
        self.error: PubSubError | None = None
        self.peer: Peer | None = None
        self.max_payload = options.max_payload  # or what the server states
        steps = self._steps = Steps()
        self.call = steps.call
        self._timers: dict[str, TimerHandle] = {}
        self._fetching: asyncio.Task[None] | None = None
        self._token_problem: str | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._is_slowed = False
        self.number: Callable[[], int] = itertools.count(1).__next__
        """A number that is unique among the publishes and updates of this client."""
        self._unsettled: dict[int, tuple[asyncio.Future[Outcome], float]] = {}
        """Publishes and updates of presence without an outcome, and their deadlines."""
        self._given_up: list[int] = []
        """Publishes whose calls were cancelled in this turn of the loop."""
        self._next_deadline = math.inf
        # Ports that do not use the driver's state.
        deliveries = self.deliveries = Deliveries()
        self.deliver = deliveries.deliver
        self.gap = deliveries.gap
        self.presence_changed = deliveries.presence_changed
        session = self.session = make_session(options.session(), self, environment.random)
        connection = self._connection = Connection(
            session,
            steps,
            deliveries,
            self.failures,
            listeners,
            tasks,
            clock,
            lambda name: environment.dial(name, options),
            lambda: environment.prepare_fallback(options),
        )
        self.dial = connection.dial
        self.send = connection.send
        self.hang_up = connection.hang_up

    # ------------------------------------------------------------ operations

    @property
    def limits(self) -> Limits:
        """The server's limits, if known."""
        return Limits() if self.peer is None else self.peer.limits

    def subscribe(self, request: Subscribe, inbox: Inbox) -> None:
        """Begin a subscription, and connect."""
        self.deliveries.add(request.sub, inbox)
        self.connect()
        self.call(self.session.subscribe, request)

    def unsubscribe(self, sub: int) -> None:
        """End a subscription. Does nothing when it has ended."""
        if self.deliveries.remove(sub) and not self.is_finished:
            self.call(self.session.unsubscribe, sub)

    def settled(
        self, ref: int, deadline: float, step: Callable[[*Ts], None], *args: *Ts
    ) -> asyncio.Future[Outcome]:
        """Perform a step that settles `ref`, or give up at the deadline; returns the outcome."""
        if self._given_up:
            self._expire_given_up()  # their room in the queue is free
        settled: asyncio.Future[Outcome] = self.loop.create_future()
        self._unsettled[ref] = settled, deadline
        if deadline < self._next_deadline:
            self._expire_at(deadline)
        steps = self._steps
        if steps.busy:
            self.call(step, *args)
            return settled
        # Same as `call`, inlined because it runs for every publish.
        steps.busy = True
        try:
            step(*args)
        finally:
            steps.busy = False
        if steps.waiting:
            steps.run_waiting()
        return settled

    def _expire_at(self, deadline: float) -> None:
        """Start the only timer of all deadlines: one per publish would be as slow as the session.

        It also fires if the publish with this deadline is settled before.
        """
        self._next_deadline = deadline
        self._start("deadline", max(0.0, deadline - self.clock.now()), self._expire_due)

    def _expire_due(self) -> None:
        self._next_deadline, now = math.inf, self.clock.now()
        due = [ref for ref, (_, deadline) in self._unsettled.items() if deadline <= now]
        self.call(self.session.expire, due)
        later = min((deadline for _, deadline in self._unsettled.values()), default=math.inf)
        if later < self._next_deadline:
            self._expire_at(later)

    def give_up(self, ref: int) -> None:
        """Give up a call that was cancelled, with all that are cancelled in this turn.

        One by one, the next one would be sent in its place before its own call ends.
        """
        if not self._given_up:
            self.loop.call_soon(self._expire_given_up)
        self._given_up.append(ref)

    def _expire_given_up(self) -> None:
        given_up, self._given_up = self._given_up, []
        self.call(self.session.expire, given_up)

    def check_open(self) -> None:
        """Raise the error that ended the client, if it has ended."""
        if self.is_finished:
            raise self.error.with_traceback(None) if self.error else ClosedError()

    def timeout_of(self, timeout: Duration | None) -> float:
        """Timeout of an operation in seconds, which is positive."""
        if timeout is None:
            return self.options.operation_timeout
        return check_seconds("timeout", timeout)

    async def connected(self, seconds: float) -> bool:
        """Wait until the client is connected or has ended, and return whether it is connected."""
        await self.listeners.waiters.until(
            lambda: self.is_finished or self.failures.state == "connected", self.clock, seconds
        )
        return self.failures.state == "connected"

    def connect(self) -> None:
        """Connect, unless this was requested before."""
        if self.failures.state == "initialized":
            self._watch(math.inf)
            opened = self.options.socket_url in self.environment.opened
            self.call(self.session.connect, opened=opened)

    async def close(self, timeout: float | None) -> float:
        """Settle the publishes, close, and wait for every task; return the remaining seconds."""
        ends = self.clock.now() + (self.options.close_timeout if timeout is None else timeout)
        if not self.is_finished:
            if timeout == 0:
                self.call(self.session.abort)
            else:
                self.call(self.session.close, None if timeout is None else round(timeout * 1000))
        await self.listeners.waiters.until(lambda: self.is_finished, self.clock)
        await self._tasks.join(max(0.0, ends - self.clock.now()))
        return max(0.0, ends - self.clock.now())

    # ------------------------------------------------------------ the transport

    def welcomed(self, peer: Peer, /) -> None:
        """See ``Ports``."""
        self.peer = peer
        self.deliveries.user = peer.user_id if peer.resends else None
        self.max_payload = peer.limits.max_payload or self.options.max_payload
        if peer.incremental:
            self.environment.opened.add(self.options.socket_url)
        if peer.token_life is not None:
            self.tokens.learn(peer.token_life)

    def probe(self, auth: AuthFrame | None = None, /) -> None:
        """See ``Ports``."""
        answer = self.session.probed if auth is None else self.session.answered

        async def run() -> None:
            self.call(answer, ok=await self._connection.probe(auth, self.options.open_timeout))

        task = self.spawn(run(), "probe")
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    # ------------------------------------------------------------ tokens

    def fetch_token(self, call: int, reason: TokenReason, attempt: int, /) -> None:
        """See ``Ports``."""
        token = self.options.token
        if token is not None:
            self.call(self.session.token, call, token)
        else:
            self._fetching = self.spawn(self._fetch(call, reason, attempt), "token")

    async def _fetch(self, call: int, reason: TokenReason, attempt: int) -> None:
        try:
            token = await self.tokens.fetch(reason, attempt)
        except Exception as error:
            refused = isinstance(error, AuthRefused)
            words = describe_failure(error)
            if not refused:
                self.failures.cause = error
                # Each attempt fails with the same cause until the program has fixed it.
                if words != self._token_problem:
                    self.listeners.report(unavailable(error), None)
                self._token_problem = words
            self.call(self.session.token_failed, call, words, refused=refused)
            return
        self._token_problem = None
        ends = token.expires_ms
        left = None if ends is None else max(0, ends - self.clock.wall_ms())
        self.call(self.session.token, call, token.value, left)

    def abandon_fetch(self, call: int, /) -> None:
        """See ``Ports``."""
        if self._fetching is not None:
            self._fetching.cancel()

    # ------------------------------------------------------------ timers

    def start_timer(self, name: TimerName, after: int, /) -> None:
        """See ``Ports``."""
        self._start(name, after / 1000, lambda: self._fire(name))

    def _start(self, name: str, seconds: float, due: Callable[[], None]) -> None:
        self.cancel_timer(name)
        self._timers[name] = self.clock.call_later(seconds, due)

    def cancel_timer(self, name: str, /) -> None:
        """See ``Ports``."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _watch(self, before: float) -> None:
        """Tell the session of a suspension: the difference of the clocks has grown since then."""
        difference = self.clock.wall_ms() / 1000 - self.clock.now()
        self._start("watch", _WATCH, lambda: self._watch(difference))
        if difference - before > _SUSPENDED:
            logger.info("The machine slept for %.0f s", difference - before)
            self.call(self.session.woke)

    def _fire(self, name: TimerName) -> None:
        self._timers.pop(name, None)
        self.call(self.session.timer_fired, name, self._connection.idle)
        if name != "pace" or not self.session.publishes.slowed or self._is_slowed:
            return
        self._is_slowed = True
        rate = self.limits.publish_rate
        logger.warning(
            "A publish waited a second or more: the server accepts %s with this token. Publish "
            "less often, combine several changes in one message, or raise the rate of the server. "
            "Further waits are not logged; `ps.slowed` counts them.",
            f"{rate:g} messages per second" if rate else "no more messages for now",
        )

    # ------------------------------------------------------------ to the calls and listeners

    def joined(self, sub: int, topics: tuple[str, ...], denied: tuple[Denial, ...], /) -> None:
        """See ``Ports``."""
        inbox = self.deliveries.joined(sub, topics, denied)
        if inbox is None:
            return
        asked, inbox.history = inbox.history or 0, None  # warn once per subscription
        kept = self.limits.history_max
        if kept is not None and asked > kept:
            logger.warning(
                "subscribe() to %s asks for `history` of %s messages, and the server retains %s "
                "messages of a topic, unless its settings say otherwise for this topic "
                "(`ps.limits.history_max`).",
                inbox.topics[0],
                f"{asked:,}",
                f"{kept:,}",
            )

    def settle(self, ref: int, outcome: Outcome, /) -> None:
        """See ``Ports``."""
        found = self._unsettled.pop(ref, None)
        if found is not None and not found[0].done():
            found[0].set_result(outcome)

    def state_changed(self, change: StateChanged, /) -> None:
        """See ``Ports``."""
        before, after = PUBLIC[change.from_], PUBLIC[change.to]
        if before == after:
            return
        shown = StateChange(
            from_=before,
            to=after,
            code=change.code,
            reason=change.reason or "",
            retry_in=None if change.retry_in is None else change.retry_in / 1000,
            attempt=change.attempt,
        )
        self.failures.changed(shown)
        code = "" if change.code is None else log_text(f" {change.code}")
        logger.debug("%s -> %s%s", before, after, code)
        self.listeners.notify(shown)

    def problem(self, problem: Rejected, /) -> None:
        """See ``Ports``."""
        self.failures.note_problem(problem)
        self.listeners.report(rejected(problem), problem.topic)

    def finished(self, error: Rejected | None, /) -> None:
        """See ``Ports``."""
        self.is_finished = True
        if error is not None:
            self.error = rejected(error)
        for name in list(self._timers):
            self.cancel_timer(name)
        for task in self._probes:
            task.cancel()
        self.deliveries.finish(self.error)
        self.listeners.finish()
