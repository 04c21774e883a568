from __future__ import annotations

import json
import random
import tracemalloc
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanzoai.pubsub import InvalidTopic, is_wildcard, matches, validate_pattern, validate_topic
from hanzoai.pubsub.topics import TopicTrie, valid_topics

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def _slow_match(pattern: tuple[str, ...], topic: tuple[str, ...]) -> bool:
    if not pattern:
        return not topic
    head, rest = pattern[0], pattern[1:]
    if head == "**":
        return any(_slow_match(rest, topic[n:]) for n in range(1, len(topic) + 1))
    return bool(topic) and head in ("*", topic[0]) and _slow_match(rest, topic[1:])


def slow_match(pattern: list[str], topic: list[str]) -> bool:
    """The definition of HIP-56 in its simplest form."""
    return _slow_match(tuple(pattern), tuple(topic))


def _valid(check: Callable[[str], str], text: str) -> bool:
    try:
        return check(text) == text
    except InvalidTopic as error:
        text = error.message
    assert text.removesuffix(".").isprintable()
    return False


segments = st.sampled_from(["a", "b", "c"])
topics = st.lists(segments, min_size=1, max_size=6) | st.lists(segments, min_size=7, max_size=24)
pieces = st.sampled_from(["a", "b", "c", "*", "**"])
# Long ones are not in the tree of a trie.
patterns = st.lists(pieces, min_size=1, max_size=6) | st.lists(pieces, min_size=7, max_size=20)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is empty"),
        ("a..b", "empty segment at character 3"),
        (".a", "empty segment at character 1"),
        ("a.", "empty segment at character 3"),
        ("a b", "has ' ' at character 2"),
        ("ä", "has '\\xe4' at character 1"),
        ("a.\n", "has '\\n' at character 3"),
        ("a.*", "wildcard '*' at character 3"),
        ("a.b*", "wildcard '*' at character 4"),
        ("a" * 256, "256 bytes"),
        (7, "not int"),
    ],
)
def test_an_invalid_topic_is_named_with_its_problem_and_place(name: Any, says: str) -> None:
    with pytest.raises(InvalidTopic) as caught:
        validate_topic(name)
    assert says in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("pattern", ["a*", "*a", "a.***", "a.b**.c"])
def test_a_wildcard_is_a_whole_segment(pattern: str) -> None:
    with pytest.raises(InvalidTopic, match="mixes"):
        validate_pattern(pattern)


@pytest.mark.parametrize("name", ["a", "A-Z_0.b", "a" * 255, "chat.session.abc"])
def test_a_valid_name_comes_back(name: str) -> None:
    assert validate_topic(name) == name
    assert validate_pattern(name) == name
    assert not is_wildcard(name)


@pytest.mark.parametrize("pattern", ["*", "**", "a.**.b", "**.**", "*.*"])
def test_a_valid_pattern_comes_back(pattern: str) -> None:
    assert validate_pattern(pattern) == pattern
    assert is_wildcard(pattern)


def test_a_name_may_be_a_str_of_another_class() -> None:
    class Compared(str):
        __slots__ = ()
        __hash__ = None  # type: ignore[assignment] # as of a class that defines only `__eq__`

    assert validate_topic(Compared("other.class")) == "other.class"
    assert "other.class" not in valid_topics


@given(st.text(max_size=300))
def test_any_text_is_either_valid_or_refused_in_words(text: str) -> None:
    for validate in (validate_topic, validate_pattern):
        _valid(validate, text)


@given(patterns, topics)
def test_a_match_is_what_the_definition_says(pattern: list[str], topic: list[str]) -> None:
    assert matches(".".join(pattern), ".".join(topic)) == slow_match(pattern, topic)


@given(st.lists(st.tuples(patterns, st.integers(0, 3), st.booleans()), max_size=30), topics)
@settings(max_examples=200)
def test_a_trie_finds_each_value_of_a_matching_pattern_once(
    steps: list[tuple[list[str], int, bool]], topic: list[str]
) -> None:
    trie: TopicTrie[int] = TopicTrie()
    model: set[tuple[str, int]] = set()
    for pattern, value, insert in steps:
        text = ".".join(pattern)
        if insert:
            assert trie.insert(text, value) == ((text, value) not in model)
            model.add((text, value))
        else:
            assert trie.remove(text, value) == ((text, value) in model)
            model.discard((text, value))
    assert sorted(trie) == sorted(model)
    assert len(trie) == len(model)
    found = trie.match(".".join(topic))
    expected = {value for pattern, value in model if slow_match(pattern.split("."), topic)}
    assert sorted(found) == sorted(expected)


def test_an_emptied_trie_keeps_no_node() -> None:
    trie: TopicTrie[int] = TopicTrie()
    for n in range(50):
        trie.insert(f"a.*.{n}.**", n)
        trie.insert(f"a.**.b.c.d.e.f.{n}", n)
        trie.insert(f"a.{n}", n)
    for n in range(50):
        assert trie.remove(f"a.*.{n}.**", n)
        assert trie.remove(f"a.**.b.c.d.e.f.{n}", n)
        assert trie.remove(f"a.{n}", n)
    assert not trie._root.children
    assert not trie._exact
    assert not trie._blocks
    assert not trie._places


def test_the_order_of_values_is_that_of_their_insertion() -> None:
    trie: TopicTrie[str] = TopicTrie()
    for value in ("third", "first", "second"):
        trie.insert("a.b", value)
        trie.insert("a.*", value + "*")
        trie.insert("**.**.b.b.b.b.b.b", value + " long")
    assert trie.match("a.b") == ("third", "first", "second", "third*", "first*", "second*")
    assert trie.match("a.a.b.b.b.b.b.b") == ("third long", "first long", "second long")


class _Counted(dict[str, Any]):
    looked = 0

    def get(self, key: str, default: Any = None) -> Any:
        _Counted.looked += 1
        return super().get(key, default)


def _count(trie: TopicTrie[int], topic: str) -> int:
    """Count the node look-ups of a match."""
    stack = [trie._root]
    while stack:
        node = stack.pop()
        node.children = _Counted(node.children)
        stack.extend(node.children.values())
    _Counted.looked = 0
    trie.match(topic)
    return _Counted.looked


def test_patterns_that_do_not_match_cost_nothing() -> None:
    few: TopicTrie[int] = TopicTrie()
    many: TopicTrie[int] = TopicTrie()
    for n in range(10_000):
        many.insert(f"other.{n}.**", n)
        many.insert(f"agent.*.{n}", n)
    for trie in (few, many):
        trie.insert("agent.**.events", -1)
        trie.insert("agent.*.events", -2)
    assert _count(many, "agent.x.events") == _count(few, "agent.x.events")


def test_many_double_wildcards_do_not_blow_up() -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.insert(".".join(["**"] * 60), 1)
    trie.insert(".".join(["**", "a"] * 30), 2)
    topic = ".".join(["a"] * 120)
    assert set(trie.match(topic)) == {1, 2}
    # Bounded by segments x nodes, three look-ups each.
    assert _count(trie, topic) <= 120 * 121 * 3


@pytest.mark.parametrize("wildcards", [("*", "**"), ("*",)])
def test_the_long_patterns_of_a_client_are_matched_together(wildcards: tuple[str, ...]) -> None:
    chance = random.Random(1)
    trie: TopicTrie[int] = TopicTrie()
    for n in range(1_000):
        rest = [chance.choice(["a", *wildcards]) for _ in range(118)]
        trie.insert(".".join([wildcards[-1], *rest, "a"]), n)
    topic = ".".join(["a"] * 120)
    assert len(trie.match(topic)) == 1_000
    # In the tree, each segment of the topic would need a look-up for most segments of the patterns.
    assert _count(trie, topic) == 0
    assert len(trie._blocks) < 20


def test_the_memory_of_long_patterns_grows_with_their_segments_alone() -> None:
    trie: TopicTrie[int] = TopicTrie()
    names = (f"{n:x}" for n in range(100_000))
    patterns = [".".join(["**", *islice(names, 60)]) for _ in range(512)]
    tracemalloc.start()
    try:
        for n, pattern in enumerate(patterns):
            trie.insert(pattern, n)
        assert trie.match("a." + patterns[-1].removeprefix("**.")) == (511,)
        assert tracemalloc.get_traced_memory()[1] < 500 * 60 * len(patterns)
    finally:
        tracemalloc.stop()


def test_long_patterns_cost_a_shorter_topic_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.insert("**.a.b.c.d.e.f", 1)
    looked: list[list[str]] = []

    def match(block: object, topic: list[str]) -> tuple[()]:
        looked.append(topic)
        return ()

    monkeypatch.setattr("hanzoai.pubsub.topics._Block.match", match)
    assert trie.match("a.b.c.d.e.f") == ()
    assert looked == []
    trie.match("a.a.b.c.d.e.f")
    assert len(looked) == 1


def test_long_patterns_that_come_and_go_fill_the_blocks_of_others() -> None:
    trie: TopicTrie[int] = TopicTrie()
    for n in range(2_000):
        trie.insert(f"**.a.b.c.d.e.{n}", n)
    blocks = len(trie._blocks)
    for n in range(2_000):
        if n % 200:
            trie.remove(f"**.a.b.c.d.e.{n}", n)
    for n in range(3_000, 4_500):
        trie.insert(f"**.a.b.c.d.e.{n}", n)
    assert len(trie._blocks) <= blocks
    assert trie.match("x.a.b.c.d.e.4499") == (4_499,)
    assert trie.match("x.a.b.c.d.e.200") == (200,)
    assert trie.match("x.a.b.c.d.e.201") == ()


def test_a_long_pattern_that_comes_and_goes_uses_no_more_memory() -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.insert("**.a.b.c.d.e.f", 1)
    for n in range(2_000):
        trie.insert(f"**.a.b.c.d.e.{n}", n)
        trie.remove(f"**.a.b.c.d.e.{n}", n)
    (block,) = trie._blocks
    assert block._size < 100
    assert trie.match("x.a.b.c.d.e.f") == (1,)


def test_a_long_pattern_does_not_continue_in_the_next_one() -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.insert("**.a.b.c.d.e.f", 1)
    trie.insert("g.**.a.b.c.d.e", 2)
    assert trie.match("x.a.b.c.d.e.f") == (1,)
    assert trie.match("x.a.b.c.d.e.f.g") == ()
    assert trie.match("g.x.a.b.c.d.e") == (2,)
    assert trie.match("x.a.b.c.d.e.f.g.x.a.b.c.d.e") == ()


SPEC: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "spec" / "topics.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", SPEC["topics"], ids=lambda case: case["why"])
def test_a_name_is_valid_as_the_spec_says(case: dict[str, Any]) -> None:
    assert _valid(validate_topic, case["topic"]) == case["valid"]


@pytest.mark.parametrize("case", SPEC["patterns"], ids=lambda case: case["why"])
def test_a_pattern_is_valid_as_the_spec_says(case: dict[str, Any]) -> None:
    assert _valid(validate_pattern, case["pattern"]) == case["valid"]


@pytest.mark.parametrize("case", SPEC["matches"], ids=lambda case: case["why"])
def test_a_pattern_matches_as_the_spec_says(case: dict[str, Any]) -> None:
    assert matches(case["pattern"], case["topic"]) == case["matches"]


def test_one_trie_of_all_patterns_of_the_spec_finds_just_the_right_ones() -> None:
    trie: TopicTrie[str] = TopicTrie()
    pairs = {(case["pattern"], case["topic"]) for case in SPEC["matches"]}
    for pattern, _ in pairs:
        trie.insert(pattern, pattern)
    for topic in {topic for _, topic in pairs}:
        found = trie.match(topic)
        expected = {p for p, _ in trie if slow_match(p.split("."), topic.split("."))}
        assert set(found) == expected
        assert len(found) == len(expected)
