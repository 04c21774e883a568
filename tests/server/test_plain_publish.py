from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub_server.errors import ServiceError
from pubsub_server.hub.plain_publish import plain_publish
from pubsub_server.shared.codec import MAX_META, decode
from pubsub_server.shared.requests import Draft, PlainPublish, PublishRequest

MAX = 1_000


def frame(**message: Any) -> str:
    return json.dumps({"type": "publish", "message": {"topic": "demo.x", "data": 1, **message}})


def test_what_the_sdks_send_is_plain() -> None:
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
    assert plain_publish(text, MAX) == PlainPublish(draft, "r1")
    assert plain_publish(text.encode(), MAX) == PlainPublish(draft, "r1")


def test_a_type_that_is_not_said_is_message() -> None:
    plain = plain_publish(frame(), MAX)
    assert plain == PlainPublish(Draft("demo.x", "message", b"1", None, None, None), None)


@pytest.mark.parametrize(
    "other",
    [
        "",
        "[]",
        '{"type":"ping"}',
        '{"type":"publish","topic":"demo.x","data":1}',
        '{"type":"publish","messages":[{"topic":"demo.x","data":1}]}',
        '{"type":"publish","message":{"topic":"demo.x","data":1},"messages":[]}',
        '{"type":"publish","message":{"topic":"demo.x","data":1},"ref":7}',
        '{"type":"publish","message":{"topic":"demo.x"}}',
        '{"type":"publish","message":{"data":1},"topic":"demo.x"}',
        '{"type":"publish","message":{"topic":"demo.*","data":1}}',
        '{"type":"publish","type":"ping","message":{"topic":"demo.x","data":1}}',
        frame(type=""),
        frame(type="t" * 129),
        frame(ttl=-1),
        frame(ttl=1.5),
        frame(ttl=2**53),
        frame(id=""),
        frame(id="i" * 129),
        frame(meta=[]),
        frame(colour="blue"),
        frame(data=2**64),
        frame(meta={"n": 2**64}),
        frame(data="x" * (MAX - 1)),
        frame(meta={"x": "x" * MAX_META}),
    ],
)
def test_everything_else_is_left_to_the_codec(other: str) -> None:
    assert plain_publish(other, MAX) is None
    assert plain_publish(other.encode(), MAX) is None


def test_bytes_that_are_no_utf_8_are_left_to_the_codec() -> None:
    assert plain_publish(b"\xff", MAX) is None
    assert plain_publish(frame(data="?").encode().replace(b"?", b"\xff"), MAX) is None


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
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["token", "", None]) | VALUES,
    "ttl": st.sampled_from([0, 1, 1.0, -1, None]) | VALUES,
    "id": st.sampled_from(["m1", "", None]) | VALUES,
    "meta": st.dictionaries(st.text(max_size=4), VALUES, max_size=2) | VALUES,
    "colour": VALUES,
}
MESSAGES = st.fixed_dictionaries({}, optional={"topic": TOPICS, "data": VALUES, **FIELDS})
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


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A publish with what may stand in one, right or wrong; sometimes with a key that is twice."""
    text = json.dumps(draw(FRAMES), ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        again = json.dumps(draw(FRAMES))
        text = f"{text[:-1]},{again[1:]}"
    if draw(st.booleans()):
        text = text.replace('"t', '"\\u0074', draw(st.integers(0, 3)))
    return text


@given(texts())
@example(frame(data=-0.0))
@example('{"type":"publish","message":{"topic":"t","data":123456789012345678901234567890}}')
@example('{"type":"publish","message":{"topic":"t","data":"\\ud800"}}')
@example('{"type":"publish","message":{"topic":"t","data":1e999}}')
@example('{"type":"publish","message":{"topic":"t","data":' + "[" * 600 + "]" * 600 + "}}")
def test_the_codec_reads_a_plain_frame_in_the_same_way(text: str) -> None:
    plain = plain_publish(text, MAX)
    if plain is None:
        return
    assert decode(text, max_payload=MAX) == PublishRequest([plain.draft], False, plain.ref)


@given(MESSAGES, st.sampled_from(["r", None]))
def test_a_right_publish_in_the_nested_form_is_plain(
    message: dict[str, Any], ref: str | None
) -> None:
    message.pop("colour", None)
    text = json.dumps({"type": "publish", "message": message, "ref": ref})
    try:
        read = decode(text, max_payload=MAX)
    except ServiceError:
        return
    assert isinstance(read, PublishRequest)
    (item,) = read.items
    # A ttl written with a point, and numbers beyond 64 bits, are left to the codec.
    odd = isinstance(message.get("ttl"), float) or _large(message)
    if isinstance(item, Draft) and not odd:
        assert plain_publish(text, MAX) == PlainPublish(item, read.ref)


def _large(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_large, value.values()))
    if isinstance(value, list):
        return any(map(_large, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64
