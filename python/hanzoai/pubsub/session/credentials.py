"""The token of a session, and the pending call of the token callback.

At most one call is in flight; answers to other calls are ignored (AUTH-1, AUTH-2, AUTH-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.session.context import Context
    from hanzoai.pubsub.values import TokenReason

NOTICE_INTERVAL: Final = 1_000
"""Minimum milliseconds between two calls for a token that the server's notices cause."""


class Credentials:
    """The token and the calls for it; times in milliseconds."""

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
