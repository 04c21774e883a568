"""The token of a session, and the pending call of the token callback.

At most one call is in flight; answers to other calls are ignored (AUTH-1, AUTH-2, AUTH-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.session.events import Token
    from hanzoai.pubsub.session.ports import FetchReason, Ports

MAX_TIMER = 2**31 - 1
"""Maximum timer that every platform supports, milliseconds: 24.8 days."""


NOTICE_INTERVAL = 1_000
"""Minimum milliseconds between two calls for a token that the server's notices cause."""


class Credentials:
    """The token and the calls for it.

    Attributes:
        token: The current token, or None.
        renewable: Whether another call may return another token.
        attempt: Number of consecutive failed calls.
        rejected: Whether the server rejected the last token.
        life: Stated lifetime of the token in milliseconds when it arrived, or None.
        span: Milliseconds that it had left when a server first accepted it, or None.
    """

    def __init__(self, *, renewable: bool) -> None:
        self.token: str | None = None
        self.renewable = renewable
        self.attempt = 0
        self.rejected = False
        self.life: int | None = None
        self.span: int | None = None
        self._awaited: int | None = None
        self._calls = 0
        self._noticed: int | None = None  # when a notice last caused a call, or will cause one

    def __repr__(self) -> str:
        return f"Credentials(token={'...' if self.token else None})"

    def fetch(self, ports: Ports, *, expiring: bool) -> bool:
        """Call the callback; False if a call is in flight, or the token is fixed."""
        if self._awaited is not None or (expiring and not self.renewable):
            return False
        self._calls += 1
        self._awaited = self._calls
        reason: FetchReason = "expiring" if expiring else "rejected" if self.rejected else "connect"
        ports.fetch_token(self._calls, reason, self.attempt)
        return True

    def hold_off(self, at: int) -> int:
        """Milliseconds until a notice that the token expires may cause a call; 0 for now.

        A server may send many notices; one call handles all that arrive too soon.

        Args:
            at: When the notice arrived, Unix milliseconds.
        """
        if self._awaited is not None or not self.renewable:
            return 0
        last = at - NOTICE_INTERVAL if self._noticed is None else self._noticed
        due = last if last > at else last + NOTICE_INTERVAL
        if not 0 < due - at <= NOTICE_INTERVAL:
            due = at
        self._noticed = due
        return due - at

    def answered(self, fetch: int) -> bool:
        """The callback answered; False if the answer is not awaited."""
        if fetch != self._awaited:
            return False
        self._awaited = None
        return True

    def abandon(self, ports: Ports) -> bool:
        """Give up the call in flight; False if there is none."""
        call, self._awaited = self._awaited, None
        if call is None:
            return False
        ports.abandon_fetch(call)
        return True

    def keep(self, event: Token) -> None:
        """Set the token."""
        self.token = event.value
        self.life = event.expires_in
        self.span = None
        self.attempt = 0
        self.rejected = False

    def forget(self) -> None:
        """Drop the token."""
        self.token = None
        self.life = None
