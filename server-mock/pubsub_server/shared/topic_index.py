"""Finds the existing topics that match a pattern, without checking all of them each time.

The result for a pattern is cached and updated as topics are added and removed, so a thousand
dashboards that subscribe to the same pattern cost one search.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

AT_ONCE: Final = 2_000
"""Maximum topics that are checked at once; more are searched step by step."""
TOPIC_SECONDS: Final = 10e-6
"""Expected seconds for checking one topic; see `turns`."""
VIEWS_MAX: Final = 256
"""Maximum cached patterns; the least recently used is removed first."""
KEPT: Final = 16
"""Maximum patterns of a search whose result is cached."""
VIEW_TOPICS_MAX: Final = 1_000_000
"""Maximum topics in all cached results together."""


class TopicIndex:
    """A set of topics with search by pattern."""

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
        """Add a topic."""
        if topic in self._topics:
            return
        self._topics[topic] = None
        for survey in self._surveys:
            survey.add_if_matching(topic)
        if self._views:
            for pattern in self._watch.match(topic):
                self._views[pattern][topic] = None
                self._held += 1
            self._shrink()

    def discard(self, topic: str) -> None:
        """Remove a topic."""
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
        """A search for allowed topics of the patterns, if there are many topics.

        Returns:
            The search, which the caller must end; None if `matching` is fast enough.
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
        """Cache the result of a complete survey, so that the next search is faster."""
        if len(survey.patterns) > KEPT:
            return
        fresh: dict[str, dict[str, None]] = {
            pattern: {} for pattern in survey.patterns if pattern not in self._views
        }
        for topic, patterns in survey.found.items():
            for pattern in patterns:
                if pattern in fresh:
                    fresh[pattern][topic] = None
        self._cache(fresh)

    def end(self, survey: Survey) -> None:
        """Stop sending topics to this survey."""
        self._surveys.pop(survey, None)

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """Topics that match any of the patterns, each once."""
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
            self._cache(fresh)
        return list(found)

    def _cache(self, fresh: dict[str, dict[str, None]]) -> None:
        for pattern, view in fresh.items():
            self._views[pattern] = view
            self._watch.insert(pattern, pattern)
            self._held += len(view)
        self._shrink()

    def _shrink(self) -> None:
        while len(self._views) > VIEWS_MAX or (self._held > VIEW_TOPICS_MAX and self._views):
            pattern, view = self._views.popitem(last=False)
            self._watch.remove(pattern, pattern)
            self._held -= len(view)


class Survey:
    """A step-by-step search among many topics, which includes topics added in the meantime.

    Args:
        index: The topics.
        patterns: The patterns to search for.
        allowed: Selects the wanted topics among the matches.
        sets: The topics to check.

    Attributes:
        found: The topics with the patterns that match them, complete after `run` until `end`.
            Without the patterns if there are more than `KEPT`.
        patterns: The patterns of the search.
    """

    def __init__(
        self,
        index: TopicIndex,
        patterns: Iterable[str],
        allowed: Callable[[str], bool],
        sets: Sequence[dict[str, None]],
    ) -> None:
        self.found: dict[str, Sequence[str]] = {}
        self.patterns = frozenset(patterns)
        self._index = index
        self._allowed = allowed
        self._sets = sets
        self._trie: TopicTrie[str] = TopicTrie()
        for pattern in self.patterns:
            self._trie.insert(pattern, pattern)

    def keep(self) -> None:
        """See `TopicIndex.keep`; before `end`."""
        self._index.keep(self)

    def end(self) -> None:
        """End the search; its result is no longer needed."""
        self._index.end(self)

    async def run(self, turn: Callable[[float], Awaitable[None]]) -> None:
        """Check all topics.

        Args:
            turn: Waits for a turn; takes the expected seconds of the work.
        """
        names = list(dict.fromkeys(topic for each in self._sets for topic in each))
        for start in range(0, len(names), PIECE):
            await turn(PIECE * TOPIC_SECONDS)
            for topic in names[start : start + PIECE]:
                if topic in self._index:
                    self.add_if_matching(topic)

    def add_if_matching(self, topic: str) -> None:
        """Add a topic if it matches."""
        patterns = self._trie.match(topic)
        if patterns and self._allowed(topic):
            self.found[topic] = patterns if len(self.patterns) <= KEPT else ()


PIECE: Final = 500
"""Maximum topics that a survey checks in one turn."""
