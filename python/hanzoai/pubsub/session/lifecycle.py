"""The lifecycle of a session: the guards and actions of the table, and the rows that fire.

The table is compiled from `spec/lifecycle.yaml`. A row fires in this order: the steps that the
report needs, the report of the change of state, its actions.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.generated.defaults import CLIENT
from hanzoai.pubsub.generated.lifecycle import INITIAL, TABLE
from hanzoai.pubsub.generated.wire import AuthFrame, ClientInfo, PingFrame
from hanzoai.pubsub.session.attempts import Attempts, Credentials, TransportChoice
from hanzoai.pubsub.session.events import NO_DETAILS, SessionEvent, action_of, code_of, unexplained
from hanzoai.pubsub.session.ports import Rejected, StateChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.lifecycle import Event as Name
    from hanzoai.pubsub.generated.lifecycle import Guard, Row, State, Steps, Timer
    from hanzoai.pubsub.session.own_presence import OwnPresence
    from hanzoai.pubsub.session.ports import Context, Peer
    from hanzoai.pubsub.session.publishes import Publishes
    from hanzoai.pubsub.session.subscriptions import Subscriptions

NORMAL: Final = 1000
RECONNECTS: Final = 4000
"""Close code of a client that will reconnect, so that the server keeps its presence."""

REPLACED: Final = 4409
"""Close code of a connection that another one has replaced."""

UNSENT: Final = "The client was closed before it could send the message."

AFTER: Final[dict[Timer, str]] = {
    "ping": "ping_interval",
    "pong": "pong_timeout",
    "stable": "stable_after",
}
"""Durations of the table's timers: names of options."""


class Lifecycle:
    """The state of a session: where it is in the table, and what the guards of the table read."""

    draining = False  # the program has asked for the end, or it has come: reject new calls
    overdue = False  # the outage is so long that history may have expired
    has_pings = True  # the transport pings, and adds single subscriptions, unlike an event stream

    def __init__(
        self,
        context: Context,
        subscriptions: Subscriptions,
        publishes: Publishes,
        own_presence: OwnPresence,
    ) -> None:
        self.state: State = INITIAL
        self.is_linked = False  # a transport is being opened, or open
        self.attempts: Final = Attempts(context)
        self.credentials: Final = Credentials(context)
        self.choice: Final = TransportChoice(context)
        self._context = context
        self._options = context.options
        self._ports = context.ports
        self._timers = context.timers
        self._subscriptions = subscriptions
        self._publishes = publishes
        self._own_presence = own_presence
        self._client_id: str | None = None
        self._useful = False  # whether the current connection has been useful
        self._replaced = False
        self._retry_in: int | None = None  # milliseconds, of the current state change
        self._pong_limit = 0  # milliseconds for the awaited pong

    # ---------------------------------------------------------------- events

    def fire(self, name: Name, event: SessionEvent = NO_DETAILS) -> None:
        """Fire the first row whose guards hold; without one, ignore the event."""
        for row in TABLE[self.state].get(name, ()):
            if all(self._holds(guard, event) for guard in row.guards):
                self._take(row, event)
                return

    def doubt_token(self) -> None:
        """The machine was suspended for an unknown time: the token may have expired."""
        if self.credentials.life is not None and self._options.renewable:
            self.forget_token(NO_DETAILS)

    def note_late(self, timer: Timer) -> None:
        """A timer fired; some show the duration of an outage."""
        if timer == "fallback":
            self.choice.is_late = True
        elif timer == "suspend":
            self.overdue = True
            self.attempts.outage = max(self.attempts.outage, self._options.suspend_after)

    def note_useful(self) -> None:
        """The connection is useful: earlier failures no longer count against the transport."""
        if not self._useful:
            self._useful = True
            self.attempts.outage = 0
            self.choice.note_useful()

    # ---------------------------------------------------------------- rows

    def _holds(self, guard: Guard, event: SessionEvent) -> bool:
        answer: bool | Callable[[SessionEvent], bool] = getattr(self, guard)
        return answer if isinstance(answer, bool) else answer(event)

    def _take(self, row: Row, event: SessionEvent) -> None:
        self._retry_in = None
        for step in row.before:
            getattr(self, step)(event)
        left, self.state = self.state, row.to
        if row.to != left:
            failed = self.attempts.failed
            change = StateChanged(left, row.to, event.code, event.message, self._retry_in, failed)
            self._ports.state_changed(change)
        for action in row.actions:
            if action[0] == "+":
                timer = cast("Timer", action[1:])
                self._timers.start(timer, getattr(self._options, AFTER[timer]))
            elif action[0] == "-":
                self._timers.stop(cast("Timer", action[1:]))
            elif "." in action:
                attrgetter(action)(self)()
            else:
                getattr(self, action)(event)

    # ---------------------------------------------------------------- guards

    def auth_fault(self, event: SessionEvent, /) -> bool:
        """The error or close code means that the token is not valid."""
        return action_of(event.code) == "reauth"

    def final_error(self, event: SessionEvent, /) -> bool:
        """The error or close code means that another attempt is useless (LIFE-9).

        So does an error of a fixed token (AUTH-4).
        """
        action = action_of(event.code)
        return action == "stop" or (action == "reauth" and not self._options.renewable)

    def first_replaced(self, event: SessionEvent, /) -> bool:
        """Another connection replaced ours, which we did not open: once may be a mistake."""
        return event.code == REPLACED and not self._replaced

    def token_fresh(self, event: SessionEvent, /) -> bool:
        """More than half of the token's lifetime is left: a new one might be rejected as soon."""
        span = self.credentials.span
        return event.left is not None and span is not None and event.left > span / 2

    @property
    def should_fall_back(self) -> bool:
        """The first WebSocket is late, and HTTP has answered as a PubSub service."""
        choice = self.choice
        return choice.is_late and choice.http_works

    @property
    def has_token(self) -> bool:
        """There is a token."""
        return self.credentials.token is not None

    def data_arrived(self, event: SessionEvent, /) -> bool:
        """Data has arrived since the ping; an event stream, which has no pings, has more time.

        Without a subscription there is no stream that could deliver data.
        """
        if self.has_pings:
            return event.idle < self._pong_limit
        limit = self._pong_limit + self._options.ping_interval
        return not self._subscriptions.all or event.idle < limit

    def reachable(self, event: SessionEvent, /) -> bool:
        """A WebSocket could be opened."""
        return event.ok

    def refused(self, event: SessionEvent, /) -> bool:
        """The token callback refuses permanently (AUTH-3)."""
        return event.code == "auth_refused"

    @property
    def unsettled(self) -> bool:
        """A publish is not settled yet."""
        return len(self._publishes) > 0

    # ---------------------------------------------------------------- actions: token

    def fetch_token(self, event: SessionEvent, /) -> None:
        """Call for a token, unless a call is in flight or the server has just caused one."""
        self.credentials.fetch(event.at, expiring=self.state == "connected")

    def schedule_refetch(self, event: SessionEvent, /) -> None:
        """Call again after a while; the current token is used until it expires."""
        self._timers.start("refresh", self.attempts.delay(self.credentials.failed - 1))

    def keep_token(self, event: SessionEvent, /) -> None:
        """Use the token until it expires."""
        self.credentials.keep(event.token, event.expires_in)

    def forget_token(self, event: SessionEvent, /) -> None:
        """Drop the token; if the server rejected it, inform the callback."""
        self.credentials.forget()
        self.credentials.rejected = self.auth_fault(event)
        self._timers.stop("expiry", "refresh")

    def send_auth(self, event: SessionEvent, /) -> None:
        """Send the token, and the client id for presence."""
        self._ports.send(self._auth(self._client_id))

    # ---------------------------------------------------------------- actions: connection

    def dial(self, event: SessionEvent, /) -> None:
        """Open a transport."""
        self._timers.start("open", self._options.open_timeout)
        self.is_linked = True
        self.attempts.requested_wait = 0
        self.attempts.can_shorten = self._useful = False
        self._timers.stop("hold")
        self._ports.dial(self.choice.name)

    def accept(self, event: SessionEvent, /) -> None:
        """The server authenticated the client: record its features."""
        self._timers.stop("open", "suspend", "fallback")
        self.overdue = self.choice.is_late = False
        self.choice.has_opened = self.has_pings
        self.renew(event)

    def renew(self, event: SessionEvent, /) -> None:
        """The server accepted the token."""
        peer = cast("Peer", event.peer)
        self._client_id = peer.client_id[:64]
        self._context.peer = peer
        self._ports.welcomed(peer)
        self.credentials.accepted(peer.token_life)

    def rejoin(self, event: SessionEvent, /) -> None:
        """Request every subscription, and send the client's own presence again."""
        self._subscriptions.connected()
        self._own_presence.connected()

    def flush(self, event: SessionEvent, /) -> None:
        """Send waiting publishes."""
        self._publishes.connected()

    def leave(self, event: SessionEvent, /) -> None:
        """Close the connection, or cancel the attempt to open one."""
        self._timers.stop("open", "ping", "pong", "stable", "refresh", "pace", "rejoin", "grace")
        self._lose()
        self.start_suspend(event)
        self._hang_up(RECONNECTS)

    def send_ping(self, event: SessionEvent, /) -> None:
        """Send a ping; an event stream sends heartbeats without pings."""
        self._pong_limit = self._options.pong_timeout
        if self.has_pings:
            self._ports.send(PingFrame())

    def check(self, event: SessionEvent, /) -> None:
        """Send a ping with the short timeout: the connection may be dead."""
        self._pong_limit = self._options.check_timeout
        self._ports.send(PingFrame())
        self._timers.start("pong", self._pong_limit)

    # ---------------------------------------------------------------- actions: choice of transport

    def probe(self, event: SessionEvent, /) -> None:
        """Probe whether a WebSocket can be opened."""
        self.choice.probes += 1
        self._ports.probe()

    def count_failure(self, event: SessionEvent, /) -> None:
        """A connection ended before it was useful (LIFE-6); an event stream is replaced at once."""
        if self._useful:
            return
        if self.choice.name == "sse":
            self.choice.change()
        elif (event.timer == "open" or unexplained(event)) and self.choice.count_failure():
            self.probe_http(event)

    def probe_http(self, event: SessionEvent, /) -> None:
        """Check whether an event stream would work instead of the WebSocket."""
        choice = self.choice
        if self.has_token and choice.may_fall_back and not choice.is_probing_http:
            choice.is_probing_http = True
            self._ports.probe(self._auth(None))

    def note_replaced(self, event: SessionEvent, /) -> None:
        """Until a connection is stable, the next occurrence is final."""
        self._replaced = True

    # ---------------------------------------------------------------- actions: attempts

    def plan_retry(self, event: SessionEvent, /) -> None:
        """Count this attempt, and draw the wait before the next one."""
        if event.timer == "open":
            self.attempts.outage += self._options.open_timeout
        self._retry_in = self.attempts.plan(
            event.retry_after_ms or 0, unsettled=self._publishes.survives_drop
        )

    def plan_now(self, event: SessionEvent, /) -> None:
        """Do not wait before the next attempt."""
        self._retry_in = self.attempts.wait = 0

    def reset_retry(self, event: SessionEvent, /) -> None:
        """Reset the count of attempts."""
        self.attempts.failed = self.attempts.outage = 0

    def note_stable(self, event: SessionEvent, /) -> None:
        """The connection is stable: earlier failures no longer count."""
        self._replaced = False
        self.note_useful()

    def start_drain(self, event: SessionEvent, /) -> None:
        """Start the timeout for settling the publishes."""
        if not self.draining:
            self.draining = True
            wait = self._options.close_timeout if event.wait is None else event.wait
            self._timers.start("drain", wait)

    # ---------------------------------------------------------------- actions: timers

    def start_fallback(self, event: SessionEvent, /) -> None:
        """Start the timeout after which the client falls back from a WebSocket that is not open."""
        if self.choice.may_fall_back and not self.choice.has_opened:
            self._timers.start("fallback", self._options.fallback_after)

    def start_suspend(self, event: SessionEvent, /) -> None:
        """Start the timer after which an outage counts as suspended."""
        if "suspend" not in self._timers and not self.overdue:
            self._timers.start("suspend", self._options.suspend_after)

    # ---------------------------------------------------------------- actions: the end

    def fail(self, event: SessionEvent, /) -> None:
        """End with an error that no retry fixes."""
        code, message = code_of(event.code), event.message or ""
        self._end(Rejected(code=code, message=message, remedy=event.remedy))

    def finish(self, event: SessionEvent, /) -> None:
        """End as requested."""
        self._end(None)

    # ---------------------------------------------------------------- inside

    def _hang_up(self, code: int) -> None:
        """Close the transport, if there is one."""
        if self.is_linked:
            self.is_linked = False
            self._ports.hang_up(code)

    def _lose(self) -> None:
        """The connection is lost."""
        self._subscriptions.lost()
        self._publishes.lost()
        self._context.peer = None

    def _end(self, error: Rejected | None) -> None:
        """Stop all timers, calls and the transport; settle the remaining publishes."""
        self.draining = True
        self._timers.stop_all()
        self.credentials.abandon()
        self._hang_up(NORMAL)
        self._lose()
        unsent = error or Rejected(code="closed", message=UNSENT)
        self._publishes.settle_all(unsent)
        self._own_presence.settle_all(unsent)
        self._ports.finished(error)

    def _auth(self, client_id: str | None) -> AuthFrame:
        """The `auth` frame for the current token."""
        options, token = self._options, cast("str", self.credentials.token)
        client = ClientInfo(
            name=options.client_name, version=options.client_version, lang=options.client_lang
        )
        version = CLIENT.protocol_version
        return AuthFrame(token=token, version=version, client=client, client_id=client_id)


if TYPE_CHECKING:
    # It has every guard and action of the table.
    _steps: type[Steps[SessionEvent]] = Lifecycle
