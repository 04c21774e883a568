"""What the guards and actions of the lifecycle table mean.

The table is compiled from `spec/lifecycle.yaml`. An action appends effects; nothing here has a
clock, a socket, a task or randomness of its own: timers are effects by name, and `random` is an
argument, drawn once for each delay before an attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.credentials import MAX_TIMER, Credentials
from hanzoai.pubsub.effects import (
    AbandonFetch,
    CancelTimer,
    Dial,
    Finished,
    HangUp,
    Probe,
    Rejected,
    Send,
    StartTimer,
    StateChanged,
)
from hanzoai.pubsub.events import Dropped, Probed, Received, TimerFired, Token, TokenFailed
from hanzoai.pubsub.generated.defaults import CLIENT
from hanzoai.pubsub.generated.errors import CODES, close_action
from hanzoai.pubsub.generated.lifecycle import INITIAL, PUBLIC, TABLE, Steps
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    ClientInfo,
    ErrorFrame,
    PingFrame,
    PresenceUpdateFrame,
)
from hanzoai.pubsub.joins import Joins
from hanzoai.pubsub.outbox import Outbox
from hanzoai.pubsub.peer import Peer, read_peer
from hanzoai.pubsub.presence import OwnPresence

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.effects import Effect, TransportName
    from hanzoai.pubsub.events import Event, TimerName
    from hanzoai.pubsub.generated.lifecycle import Event as Name
    from hanzoai.pubsub.generated.lifecycle import Row, State
    from hanzoai.pubsub.session_options import SessionOptions

NORMAL: Final = 1000
RECONNECTS: Final = 4000
"""Close code of a client that is going to come back, so that its presence is not ended at once."""

MAX_RETRY_AFTER: Final = 3_600_000
"""Longest wait that a server may impose, milliseconds."""

_UNEXPLAINED: Final = frozenset({None, 1000, 1002, 1005, 1006, 1011, 1015})
"""Ends that a middlebox may have caused; with another code the server itself spoke."""

_LEAVING: Final[tuple[TimerName, ...]] = (
    "ping",
    "pong",
    "stable",
    "refresh",
    "upgrade",
    "pace",
    "rejoin",
)
"""Timers that end with a connection."""


class Lifecycle(Steps["Event"]):
    """The state of a session and the steps of its table.

    Args:
        options: What it is set to.
        random: A number from 0 inclusive to 1 exclusive.
    """

    def __init__(self, options: SessionOptions, random: Callable[[], float]) -> None:
        self.state: State = INITIAL
        self.fired: set[tuple[State, Name, int]] | None = None
        self.outbox: Final = Outbox(
            options.send_queue_messages, options.send_queue_bytes, options.pace_interval
        )
        self.joins: Final = Joins(options)
        self._options: Final = options
        self._random: Final = random
        self._credentials: Final = Credentials(renewable=options.renewable)
        self._own: Final = OwnPresence()
        self._timers: Final[dict[TimerName, None]] = {}
        self._out: list[Effect] = []
        self._transport: TransportName = "sse" if options.transport == "sse" else "websocket"
        self._linked = False  # a transport is being opened, or open
        self._incremental = True
        self._online = False  # authenticated: frames of subscriptions and publishes count
        self._client_id: str | None = None
        self._attempt = 0
        self._failures = 0
        self._short_lives = 0
        self._stable = False
        self._overdue = False
        self._draining = False
        self._retry_in: int | None = None
        self._refs = 0
        self._peer = Peer()

    # ---------------------------------------------------------------- the table

    def _fire(self, name: Name, event: Event) -> None:
        """Take the first row whose guards hold; a pair without one has no meaning now."""
        state = self.state
        for n, row in enumerate(TABLE[state].get(name, ())):
            if all(getattr(self, guard)(event) for guard in row.guards):
                if self.fired is not None:
                    self.fired.add((state, name, n))
                self._take(row, event)
                return

    def _take(self, row: Row, event: Event) -> None:
        before, at = self.state, len(self._out)
        self._retry_in = None
        self.state = row.to
        for action in row.actions:
            getattr(self, action)(event)
        if row.to != before:
            code, reason = _cause(event)
            changed = StateChanged(
                before, row.to, PUBLIC[row.to], code, reason, self._retry_in, self._attempt
            )
            self._out.insert(at, changed)

    # ---------------------------------------------------------------- timers

    def _start(self, timer: TimerName, after: int) -> None:
        self._timers.pop(timer, None)
        self._timers[timer] = None
        self._out.append(StartTimer(timer, after))

    def _stop(self, timer: TimerName) -> None:
        if timer in self._timers:
            del self._timers[timer]
            self._out.append(CancelTimer(timer))

    def _delay(self, attempt: int) -> int:
        """Full jitter (LIFE-2)."""
        ceiling = min(self._options.retry_cap, self._options.retry_base * 2 ** min(attempt, 30))
        return int(self._random() * ceiling)

    # ---------------------------------------------------------------- guards

    def auth_close(self, event: Event, /) -> bool:
        """The close code says that the token is at fault."""
        return isinstance(event, Dropped) and close_action(event.code) == "reauth"

    def auth_fault(self, event: Event, /) -> bool:
        """The error says that the token is at fault."""
        return action_of(_cause(event)[0]) == "reauth"

    def cannot_renew(self, event: Event, /) -> bool:
        """The token is a fixed one (AUTH-4)."""
        return not self._credentials.renewable

    def draining(self, event: Event, /) -> bool:
        """The user has asked for the end, after what is published has been settled."""
        return self._draining

    def final_close(self, event: Event, /) -> bool:
        """The close code says that another try is pointless (LIFE-9)."""
        return isinstance(event, Dropped) and close_action(event.code) == "stop"

    def final_error(self, event: Event, /) -> bool:
        """The error says that another try is pointless."""
        return action_of(_cause(event)[0]) == "stop"

    def has_token(self, event: Event, /) -> bool:
        """A token is held."""
        return self._credentials.token is not None

    def heard(self, event: Event, /) -> bool:
        """Something has come since the ping; an event stream, which has none, is given longer."""
        patience = self._options.pong_timeout
        if not self._incremental:
            patience += self._options.ping_interval
        return isinstance(event, TimerFired) and event.idle < patience

    def may_fall_back(self, event: Event, /) -> bool:
        """The transport is a WebSocket, and the user leaves the choice to us."""
        return self._options.transport == "auto" and self._transport == "websocket"

    def overdue(self, event: Event, /) -> bool:
        """Apart for so long that history may be gone."""
        return self._overdue

    def reachable(self, event: Event, /) -> bool:
        """A WebSocket could be opened."""
        return isinstance(event, Probed) and event.ok

    def refused(self, event: Event, /) -> bool:
        """The token callback refuses for good (AUTH-3)."""
        return isinstance(event, TokenFailed) and event.refused

    def unsettled(self, event: Event, /) -> bool:
        """A publish has no outcome yet."""
        return len(self.outbox) > 0

    # ---------------------------------------------------------------- actions: token

    def fetch_token(self, event: Event, /) -> None:
        """Call for a token, unless a call is in flight."""
        fetch = self._credentials.ask(expiring=self.state == "connected")
        if fetch is not None:
            self._out.append(fetch)
            self._start("fetch", self._options.fetch_timeout)

    def abandon_fetch(self, event: Event, /) -> None:
        """Give the call up."""
        call = self._credentials.abandon()
        if call is not None:
            self._credentials.attempt += 1
            self._out.append(AbandonFetch(call))

    def schedule_refetch(self, event: Event, /) -> None:
        """Call again after a while; until it ends, the token at hand is good."""
        self._credentials.attempt += isinstance(event, TokenFailed)
        self._start("refresh", self._delay(self._credentials.attempt - 1))

    def keep_token(self, event: Event, /) -> None:
        """Hold the token, as long as it lasts."""
        if isinstance(event, Token):
            self._credentials.keep(event)
            self._stop("expiry")
            self._live_for(event.expires_in, "expiry")

    def forget_token(self, event: Event, /) -> None:
        """Hold none; if the server refused it, the callback is told."""
        self._credentials.forget()
        self._credentials.rejected |= isinstance(event, Dropped | Received)
        self._stop("expiry")
        self._stop("refresh")

    def send_auth(self, event: Event, /) -> None:
        """Present the token, and the name under which presence knows us."""
        options, token = self._options, self._credentials.token
        if token is not None:
            client = ClientInfo(
                name=options.client_name, version=options.client_version, lang=options.client_lang
            )
            frame = AuthFrame(
                token=token,
                version=CLIENT.protocol_version,
                client=client,
                client_id=self._client_id,
            )
            self._out.append(Send(frame))

    # ---------------------------------------------------------------- actions: connection

    def dial(self, event: Event, /) -> None:
        """Open a transport."""
        self._linked = True
        self._out.append(Dial(self._transport))

    def hang_up(self, event: Event, /) -> None:
        """Close the transport, if there is one."""
        if self._linked:
            self._linked = False
            self._out.append(HangUp(NORMAL if self.state in ("closed", "failed") else RECONNECTS))

    def accept(self, event: Event, /) -> None:
        """The server knows us; learn what it can do."""
        if isinstance(event, Received) and isinstance(event.frame, AuthOkFrame):
            self._online = True
            self._stable = False
            self._client_id = event.frame.client_id[:64]
            peer = read_peer(event.frame, incremental=self._incremental)
            self.outbox.connected(peer, self._out)
            self._peer = peer
            self._last(event.frame, event.at)

    def renew(self, event: Event, /) -> None:
        """The server took the new token."""
        if isinstance(event, Received) and isinstance(event.frame, AuthOkFrame):
            self.outbox.renew(read_peer(event.frame, incremental=self._incremental))
            self._last(event.frame, event.at)

    def rejoin(self, event: Event, /) -> None:
        """Ask for every subscription, and say again what was said of our presence."""
        self.joins.connected(self._peer, self._out)
        for topic, data in self._own.items():
            self._send_presence(topic, data)

    def flush(self, event: Event, /) -> None:
        """Send what waited."""
        self.outbox.flush(self._out)

    def leave(self, event: Event, /) -> None:
        """The connection has ended, or is about to."""
        self._online = False
        for timer in _LEAVING:
            self._stop(timer)
        self.joins.lost()
        self.outbox.lost(self._out)
        self.start_suspend(event)

    def send_ping(self, event: Event, /) -> None:
        """Ask for a sign of life; an event stream gives it unasked."""
        if self._incremental:
            self._out.append(Send(PingFrame()))

    def probe(self, event: Event, /) -> None:
        """See whether a WebSocket can be opened by now."""
        self._out.append(Probe())

    # ---------------------------------------------------------------- actions: choice of transport

    def count_failure(self, event: Event, /) -> None:
        """One opening failed: after some, the other transport is tried (LIFE-6)."""
        if isinstance(event, Dropped) and not _unexplained(event):
            return
        self._failures += 1
        if self._transport == "sse" or self._failures >= self._options.fallback_failures:
            self._change_transport()

    def count_short_life(self, event: Event, /) -> None:
        """One connection died young: after some in a row, the other transport is tried."""
        if self._stable or not isinstance(event, Dropped) or not _unexplained(event):
            return
        self._short_lives += 1
        if self._short_lives >= self._options.short_life:
            self._change_transport()

    def use_fallback(self, event: Event, /) -> None:
        """Take the event stream."""
        self._change_transport()

    def use_websocket(self, event: Event, /) -> None:
        """Take the WebSocket."""
        self._change_transport()

    def _change_transport(self) -> None:
        self._failures = self._short_lives = 0
        if self._options.transport == "auto":
            self._transport = "sse" if self._transport == "websocket" else "websocket"

    # ---------------------------------------------------------------- actions: attempts

    def schedule_retry(self, event: Event, /) -> None:
        """Wait before the next attempt, longer each time, never less than the server asked."""
        self._credentials.attempt += isinstance(event, TokenFailed)
        delay = max(self._delay(self._attempt), min(MAX_RETRY_AFTER, _retry_after(event)))
        self._attempt += 1
        self._retry_in = delay
        self._start("retry", delay)

    def retry_now(self, event: Event, /) -> None:
        """Do not wait before the next attempt."""
        self._retry_in = 0
        self._start("retry", 0)

    def reset_retry(self, event: Event, /) -> None:
        """Count attempts anew."""
        self._attempt = 0
        if self.state == "connected":
            self._stable = True
            self._failures = self._short_lives = 0

    def start_drain(self, event: Event, /) -> None:
        """Give what is published some time to be settled."""
        if not self._draining:
            self._draining = True
            self._start("drain", self._options.close_timeout)

    # ---------------------------------------------------------------- actions: timers

    def start_fallback(self, event: Event, /) -> None:
        """A WebSocket that is not open by then gives way."""
        if self.may_fall_back(event):
            self._start("fallback", self._options.fallback_after)

    def start_open(self, event: Event, /) -> None:
        """Dialing and authenticating take so long at most."""
        self._start("open", self._options.open_timeout)

    def start_ping(self, event: Event, /) -> None:
        """Ping after so long."""
        self._start("ping", self._options.ping_interval)

    def start_pong(self, event: Event, /) -> None:
        """The answer takes so long at most."""
        self._start("pong", self._options.pong_timeout)

    def start_stable(self, event: Event, /) -> None:
        """Connected for so long counts as stable."""
        self._start("stable", self._options.stable_after)

    def start_suspend(self, event: Event, /) -> None:
        """Apart for so long counts as suspended."""
        if "suspend" not in self._timers and not self._overdue:
            self._start("suspend", self._options.suspend_after)

    def start_upgrade(self, event: Event, /) -> None:
        """Probe for a WebSocket after so long on the fallback."""
        if self._transport == "sse" and self._options.transport == "auto":
            self._start("upgrade", self._options.upgrade_after)

    def stop_apart(self, event: Event, /) -> None:
        """Together again."""
        self._stop("suspend")
        self._stop("fallback")
        self._overdue = False

    def stop_open(self, event: Event, /) -> None:
        """Opening has come to an end."""
        self._stop("open")

    def stop_ping(self, event: Event, /) -> None:
        """No pings any more."""
        self._stop("ping")
        self._stop("pong")

    def stop_pong(self, event: Event, /) -> None:
        """The sign of life has come; a ping that was due is not."""
        self._stop("pong")
        self._stop("ping")

    def stop_retry(self, event: Event, /) -> None:
        """The next attempt is not going to wait."""
        self._stop("retry")

    # ---------------------------------------------------------------- actions: the end

    def stop_all(self, event: Event, /) -> None:
        """No timer and no call may outlive the session."""
        self._online = False
        for timer in list(self._timers):
            self._stop(timer)
        call = self._credentials.abandon()
        if call is not None:
            self._out.append(AbandonFetch(call))

    def fail(self, event: Event, /) -> None:
        """End by an error that no retry mends."""
        code, message = _cause(event)
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
        self.outbox.settle_all(error, self._out)
        self._credentials.forget()
        self._out.append(Finished(error))

    def finish(self, event: Event, /) -> None:
        """End as asked."""
        unsent = Rejected("closed", "The client was closed before it could be sent.")
        self.outbox.settle_all(unsent, self._out)
        self._credentials.forget()
        self._out.append(Finished(None))

    # ---------------------------------------------------------------- inside

    def _last(self, frame: AuthOkFrame, at: int) -> None:
        """Renew the token before it ends; forget it when it has."""
        life = self._credentials.life
        if frame.expires_at is not None:
            life = frame.expires_at - (at if frame.server_time is None else frame.server_time)
            self._stop("expiry")
            self._live_for(life, "expiry")
        self._stop("refresh")
        if life is not None and self._credentials.renewable:
            margin = self._options.refresh_margin
            self._live_for(max(life - margin, life * 4 // 5), "refresh")

    def _live_for(self, life: int | None, timer: TimerName) -> None:
        if life is not None and 0 < life <= MAX_TIMER:
            self._start(timer, life)

    def _send_presence(self, topic: str | None, data: dict[str, Any]) -> None:
        self._refs += 1
        ref = f"m{self._refs}" if self._peer.ref else None
        self._out.append(Send(PresenceUpdateFrame(topic=topic, data=data, ref=ref)))


def action_of(code: str | int | None) -> str:
    """What an error code means for a connection: `retry`, `reauth` or `stop`."""
    known = CODES.get(code) if isinstance(code, str) else None
    return "retry" if known is None else known.action


def _unexplained(event: Dropped) -> bool:
    return event.retry_after is None and event.code in _UNEXPLAINED


def _retry_after(event: Event) -> int:
    if isinstance(event, Dropped):
        return event.retry_after or 0
    if isinstance(event, Received) and isinstance(event.frame, AuthErrorFrame | ErrorFrame):
        return event.frame.retry_after_ms or 0
    return 0


_TIMEOUTS: Final[dict[str, tuple[str | None, str]]] = {
    "fetch": ("timeout", "The token callback did not answer in time."),
    "open": ("timeout", "The connection could not be opened in time."),
    "pong": ("idle_timeout", "Nothing was heard from the server."),
    "suspend": (None, "There has been no connection for long."),
    "fallback": (None, "The WebSocket does not open; the event stream is tried."),
    "drain": ("timeout", "Not everything was settled in time."),
}


def _cause(event: Event) -> tuple[str | int | None, str | None]:
    """The code behind a change of state, and the reason in words."""
    match event:
        case Dropped(code, reason):
            return code, reason
        case TokenFailed(_, refused, message):
            return "auth_refused" if refused else "token_unavailable", message
        case Received(frame=AuthErrorFrame() | ErrorFrame() as frame):
            return frame.code, frame.message
        case TimerFired(name):
            return _TIMEOUTS.get(name, (None, None))
        case _:
            return None, None
