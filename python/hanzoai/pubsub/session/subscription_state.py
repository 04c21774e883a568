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
    """One subscription of the user.

    Attributes:
        request: What the user requested; after a change of the peer, what follows the newest
            message.
        cursor: Its position.
        patterns: The active patterns.
        phase: Pending, joining or live.
        ref: The `ref` of the open request.
        answered: The server has answered at least once.
        retry_pending: The server rejected a part of it temporarily.
        reported: The program knows the answer on this connection: another request only recovers
            messages.
        denied: Patterns denied by earlier answers, for the next report.
        gaps: Gaps that begin with a change of the peer. They are reported with the next answer:
            what is published until then may be missing, too.
        replay: What has arrived for the open request.
    """

    request: Subscribe
    cursor: Cursor
    patterns: list[str] = field(init=False)
    phase: int = PENDING
    ref: str = ""
    answered: bool = False
    retry_pending: bool = False
    reported: bool = False
    denied: list[Denial] = field(default_factory=list["Denial"])
    gaps: list[Gap] = field(default_factory=list["Gap"])
    replay: Replay = field(default_factory=Replay)

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
