"""The only decoder of publishes: every form, and the errors in a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub_server.errors import ServiceError
from pubsub_server.shared.codec import decode
from pubsub_server.shared.publications import MAX_DEPTH, MAX_META, encode_payload
from pubsub_server.shared.requests import Draft, PublishRequest

MAX = 1_000


def frame(**message: Any) -> str:
    return json.dumps({"type": "publish", "message": {"topic": "demo.x", "data": 1, **message}})


def read(text: str | bytes) -> Draft | ServiceError:
    request = decode(text, max_payload=MAX)
    assert isinstance(request, PublishRequest)
    (item,) = request.items
    return item


def test_what_the_sdks_send_is_read_with_all_its_fields() -> None:
    text = json.dumps(
        {
            "type": "publish",
            "ref": "r1",
            "message": {
                "topic": "demo.x",
                "type": "token",
                "data": {"word": "hello"},
                "id": "msg_1",
                "ttl": 60,
                "meta": {"traceparent": "00"},
            },
        }
    )
    draft = Draft("demo.x", "token", b'{"word":"hello"}', 60, "msg_1", b'{"traceparent":"00"}')
    assert decode(text, max_payload=MAX) == PublishRequest([draft], False, "r1")
    assert decode(text.encode(), max_payload=MAX) == PublishRequest([draft], False, "r1")


def test_the_default_type_is_message() -> None:
    assert read(frame()) == Draft("demo.x", "message", b"1", None, None, None)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    item = read(frame(ttl=60.0))
    assert isinstance(item, Draft)
    assert (item.ttl, type(item.ttl)) == (60, int)


@pytest.mark.parametrize(
    ("wrong", "code", "field", "expected"),
    [
        ({"type": ""}, "invalid_frame", "message.type", "1 to 128 characters"),
        ({"type": "t" * 129}, "invalid_frame", "message.type", "1 to 128 characters"),
        ({"type": 7}, "invalid_frame", "message.type", "1 to 128 characters"),
        ({"type": ["t"]}, "invalid_frame", "message.type", "not a list"),
        ({"ttl": -1}, "invalid_frame", "message.ttl", "a whole number of seconds, at least 0"),
        ({"ttl": 1.5}, "invalid_frame", "message.ttl", "a whole number of seconds, at least 0"),
        ({"ttl": 2**53}, "invalid_frame", "message.ttl", "a whole number of seconds"),
        ({"ttl": True}, "invalid_frame", "message.ttl", "not a boolean"),
        ({"ttl": "60"}, "invalid_frame", "message.ttl", "not a string"),
        ({"id": ""}, "invalid_frame", "message.id", "1 to 128 characters"),
        ({"id": "i" * 129}, "invalid_frame", "message.id", "1 to 128 characters"),
        ({"meta": []}, "invalid_frame", "message.meta", "an object, not a list"),
        ({"topic": 7}, "invalid_frame", "message.topic", "a string, not a number"),
        ({"topic": "demo.*"}, "invalid_topic", "message.topic", ""),
        ({"data": "x" * MAX}, "payload_too_large", "message.data", "at most 1,000"),
        ({"meta": {"x": "x" * MAX_META}}, "payload_too_large", "message.meta", "at most 8,192"),
    ],
)
def test_the_problem_of_an_invalid_message_is_named(
    wrong: dict[str, Any], code: str, field: str, expected: str
) -> None:
    error = read(frame(**wrong))
    assert isinstance(error, ServiceError)
    assert (error.code, error.field) == (code, field)
    assert expected in error.message


@pytest.mark.parametrize("field", ["data", "meta"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_value_nested_deeper_than_clients_read_is_refused(field: str, opening: str) -> None:
    def published(levels: int) -> Draft | ServiceError:
        closing = {"[": "]", "{": "}"}[opening[0]]
        # The outermost level is an object, as `meta` must be.
        deep = opening * (levels - 1) + "1" + closing * (levels - 1)
        text = '{"type":"publish","message":{"topic":"a","data":1,"%s":{"k":%s,"wide":%s}}}'
        request = decode(text % (field, deep, "[" + "[]," * 200 + "1]"))
        assert isinstance(request, PublishRequest)
        (item,) = request.items
        return item

    assert isinstance(published(MAX_DEPTH), Draft)
    refused = published(MAX_DEPTH + 1)
    assert isinstance(refused, ServiceError)
    assert (refused.code, refused.field) == ("invalid_payload", f"message.{field}")
    assert refused.message == f"`message.{field}` is nested deeper than 100 levels"


@pytest.mark.parametrize("text", ["", "x" * 20_000, "[" * 20_000])
def test_the_depth_counts_levels_and_not_the_brackets_of_text(text: str) -> None:
    value: object = text or []
    for _ in range(MAX_DEPTH - (0 if text else 1)):
        value = [value]
    assert encode_payload(value, "data", 100_000)
    with pytest.raises(ServiceError, match="deeper than 100 levels"):
        encode_payload([value], "data", 100_000)


def test_one_wrong_message_of_a_batch_is_refused_alone() -> None:
    good, bad = {"topic": "demo.x", "data": 1}, {"topic": "demo.x", "data": 1, "ttl": -1}
    request = decode(json.dumps({"type": "publish", "messages": [good, bad]}))
    assert isinstance(request, PublishRequest)
    first, second = request.items
    assert isinstance(first, Draft)
    assert isinstance(second, ServiceError)
    assert second.field == "messages.1.ttl"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
TOPICS = st.sampled_from(["demo.x", "a", "", "demo.*", "demo..x", 7, None])
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "topic": TOPICS,
        "data": VALUES,
        "type": st.sampled_from(["token", "", None]) | VALUES,
        "ttl": st.sampled_from([0, 1, 1.0, -1, None]) | VALUES,
        "id": st.sampled_from(["m1", "", None]) | VALUES,
        "meta": st.dictionaries(st.text(max_size=4), VALUES, max_size=2) | VALUES,
        "colour": VALUES,
    },
)
FRAMES = st.fixed_dictionaries(
    {"type": st.just("publish")},
    optional={
        "message": MESSAGES | VALUES,
        "ref": st.sampled_from(["r", "", "r" * 65]) | VALUES,
        "topic": TOPICS,
        "data": VALUES,
        "messages": VALUES,
        "event": VALUES,
    },
)


@given(FRAMES.map(json.dumps))
@example('{"type":"publish","message":{"topic":"t","data":123456789012345678901234567890}}')
@example('{"type":"publish","message":{"topic":"t","data":"\\ud800"}}')
@example('{"type":"publish","message":{"topic":"t","data":1e999}}')
@example('{"type":"publish","message":{"topic":"t","data":' + "[" * 600 + "]" * 600 + "}}")
def test_every_publish_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        request = decode(text, max_payload=MAX)
    except ServiceError:
        return
    assert isinstance(request, PublishRequest)
    for item in request.items:
        if isinstance(item, Draft):
            assert 0 < len(item.type) <= 128
            assert item.ttl is None or 0 <= item.ttl < 2**53
            json.loads(item.data)
        else:
            assert item.message


@given(MESSAGES)
def test_a_message_is_read_alike_nested_and_in_a_batch(message: dict[str, Any]) -> None:
    nested = read_items({"type": "publish", "message": message})
    batch = read_items({"type": "publish", "messages": [message]})
    assert [_form(each) for each in nested] == [_form(each) for each in batch]


def read_items(value: dict[str, Any]) -> list[Draft | ServiceError]:
    request = decode(json.dumps(value), max_payload=MAX)
    assert isinstance(request, PublishRequest)
    return list(request.items)


def _form(item: Draft | ServiceError) -> object:
    return item if isinstance(item, Draft) else item.code
