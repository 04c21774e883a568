"""The topics of presence that a pattern matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.topics import TopicTrie, matches
from tests.python.presences import WatchedPresence

SEGMENTS = st.sampled_from(["a", "b", "ä"])
TOPICS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=4).map(".".join), unique=True)
PATTERNS = st.lists(st.one_of(SEGMENTS, st.sampled_from(["*", "**"])), min_size=1, max_size=5)


def shown(presence: WatchedPresence, pattern: str) -> list[str]:
    return [change.topic for change in presence.lists(pattern)]


@given(TOPICS, PATTERNS.map(".".join), PATTERNS.map(".".join))
def test_a_pattern_shows_and_forgets_exactly_its_topics_in_the_order_of_their_use(
    topics: list[str], pattern: str, ended: str
) -> None:
    left = [topic for topic in topics if not matches(ended, topic)]
    presence = WatchedPresence(*left, ended)
    for topic in topics:
        presence.snapshot(topic, [])
    assert shown(presence, pattern) == [topic for topic in topics if matches(pattern, topic)]
    presence.end(ended)
    assert shown(presence, pattern) == [topic for topic in left if matches(pattern, topic)]


@pytest.mark.parametrize("pattern", ["room.5.**", "room.5.*", "room.5.*.a", "x.**", "*.5.a"])
def test_only_topics_that_begin_and_end_as_a_pattern_are_compared(
    monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    presence = WatchedPresence("**")
    for number in range(1_000):
        presence.snapshot(f"room.{number}.a", [])
    compared: list[str] = []
    match = TopicTrie[None].match

    def counted(self: TopicTrie[None], topic: str) -> tuple[None, ...]:
        compared.append(topic)
        return match(self, topic)

    monkeypatch.setattr(TopicTrie, "match", counted)
    shown(presence, pattern)
    assert compared == ([] if pattern.startswith("x") else ["room.5.a"])
