"""Which of the topics that exist a pattern matches, without looking at all of them each time.

The answer for a pattern is kept and follows the topics that come and go, so a thousand dashboards
that subscribe to the same pattern cost one search.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Iterable

VIEWS_MAX: Final = 256
"""Patterns whose answer is kept, least recently asked first to go."""
VIEW_TOPICS_MAX: Final = 1_000_000
"""Topics in all kept answers together."""


class TopicIndex:
    """A set of topics, asked by pattern."""

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}
        self._views: OrderedDict[str, dict[str, None]] = OrderedDict()
        self._watch: TopicTrie[str] = TopicTrie()
        self._held = 0

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def add(self, topic: str) -> None:
        """A topic exists."""
        if topic in self._topics:
            return
        self._topics[topic] = None
        if self._views:
            for pattern in self._watch.match(topic):
                self._views[pattern][topic] = None
                self._held += 1
            self._shrink()

    def discard(self, topic: str) -> None:
        """It exists no more."""
        if topic not in self._topics:
            return
        del self._topics[topic]
        if self._views:
            for pattern in self._watch.match(topic):
                del self._views[pattern][topic]
                self._held -= 1

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """Topics that any of the patterns matches, each once."""
        found: dict[str, None] = {}
        missing: TopicTrie[str] = TopicTrie()
        fresh: dict[str, dict[str, None]] = {}
        for pattern in patterns:
            view = self._views.get(pattern)
            if view is None:
                missing.insert(pattern, pattern)
                fresh[pattern] = {}
            else:
                self._views.move_to_end(pattern)
                found.update(view)
        if fresh:
            for topic in self._topics:
                for pattern in missing.match(topic):
                    fresh[pattern][topic] = None
                    found[topic] = None
            for pattern, view in fresh.items():
                self._views[pattern] = view
                self._watch.insert(pattern, pattern)
                self._held += len(view)
            self._shrink()
        return list(found)

    def _shrink(self) -> None:
        while len(self._views) > VIEWS_MAX or (self._held > VIEW_TOPICS_MAX and self._views):
            pattern, view = self._views.popitem(last=False)
            self._watch.remove(pattern, pattern)
            self._held -= len(view)
