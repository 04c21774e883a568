"""The subscriptions of a session, by number and by their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hanzoai.pubsub.session.subscription_state import SubscriptionState

KNOWN_TOPICS: Final = 4_096
"""Maximum topics with cached subscriptions."""


class Routes:
    """Subscriptions by number and by their topics.

    Attributes:
        all: By number, in the order of the calls.
        known: Cached results of `find`, cleared when a pattern is added or removed.
    """

    __slots__ = ("_trie", "all", "known")

    def __init__(self) -> None:
        self.all: dict[int, SubscriptionState] = {}
        self.known: dict[str, tuple[SubscriptionState, ...]] = {}
        self._trie: TopicTrie[SubscriptionState] = TopicTrie()

    def add(self, state: SubscriptionState) -> None:
        """Add the patterns of a subscription."""
        for pattern in state.patterns:
            self._trie.insert(pattern, state)
        self.known.clear()

    def remove(self, state: SubscriptionState, patterns: Iterable[str]) -> None:
        """Remove some patterns of a subscription."""
        for pattern in patterns:
            self._trie.remove(pattern, state)
        self.known.clear()

    def find(self, topic: str) -> tuple[SubscriptionState, ...]:
        """The subscriptions that match a topic, each once, oldest first."""
        states = self.known.get(topic)
        if states is None:
            if len(self.known) >= KNOWN_TOPICS:
                self.known.clear()
            found = self._trie.match(topic)
            states = self.known[topic] = tuple(sorted(found, key=lambda state: state.sub))
        return states
