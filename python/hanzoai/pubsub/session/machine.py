"""The machine of a session: its state, its timers, and what the guards of the table ask.

The table is compiled from `spec/lifecycle.yaml`; `lifecycle` has what its actions do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.generated.lifecycle import INITIAL, PUBLIC, TABLE, Steps
from hanzoai.pubsub.generated.wire import AuthExpiringFrame
from hanzoai.pubsub.session.causes import action_of, cause
from hanzoai.pubsub.session.credentials import Credentials
from hanzoai.pubsub.session.effects import CancelTimer, StartTimer, StateChanged
from hanzoai.pubsub.session.events import Dropped, Probed, Received, TimerFired, TokenFailed
from hanzoai.pubsub.session.joins import Joins
from hanzoai.pubsub.session.outbox import Outbox
from hanzoai.pubsub.session.peer import Peer
from hanzoai.pubsub.session.saying import Saying

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.lifecycle import Event as Name
    from hanzoai.pubsub.generated.lifecycle import Row, State, Timer
    from hanzoai.pubsub.session.effects import Effect, TransportName
    from hanzoai.pubsub.session.events import Event, TimerName
    from hanzoai.pubsub.settings.session import SessionOptions


_UNHURRIED: Final = 160_000
"""Milliseconds. An outage of 25 s allows waits of up to 4 s, one of 70 s waits of up to 30 s."""

AFTER: Final[dict[Timer, str]] = {
    "open": "open_timeout",
    "ping": "ping_interval",
    "pong": "pong_timeout",
    "stable": "stable_after",
}
"""How long the timers are that the table starts: names of options."""

REPLACED: Final = 4409
"""Close code of a connection whose place another one took."""


class Machine(Steps["Event"]):
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
        self.saying: Final = Saying(lambda: self.outbox.paused)
        self._timers: Final[dict[TimerName, None]] = {}
        self._out: list[Effect] = []
        self._transport: TransportName = "sse" if options.transport == "sse" else "websocket"
        self._linked = False  # a transport is being opened, or open
        self._incremental = True
        self._online = False  # authenticated: frames of subscriptions and publishes count
        self._client_id: str | None = None
        self._attempt = 0
        # Length of the outage in milliseconds, counted without a clock: waits and late openings
        # since the last connection that was of use.
        self._apart = 0
        # Milliseconds of the present wait that a call of the program saves.
        self._unslept = 0
        # The next attempt is so far away that a call brings it forward; one came too early for it.
        self._sleeping = self._called = False
        # WebSockets that failed one after the other, while HTTP answered between them.
        self._failures = 0
        # HTTP has answered since the last failure; it is being asked.
        self._answered = self._asking = False
        # A WebSocket has worked in this process; the present connection has.
        self._has_opened = self._works = False
        # The time within which the first WebSocket should open has passed.
        self._late = False
        self._upgrades = 0
        self._stable = False
        self._replaced = False
        # Milliseconds that the pong may take which is awaited.
        self._pong_limit = options.pong_timeout
        self._overdue = False
        self._draining = False
        self._retry_in: int | None = None
        # Milliseconds the server asked for before it ended the connection, or is about to.
        self._stay_away = 0
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
            if action[0] in "+-":
                self._step(action[0], cast("Timer", action[1:]))
            else:
                getattr(self, action)(event)
        if row.to != before:
            code, reason = cause(event)
            changed = StateChanged(
                before, row.to, PUBLIC[row.to], code, reason, self._retry_in, self._attempt
            )
            self._out.insert(at, changed)

    # ---------------------------------------------------------------- timers

    def _step(self, sign: str, timer: Timer) -> None:
        if sign == "+":
            after: int = getattr(self._options, AFTER[timer])
            self._start(timer, after)
        else:
            self._stop(timer)

    def _start(self, timer: TimerName, after: int) -> None:
        self._timers.pop(timer, None)
        self._timers[timer] = None
        self._out.append(StartTimer(timer, after))

    def _stop(self, timer: TimerName) -> None:
        if timer in self._timers:
            del self._timers[timer]
            self._out.append(CancelTimer(timer))

    def _delay(self, attempt: int, bound: int | None = None) -> int:
        """Full jitter (LIFE-2)."""
        options = self._options
        ceiling = min(options.retry_cap, options.retry_base * 2 ** min(attempt, 30))
        return int(self._random() * (ceiling if bound is None else min(ceiling, bound)))

    def _retry_delay(self) -> int:
        """Draw the wait before the next attempt.

        Its bound grows with the length of the outage, so that clients return soon after a short
        outage and are spread out after a long one. It stays low while a publish waits.
        """
        bound = 2 * self._options.retry_base
        if not len(self.outbox):
            bound = max(bound, self._apart * self._apart // _UNHURRIED)
        return self._delay(self._attempt, bound)

    # ---------------------------------------------------------------- guards

    def auth_fault(self, event: Event, /) -> bool:
        """The error or close code says that the token is at fault."""
        return action_of(cause(event)[0]) == "reauth"

    def cannot_renew(self, event: Event, /) -> bool:
        """The token is a fixed one (AUTH-4)."""
        return not self._credentials.renewable

    def draining(self, event: Event, /) -> bool:
        """The user has asked for the end, after what is published has been settled."""
        return self._draining

    def final_error(self, event: Event, /) -> bool:
        """The error or close code says that another try is pointless (LIFE-9)."""
        return action_of(cause(event)[0]) == "stop"

    def first_replaced(self, event: Event, /) -> bool:
        """Another connection took our place, though we opened none: once it may be a mistake."""
        return isinstance(event, Dropped) and event.code == REPLACED and not self._replaced

    def fresh(self, event: Event, /) -> bool:
        """More than half of the token's life is left: another one might end as soon."""
        span = self._credentials.span
        if not isinstance(event, Received) or not isinstance(event.frame, AuthExpiringFrame):
            return False
        left, end = event.frame.expires_in, event.frame.expires_at
        if left is None and end is not None:
            left = end - event.at
        return left is not None and span is not None and left > span / 2

    def has_token(self, event: Event, /) -> bool:
        """A token is held."""
        return self._credentials.token is not None

    def has_pings(self, event: Event, /) -> bool:
        """The server answers pings on this transport; an event stream has none."""
        return self._incremental

    def heard(self, event: Event, /) -> bool:
        """Something has come since the ping; an event stream, which has none, is given longer.

        Without a subscription there is no stream from which anything could come.
        """
        patience = self._pong_limit
        if not self._incremental:
            if self.joins.empty:
                return True
            patience += self._options.ping_interval
        return isinstance(event, TimerFired) and event.idle < patience

    def http_answers(self, event: Event, /) -> bool:
        """The HTTP address has answered as a PubSub service since a WebSocket failed last."""
        return self._answered

    def late(self, event: Event, /) -> bool:
        """The first WebSocket is not open in the time that it has."""
        return self._late

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
