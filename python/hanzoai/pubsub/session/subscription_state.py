"""One subscription of a session: its patterns, its cursor, and the state of its request.

It is pending (not requested on this connection), joining (requested and not answered: matching live
messages are held), or live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import matches

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import Denial, Envelope
    from hanzoai.pubsub.session.cursor import Cursor
    from hanzoai.pubsub.session.requests import Subscribe

PENDING: Final = 0
JOINING: Final = 1
LIVE: Final = 2


class SubscriptionState:
    """One subscription of the user."""

    __slots__ = (
        "answered",
        "cursor",
        "denied",
        "held",
        "history",
        "lost",
        "patterns",
        "phase",
        "positions",
        "recovering",
        "ref",
        "request",
        "reset",
        "retry_pending",
        "sub",
        "timestamp",
        "truncated",
        "unrouted",
        "whole",
    )

    def __init__(self, request: Subscribe, cursor: Cursor) -> None:
        self.request = request
        self.sub = request.sub
        self.patterns = list(request.topics)
        self.cursor = cursor
        self.phase = PENDING
        self.ref = ""
        self.answered = False
        self.retry_pending = False
        self.recovering = False
        self.unrouted = False
        self.denied: list[Denial] = []
        self.hold([])
        self.clear_answer()

    def hold(self, messages: list[Envelope]) -> None:
        """Hold only these messages."""
        self.held = messages
        self.lost: dict[str, int] = {}
        self.whole = True

    def clear_answer(self) -> None:
        """Drop the parts of an incomplete answer."""
        self.history: list[Envelope] = []
        self.positions: dict[str, int] = {}
        self.truncated: dict[str, None] = {}
        self.reset: dict[str, None] = {}
        self.timestamp: int | None = None

    def forget(self) -> None:
        """The connection is lost: drop held messages, which would make the mark jump."""
        self.phase = PENDING
        self.ref = ""
        self.hold([])
        self.cursor.retried.clear()
        self.recovering = self.retry_pending = False
        self.clear_answer()

    @property
    def accepts_parts(self) -> bool:
        """Whether parts of an answer can be processed before the last one has arrived.

        If the connection breaks in between, the subscription resumes from there. This is not
        possible for a request of the newest messages, and with time and ids only, an answer is
        known to be complete only at its end.
        """
        whole = not self.answered and self.request.history is not None
        return self.cursor.uses_seq and not whole

    def matches(self, topic: str) -> bool:
        """Whether an active pattern matches the topic."""
        return any(matches(pattern, topic) for pattern in self.patterns)
