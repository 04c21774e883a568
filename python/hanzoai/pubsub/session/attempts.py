"""What the next attempt to connect needs: a token, a wait, and a transport."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.session.ports import Context, TransportName
    from hanzoai.pubsub.values import TokenReason

NOTICE_INTERVAL: Final = 1_000
"""Minimum milliseconds between two calls for a token that the server's notices cause."""


class Credentials:
    """The token and the calls of the token callback; times in milliseconds.

    At most one call is in flight; answers to other calls are ignored (AUTH-1, AUTH-2, AUTH-6).
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.token: str | None = None
        self.life: int | None = None  # stated when it arrived
        self.span: int | None = None  # left when a server first accepted it
        self.failed = 0  # consecutive calls
        self.rejected = False  # the server rejected the last token
        self._calls = 0
        self._call: int | None = None  # the number of the call in flight
        self._noticed = -NOTICE_INTERVAL  # when a notice last caused a call, or will cause one

    def fetch(self, at: int | None, *, expiring: bool) -> None:
        """Get a token, unless a call is in flight; `at`: the time of the notice that causes it."""
        options, timers = self._context.options, self._context.timers
        if self._call is not None or (expiring and not options.renewable):
            return
        if at is not None:
            # A server may send many notices; one call handles all that arrive too soon.
            wait = self._noticed - at
            if wait <= 0:
                wait += NOTICE_INTERVAL
            if not 0 < wait <= NOTICE_INTERVAL:
                wait = 0
            self._noticed = at + wait
            if wait:
                timers.start("refresh", wait)
                return
        self._calls += 1
        self._call = self._calls
        reason: TokenReason = "expiring" if expiring else "rejected" if self.rejected else "connect"
        self._context.ports.fetch_token(self._call, reason, self.failed)
        timers.start("fetch", options.fetch_timeout)

    def end_call(self, call: int) -> bool:
        """The callback answered; False if the answer is not awaited."""
        if call != self._call:
            return False
        self._call = None
        self._context.timers.stop("fetch")
        return True

    def abandon(self) -> None:
        """Cancel the call in flight, if there is one."""
        if self._call is not None:
            self.failed += 1
            self._context.ports.abandon_fetch(self._call)
            self._call = None

    def keep(self, token: str | None, life: int | None) -> None:
        """Use a token until it expires, after `life` milliseconds."""
        self.token = token
        self.life = life
        self.span = None
        self.failed = 0
        self._context.timers.limit("expiry", life)

    def forget(self) -> None:
        """Drop the token."""
        self.token = None
        self.life = None

    def accepted(self, left: int | None) -> None:
        """A server accepted the token, and perhaps stated the time left: plan its renewal."""
        options, timers = self._context.options, self._context.timers
        life = self.life if left is None else left
        if left is not None:
            timers.limit("expiry", left)
        if self.span is None:
            self.span = life
        early: int | None = None
        if life is not None and options.renewable:
            early = max(life - options.refresh_margin, life * 4 // 5)
        timers.limit("refresh", early)


MAX_RETRY_AFTER: Final = 3_600_000
"""Maximum wait that a server can request, milliseconds."""

_UNHURRIED: Final = 160_000
"""Milliseconds. An outage of 25 s allows waits of up to 4 s, one of 70 s waits of up to 30 s."""


class Attempts:
    """Counts failed attempts, and calculates the wait before the next one, in milliseconds.

    There is no clock: the length of an outage is the sum of its waits and failed openings (LIFE-2,
    LIFE-3).
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.failed = 0  # consecutive attempts
        self.outage = 0  # waits and failed openings since the last useful connection
        self.requested_wait = 0  # by the server before it ended the connection
        self.wait = 0  # the planned one
        self._minimum = 0  # the part of it that no call of the program saves
        self.can_shorten = False  # a call of the program ends the running wait early
        self.shorten_later = False  # such a call ends it when the timer `hold` fires

    def delay(self, attempt: int, bound: float = inf) -> int:
        """Draw a wait with full jitter (LIFE-2)."""
        options = self._context.options
        ceiling = min(options.retry_cap, options.retry_base << attempt, bound)
        return int(self._context.random() * ceiling)

    def plan(self, retry_after: int, *, unsettled: bool) -> int:
        """Draw the wait before the next attempt, at least `retry_after`, and count this one."""
        options = self._context.options
        # Clients return soon after a short outage, and are spread out after a long one. While a
        # publish waits, the bound stays low.
        bound = 2 * options.retry_base
        if not unsettled:
            bound = max(bound, self.outage * self.outage // _UNHURRIED)
        requested = min(MAX_RETRY_AFTER, max(retry_after, self.requested_wait))
        self.wait = max(self.delay(self.failed, bound), requested)
        self._minimum = max(options.call_interval, requested)
        self.failed += 1
        self.outage += self.wait
        return self.wait

    def schedule(self) -> None:
        """Start the planned wait."""
        timers = self._context.timers
        timers.start("retry", self.wait)
        self.shorten_later = False
        self.can_shorten = self.wait > self._minimum
        if self.can_shorten:
            timers.start("hold", self._minimum)

    def shorten(self) -> None:
        """A call of the program ends the wait early."""
        self.outage -= self.wait - self._minimum


class TransportChoice:
    """WebSocket, or the event stream if it does not work; and the reasons for it (LIFE-6)."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._failures = 0  # consecutive failed WebSockets, between which HTTP answered
        self.name: TransportName = "sse" if context.options.transport == "sse" else "websocket"
        self.http_works = False  # it has answered since the last failure of a WebSocket
        self.is_probing_http = False
        self.has_opened = False  # a WebSocket has worked in this process
        self.is_late = False  # the first WebSocket has not opened in time
        self.probes = 0  # of the WebSocket, since the last useful connection

    @property
    def may_fall_back(self) -> bool:
        """Whether the transport is a WebSocket, and the choice is left open."""
        return self._context.options.transport == "auto" and self.name == "websocket"

    def count_failure(self) -> bool:
        """A WebSocket failed, without an error of the server; whether to check HTTP now."""
        # The client falls back after some failures between which the HTTP address answered: an
        # address without any answer says nothing about WebSockets, and a server without event
        # streams offers no alternative.
        options = self._context.options
        http_works, self.http_works = self.http_works, False
        if http_works or not self._failures:
            self._failures += 1
        needed = options.short_life if self.has_opened else options.fallback_failures
        if not http_works or self._failures < needed:
            return True
        self.change()
        return False

    def http_answered(self, *, ok: bool) -> None:
        """The HTTP address answered as a PubSub service, or it did not."""
        self.is_probing_http = False
        self.http_works = ok
        if not ok:
            self._failures = 0

    def change(self) -> None:
        """Switch to the event stream; or from it to the WebSocket."""
        self._context.timers.stop("upgrade")
        self._failures = 0
        self.http_works = self.has_opened = False
        if self._context.options.transport == "auto":
            self.name = "sse" if self.name == "websocket" else "websocket"

    def upgrade(self) -> None:
        """Switch to the WebSocket while the event stream works; one failure switches back."""
        self.change()
        self._failures = self._context.options.fallback_failures
        self.http_works = True

    def start_upgrade(self) -> None:
        """Start the timer of the next WebSocket probe; cuts of the fallback do not reset it."""
        options, timers = self._context.options, self._context.timers
        if self.name == "sse" and options.transport == "auto" and "upgrade" not in timers:
            first = options.upgrade_after
            after = min(first << self.probes, max(first, options.upgrade_cap))
            timers.start("upgrade", after)

    def note_useful(self) -> None:
        """The connection is useful: earlier failures no longer count."""
        if self.name == "websocket":
            self._failures = self.probes = 0
