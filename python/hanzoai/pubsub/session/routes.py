"""One subscription of a session, and the way from a topic to its subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.session.cursor import Replay
from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hanzoai.pubsub.gap import Gap
    from hanzoai.pubsub.generated.wire import Denial, ErrorFrame
    from hanzoai.pubsub.session.cursor import Cursor
    from hanzoai.pubsub.session.ports import Subscribe

PENDING: Final = 0
"""Not requested on this connection."""
JOINING: Final = 1
"""Requested and not answered: matching live messages are held."""
LIVE: Final = 2


@dataclass(slots=True, eq=False)
class SubscriptionState:
    """One subscription of the program."""

    request: Subscribe  # after a change of the peer, for what follows the newest message
    cursor: Cursor
    patterns: list[str] = field(init=False)  # the active ones
    phase: int = PENDING
    ref: str = ""  # of the open request
    answered: bool = False  # the server has answered at least once
    retry_pending: bool = False  # the server rejected a part of it temporarily
    refusal: ErrorFrame | Denial | None = None  # the last temporary one, for texts of errors
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


KNOWN_TOPICS: Final = 4_096
"""Maximum topics with cached subscriptions."""


class Routes:
    """Subscriptions by pattern and topic."""

    def __init__(self) -> None:
        self.by_pattern: dict[str, dict[SubscriptionState, None]] = {}
        # Cached results of `find`, cleared when a pattern is added or removed.
        self.known: dict[str, tuple[SubscriptionState, ...]] = {}
        self._trie: TopicTrie[str] = TopicTrie()

    def add(self, state: SubscriptionState) -> None:
        """Add the patterns of a subscription."""
        for pattern in state.patterns:
            self._trie.insert(pattern, pattern)
            self.by_pattern.setdefault(pattern, {})[state] = None
        self.known.clear()

    def remove(self, state: SubscriptionState, patterns: Iterable[str]) -> None:
        """Remove some patterns of a subscription."""
        for pattern in patterns:
            states = self.by_pattern.get(pattern, {})
            states.pop(state, None)
            if not states:
                self.by_pattern.pop(pattern, None)
                self._trie.remove(pattern, pattern)
            self.known.clear()

    def matching(self, topic: str) -> tuple[str, ...]:
        """The patterns that match a topic."""
        return self._trie.match(topic)

    def find(self, topic: str) -> tuple[SubscriptionState, ...]:
        """The subscriptions that match a topic, each once, oldest first."""
        states = self.known.get(topic)
        if states is None:
            if len(self.known) >= KNOWN_TOPICS:
                self.known.clear()
            found = {
                state for pattern in self.matching(topic) for state in self.by_pattern[pattern]
            }
            states = self.known[topic] = tuple(sorted(found, key=lambda state: state.request.sub))
        return states
