"""How much the log of a topic keeps: one answer for most topics, others for certain patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pubsub_server.settings.config import Settings

MAX_KNOWN: Final = 100_000
"""Topics whose answer is remembered."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What a log keeps.

    Attributes:
        messages: So many, the newest.
        age: Milliseconds of each; its own ``ttl`` may say less.
    """

    messages: int
    age: int


class Retention:
    """What the log of each topic keeps.

    Args:
        keep: Of topics that no pattern matches.
        classes: Patterns and what is kept of topics that one of them matches; the first counts.

    Attributes:
        keeps: All answers there are; that of topics without a class is the first.
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
        """The greatest age, milliseconds."""
        return max(keep.age for keep in self.keeps)

    def number(self, topic: str) -> int:
        """Which of `keeps` is that of the topic."""
        if len(self.keeps) == 1:
            return 0
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[topic] = min(self._trie.match(topic), default=0)
        return known

    def of(self, topic: str) -> Keep:
        """What the log of the topic keeps."""
        return self.keeps[self.number(topic)]


def retention(settings: Settings) -> Retention:
    """What the log of each topic keeps by the settings."""
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
