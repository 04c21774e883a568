"""The cases of topics.json are numerous, distinct and correct, according to a simple matcher."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from hanzoai.pubsub.generated import wire
from tests.spec.files import TOPICS

KEYS = {"topics": ("topic",), "patterns": ("pattern",), "matches": ("pattern", "topic")}


def accepted(kind: Any, value: str) -> bool:
    try:
        TypeAdapter[str](kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def matches(pattern: list[str], topic: list[str]) -> bool:
    """Try each number of segments for `**`; the sets of positions keep it polynomial."""
    places = {0}
    for segment in pattern:
        reached = set[int]()
        for place in places:
            if segment == "**":
                reached.update(range(place + 1, len(topic) + 1))
            elif place < len(topic) and segment in ("*", topic[place]):
                reached.add(place + 1)
        places = reached
    return len(topic) in places


def test_there_are_enough_cases_and_no_two_are_the_same() -> None:
    total = 0
    for group, keys in KEYS.items():
        seen = [tuple(case[key] for key in keys) for case in TOPICS[group]]
        assert len(seen) == len(set(seen))
        total += len(seen)
    assert total >= 220


def test_every_case_has_a_reason() -> None:
    for group in KEYS:
        assert all(case["why"].strip() for case in TOPICS[group])


@pytest.mark.parametrize("group", KEYS)
def test_either_answer_has_many_cases(group: str) -> None:
    answers = [case.get("valid", case.get("matches")) for case in TOPICS[group]]
    assert answers.count(True) >= 20
    assert answers.count(False) >= 20


@pytest.mark.parametrize("case", TOPICS["topics"], ids=lambda case: ascii(case["topic"])[:40])
def test_the_wire_type_judges_a_name_like_the_case(case: dict[str, Any]) -> None:
    assert accepted(wire.Topic, case["topic"]) is case["valid"]


@pytest.mark.parametrize("case", TOPICS["patterns"], ids=lambda case: ascii(case["pattern"])[:40])
def test_the_wire_type_judges_a_pattern_like_the_case(case: dict[str, Any]) -> None:
    assert accepted(wire.TopicPattern, case["pattern"]) is case["valid"]


def test_a_match_is_what_the_rules_of_the_wildcards_say() -> None:
    for case in TOPICS["matches"]:
        assert accepted(wire.Topic, case["topic"]), case
        assert accepted(wire.TopicPattern, case["pattern"]), case
        found = matches(case["pattern"].split("."), case["topic"].split("."))
        assert found is case["matches"], case
