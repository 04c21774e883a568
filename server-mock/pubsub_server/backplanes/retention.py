"""Retention of each topic's log: one default, and other values for certain patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pubsub_server.settings.config import Settings

MAX_KNOWN: Final = 100_000
"""Maximum topics whose retention is cached."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The retention of a log.

    Attributes:
        messages: Maximum messages; the newest are kept.
        age: Maximum age in milliseconds; a message's ``ttl`` may be shorter.
    """

    messages: int
    age: int


class Retention:
    """The retention of every topic.

    Args:
        keep: Default, for topics that no pattern matches.
        classes: Retention by pattern; the first match counts.

    Attributes:
        keeps: All distinct values; the first is the default.
    """

    def __init__(self, keep: Keep, classes: Iterable[tuple[Sequence[str], Keep]] = ()) -> None:
        self.keeps = [keep]
        self._trie: TopicTrie[int] = TopicTrie()
        for patterns, other in classes:
            for pattern in dict.fromkeys(patterns):
                self._trie.insert(pattern, len(self.keeps))
            self.keeps.append(other)
        self._known: dict[str, int] = {}

    @property
    def longest(self) -> int:
        """The maximum age in milliseconds."""
        return max(keep.age for keep in self.keeps)

    def number(self, topic: str) -> int:
        """The index in `keeps` for a topic."""
        if len(self.keeps) == 1:
            return 0
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[topic] = min(self._trie.match(topic), default=0)
        return known

    def of(self, topic: str) -> Keep:
        """The retention of a topic."""
        return self.keeps[self.number(topic)]


def retention(settings: Settings) -> Retention:
    """The retention of the settings."""
    messages, age = settings.history_max_messages, settings.history_max_age
    return Retention(
        Keep(messages, age * 1000),
        [
            (
                each.topics,
                Keep(
                    messages if each.max_messages is None else each.max_messages,
                    1000 * (age if each.max_age is None else each.max_age),
                ),
            )
            for each in settings.history_classes
        ],
    )
