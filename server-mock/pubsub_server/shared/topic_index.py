"""Which of the topics that exist a pattern matches, without looking at all of them each time.

The answer for a pattern is kept and follows the topics that come and go, so a thousand dashboards
that subscribe to the same pattern cost one search.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

AT_ONCE: Final = 2_000
"""Topics that are looked at in one go; more are surveyed piece by piece."""
TOPIC_UNITS: Final = 10
"""What looking at one costs; see `turns`."""
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
        self._surveys: dict[Survey, None] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def add(self, topic: str) -> None:
        """A topic exists."""
        if topic in self._topics:
            return
        self._topics[topic] = None
        for survey in self._surveys:
            survey.look(topic)
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
        for survey in self._surveys:
            survey.found.pop(topic, None)
        if self._views:
            for pattern in self._watch.match(topic):
                del self._views[pattern][topic]
                self._held -= 1

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """How to find what the patterns match and what is allowed, where there is a lot to see.

        Returns:
            What finds it, to be ended; None where `matching` looks at few.
        """
        if not patterns or len(self._topics) <= AT_ONCE:
            return None
        views = [view for each in patterns if (view := self._views.get(each)) is not None]
        known = len(views) == len(patterns)
        if known and sum(map(len, views)) <= AT_ONCE:
            return None
        survey = Survey(self, patterns, allowed, views if known else [self._topics])
        self._surveys[survey] = None
        return survey

    def keep(self, survey: Survey) -> None:
        """Keep the answer of a survey that nothing was left out of, so that the next asks less."""
        for pattern in survey.patterns:
            if pattern not in self._views:
                view = {topic: None for topic in survey.found if matches(pattern, topic)}
                self._views[pattern] = view
                self._watch.insert(pattern, pattern)
                self._held += len(view)
        self._shrink()

    def end(self, survey: Survey) -> None:
        """Stop sending topics to this survey."""
        self._surveys.pop(survey, None)

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


class Survey:
    """A search among many topics, piece by piece, that misses none that comes meanwhile.

    Args:
        index: The topics.
        patterns: Searched for.
        allowed: Which of the topics found are wanted.
        sets: Topics to look at.

    Attributes:
        found: The topics, complete after `run` until `end`.
        patterns: Those searched for.
    """

    def __init__(
        self,
        index: TopicIndex,
        patterns: Iterable[str],
        allowed: Callable[[str], bool],
        sets: Sequence[dict[str, None]],
    ) -> None:
        self.found: dict[str, None] = {}
        self.patterns = frozenset(patterns)
        self._index = index
        self._allowed = allowed
        self._sets = sets
        self._trie: TopicTrie[None] = TopicTrie()
        for pattern in self.patterns:
            self._trie.insert(pattern, None)

    def keep(self) -> None:
        """See `TopicIndex.keep`; before `end`."""
        self._index.keep(self)

    def end(self) -> None:
        """What was found is needed no more."""
        self._index.end(self)

    async def run(self, turn: Callable[[int], Awaitable[None]]) -> None:
        """Look at all of them.

        Args:
            turn: Waits for a turn in which so many units may be spent.
        """
        names = list(dict.fromkeys(topic for each in self._sets for topic in each))
        for start in range(0, len(names), PIECE):
            await turn(PIECE * TOPIC_UNITS)
            for topic in names[start : start + PIECE]:
                if topic in self._index:
                    self.look(topic)

    def look(self, topic: str) -> None:
        """Add a topic if it is one of those."""
        if self._trie.match(topic) and self._allowed(topic):
            self.found[topic] = None


PIECE: Final = 500
"""Topics that a survey looks at in one turn."""
