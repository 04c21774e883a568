"""The subscriptions of topics, by their patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hanzoai.pubsub.session.subscription_state import SubscriptionState

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
