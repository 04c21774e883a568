"""One subscription inside a session: its patterns, its cursor, and how far the server has answered.

It is pending (not asked for on this connection), joining (asked and not answered: matching live
messages are held), or live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import matches

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import Denial, Envelope
    from hanzoai.pubsub.session.cursor import Cursor
    from hanzoai.pubsub.session.events import Subscribe

PENDING: Final = 0
JOINING: Final = 1
LIVE: Final = 2


class SubscriptionState:
    """One subscription of the user."""

    __slots__ = (
        "again",
        "answered",
        "cursor",
        "denied",
        "healed",
        "held",
        "history",
        "lost",
        "patterns",
        "phase",
        "positions",
        "quiet",
        "ref",
        "request",
        "reset",
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
        self.again = False
        self.quiet = False
        self.unrouted = False
        self.denied: list[Denial] = []
        self.lost: dict[str, int] = {}
        self.held: list[Envelope] = []
        self.healed: dict[str, int] = {}
        self.whole = True
        self.clear_answer()

    def clear_answer(self) -> None:
        """Forget what has come of an answer that is not complete."""
        self.history: list[Envelope] = []
        self.positions: dict[str, int] = {}
        self.truncated: dict[str, None] = {}
        self.reset: dict[str, None] = {}
        self.timestamp: int | None = None

    def forget(self) -> None:
        """The connection is gone: what was held and not replayed would make the mark jump."""
        self.phase = PENDING
        self.ref = ""
        self.held = []
        self.lost = {}
        self.whole = True
        self.healed = {}
        self.quiet = self.again = False
        self.clear_answer()

    @property
    def piecemeal(self) -> bool:
        """Whether parts of an answer may be admitted before the last one has come.

        Where the connection breaks in between, it is gone on from there. The newest few cannot be
        asked for like that, and by time and ids alone an answer is known to be whole only at its
        end.
        """
        whole = not self.answered and self.request.history is not None
        return self.cursor.counts and not whole

    def takes(self, topic: str) -> bool:
        """Whether a pattern in force takes the topic."""
        return any(matches(pattern, topic) for pattern in self.patterns)
