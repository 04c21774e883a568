"""One subscription of a session: its patterns, its cursor, and the state of its request.

It is pending (not requested on this connection), joining (requested and not answered: matching live
messages are held), or live.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.session.cursor import Replay

if TYPE_CHECKING:
    from hanzoai.pubsub.gap import Gap
    from hanzoai.pubsub.generated.wire import Denial
    from hanzoai.pubsub.session.cursor import Cursor
    from hanzoai.pubsub.session.requests import Subscribe

PENDING: Final = 0
JOINING: Final = 1
LIVE: Final = 2


@dataclass(slots=True, eq=False)
class SubscriptionState:
    """One subscription of the user."""

    request: Subscribe  # after a change of the peer, for what follows the newest message
    cursor: Cursor
    patterns: list[str] = field(init=False)  # the active ones
    phase: int = PENDING
    ref: str = ""  # of the open request
    answered: bool = False  # the server has answered at least once
    retry_pending: bool = False  # the server rejected a part of it temporarily
    # The program knows the answer on this connection: another request only recovers messages.
    reported: bool = False
    denied: list[Denial] = field(default_factory=list["Denial"])  # for the next report
    # These begin with a change of the peer. They are reported with the next answer: what is
    # published until then may be missing, too.
    gaps: list[Gap] = field(default_factory=list["Gap"])
    replay: Replay = field(default_factory=Replay)  # what has arrived for the open request

    def __post_init__(self) -> None:
        self.patterns = list(self.request.topics)

    def forget(self) -> None:
        """The connection is lost: drop held messages, which would make the mark jump."""
        self.phase = PENDING
        self.replay = Replay()
        self.cursor.retried.clear()
        self.reported = False

    @property
    def limit(self) -> int | None:
        """Requested maximum per topic; None after the first answer."""
        return None if self.answered else self.request.history
