"""Matches topics and patterns with a list of patterns; for audit and webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, validate_pattern
from pubsub_server.access import rule_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_REMEMBERED: Final = 10_000


class TopicFilter:
    """Accepts a topic that matches one of its patterns, and a pattern that overlaps with one.

    Args:
        patterns: Patterns of the settings.

    Raises:
        InvalidTopic: One of them is not valid.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._trie: TopicTrie[None] = TopicTrie()
        self._patterns = tuple(dict.fromkeys(validate_pattern(pattern) for pattern in patterns))
        for pattern in self._patterns:
            self._trie.insert(pattern, None)
        self._parsed = tuple(rule_patterns.parse(pattern) for pattern in self._patterns)
        self._remembered: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        known = self._remembered.get(topic)
        if known is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            known = self._remembered[topic] = self._takes(topic)
        return known

    def _takes(self, topic: str) -> bool:
        if "*" not in topic:
            return bool(self._trie.match(topic))
        return any(rule_patterns.may_overlap(parsed, topic, {}) for parsed in self._parsed)
