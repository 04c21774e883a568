"""What the actions of the lifecycle table do.

An action appends effects; nothing here has a clock, a socket, a task or randomness of its own:
timers are effects by name, and `random` is an argument, drawn once for each delay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.defaults import CLIENT
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    ClientInfo,
    ErrorFrame,
    PingFrame,
)
from hanzoai.pubsub.session.causes import cause, retry_after, unexplained
from hanzoai.pubsub.session.credentials import MAX_TIMER
from hanzoai.pubsub.session.effects import (
    AbandonFetch,
    Dial,
    Finished,
    HangUp,
    Probe,
    ProbeHttp,
    Rejected,
    Send,
)
from hanzoai.pubsub.session.events import Dropped, Received, TimerFired, Token, TokenFailed
from hanzoai.pubsub.session.machine import Machine
from hanzoai.pubsub.session.peer import read_peer

if TYPE_CHECKING:
    from hanzoai.pubsub.session.events import Event, TimerName

NORMAL: Final = 1000
RECONNECTS: Final = 4000
"""Close code of a client that is going to come back, so that its presence is not ended at once."""

MAX_RETRY_AFTER: Final = 3_600_000
"""Longest wait that a server may impose, milliseconds."""

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


class Lifecycle(Machine):
    """A machine that knows what to do."""

    # ---------------------------------------------------------------- actions: token

    def fetch_token(self, event: Event, /) -> None:
        """Call for a token, unless a call is in flight or the server has just caused one."""
        wait = self._credentials.hold_off(event.at) if isinstance(event, Received) else 0
        if wait:
            self._start("refresh", wait)
            return
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
        frame = self._auth(self._client_id)
        if frame is not None:
            self._out.append(Send(frame))

    # ---------------------------------------------------------------- actions: connection

    def dial(self, event: Event, /) -> None:
        """Open a transport."""
        self._linked = True
        self._stay_away = 0
        self._sleeping = self._works = False
        self._stop("hold")
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
            self._stable = self._overdue = self._late = False
            self._has_opened |= self._incremental
            self._client_id = event.frame.client_id[:64]
            peer = read_peer(event.frame, incremental=self._incremental)
            self.outbox.connected(peer, self._out)
            self._peer = peer
            self._last(event.frame, event.at)

    def renew(self, event: Event, /) -> None:
        """The server took the new token."""
        if isinstance(event, Received) and isinstance(event.frame, AuthOkFrame):
            self._client_id = event.frame.client_id[:64]
            self.outbox.renew(read_peer(event.frame, incremental=self._incremental))
            self._last(event.frame, event.at)

    def rejoin(self, event: Event, /) -> None:
        """Ask for every subscription, and say again what was said of our presence."""
        self.joins.connected(self._peer, self._out)
        self.saying.connected(self._peer, self._out)

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
        self.saying.lost()
        self.start_suspend(event)

    def send_ping(self, event: Event, /) -> None:
        """Ask for a sign of life; an event stream gives it unasked."""
        self._pong_limit = self._options.pong_timeout
        if self._incremental:
            self._out.append(Send(PingFrame()))

    def check(self, event: Event, /) -> None:
        """Ask for a sign of life that has to come soon: the connection may be gone."""
        self._pong_limit = self._options.check_timeout
        self._out.append(Send(PingFrame()))
        self._start("pong", self._pong_limit)

    def probe(self, event: Event, /) -> None:
        """See whether a WebSocket can be opened by now."""
        self._out.append(Probe())

    # ---------------------------------------------------------------- actions: choice of transport

    def count_failure(self, event: Event, /) -> None:
        """One opening failed (LIFE-6).

        An event stream gives way at once. A WebSocket gives way after some failures between which
        the HTTP address answered: an address that does not answer at all says nothing about
        WebSockets, and one without event streams is no way out.
        """
        if self._transport == "sse":
            self.change_transport(event)
            return
        if not isinstance(event, TimerFired) and not (
            isinstance(event, Dropped) and unexplained(event)
        ):
            return
        answered, self._answered = self._answered, False
        if answered or not self._failures:
            self._failures += 1
        needed = self._options.short_life if self._has_opened else self._options.fallback_failures
        if answered and self._failures >= needed:
            self.change_transport(event)
        else:
            self.probe_http(event)

    def count_short_life(self, event: Event, /) -> None:
        """One connection died: before it was of any use, that counts as an opening that failed."""
        if not self._stable and not self._works:
            self.count_failure(event)

    def probe_http(self, event: Event, /) -> None:
        """See whether an event stream would serve where the WebSocket does not."""
        frame = self._auth(None)
        if frame is not None and not self._asking and self.may_fall_back(event):
            self._asking = True
            self._out.append(ProbeHttp(frame))

    def note_replaced(self, event: Event, /) -> None:
        """Until a connection is stable, the next time is final."""
        self._replaced = True

    def change_transport(self, event: Event, /) -> None:
        """Take the event stream; or the WebSocket, on the event stream."""
        self._failures = 0
        self._answered = self._has_opened = False
        if self._options.transport == "auto":
            self._transport = "sse" if self._transport == "websocket" else "websocket"

    def upgrade(self, event: Event, /) -> None:
        """Take the WebSocket while the event stream serves, which one failure brings back."""
        self.change_transport(event)
        self._failures = self._options.fallback_failures - 1
        self._answered = True

    # ---------------------------------------------------------------- actions: attempts

    def schedule_retry(self, event: Event, /) -> None:
        """Wait before the next attempt, longer each time, never less than the server asked."""
        self._credentials.attempt += isinstance(event, TokenFailed)
        if isinstance(event, TimerFired) and event.name == "open":
            self._apart += self._options.open_timeout
        asked = min(MAX_RETRY_AFTER, max(retry_after(event), self._stay_away))
        delay = max(self._retry_delay(), asked)
        self._attempt += 1
        self._apart += delay
        self._retry_in = delay
        self._start("retry", delay)
        hold = max(self._options.call_interval, asked)
        self._called = False
        self._sleeping = delay > hold
        if self._sleeping:
            self._unslept = delay - hold
            self._start("hold", hold)

    def cut_wait(self, event: Event, /) -> None:
        """A call of the program ends the wait early."""
        self._apart -= self._unslept

    def retry_now(self, event: Event, /) -> None:
        """Do not wait before the next attempt."""
        self._retry_in = 0
        self._start("retry", 0)

    def reset_retry(self, event: Event, /) -> None:
        """Count attempts anew."""
        self._attempt = self._apart = 0
        if self.state == "connected":
            self._stable = True
            self._replaced = False
            self._proves_well()

    def start_drain(self, event: Event, /) -> None:
        """Give what is published some time to be settled."""
        if not self._draining:
            self._draining = True
            self._start("drain", self._options.close_timeout)

    # ---------------------------------------------------------------- actions: timers

    def start_fallback(self, event: Event, /) -> None:
        """A WebSocket that is not open by then gives way."""
        if self.may_fall_back(event) and not self._has_opened:
            self._start("fallback", self._options.fallback_after)

    def start_suspend(self, event: Event, /) -> None:
        """Apart for so long counts as suspended."""
        if "suspend" not in self._timers and not self._overdue:
            self._start("suspend", self._options.suspend_after)

    def start_upgrade(self, event: Event, /) -> None:
        """Probe for a WebSocket after so long on the fallback."""
        if self._transport == "sse" and self._options.transport == "auto":
            first = self._options.upgrade_after
            after = min(first << min(self._upgrades, 30), max(first, self._options.upgrade_cap))
            self._upgrades += 1
            self._start("upgrade", after)

    # ---------------------------------------------------------------- actions: the end

    def stop_all(self, event: Event, /) -> None:
        """No timer and no call may outlive the session."""
        self._online = False
        self.joins.lost()
        for timer in list(self._timers):
            self._stop(timer)
        call = self._credentials.abandon()
        if call is not None:
            self._out.append(AbandonFetch(call))

    def fail(self, event: Event, /) -> None:
        """End by an error that no retry mends."""
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
        self.outbox.settle_all(error, self._out)
        self.saying.settle_all(error, self._out)
        self._credentials.forget()
        self._out.append(Finished(error))

    def finish(self, event: Event, /) -> None:
        """End as asked."""
        unsent = Rejected("closed", "The client was closed before it could be sent.")
        self.outbox.settle_all(unsent, self._out)
        self.saying.settle_all(unsent, self._out)
        self._credentials.forget()
        self._out.append(Finished(None))

    # ---------------------------------------------------------------- inside

    def _auth(self, client_id: str | None) -> AuthFrame | None:
        """Who we are, and as which client; None without a token."""
        options, token = self._options, self._credentials.token
        if token is None:
            return None
        client = ClientInfo(
            name=options.client_name, version=options.client_version, lang=options.client_lang
        )
        version = CLIENT.protocol_version
        return AuthFrame(token=token, version=version, client=client, client_id=client_id)

    def _proves_well(self) -> None:
        """The connection is of use: what failed before says nothing about the way any more."""
        self._works = True
        self._apart = 0
        if self._transport == "websocket":
            self._failures = self._upgrades = 0
            self._answered = False

    def _last(self, frame: AuthOkFrame, at: int) -> None:
        """Renew the token before it ends; forget it when it has."""
        life = self._credentials.life
        if frame.expires_at is not None:
            life = frame.expires_at - (at if frame.server_time is None else frame.server_time)
            self._stop("expiry")
            self._live_for(life, "expiry")
        if self._credentials.span is None:
            self._credentials.span = life
        self._stop("refresh")
        if life is not None and self._credentials.renewable:
            margin = self._options.refresh_margin
            self._live_for(max(life - margin, life * 4 // 5), "refresh")

    def _live_for(self, life: int | None, timer: TimerName) -> None:
        if life is not None and 0 < life <= MAX_TIMER:
            self._start(timer, life)
