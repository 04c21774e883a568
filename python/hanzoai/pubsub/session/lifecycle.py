"""The lifecycle of a session: the guards and actions of the table, and the rows that fire.

The table is compiled from `spec/lifecycle.yaml`. A row fires in this order: the steps that the
report needs, the report of the change of state, its actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.generated.defaults import CLIENT
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.generated.lifecycle import INITIAL, PUBLIC, TABLE, TIMERS, Steps
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthExpiringFrame,
    AuthFrame,
    AuthOkFrame,
    ClientInfo,
    ErrorFrame,
    PingFrame,
)
from hanzoai.pubsub.session.attempts import Attempts
from hanzoai.pubsub.session.causes import action_of, cause, retry_after, unexplained
from hanzoai.pubsub.session.credentials import MAX_TIMER, Credentials
from hanzoai.pubsub.session.events import (
    Dropped,
    Event,
    Probed,
    Received,
    TimerFired,
    Token,
    TokenFailed,
)
from hanzoai.pubsub.session.peer import Peer, read_peer
from hanzoai.pubsub.session.ports import Rejected, StateChanged
from hanzoai.pubsub.session.transport_choice import TransportChoice

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.lifecycle import Event as Name
    from hanzoai.pubsub.generated.lifecycle import Row, State, Timer
    from hanzoai.pubsub.session.context import Context
    from hanzoai.pubsub.session.events import TimerName
    from hanzoai.pubsub.session.own_presence import OwnPresence
    from hanzoai.pubsub.session.publishes import Publishes
    from hanzoai.pubsub.session.subscriptions import Subscriptions

NORMAL: Final = 1000
RECONNECTS: Final = 4000
"""Close code of a client that will reconnect, so that the server keeps its presence."""

REPLACED: Final = 4409
"""Close code of a connection that another one has replaced."""

AFTER: Final[dict[Timer, str]] = {
    "ping": "ping_interval",
    "pong": "pong_timeout",
    "stable": "stable_after",
}
"""Durations of the table's timers: names of options."""

_LEAVING: Final[tuple[TimerName, ...]] = (
    "open",
    "ping",
    "pong",
    "stable",
    "refresh",
    "pace",
    "rejoin",
    "grace",
)
"""Timers that end with a connection, or with the attempt to open one."""

_OPENING: Final[tuple[TimerName, ...]] = ("open", "suspend", "fallback")
"""Timers that end once the server has authenticated the client."""


class Lifecycle(Steps[Event]):
    """The state of a session.

    Attributes:
        state: The session's state in the table.
        fired: The rows that fired, for tests; None if they are not recorded.
    """

    def __init__(
        self,
        context: Context,
        subscriptions: Subscriptions,
        publishes: Publishes,
        own_presence: OwnPresence,
    ) -> None:
        self.state: State = INITIAL
        self.fired: set[tuple[State, Name, int]] | None = None
        self.is_draining = False
        self.is_linked = False  # a transport is being opened, or open
        self._context = context
        self._options = context.options
        self._ports = context.ports
        self._timers = context.timers
        self._subscriptions = subscriptions
        self._publishes = publishes
        self._own_presence = own_presence
        self._credentials: Final = Credentials(renewable=context.options.renewable)
        self._attempts: Final = Attempts(context)
        self._choice: Final = TransportChoice(context.options)
        self._incremental = True
        self._client_id: str | None = None
        self._works = False  # the current connection has been useful
        self._replaced = False
        self._overdue = False
        self._retry_in: int | None = None  # milliseconds, of the current state change
        self._pong_limit = context.options.pong_timeout  # milliseconds for the awaited pong

    # ---------------------------------------------------------------- events

    def fire(self, name: Name, event: Event = None) -> None:
        """Fire the first row whose guards hold; without one, ignore the event."""
        state = self.state
        for n, row in enumerate(TABLE[state].get(name, ())):
            if all(getattr(self, guard)(event) for guard in row.guards):
                if self.fired is not None:
                    self.fired.add((state, name, n))
                self._take(row, event)
                return

    def connect(self, *, opened: bool) -> None:
        """The user wants a connection; `opened`: a WebSocket to this address has worked before."""
        self._choice.has_opened |= opened
        self.fire("connect")
        self.hurry()

    def hurry(self) -> None:
        """The program made a call: end a long wait for the next attempt."""
        attempts = self._attempts
        if attempts.sleeping:
            attempts.called = "hold" in self._timers
            if not attempts.called:
                self.fire("called")

    def token(self, event: Token | TokenFailed) -> None:
        """The token callback answered, or failed."""
        if self._credentials.answered(event.fetch):
            self._timers.stop("fetch")
            self.fire("token" if isinstance(event, Token) else "token_failed", event)

    def opened(self, *, incremental: bool) -> None:
        """The transport is open."""
        if self.is_linked:
            self._incremental = incremental
            self.fire("opened")

    def dropped(self, event: Dropped) -> None:
        """The transport was closed, or could not be opened."""
        if self.is_linked:
            self.is_linked = False
            self.fire("dropped", event)

    def answered(self, event: Event, *, ok: bool) -> None:
        """The HTTP address answered as a PubSub service, or it did not."""
        self._choice.http_answered(ok=ok)
        self.fire("answered", event)

    def woke(self) -> None:
        """The machine slept, or the network is back."""
        if self._credentials.life is not None and self._credentials.renewable:
            self.forget_token(None)  # the duration of the suspension is unknown
        self.fire("woke")

    def timer_fired(self, event: TimerFired) -> None:
        """A timer of the table, or `hold`, has run out."""
        name = event.name
        if name == "hold":
            if self._attempts.called:
                self.fire("called", event)
            return
        if name == "suspend":
            self._overdue = True
            self._attempts.outage = max(self._attempts.outage, self._options.suspend_after)
        self._choice.late |= name == "fallback"
        self.fire(TIMERS[cast("Timer", name)], event)

    def stay_away(self, milliseconds: int) -> None:
        """The server requested a wait, before it ends the connection."""
        self._attempts.stay_away = milliseconds

    def proves_well(self) -> None:
        """The connection is useful: earlier failures no longer count against the transport."""
        if not self._works:
            self._prove()

    # ---------------------------------------------------------------- rows

    def _take(self, row: Row, event: Event) -> None:
        self._retry_in = None
        for step in row.before:
            getattr(self, step)(event)
        left, self.state = self.state, row.to
        if row.to != left:
            code, reason = cause(event)
            retry_in, failed = self._retry_in, self._attempts.failed
            self._ports.state_changed(
                StateChanged(left, row.to, PUBLIC[row.to], code, reason, retry_in, failed)
            )
        for action in row.actions:
            if action[0] == "+":
                timer = cast("Timer", action[1:])
                self._timers.start(timer, getattr(self._options, AFTER[timer]))
            elif action[0] == "-":
                self._timers.stop(cast("Timer", action[1:]))
            else:
                getattr(self, action)(event)

    # ---------------------------------------------------------------- guards

    def auth_fault(self, event: Event, /) -> bool:
        """The error or close code means that the token is not valid."""
        return action_of(cause(event)[0]) == "reauth"

    def draining(self, event: Event, /) -> bool:
        """The user has requested the end after all publishes are settled."""
        return self.is_draining

    def final_error(self, event: Event, /) -> bool:
        """The error or close code means that another attempt is useless (LIFE-9).

        So does an error of a fixed token (AUTH-4).
        """
        action = action_of(cause(event)[0])
        return action == "stop" or (action == "reauth" and not self._credentials.renewable)

    def first_replaced(self, event: Event, /) -> bool:
        """Another connection replaced ours, which we did not open: once may be a mistake."""
        return isinstance(event, Dropped) and event.code == REPLACED and not self._replaced

    def fresh(self, event: Event, /) -> bool:
        """More than half of the token's lifetime is left: a new one might be rejected as soon."""
        span = self._credentials.span
        if not isinstance(event, Received) or not isinstance(event.frame, AuthExpiringFrame):
            return False
        left, end = event.frame.expires_in, event.frame.expires_at
        if left is None and end is not None:
            left = end - event.at
        return left is not None and span is not None and left > span / 2

    def gives_way(self, event: Event, /) -> bool:
        """The first WebSocket is late, and HTTP has answered as a PubSub service."""
        choice = self._choice
        return choice.late and choice.may_fall_back and choice.answered

    def has_token(self, event: Event, /) -> bool:
        """There is a token."""
        return self._credentials.token is not None

    def has_pings(self, event: Event, /) -> bool:
        """The server answers pings on this transport; an event stream has none."""
        return self._incremental

    def heard(self, event: Event, /) -> bool:
        """Data has arrived since the ping; an event stream, which has no pings, has more time.

        Without a subscription there is no stream that could deliver data.
        """
        patience = self._pong_limit
        if not self._incremental:
            if self._subscriptions.empty:
                return True
            patience += self._options.ping_interval
        return isinstance(event, TimerFired) and event.idle < patience

    def overdue(self, event: Event, /) -> bool:
        """The outage is so long that history may have expired."""
        return self._overdue

    def reachable(self, event: Event, /) -> bool:
        """A WebSocket could be opened."""
        return isinstance(event, Probed) and event.ok

    def refused(self, event: Event, /) -> bool:
        """The token callback refuses permanently (AUTH-3)."""
        return isinstance(event, TokenFailed) and event.refused

    def unsettled(self, event: Event, /) -> bool:
        """A publish is not settled yet."""
        return len(self._publishes) > 0

    # ---------------------------------------------------------------- actions: token

    def fetch_token(self, event: Event, /) -> None:
        """Call for a token, unless a call is in flight or the server has just caused one."""
        wait = self._credentials.hold_off(event.at) if isinstance(event, Received) else 0
        if wait:
            self._timers.start("refresh", wait)
        elif self._credentials.fetch(self._ports, expiring=self.state == "connected"):
            self._timers.start("fetch", self._options.fetch_timeout)

    def abandon_fetch(self, event: Event, /) -> None:
        """Cancel the call."""
        if self._credentials.abandon(self._ports):
            self._credentials.attempt += 1

    def schedule_refetch(self, event: Event, /) -> None:
        """Call again after a while; the current token is used until it expires."""
        self._credentials.attempt += isinstance(event, TokenFailed)
        self._timers.start("refresh", self._attempts.delay(self._credentials.attempt - 1))

    def keep_token(self, event: Event, /) -> None:
        """Use the token until it expires."""
        if isinstance(event, Token):
            self._credentials.keep(event)
            self._timers.stop("expiry")
            self._live_for(event.expires_in, "expiry")

    def forget_token(self, event: Event, /) -> None:
        """Drop the token; if the server rejected it, inform the callback."""
        self._credentials.forget()
        self._credentials.rejected |= isinstance(event, Dropped | Received)
        self._timers.stop("expiry")
        self._timers.stop("refresh")

    def send_auth(self, event: Event, /) -> None:
        """Send the token, and the client id for presence."""
        frame = self._auth(self._client_id)
        if frame is not None:
            self._ports.send(frame)

    # ---------------------------------------------------------------- actions: connection

    def dial(self, event: Event, /) -> None:
        """Open a transport."""
        self._timers.start("open", self._options.open_timeout)
        self.is_linked = True
        self._attempts.stay_away = 0
        self._attempts.sleeping = self._works = False
        self._timers.stop("hold")
        self._ports.dial(self._choice.name)

    def accept(self, event: Event, /) -> None:
        """The server authenticated the client: record its features."""
        for timer in _OPENING:
            self._timers.stop(timer)
        if isinstance(event, Received) and isinstance(event.frame, AuthOkFrame):
            self._overdue = self._choice.late = False
            self._choice.has_opened |= self._incremental
            peer = self._read_peer(event.frame, event.at)
            self._publishes.connected(peer)
            self._renew_before_end(peer)

    def renew(self, event: Event, /) -> None:
        """The server accepted the new token."""
        if isinstance(event, Received) and isinstance(event.frame, AuthOkFrame):
            self._renew_before_end(self._read_peer(event.frame, event.at))

    def rejoin(self, event: Event, /) -> None:
        """Request every subscription, and send the user's own presence again."""
        if self._context.peer is not None:
            self._subscriptions.connected(self._context.peer)
            self._own_presence.connected()

    def flush(self, event: Event, /) -> None:
        """Send waiting publishes."""
        self._publishes.flush()

    def leave(self, event: Event, /) -> None:
        """Close the connection, or cancel the attempt to open one."""
        for timer in _LEAVING:
            self._timers.stop(timer)
        self._subscriptions.lost()
        peer, self._context.peer = self._context.peer, None
        self._publishes.lost(peer)
        self._own_presence.lost()
        self.start_suspend(event)
        self._hang_up(RECONNECTS)

    def send_ping(self, event: Event, /) -> None:
        """Send a ping; an event stream sends heartbeats without pings."""
        self._pong_limit = self._options.pong_timeout
        if self._incremental:
            self._ports.send(PingFrame())

    def check(self, event: Event, /) -> None:
        """Send a ping with the short timeout: the connection may be dead."""
        self._pong_limit = self._options.check_timeout
        self._ports.send(PingFrame())
        self._timers.start("pong", self._pong_limit)

    # ---------------------------------------------------------------- actions: choice of transport

    def probe(self, event: Event, /) -> None:
        """Probe whether a WebSocket can be opened."""
        self._choice.probed()
        self._ports.probe()

    def count_failure(self, event: Event, /) -> None:
        """A connection ended before it was useful (LIFE-6); an event stream is replaced at once."""
        if self._works:
            return
        if self._choice.name == "sse":
            self.change_transport(event)
        elif (
            isinstance(event, TimerFired) or (isinstance(event, Dropped) and unexplained(event))
        ) and self._choice.failed():
            self.probe_http(event)

    def probe_http(self, event: Event, /) -> None:
        """Check whether an event stream would work instead of the WebSocket."""
        frame = self._auth(None)
        if frame is not None and not self._choice.asking and self._choice.may_fall_back:
            self._choice.asking = True
            self._ports.probe_http(frame)

    def note_replaced(self, event: Event, /) -> None:
        """Until a connection is stable, the next occurrence is final."""
        self._replaced = True

    def change_transport(self, event: Event, /) -> None:
        """Switch to the event stream; or from it to the WebSocket."""
        self._timers.stop("upgrade")
        self._choice.change()

    def upgrade(self, event: Event, /) -> None:
        """Switch to the WebSocket while the event stream works; one failure switches back."""
        self._timers.stop("upgrade")
        self._choice.upgrade()

    # ---------------------------------------------------------------- actions: attempts

    def plan_retry(self, event: Event, /) -> None:
        """Count this attempt, and draw the wait before the next one.

        The waits grow, and are never shorter than the server requested.
        """
        self._credentials.attempt += isinstance(event, TokenFailed)
        if isinstance(event, TimerFired) and event.name == "open":
            self._attempts.outage += self._options.open_timeout
        self._retry_in = self._attempts.plan(
            retry_after(event), unsettled=self._publishes.survives_drop
        )

    def plan_now(self, event: Event, /) -> None:
        """Do not wait before the next attempt."""
        self._retry_in = self._attempts.skip()

    def start_retry(self, event: Event, /) -> None:
        """Start the planned wait."""
        self._attempts.schedule()

    def cut_wait(self, event: Event, /) -> None:
        """A call of the program ends the wait early."""
        self._attempts.cut()

    def reset_retry(self, event: Event, /) -> None:
        """Reset the count of attempts."""
        self._attempts.reset()

    def note_stable(self, event: Event, /) -> None:
        """The connection is stable: earlier failures no longer count."""
        self._replaced = False
        self._prove()

    def start_drain(self, event: Event, /) -> None:
        """Start the timeout for settling the publishes."""
        if not self.is_draining:
            self.is_draining = True
            self._timers.start("drain", self._options.close_timeout)

    # ---------------------------------------------------------------- actions: timers

    def start_fallback(self, event: Event, /) -> None:
        """Start the timeout after which the client falls back from a WebSocket that is not open."""
        if self._choice.may_fall_back and not self._choice.has_opened:
            self._timers.start("fallback", self._options.fallback_after)

    def start_suspend(self, event: Event, /) -> None:
        """Start the timer after which an outage counts as suspended."""
        if "suspend" not in self._timers and not self._overdue:
            self._timers.start("suspend", self._options.suspend_after)

    def start_upgrade(self, event: Event, /) -> None:
        """Start the timer of the next WebSocket probe; cuts of the fallback do not reset it."""
        after = self._choice.upgrade_delay()
        if after is not None and "upgrade" not in self._timers:
            self._timers.start("upgrade", after)

    # ---------------------------------------------------------------- actions: the end

    def fail(self, event: Event, /) -> None:
        """End with an error that no retry fixes."""
        code, message = cause(event)
        if isinstance(event, Dropped):
            by_close = (known for known in CODES.values() if known.close == event.code)
            known = next(by_close, None)
            code = "connection_failed" if known is None else known.code
        remedy = (
            event.frame.remedy
            if isinstance(event, Received) and isinstance(event.frame, AuthErrorFrame | ErrorFrame)
            else None
        )
        error = Rejected(str(code), message or "", remedy)
        self._end(error)
        self._ports.finished(error)

    def finish(self, event: Event, /) -> None:
        """End as requested."""
        self._end(Rejected("closed", "The client was closed before it could send the message."))
        self._ports.finished(None)

    # ---------------------------------------------------------------- inside

    def _hang_up(self, code: int) -> None:
        """Close the transport, if there is one."""
        if self.is_linked:
            self.is_linked = False
            self._ports.hang_up(code)

    def _end(self, unsent: Rejected) -> None:
        """Stop all timers, calls and the transport; settle the remaining publishes."""
        self._subscriptions.lost()
        self._context.peer = None
        self._timers.stop_all()
        self._credentials.abandon(self._ports)
        self._hang_up(NORMAL)
        self._publishes.settle_all(unsent)
        self._own_presence.settle_all(unsent)
        self._credentials.forget()

    def _auth(self, client_id: str | None) -> AuthFrame | None:
        """The `auth` frame; None without a token."""
        options, token = self._options, self._credentials.token
        if token is None:
            return None
        client = ClientInfo(
            name=options.client_name, version=options.client_version, lang=options.client_lang
        )
        version = CLIENT.protocol_version
        return AuthFrame(token=token, version=version, client=client, client_id=client_id)

    def _prove(self) -> None:
        self._works = True
        self._attempts.outage = 0
        self._choice.proves_well()

    def _read_peer(self, frame: AuthOkFrame, at: int) -> Peer:
        """Read the server's description of itself."""
        peer = self._context.peer = read_peer(frame, at, incremental=self._incremental)
        self._client_id = peer.client_id[:64]
        self._ports.welcomed(peer)
        return peer

    def _renew_before_end(self, peer: Peer) -> None:
        """Start the timers to renew the token before it expires, and to drop it afterwards."""
        credentials = self._credentials
        life = credentials.life
        if peer.token_left is not None:
            life = peer.token_left
            self._timers.stop("expiry")
            self._live_for(life, "expiry")
        if credentials.span is None:
            credentials.span = life
        self._timers.stop("refresh")
        if life is not None and credentials.renewable:
            margin = self._options.refresh_margin
            self._live_for(max(life - margin, life * 4 // 5), "refresh")

    def _live_for(self, life: int | None, timer: TimerName) -> None:
        if life is not None and 0 < life <= MAX_TIMER:
            self._timers.start(timer, life)
