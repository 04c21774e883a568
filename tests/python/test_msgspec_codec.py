"""The codec of the extra `speed` has the same results as the default codec, byte for byte."""

from __future__ import annotations

import copy
import inspect
import json
import math
import pickle
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.generated.wire import (
    Message,
    MessageFrame,
    Publication,
    PublishFrame,
    Sender,
)
from hanzoai.pubsub.wire import codec, msgspec_codec
from hanzoai.pubsub.wire.msgspec_codec import fast_codec
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from hanzoai.pubsub.wire.codec import Codec

ENVELOPE: dict[str, Any] = {
    "id": "msg_1",
    "topic": "chat.session.abc",
    "type": "token",
    "data": {"content": "Hello", "index": 42},
    "sender": {"type": "service", "id": "gateway"},
    "timestamp": 1740307200000,
    "ttl": 60,
    "seq": 1740307200000042,
    "meta": {"traceparent": "00-1"},
}


def frame(**changes: Any) -> bytes:
    """A canonical frame; a field that is `...` is left out."""
    message = {k: v for k, v in {**ENVELOPE, **changes}.items() if v is not ...}
    return json.dumps({"type": "message", "message": message}, separators=(",", ":")).encode()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The frames that msgspec decodes."""
    found: list[bytes] = []
    decode = msgspec_codec._decode

    def note(data: bytes) -> object:
        found.append(data)
        return decode(data)

    monkeypatch.setattr(msgspec_codec, "_decode", note)
    return found


def read_messages(*frames: bytes, chosen: Codec | None = None) -> list[Message]:
    """Return the messages that the codec can read."""
    chosen = chosen or fast_codec()
    messages: list[Message] = []
    with suppress(*chosen.invalid):
        is_short = max(map(len, frames), default=0) <= chosen.short
        messages.extend((chosen.read_messages if is_short else chosen.read_long)(frames))
    return messages


def read(data: bytes) -> object:
    """Return the output of a transport with the codec."""
    messages = read_messages(data)
    if messages:
        return messages[0]
    found = codec.decode(data)
    return found.message if isinstance(found, MessageFrame) else found


def same(data: bytes) -> None:
    frame = codec.decode(data)
    if isinstance(frame, MessageFrame):
        expected = frame.message
        found = read(data)
        assert isinstance(found, Message)
        if expected.id.encode() not in data:  # it had no id, and got a new one
            found = found.model_copy(update={"id": expected.id})
        assert found == expected
        assert repr(found) == repr(expected)
        assert found.model_extra == expected.model_extra
        assert found.model_dump() == expected.model_dump()
        assert found.model_dump_json() == expected.model_dump_json()
    else:
        assert read(data) == frame


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sender": ..., "ttl": ..., "seq": ..., "meta": ...},
        {"seq": ...},
        {"data": None},
        {"data": [1, [2.5, "é", {"deep": [None, True]}]]},
        {"data": 2**80},
        {"data": 10**400},
        {"data": 1e308},
        {"data": "\ud83d\ude00 \ud800"},
        {"ttl": 0},
        {"priority": 3},
        {"sender": {"type": "user", "id": "u", "name": "Ann"}},
        {"sender": {"type": "user"}},
        {"id": ""},
        {"id": "x" * 128},
        {"id": "x" * 129},
        {"id": 7},
        {"topic": "a..b"},
        {"topic": "a.*"},
        {"topic": "é"},
        {"topic": "a" * 256},
        {"topic": ...},
        {"timestamp": -1},
        {"timestamp": 1.0},
        {"timestamp": 1.5},
        {"timestamp": "12"},
        {"timestamp": True},
        {"timestamp": 2**53 - 1},
        {"timestamp": 2**53},
        {"ttl": -1},
        {"ttl": 1.0},
        {"seq": 2**53},
        {"seq": True},
        {"meta": [1]},
        {"meta": {}},
        {"type": 7},
        {"type": ""},
        {"data": ...},
    ],
    ids=repr,
)
def test_a_message_is_read_as_without_msgspec(changes: dict[str, Any]) -> None:
    same(frame(**changes))


@pytest.mark.parametrize("depth", [99, 150, 197, 198, 199, 200, 201, 300, 2_000, 100_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":}'], ids=["lists", "objects"])
def test_nesting_is_malformed_from_the_same_depth_on(depth: int, pair: str) -> None:
    opening, closing = pair[:-1], pair[-1]
    same(frame(data=7).replace(b":7,", f":{opening * depth}0{closing * depth},".encode()))


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"message",',
        b'{"type":"message","message":null}',
        b'{"type":"message","message":{}}',
        b'{"type":"message"}',
        frame()[:-1] + b',"later":1}',
        frame()[:-1],
        frame() + b"x",
        frame() + b" \n",
        frame().replace(b"Hello", b"\xff"),
        frame().replace(b'"Hello"', b"NaN"),
        frame().replace(b'"Hello"', b"-Infinity"),
        frame().replace(b'"index":42', b'"content":"twice"'),
        frame().replace(b'"ttl":60', b'"seq":1'),
        frame().replace(b'"ttl":60', b'"ttl":null'),
        frame(message_type="other"),
    ],
)
def test_odd_bytes_are_read_as_without_msgspec(data: bytes) -> None:
    expected = codec.decode(data)
    if isinstance(expected, MessageFrame) and b"NaN" in data:
        found = read(data)
        assert isinstance(found, Message)
        assert math.isnan(found.data["content"])
        return
    same(data)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    data=JSON,
    field=st.sampled_from([*ENVELOPE, "later"]),
    value=JSON | st.just(...),
)
def test_any_value_in_any_field_is_read_as_without_msgspec(
    data: Any, field: str, value: Any
) -> None:
    same(frame(**{"data": data, field: value}))


@pytest.mark.parametrize("chosen", [fast_codec(), codec.plain_codec()])
def test_messages_are_read_up_to_one_that_is_not_valid(chosen: Codec) -> None:
    other = frame(timestamp="now")
    found = read_messages(frame(), frame(id="m2"), other, frame(), chosen=chosen)
    assert [message.id for message in found] == [ENVELOPE["id"], "m2"]
    assert read_messages(other, frame(), chosen=chosen) == []


@pytest.mark.parametrize("chosen", [fast_codec(), codec.plain_codec()])
def test_each_message_keeps_its_own_topic_and_sender(chosen: Codec) -> None:
    senders = [{"type": kind, "id": id} for kind in ("user", "agent") for id in ("1", "2")]
    sent = [(topic, sender) for sender in (None, *senders, None) for topic in ("a", "a", "b")]
    frames = [frame(topic=topic, sender=sender) for topic, sender in sent]
    found = read_messages(*frames, chosen=chosen)
    assert [(one.topic, one.sender and one.sender.wire()) for one in found] == sent


@pytest.mark.parametrize("chosen", [fast_codec(), codec.plain_codec()])
@pytest.mark.parametrize(
    "other",
    [
        frame(topic=""),
        frame(data=json.loads("[" * 300 + "]" * 300)),
        frame().replace(b"gateway", b"\xff"),
    ],
    ids=["no topic", "too deep", "not UTF-8"],
)
def test_messages_are_read_up_to_one_that_only_looks_valid(other: bytes, chosen: Codec) -> None:
    found = read_messages(frame(), other, frame(), chosen=chosen)
    assert [message.topic for message in found] == [ENVELOPE["topic"]]
    assert read_messages(other, other, chosen=chosen) == []


def test_a_long_sender_is_not_kept() -> None:
    kept = len(msgspec_codec._senders)
    long = frame(sender={"type": "service", "id": "s" * 600})
    expected = read_messages(long, long, chosen=codec.plain_codec())
    assert read_messages(long, long) == expected
    assert len(msgspec_codec._senders) == kept


@pytest.mark.parametrize(
    "sender",
    [
        {"type": "service", "id": 1},
        {"id": "gateway"},
        {"type": "user", "id": "u", "name": "Ann", "roles": ["admin"]},
        "gateway",
        7,
        ["gateway"],
    ],
    ids=repr,
)
def test_a_sender_of_another_form_ends_no_burst(sender: Any, decoded: list[bytes]) -> None:
    other = frame(sender=sender)
    expected = [read(data) for data in (frame(), other, other, frame())]
    decoded.clear()
    found = read_messages(frame(), other, other, frame())
    assert found == expected
    assert [one.model_dump() for one in found] == [
        one.model_dump() for one in expected if isinstance(one, Message)
    ]
    assert decoded == [frame(), other, other, frame()]
    same(other)


def test_messages_do_not_share_what_a_program_can_change() -> None:
    named = frame(sender={"type": "user", "id": "u", "roles": ["admin"]})
    first, second = read_messages(named, named)
    assert first.sender is not None
    assert first.sender.model_extra is not None
    first.sender.model_extra["roles"].append("owner")
    assert second != first
    same(named)


@pytest.mark.parametrize(
    "other",
    [frame(ttl=2**60), frame(data=[{}] * 250)],
    ids=["a time", "many objects"],
)
def test_frames_after_one_that_cannot_be_read_are_not_decoded(
    other: bytes, decoded: list[bytes]
) -> None:
    assert len(read_messages(frame(), other, frame(), frame())) == 1
    assert set(decoded) <= {frame(), other}
    assert decoded.count(frame()) == 1


@pytest.mark.parametrize("topic", ["a..b", "a.*", "é\U0001f600", " ", "a" * 300])
@pytest.mark.parametrize("ttl", [None, 60, 2**53, 2**60])
def test_a_topic_without_the_form_of_one_is_read_as_without_msgspec(
    topic: str, ttl: int | None
) -> None:
    same(frame(topic=topic, ttl=ttl))
    found = read_messages(frame(), frame(topic=topic), frame())
    assert [message.topic for message in found] == [ENVELOPE["topic"], topic, ENVELOPE["topic"]]


@pytest.mark.parametrize("chosen", [fast_codec(), codec.plain_codec()])
def test_a_long_message_among_short_ones_is_read_with_them(chosen: Codec) -> None:
    long, deep = frame(data=["x" * 500] * 90), frame(data=json.loads("[" * 300 + "]" * 300))
    found = read_messages(frame(), long, frame(), deep, frame(), chosen=chosen)
    assert [message.data for message in found] == [
        ENVELOPE["data"],
        ["x" * 500] * 90,
        ENVELOPE["data"],
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"1},{", b"2"),
        (frame()[:-1], b"}"),
        (frame() + b",", frame()),
        (frame() + b"\n" + frame(), frame()),
    ],
    ids=["a comma", "a cut", "a comma at the end", "two in one"],
)
def test_frames_that_are_valid_only_together_are_not_read(first: bytes, second: bytes) -> None:
    assert read_messages(first, second) == []
    assert len(read_messages(frame(), first, second)) == 1


@pytest.mark.parametrize(
    ("changes", "is_run"),
    [
        ([{}, {}, {}], True),
        ([{}], True),
        ([{}, {"type": "done"}, {}], True),
        ([{}, {"sender": {"type": "user", "id": "u"}}, {"sender": None}], True),
        ([{}, {"topic": "other"}, {}], False),
        ([{}, {"type": "presence.join"}, {}], False),
        ([{"type": "presence.leave"}, {}], False),
        ([{}, {"seq": 1}, {}], False),
        ([{}, {"seq": None}, {}], False),
        ([{"seq": None}, {"seq": None}], False),
        ([{}, {"sender": 7}, {}], False),
    ],
    ids=repr,
)
def test_messages_of_one_topic_with_consecutive_positions_are_a_run(
    changes: list[dict[str, Any]], is_run: bool
) -> None:
    frames = [frame(**{"seq": 5 + n, **change}) for n, change in enumerate(changes)]
    found = fast_codec().read_messages(frames)
    assert isinstance(found, Run) == is_run
    assert not isinstance(found, Run) or found.first == 5
    assert [*found] == [read(data) for data in frames]


def test_no_frames_are_no_messages() -> None:
    assert read_messages() == []


@pytest.mark.parametrize(
    "data",
    [
        frame().replace(b'"seq"', b'"seq":1,"seq"'),
        frame().replace(b'"sender"', b'"sender":{"type":"user","id":"other"},"sender"'),
        frame().replace(b'"sender"', b'"sender":null,"sender"'),
        frame().replace(b'"id":"gateway"', b'"id":"other","id":"gateway"'),
        frame().replace(b'"topic"', b'"topic":"first","topic"'),
        frame().replace(b'"id":"gateway"', b'"id":"g\\u0061teway"'),
    ],
    ids=["seq", "sender", "null and a sender", "id of a sender", "topic", "an escape"],
)
def test_repeated_fields_and_escapes_are_read_as_without_msgspec(data: bytes) -> None:
    same(data)
    [found] = read_messages(data)
    assert found.wire() == ENVELOPE


def test_a_message_is_a_whole_model() -> None:
    [found] = read_messages(frame())
    assert found.wire() == ENVELOPE
    assert found.sender == Sender(type="service", id="gateway")
    assert found.model_copy(update={"type": "other"}).type == "other"
    assert found.model_copy(deep=True) == found
    assert found.__pydantic_fields_set__ == set(ENVELOPE)
    assert found.model_extra == {}
    assert found.__pydantic_private__ is None
    with pytest.raises(AttributeError, match="later"):
        found.later  # type: ignore[attr-defined]  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    [short] = read_messages(frame(ttl=..., data=None))
    assert short.__pydantic_fields_set__ == set(ENVELOPE) - {"ttl"}
    assert pickle.loads(pickle.dumps(short)) == short
    assert copy.copy(short) == short
    with pytest.raises(ValueError, match="frozen"):
        found.type = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    [same_again] = read_messages(frame())
    assert same_again == found


def test_many_senders_are_not_kept() -> None:
    for n in range(5_000):
        [found] = read_messages(frame(topic=f"t.{n}", sender={"type": "user", "id": f"u{n}"}))
        assert found.topic == f"t.{n}"
        assert found.sender is not None
        assert found.sender.id == f"u{n}"
    assert len(msgspec_codec._senders) <= 4_096


@given(data=JSON, meta=st.none() | st.dictionaries(st.text(), JSON, max_size=3))
def test_a_publish_is_written_as_without_msgspec(data: Any, meta: Any) -> None:
    one = Publication(topic="a.b", type="t", data=data, meta=meta, ttl=3, id="m")
    publish = PublishFrame(message=one, ref="r1")
    try:
        expected = codec.encode(publish)
    except ValueError:
        with pytest.raises(ValueError, match=r".*"):
            fast_codec().encode(publish)
        return
    assert json.loads(fast_codec().encode(publish)) == json.loads(expected)


def test_a_nested_publish_is_written_from_deep_in_a_program() -> None:
    data: Any = None
    for _ in range(99):
        data = [data]
    frame = PublishFrame(message=Publication(topic="a.b", type="t", data=data))

    def descend(depth: int) -> bytes:
        return descend(depth - 1) if depth else fast_codec().encode(frame)

    room = sys.getrecursionlimit() - len(inspect.stack()) - 60
    assert descend(room) == codec.encode(frame)
