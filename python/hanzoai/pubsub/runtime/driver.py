"""The driver: performs what the session decides, and tells it what happens.

One task reads the transport and never awaits user code. Events are handled one at a time; what is
fed while one is being handled waits for its turn, so a session never sees two at once. Every task
is kept until it has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.errors import AuthRefused, ClosedError, ProtocolError, PubSubError, from_code
from hanzoai.pubsub.generated.lifecycle import PUBLIC
from hanzoai.pubsub.generated.wire import AuthOkFrame, Limits
from hanzoai.pubsub.runtime.deliveries import Deliveries
from hanzoai.pubsub.runtime.keeper import TaskKeeper
from hanzoai.pubsub.runtime.reader import Reader
from hanzoai.pubsub.runtime.troubles import Troubles, describe_failure
from hanzoai.pubsub.runtime.watch import Watch
from hanzoai.pubsub.session import effects, events
from hanzoai.pubsub.session.effects import Deliver
from hanzoai.pubsub.session.events import Received, TimerFired
from hanzoai.pubsub.session.peer import Peer, read_peer
from hanzoai.pubsub.settings.checks import check_seconds
from hanzoai.pubsub.values import StateChange, StateName

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from hanzoai.pubsub.clock import Clock, TimerHandle
    from hanzoai.pubsub.generated.wire import Envelope, ServerFrame
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.runtime.tokens import TokenSource
    from hanzoai.pubsub.session.effects import Effect, Outcome, TransportName
    from hanzoai.pubsub.session.events import Event
    from hanzoai.pubsub.session.session import Session
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports import Transport

logger = logging.getLogger("hanzoai.pubsub")


_LOST: Final = 1006
"""What a connection without a close code counts as (docs/errors.md)."""


class Driver:
    """Runs one session in one event loop.

    Args:
        session: Decides.
        options: What the client is set to.
        clock: Every timer and both readings of time.
        tokens: Asks the program for tokens.
        dial: Makes a transport that is not open yet.
        opened: Addresses of WebSockets that have worked in this process.
        on_state: Called with each change of the public state.
        on_error: Called with errors that no call can raise, and the topic.
    """

    def __init__(
        self,
        session: Session,
        options: ClientOptions,
        clock: Clock,
        tokens: TokenSource,
        *,
        dial: Callable[[TransportName], Transport],
        opened: set[str],
        on_state: Callable[[StateChange], None],
        on_error: Callable[[Exception, str | None], None],
    ) -> None:
        self.session = session
        self.options = options
        self.clock = clock
        self.tokens = tokens
        self.loop = asyncio.get_running_loop()
        self.state: StateName = "initialized"
        self.troubles = Troubles(options, clock)
        self.finished = False
        self.error: PubSubError | None = None
        self.client_id: str | None = None
        self.limits = Limits()
        self.peer: Peer | None = None
        self.on_welcome: Callable[[AuthOkFrame], None] = _ignore
        self.on_joined: Callable[[Inbox], None] = _ignore
        self.on_settle: Callable[[], None] = _nothing
        self.on_finish: Callable[[], None] = _nothing
        self._opened = opened
        self._on_state = on_state
        self._on_error = on_error
        self._queue: deque[Event] = deque()
        self._busy = False
        self._timers: dict[str, TimerHandle] = {}
        self._drain_ms: int | None = None
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._probes: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._settles: dict[int, asyncio.Future[Outcome]] = {}
        self._keeper = TaskKeeper(clock)
        self.spawn = self._keeper.spawn
        self._reader = Reader(self, dial, self._keeper, clock)
        self._waiters: set[asyncio.Future[None]] = set()
        self._watch = Watch(clock, lambda: self.feed(events.Woke()))
        deliveries = self._deliveries = Deliveries(self._reader.give_way, echo=options.echo)
        self._deliver = deliveries.deliver
        self._deliver_run = deliveries.deliver_run
        self.remember_own = deliveries.remember_own
        self.expect = deliveries.expect
        self.blocking_inboxes = deliveries.blocking
        self._perform_one: dict[type[Any], Callable[[Any], None]] = {
            effects.StateChanged: self._change_state,
            effects.Fetch: self._fetch,
            effects.AbandonFetch: self._abandon_fetch,
            effects.Dial: self._dial,
            effects.HangUp: lambda effect: self._reader.hang_up(effect.code),
            effects.Send: lambda effect: self._reader.send(effect.frame),
            effects.StartTimer: self._start_timer,
            effects.CancelTimer: self._cancel_timer,
            effects.Probe: lambda _: self._probe(self._run_probe()),
            effects.ProbeHttp: lambda effect: self._probe(self._run_probe_http(effect)),
            effects.Gap: deliveries.tell_gap,
            effects.Joined: self._join,
            effects.PresenceChanged: deliveries.tell_presence,
            effects.Settle: self._settle,
            effects.Problem: self._problem,
            effects.Finished: self._finish,
        }

    # ------------------------------------------------------------ events in, effects out

    def feed(self, event: Event) -> None:
        """Have the session handle an event, now or after the one it is at."""
        self._queue.append(event)
        if not self._busy:
            self._run_queue()
            self._reader.flush()

    def _run_queue(self) -> None:
        self._busy = True
        try:
            while self._queue:
                self._perform(self.session.handle(self._queue.popleft()))
        finally:
            self._busy = False

    def receive(self, frame: ServerFrame, at: int) -> None:
        """Handle one frame; one message for one subscription, as usual, goes a short way."""
        if type(frame) is AuthOkFrame:
            self._welcome(frame)
        self._busy = True
        try:
            produced = self.session.handle(Received(frame, at))
            if len(produced) == 1 and type(effect := produced[0]) is Deliver:
                self._deliver(effect.sub, effect.message)
            else:
                self._perform(produced)
        finally:
            self._busy = False
        if self._queue:
            self._run_queue()

    def _welcome(self, frame: AuthOkFrame) -> None:
        self.client_id = frame.client_id
        self.limits = frame.limits or Limits()
        if self._reader.incremental:
            self._opened.add(self.options.socket_url)
        self.peer = read_peer(frame, incremental=self._reader.incremental)
        if frame.expires_at is not None:
            now = self.clock.wall_ms() if frame.server_time is None else frame.server_time
            self.tokens.learn(frame.expires_at - now)
        self.on_welcome(frame)

    def _perform(self, produced: Sequence[Effect]) -> None:
        run: list[Envelope] = []  # messages of one subscription in a row: a replay
        run_sub = 0
        for effect in produced:
            if type(effect) is Deliver:
                if run and effect.sub != run_sub:
                    self._deliver_run(run_sub, run)
                    run = []
                run_sub = effect.sub
                run.append(effect.message)
                continue
            if run:
                self._deliver_run(run_sub, run)
                run = []
            self._perform_one[type(effect)](effect)
        if run:
            self._deliver_run(run_sub, run)

    # ------------------------------------------------------------ what others need of it

    def add(self, sub: int, inbox: Inbox, presence_inbox: Inbox) -> None:
        """Route what the session delivers to a subscription."""
        self._deliveries.add(sub, inbox, presence_inbox)

    def remove(self, sub: int) -> None:
        """End a subscription. Does nothing when it has ended."""
        if self._deliveries.remove(sub) and not self.finished:
            self.feed(events.Unsubscribe(sub))
            self._notify()

    def number(self) -> int:
        """A number that names nothing else of this client in what the session settles."""
        self._numbers += 1
        return self._numbers

    def begin(
        self, event: events.Publish | events.UpdatePresence, ref: int
    ) -> asyncio.Future[Outcome]:
        """Have the session handle what it settles as `ref`; the future gets the outcome."""
        settled: asyncio.Future[Outcome] = self.loop.create_future()
        self._settles[ref] = settled
        self.feed(event)
        return settled

    def refuse_ended(self) -> None:
        """Raise what ended the client, if it has ended.

        Raises:
            PubSubError: It failed.
            ClosedError: It was closed.
        """
        if self.finished:
            raise self.error.with_traceback(None) if self.error else ClosedError()

    def patience(self, timeout: float | None) -> float:
        """Seconds that an operation may take.

        Raises:
            InvalidOption: It is no time, or none that anything could be done in.
        """
        if timeout is None:
            return self.options.operation_timeout
        check_seconds("timeout", timeout)
        return timeout

    async def until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition holds.

        It is asked when the state changes, the server answers, or a subscription ends.

        Returns:
            Whether it holds; False also where the client has ended or the time has passed first.
        """
        if condition():
            return True
        passed = False

        def expire() -> None:
            nonlocal passed
            passed = True
            self._notify()

        timer = None if seconds is None else self.clock.call_later(seconds, expire)
        try:
            while not (met := condition()) and not passed and not self.finished:
                await self._next_notice()
        finally:
            if timer is not None:
                timer.cancel()
        return met

    async def _next_notice(self) -> None:
        waiter = self.loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def connect(self) -> None:
        """Connect, unless that was asked for before."""
        if self.state == "initialized":
            self._watch.start()
            self.feed(events.Connect(opened=self.options.socket_url in self._opened))

    def hurry(self) -> None:
        """Connect; or, where a connection is lost, do not wait long for the next attempt."""
        if self.state == "initialized":
            self.connect()
        else:
            self.feed(events.Connect())

    async def close(self, timeout: float | None) -> None:
        """Settle the publishes, end, and wait for every task, within the time for all of it."""
        ends = self.clock.now() + (self.options.close_timeout if timeout is None else timeout)
        if not self.finished:
            if timeout is not None:
                self._drain_ms = round(timeout * 1000)
            self.feed(events.Abort() if timeout == 0 else events.Close())
        await self.until(lambda: self.finished)
        await self._keeper.see_out(max(0.0, ends - self.clock.now()))

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------ the transport

    def malformed(self, reason: str) -> None:
        """Something that is no frame was left out: the program is told, and the rest is read."""
        self._on_error(ProtocolError(f"A frame of the server was left out: {reason}."), None)

    def opened(self, *, incremental: bool) -> None:
        """See ``Receiver``."""
        self.feed(events.Opened(incremental))

    def dropped(self, code: int | None, reason: str, retry_after: int | None) -> None:
        """See ``Receiver``."""
        self.troubles.dropped(reason)
        self.feed(events.Dropped(_LOST if code is None else code, reason, retry_after))

    def _dial(self, effect: effects.Dial) -> None:
        self.troubles.dialed(effect.transport)
        self._reader.dial(effect.transport)

    def _probe(self, probing: Coroutine[Any, Any, None]) -> None:
        task = self.spawn(probing, "probe")
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _run_probe(self) -> None:
        self.feed(events.Probed(await self._reader.probe(self.options.open_timeout)))

    async def _run_probe_http(self, effect: effects.ProbeHttp) -> None:
        limit = self.options.open_timeout
        self.feed(events.Answered(await self._reader.probe_http(effect.auth, limit)))

    # ------------------------------------------------------------ tokens

    def _fetch(self, effect: effects.Fetch) -> None:
        fixed = self.tokens.fixed
        if fixed is not None:
            self.feed(events.Token(effect.id, fixed.value))
        else:
            self._fetches[effect.id] = self.spawn(self._run_fetch(effect), "token")

    async def _run_fetch(self, effect: effects.Fetch) -> None:
        try:
            token = await self.tokens.fetch(effect.reason, effect.attempt)
        except Exception as error:
            self._fetches.pop(effect.id, None)
            refused = isinstance(error, AuthRefused)
            said = describe_failure(error)
            if not refused:
                self.troubles.token_failed(error)
                self._on_error(from_code("token_unavailable", f"{said}.", cause=error), None)
            self.feed(events.TokenFailed(effect.id, refused, said))
            return
        self._fetches.pop(effect.id, None)
        ends = token.expires_at
        left = None if ends is None else max(0, ends - self.clock.wall_ms())
        self.feed(events.Token(effect.id, token.value, left))

    def _abandon_fetch(self, effect: effects.AbandonFetch) -> None:
        task = self._fetches.pop(effect.id, None)
        if task is not None:
            task.cancel()

    # ------------------------------------------------------------ timers

    def _start_timer(self, effect: effects.StartTimer) -> None:
        name = effect.name
        self._cancel(name)
        after = effect.after
        if name == "drain" and self._drain_ms is not None:
            after = self._drain_ms
        self._timers[name] = self.clock.call_later(after / 1000, lambda: self._fire(effect.name))

    def _fire(self, name: events.TimerName) -> None:
        self._timers.pop(name, None)
        self.feed(TimerFired(name, self._reader.idle))

    def _cancel_timer(self, effect: effects.CancelTimer) -> None:
        self._cancel(effect.name)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    # ------------------------------------------------------------ to the calls and listeners

    def _join(self, effect: effects.Joined) -> None:
        inbox = self._deliveries.join(effect)
        if inbox is not None:
            self.on_joined(inbox)
            self._notify()

    def _settle(self, effect: effects.Settle) -> None:
        settled = self._settles.pop(effect.ref, None)
        if settled is not None and not settled.done():
            settled.set_result(effect.outcome)
        self.on_settle()

    def _change_state(self, effect: effects.StateChanged) -> None:
        before = PUBLIC[effect.from_]
        if before == effect.public:
            return
        self.state = effect.public
        change = StateChange(
            from_=before,
            to=effect.public,
            code=effect.code,
            reason=effect.reason or "",
            retry_in=effect.retry_in,
            attempt=effect.attempt,
        )
        self.troubles.changed(change)
        logger.debug("%s -> %s %s", before, effect.public, effect.code or "")
        self._on_state(change)
        self._notify()

    def _problem(self, effect: effects.Problem) -> None:
        if effect.code == "going_away":
            self.troubles.announced()
        wait = effect.retry_after
        error = from_code(
            effect.code,
            effect.message,
            topic=effect.topic,
            retry_after=None if wait is None else wait / 1000,
        )
        self._on_error(error, effect.topic)

    def _finish(self, effect: effects.Finished) -> None:
        self.finished = True
        said = effect.error
        if said is not None:
            self.error = from_code(said.code, said.message, remedy=said.remedy, topic=said.topic)
        for name in list(self._timers):
            self._cancel(name)
        self._watch.stop()
        for task in (*self._fetches.values(), *self._probes):
            task.cancel()
        self._fetches.clear()
        self._deliveries.finish(self.error)
        self.on_finish()
        self._notify()


def _ignore(_: object) -> None:
    """Nobody asks what the server can do."""


def _nothing() -> None:
    """Nobody waits for room in the queue of publishes."""
