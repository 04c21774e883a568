from __future__ import annotations

import enum
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hanzoai.pubsub.errors import InvalidPayload, PayloadTooLarge
from hanzoai.pubsub.generated.wire import Publication, PublishFrame
from hanzoai.pubsub.wire.codec import encode
from hanzoai.pubsub.wire.payloads import check_data, check_publication

LIMIT = 262_144


class Colour(enum.StrEnum):
    RED = "red"


class Point(BaseModel):
    x: int = 1


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        0,
        -(2**63),
        2**64 - 1,
        1.5,
        "",
        "ü\U0001f600",
        [],
        {},
        (1, 2),
        {"a": [{"b": None}]},
        Colour.RED,
        nested(100),
    ],
)
def test_plain_json_passes_and_is_measured_as_it_is_sent(data: Any) -> None:
    sent = encode(PublishFrame(message=Publication(topic="a", data=data)))
    around = encode(PublishFrame(message=Publication(topic="a", data=None)))
    assert check_data(data, LIMIT) == len(sent) - len(around) + len("null")


@pytest.mark.parametrize(
    ("data", "path", "problem"),
    [
        (float("nan"), "data", "NaN"),
        ({"price": float("inf")}, "data.price", "NaN or infinite"),
        ({"items": [1, {"n": 2**64}]}, "data.items[1].n", "64 bits"),
        ({"a": [{"b": {1: 2}}]}, "data.a[0].b", "a key that is int"),
        ([-(2**63) - 1], "data[0]", "64 bits"),
        ({"t": "a\ud800"}, "data.t", "surrogate"),
        ({"\udfff": 1}, "data", "surrogate"),
        ({"s": {1, 2}}, "data.s", "is of type set"),
        (b"raw", "data", "is of type bytes"),
        ({1: "a"}, "data", "a key that is int"),
        ({"d": datetime(2026, 1, 1, tzinfo=UTC)}, "data.d", "is of type datetime"),
        (Point(), "data", "is of type Point"),
        (object(), "data", "is of type object"),
        (nested(101), "data[0]", "deeper than 100"),
        (looped(), "data[0]", "deeper than 100"),
    ],
)
def test_the_culprit_inside_a_payload_is_named(data: Any, path: str, problem: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        check_data(data, LIMIT, topic="a.b")
    error = caught.value
    assert (error.field or "").startswith(path)
    assert problem in error.message
    assert error.topic == "a.b"
    assert error.remedy
    assert len(error.message) < 200


def test_the_error_of_a_payload_over_the_limit_states_both_sizes() -> None:
    assert check_data("x" * (LIMIT - 2), LIMIT) == LIMIT
    with pytest.raises(PayloadTooLarge) as caught:
        check_data("x" * (LIMIT - 1), LIMIT, topic="a")
    assert (caught.value.size, caught.value.limit) == (LIMIT + 1, LIMIT)
    assert "xxx" not in str(caught.value)


def test_size_counts_bytes_and_not_characters() -> None:
    assert check_data("\U0001f600", LIMIT) == 6
    assert check_data("ü", LIMIT) == 4


def test_meta_is_checked_and_counted_too() -> None:
    good = Publication(topic="a", data=1, meta={"traceparent": "00"})
    assert check_publication(good, LIMIT) == 1 + len('{"traceparent":"00"}')
    assert check_publication(Publication(topic="a", data=1), LIMIT) == 1
    with pytest.raises(InvalidPayload) as caught:
        check_publication(Publication(topic="a", data=1, meta={"x": {1}}), LIMIT)
    assert caught.value.field == "meta.x"


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(alphabet=st.characters())
        | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.text(alphabet=st.characters()) | st.integers(), inner)
        ),
        max_leaves=10,
    )
)
def test_accepted_values_survive_a_json_round_trip(data: Any) -> None:
    try:
        size = check_data(data, LIMIT)
    except InvalidPayload:
        return
    compact = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    sent = encode(PublishFrame(message=Publication(topic="a", data=data)))
    assert json.loads(sent)["message"]["data"] == json.loads(compact)
    assert size > 0
