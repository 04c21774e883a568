"""A set of topics that finds those that match a pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.session import topic_tree
from hanzoai.pubsub.session.topic_tree import TopicTree
from hanzoai.pubsub.topics import TopicTrie

SEGMENTS = st.sampled_from(["a", "b", "c"])
TOPICS = st.lists(SEGMENTS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(st.one_of(SEGMENTS, st.sampled_from(["*", "**"])), min_size=1, max_size=5)


def tree_of(*topics: str) -> TopicTree:
    tree = TopicTree()
    for topic in topics:
        tree.add(topic)
    return tree


@given(st.sets(TOPICS), st.sets(TOPICS), PATTERNS.map(".".join))
def test_a_search_finds_each_topic_that_the_pattern_matches_once(
    topics: set[str], removed: set[str], pattern: str
) -> None:
    tree = tree_of(*topics)
    for topic in removed:
        tree.discard(topic)
    trie: TopicTrie[None] = TopicTrie()
    trie.insert(pattern, None)
    wanted = sorted(topic for topic in topics - removed if trie.match(topic))
    assert sorted(tree.matching(pattern)) == wanted


@pytest.mark.parametrize("pattern", ["room.5.**", "room.5.*", "room.5.a", "**.a.a.a", "x.**"])
def test_a_search_visits_only_what_may_match(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    visits: list[str] = []
    following = topic_tree._following

    def counted(wanted: list[str], places: list[int], segment: str) -> frozenset[int]:
        visits.append(segment)
        return following(wanted, places, segment)

    monkeypatch.setattr(topic_tree, "_following", counted)
    tree = tree_of(*(f"room.{number}.a" for number in range(1_000)))
    found = list(tree.matching(pattern))
    assert found == ([] if pattern.startswith(("**", "x")) else ["room.5.a"])
    assert len(visits) <= (2_001 if pattern.startswith("**") else 3)


def test_a_removed_topic_leaves_no_nodes() -> None:
    tree = tree_of("a.b.c", "a.b")
    for topic in ("a.b.c", "a.x", "a.b"):
        tree.discard(topic)
    assert not tree._root.children
