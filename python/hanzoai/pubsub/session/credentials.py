"""The token of a session: which one is held, and which answer of the callback is awaited.

One call of the callback is in flight at most; an answer to another call is not listened to
(AUTH-1, AUTH-2, AUTH-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.session.events import Token
    from hanzoai.pubsub.session.ports import FetchReason, Ports

MAX_TIMER = 2**31 - 1
"""Longest timer that every platform has, milliseconds: 24.8 days."""


NOTICE_INTERVAL = 1_000
"""Milliseconds between two calls for a token that notices of the server lead to."""


class Credentials:
    """The token and the calls for it.

    Attributes:
        token: The token held, or None.
        renewable: Asking again may give another one.
        attempt: Calls in a row that failed.
        rejected: The server refused the last token.
        life: Milliseconds that the token was said to last when it came, or None.
        span: Milliseconds that it had left when a server first took it, or None.
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
        self._noticed: int | None = None  # when a notice last led to a call, or is about to

    def __repr__(self) -> str:
        return f"Credentials(token={'...' if self.token else None})"

    @property
    def awaited(self) -> int | None:
        """Id of the call in flight, or None."""
        return self._awaited

    def fetch(self, ports: Ports, *, expiring: bool) -> bool:
        """Call for a token; False if a call is in flight, or a fixed token could only recur."""
        if self._awaited is not None or (expiring and not self.renewable):
            return False
        self._calls += 1
        self._awaited = self._calls
        reason: FetchReason = "expiring" if expiring else "rejected" if self.rejected else "connect"
        ports.fetch_token(self._calls, reason, self.attempt)
        return True

    def hold_off(self, at: int) -> int:
        """Milliseconds until a notice that the token expires may lead to a call; 0 for now.

        A server may send many of them; those that come too soon are answered by one call together.

        Args:
            at: When the notice came, Unix milliseconds.
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
        """The callback answered; False if no one waits for that answer."""
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
        """Hold a token."""
        self.token = event.value
        self.life = event.expires_in
        self.span = None
        self.attempt = 0
        self.rejected = False

    def forget(self) -> None:
        """Hold none."""
        self.token = None
        self.life = None
