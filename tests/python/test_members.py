"""The topics of presence that a pattern matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.session.presence import PresenceMembers
from hanzoai.pubsub.session.routes import Routes
from hanzoai.pubsub.topics import TopicTrie, matches

SEGMENTS = st.sampled_from(["a", "b", "ä"])
TOPICS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=4).map(".".join), unique=True)
PATTERNS = st.lists(st.one_of(SEGMENTS, st.sampled_from(["*", "**"])), min_size=1, max_size=5)


def members_of(topics: list[str]) -> PresenceMembers:
    members = PresenceMembers()
    for topic in topics:
        members.snapshot(topic, [])
    return members


def shown(members: PresenceMembers, pattern: str) -> list[str]:
    return [change.topic for change in members.lists([pattern], [], hidden=False)]


@given(TOPICS, PATTERNS.map(".".join), PATTERNS.map(".".join))
def test_a_pattern_shows_and_drops_exactly_its_topics_in_the_order_of_their_use(
    topics: list[str], pattern: str, ended: str
) -> None:
    members = members_of(topics)
    assert shown(members, pattern) == [topic for topic in topics if matches(pattern, topic)]
    members.drop([ended], Routes())
    left = [topic for topic in topics if not matches(ended, topic)]
    assert shown(members, pattern) == [topic for topic in left if matches(pattern, topic)]


@pytest.mark.parametrize("pattern", ["room.5.**", "room.5.*", "room.5.*.a", "x.**", "*.5.a"])
def test_only_topics_that_begin_and_end_as_a_pattern_are_compared(
    monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    members = members_of([f"room.{number}.a" for number in range(1_000)])
    compared: list[str] = []
    match = TopicTrie[None].match

    def counted(self: TopicTrie[None], topic: str) -> tuple[None, ...]:
        compared.append(topic)
        return match(self, topic)

    monkeypatch.setattr(TopicTrie, "match", counted)
    shown(members, pattern)
    assert compared == ([] if pattern.startswith("x") else ["room.5.a"])
