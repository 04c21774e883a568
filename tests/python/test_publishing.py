"""The arguments of `publish`, and batches."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from hanzoai.pubsub.errors import InvalidOption, InvalidPayload, InvalidTopic, PubSubError
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.runtime.publisher import Prepared, prepare, split_item


def test_a_message_gets_an_id_and_a_size() -> None:
    prepared = prepare("a.b", {"type": "x", "data": {"n": 1}}, 1_000)
    assert prepared.id.startswith("msg_")
    assert prepared.size == len('{"n":1}')
    assert prepared.publication.type == "x"


def test_arguments_override_the_fields_of_the_message() -> None:
    message = {"data": 1, "ttl": 5, "id": "inner", "topic": "a.b"}
    prepared = prepare("a.b", message, 1_000, ttl=9, id="outer")
    assert (prepared.publication.ttl, prepared.id) == (9, "outer")
    inner = prepare(None, message, 1_000)
    assert (inner.publication.topic, inner.publication.ttl, inner.id) == ("a.b", 5, "inner")


def test_data_that_is_null_is_data() -> None:
    assert prepare("a", {"data": None}, 10).publication.data is None
    assert prepare("a", Publication(topic="a", data=None), 10).publication.data is None


def test_fields_that_are_none_count_as_absent() -> None:
    prepared = prepare("a", {"data": 1, "type": None, "ttl": None, "meta": None}, 10)
    assert prepared.publication.type == "message"


@pytest.mark.parametrize(
    ("item", "described"),
    [
        (7, "int"),
        ("a.b", "str"),
        (("a.b",), "a tuple of 1"),
        (("a.b", {"data": 1}, 5), "a tuple of 3"),
        (["a.b", {"data": 1}], "list"),
    ],
)
def test_an_item_that_is_not_a_message_is_named(item: Any, described: str) -> None:
    words = f"It is {described}, not a topic with its message."
    with pytest.raises(InvalidPayload, match=re.escape(words)) as caught:
        split_item(item)
    assert caught.value.field == "messages"


def test_a_message_before_its_topic_is_reported_as_swapped() -> None:
    swapped: tuple[Any, Any] = ({"data": 1}, "a.b")
    with pytest.raises(InvalidPayload, match="are swapped") as caught:
        prepare(*swapped, 100)
    assert caught.value.field == "message"
    assert "the topic comes first" in str(caught.value.remedy)


def test_an_item_is_a_pair_a_mapping_or_a_publication() -> None:
    message = {"data": 1}
    publication = Publication(topic="a", data=1)
    assert split_item(("a", message)) == ("a", message)
    assert split_item({"topic": "a", **message}) == (None, {"topic": "a", **message})
    assert split_item(publication) == ("a", publication)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("type", "", "is empty"),
        ("type", "x" * 129, "is too long"),
        ("type", 7, "is int"),
        ("id", "\ud800", "contains half of a surrogate pair"),
        ("ttl", -1, "is negative"),
        ("ttl", 0.5, "is float"),
        ("meta", [], "is list"),
        ("meta", {7: 1}, "has a key that is not a str"),
    ],
)
def test_a_wrong_field_is_named_with_its_problem(field: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        prepare("a", {"data": 1, field: value}, 1_000)
    assert (caught.value.field, caught.value.message) == (field, f"`{field}` {problem}.")
    assert caught.value.remedy is not None


def test_no_payload_is_in_an_error() -> None:
    for message in ({"data": {"secret"}}, {"data": 1, "ttl": "secret"}, {"data": 1, "type": 7}):
        with pytest.raises(PubSubError) as caught:
            prepare("a", message, 1_000)
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidOption) as long:
        prepare("a", {"data": 1, "x" * 500: 1}, 1_000)
    assert len(str(long.value)) < 300


@pytest.mark.parametrize("topic", [["a"], {"a": 1}, b"a", 5, "a\u0301", "a" * 256, "a\n"])
def test_a_usual_message_to_an_invalid_topic_is_refused_each_time(topic: Any) -> None:
    for _ in range(2):
        with pytest.raises(InvalidTopic):
            prepare(topic, {"type": "t", "data": 1}, 1_000)


@pytest.mark.parametrize("name", ["", "t" * 129, "\ud800", 5, b"t", None, ["t"]])
@pytest.mark.parametrize("data", [1, {"n": 1}])
def test_the_short_way_of_a_usual_message_takes_what_the_long_way_takes(
    name: Any, data: object
) -> None:
    def long() -> Prepared:
        return prepare("a.b", {"type": name, "data": data, "ttl": 3}, 1_000, id="m")

    try:
        expected = long().publication
    except PubSubError as error:
        with pytest.raises(type(error), match=re.escape(error.message)):
            prepare("a.b", {"type": name, "data": data}, 1_000)
    else:
        found = prepare("a.b", {"type": name, "data": data}, 1_000).publication
        assert found.model_copy(update={"id": "m", "ttl": 3}) == expected


def test_a_usual_message_becomes_the_publication_that_pydantic_makes() -> None:
    found = prepare("a.b", {"type": "t", "data": {"n": [1, None]}}, 1_000)
    made = Publication(topic="a.b", type="t", data={"n": [1, None]}, id=found.id)
    assert found.publication == made
    assert found.publication.model_fields_set == made.model_fields_set
    assert found.publication.wire() == made.wire()
    assert list(found.publication.model_dump()) == list(made.model_dump())
    assert found.size == len('{"n":[1,null]}')


def test_a_timedelta_is_a_time_to_live_of_whole_seconds() -> None:
    message = {"data": 1, "ttl": timedelta(minutes=2)}
    assert prepare("a.b", message, 1_000).publication.ttl == 120
    assert prepare("a.b", message, 1_000, ttl=timedelta(0)).publication.ttl == 0
    with pytest.raises(InvalidOption) as caught:
        prepare("a.b", {"data": 1}, 1_000, ttl=timedelta(seconds=1.5))
    assert caught.value.field == "ttl"
