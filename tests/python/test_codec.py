from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    ErrorFrame,
    Message,
    MessageFrame,
    PingFrame,
    PongFrame,
    PresenceSnapshotFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    SubscribedFrame,
    SubscribeFrame,
)
from hanzoai.pubsub.wire.codec import Malformed, Unknown, decode, decode_event, encode

ENVELOPE: dict[str, Any] = {
    "id": "msg_1",
    "topic": "chat.session.abc",
    "type": "token",
    "data": {"content": "Hello", "index": 42},
    "sender": {"type": "service", "id": "gateway"},
    "timestamp": 1740307200000,
    "seq": 1740307200000042,
}
FLAT = {key: value for key, value in ENVELOPE.items() if key != "type"}
SECRET = "the-payload-nobody-may-log"


def message(frame: object) -> Message:
    found = decode(json.dumps(frame))
    assert isinstance(found, MessageFrame), found
    return found.message


# ---------------------------------------------------------------- messages, in every reading


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "message", "message": ENVELOPE},
        {"type": "message", "envelope": ENVELOPE},
        {"type": "message", "payload": ENVELOPE},
        {"type": "message", **FLAT, "message_type": "token"},
        {"type": "message", **FLAT, "msg_type": "token"},
        {"type": "message", **FLAT, "event": "token"},
        {**FLAT, "type": "token"},
        {"type": "message", **FLAT, "message_type": "token", "message": ENVELOPE},
        {"type": "message", "topic": "chat.session.abc", "message": FLAT, "message_type": "token"},
    ],
    ids=lambda frame: ",".join(key for key in frame if key not in ENVELOPE) or "bare type",
)
def test_a_message_is_the_same_in_every_reading(frame: dict[str, Any]) -> None:
    assert message(frame).wire() == ENVELOPE


def test_a_repeated_type_key_leaves_the_application_type() -> None:
    text = json.dumps({"type": "message", **FLAT})[:-1] + ',"type":"token"}'
    found = decode(text)
    assert isinstance(found, MessageFrame)
    assert found.message.wire() == ENVELOPE


def test_a_flat_message_without_an_application_type_is_a_message() -> None:
    assert message({"type": "message", **FLAT}).type == "message"
    assert message(FLAT).type == "message"


def test_an_application_type_error_is_still_a_message() -> None:
    assert message({**FLAT, "type": "error"}).type == "error"


def test_fields_of_later_servers_are_kept() -> None:
    found = message({"type": "message", "message": {**ENVELOPE, "priority": 3}})
    assert found.model_extra == {"priority": 3}


@pytest.mark.parametrize("data", [None, 0, False, "", [], {}, "text", [1, None], 1.5])
def test_any_json_value_is_a_payload(data: object) -> None:
    assert message({"type": "message", "message": {**ENVELOPE, "data": data}}).data == data
    assert message({**FLAT, "type": "token", "data": data}).data == data


@pytest.mark.parametrize(
    ("odd", "field", "read"),
    [
        ({"timestamp": 1740307200000.75}, "timestamp", 1740307200000),
        ({"timestamp": "1740307200000"}, "timestamp", 1740307200000),
        ({"timestamp": None}, "timestamp", 0),
        ({"timestamp": -5}, "timestamp", 0),
        ({"timestamp": True}, "timestamp", 0),
        ({"timestamp": 1e300}, "timestamp", 0),
        ({"seq": 2**53}, "seq", None),
        ({"seq": "x"}, "seq", None),
        ({"ttl": -1}, "ttl", None),
        ({"sender": "gateway"}, "sender", {"type": "", "id": "gateway"}),
        ({"sender": 7}, "sender", None),
        ({"meta": []}, "meta", None),
        ({"id": 17}, "id", "17"),
        ({"topic": "user:7/inbox"}, "topic", "user:7/inbox"),
    ],
)
def test_an_odd_field_does_not_cost_the_message(
    odd: dict[str, Any], field: str, read: object
) -> None:
    found = message({"type": "message", "message": {**ENVELOPE, **odd}}).wire()
    assert found.get(field) == read
    assert found["data"] == ENVELOPE["data"]


def test_a_message_without_a_timestamp_moves_no_position() -> None:
    bare = {key: value for key, value in ENVELOPE.items() if key != "timestamp"}
    assert message({"type": "message", "message": bare}).timestamp == 0


def test_a_message_without_an_id_gets_one_of_its_own() -> None:
    bare = {key: value for key, value in ENVELOPE.items() if key != "id"}
    first, second = (message({"type": "message", "message": bare}) for _ in range(2))
    assert first.id.startswith("msg_")
    assert first.id != second.id


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"type": "message"}, "topic"),
        ({"type": "message", "message": {"id": "1", "data": 1}}, "topic"),
        ({"type": "message", "message": 5}, "topic"),
        ({"type": "message", "topic": "a", "id": "1"}, "data"),
        ({"type": 5}, "`type`"),
        ({"type": None}, "`type`"),
        ({"type": "presence.snapshot", "topic": "a"}, "members"),
        ({"type": "presence.snapshot", "members": []}, "topic"),
        ([], "object"),
        ("text", "object"),
        (None, "object"),
    ],
)
def test_an_inconsistent_frame_is_malformed_with_a_reason(frame: object, reason: str) -> None:
    found = decode(json.dumps(frame))
    assert isinstance(found, Malformed)
    assert reason in found.reason


# ---------------------------------------------------------------- presence


@pytest.mark.parametrize("kind", ["presence.join", "presence.leave", "presence.update"])
def test_presence_is_a_message_however_it_comes(kind: str) -> None:
    member = {"client_id": "cl_1", "user_id": "alice", "name": "Alice"}
    nested = {"type": "message", "message": {**ENVELOPE, "type": kind, "data": member}}
    for frame in (
        nested,
        {"type": kind, "topic": "chat.session.abc", "data": member},
        {"type": kind, "topic": "chat.session.abc", "member": member},
        {"type": kind, "topic": "chat.session.abc", **member},
        {"type": kind, "message": {"topic": "chat.session.abc", "data": member}},
    ):
        found = message(frame)
        assert (found.type, found.topic, found.data) == (kind, "chat.session.abc", member)


def test_members_of_every_form_are_read() -> None:
    found = decode(
        json.dumps(
            {
                "type": "presence.snapshot",
                "topic": "a.b",
                "members": [
                    {"id": "alice"},
                    {"client_id": "cl_2", "user_id": "bob", "name": 5, "status": "typing"},
                    {"client_id": "cl_3", "metadata": "odd", "joined_at": 5.0},
                    {"name": "nobody"},
                    7,
                ],
            }
        )
    )
    assert isinstance(found, PresenceSnapshotFrame)
    assert [(m.client_id, m.user_id, m.name, m.joined_at) for m in found.members] == [
        ("alice", "alice", "alice", 0),
        ("cl_2", "bob", "bob", 0),
        ("cl_3", "cl_3", "cl_3", 5),
    ]
    assert found.members[1].status == "typing"


# ---------------------------------------------------------------- control frames


def test_error_codes_may_be_numbers() -> None:
    found = decode('{"type":"error","code":429,"message":"slow down"}')
    assert found == ErrorFrame(code="429", message="slow down")
    assert decode('{"type":"auth.error"}') == AuthErrorFrame(code="unauthenticated", message="")
    found = decode('{"type":"error","error":"forbidden"}')
    assert isinstance(found, ErrorFrame)
    assert (found.code, found.message) == ("forbidden", "")


def test_a_bare_auth_ok_is_one() -> None:
    assert decode('{"type":"auth.ok"}') == AuthOkFrame(client_id="")


def test_history_keeps_what_can_be_read() -> None:
    found = decode(
        json.dumps(
            {
                "type": "subscribed",
                "topics": "chat.session.abc",
                "history": [ENVELOPE, {**FLAT, "message_type": "token"}, 5, {"id": "x"}],
                "positions": "odd",
                "ref": 7,
            }
        )
    )
    assert isinstance(found, SubscribedFrame)
    assert found.topics == ["chat.session.abc"]
    assert [entry.wire() for entry in found.history or []] == [ENVELOPE, ENVELOPE]
    assert found.positions is None
    assert found.ref == "7"


def test_an_odd_optional_field_does_not_cost_the_answer() -> None:
    found = decode('{"type":"published","id":"m","results":3,"seq":1.0,"timestamp":-1,"ref":"4"}')
    assert found == PublishedFrame(id="m", seq=1, ref="4")


@pytest.mark.parametrize("kind", ["constructor", "__proto__", "hello", "", "auth", "x" * 500])
def test_an_unknown_type_is_reported_in_bounded_length(kind: str) -> None:
    assert decode(json.dumps({"type": kind})) == Unknown(kind[:64])


# ---------------------------------------------------------------- bytes that are no JSON


@pytest.mark.parametrize(
    "data",
    [
        "",
        " ",
        "{",
        '{"type":"pong"',
        '{"type":"pong"}}',
        "{'type':'pong'}",
        b"\xff\xfe",
        b'{"type":"\xff"}',
        "\ud800",
        "[" * 100_000,
        '{"type":"x","a":' + "[" * 5_000 + "]" * 5_000 + "}",
        "1" * 10_000,
        '{"type":"x","a":' + "9" * 10_000 + "}",
    ],
)
def test_invalid_json_is_malformed(data: str | bytes) -> None:
    found = decode(data)
    assert isinstance(found, Malformed)
    assert len(found.reason) < 200


def test_text_and_bytes_a_byte_order_mark_and_blanks_are_read() -> None:
    for data in (
        '{"type":"pong"}',
        b'{"type":"pong"}',
        '\ufeff{"type":"pong"}',
        b' {"type":"pong"}\n',
    ):
        assert decode(data) == PongFrame()


def test_numbers_beyond_two_to_the_53rd_are_exact() -> None:
    frame = {"type": "message", "message": {**ENVELOPE, "data": 2**53 + 1}}
    assert message(frame).data == 2**53 + 1


def test_nan_and_infinity_do_no_harm() -> None:
    text = json.dumps({"type": "message", "message": {**ENVELOPE, "data": [float("nan"), 1e999]}})
    found = decode(text)
    assert isinstance(found, MessageFrame)
    assert found.message.data[0] != found.message.data[0]
    assert decode('{"type":"pong","server_time":NaN}') == PongFrame()


def test_an_unpaired_surrogate_becomes_the_replacement_character() -> None:
    def data_of(escaped: str) -> object:
        text = json.dumps({"type": "message", "message": {**ENVELOPE, "data": "DATA"}})
        found = decode(text.replace("DATA", escaped))
        assert isinstance(found, MessageFrame)
        return found.message.data

    assert data_of(r"a\ud800b") == "a\ufffdb"
    assert data_of(r"\udc00\uD83D\uDE00\ud83d") == "\ufffd\U0001f600\ufffd"
    assert data_of(r"\\ud800\ud800") == "\\ud800\ufffd"


def test_a_reason_never_holds_a_payload() -> None:
    for frame in (
        {"type": "message", "message": {"data": SECRET}},
        {"type": "subscribed", "topics": {"x": SECRET}},
        {"type": "presence.snapshot", "topic": {"a": SECRET}, "members": SECRET},
    ):
        found = decode(json.dumps(frame))
        assert isinstance(found, Malformed)
        assert SECRET not in repr(found)
    broken = decode(f'{{"type":"message","message":{{"data":"{SECRET}"')
    assert isinstance(broken, Malformed)
    assert SECRET not in repr(broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
FIELDS = st.sampled_from(
    [
        "type",
        "topic",
        "topics",
        "id",
        "data",
        "message",
        "payload",
        "history",
        "members",
        "code",
        "timestamp",
        "seq",
        "sender",
        "positions",
        "denied",
        "error",
        "ref",
        "results",
        "limits",
    ]
)
TYPES = st.sampled_from(
    [
        "message",
        "auth.ok",
        "auth.error",
        "auth.expiring",
        "subscribed",
        "unsubscribed",
        "published",
        "presence.snapshot",
        "presence.join",
        "pong",
        "error",
        "token",
        "constructor",
    ]
)


@given(st.binary() | st.text())
def test_no_bytes_make_the_decoder_raise(data: str | bytes) -> None:
    decode(data)
    decode_event("message", data)


@given(st.dictionaries(FIELDS, JSON), TYPES)
def test_no_frame_makes_the_decoder_raise(fields: dict[str, Any], kind: str) -> None:
    text = json.dumps({**fields, "type": kind})
    for found in (decode(text), decode_event(kind, text), decode_event("presence", text)):
        if isinstance(found, MessageFrame):
            assert found.message.topic


@given(JSON)
def test_every_payload_comes_through_unchanged(data: Any) -> None:
    text = json.dumps({"type": "message", "message": {**ENVELOPE, "data": data}})
    found = decode(text)
    assert isinstance(found, MessageFrame)
    assert json.dumps(found.message.data) == json.dumps(json.loads(text)["message"]["data"])


# ---------------------------------------------------------------- server-sent events


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("message", ENVELOPE),
        ("message", {**FLAT, "message_type": "token", "type": "message"}),
        ("message", {"type": "message", "message": ENVELOPE}),
    ],
)
def test_a_message_event_holds_an_envelope(event: str, data: dict[str, Any]) -> None:
    found = decode_event(event, json.dumps(data))
    assert isinstance(found, MessageFrame)
    assert found.message.wire() == ENVELOPE


def test_the_message_of_the_seeds_sample_without_a_timestamp_is_read() -> None:
    sample = '{"id":"msg_01HZ","topic":"chat.session.abc","type":"token","data":{"content":"Hi"}}'
    found = decode_event("message", sample)
    assert isinstance(found, MessageFrame)
    assert (found.message.type, found.message.timestamp) == ("token", 0)


def test_an_application_type_on_a_stream_may_be_named_like_a_frame() -> None:
    for kind in ("error", "subscribed", "pong", "message"):
        found = decode_event("message", json.dumps({**ENVELOPE, "type": kind}))
        assert isinstance(found, MessageFrame)
        assert found.message.type == kind


def test_presence_events_are_snapshots_or_messages() -> None:
    snapshot = decode_event("presence", '{"topic":"a","members":[{"id":"alice","name":"Alice"}]}')
    assert isinstance(snapshot, PresenceSnapshotFrame)
    assert snapshot.members[0].client_id == "alice"
    join = decode_event("presence", '{"type":"presence.join","topic":"a","data":{"client_id":"c"}}')
    assert isinstance(join, MessageFrame)
    assert join.message.type == "presence.join"


def test_the_name_of_an_event_says_which_frame_it_is() -> None:
    assert decode_event("subscribed", '{"topics":["a"],"history":[]}') == SubscribedFrame(
        topics=["a"], history=[]
    )
    expiring = decode_event("auth.expiring", "")
    assert not isinstance(expiring, Malformed | Unknown)
    assert expiring.type == "auth.expiring"
    assert decode_event("keepalive", "{}") == Unknown("keepalive")


# ---------------------------------------------------------------- frames of the client


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.just(0.5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("token"),
            "ttl": st.integers(0, 9),
            "id": st.just("msg_1"),
            "meta": st.just({"a": None}),
        },
    ),
    st.none() | st.just("p1"),
)
def test_a_publish_is_written_as_its_model_writes_it(
    data: Any, fields: dict[str, Any], ref: str | None
) -> None:
    frame = PublishFrame(message=Publication(topic="a.b", data=data, **fields), ref=ref)
    assert json.loads(encode(frame)) == frame.wire()


def test_fields_that_a_publication_keeps_for_newer_peers_are_written() -> None:
    one = Publication.model_validate({"topic": "a", "data": 1, "later": 2})
    assert json.loads(encode(PublishFrame(message=one)))["message"]["later"] == 2


def test_a_frame_is_written_compactly_without_what_is_none() -> None:
    assert encode(PingFrame()) == b'{"type":"ping"}'
    assert encode(AuthFrame(token="t", version=1)) == b'{"type":"auth","token":"t","version":1}'
    frame = SubscribeFrame(topics=["a.**"], since=5, ref="1")
    assert encode(frame) == b'{"type":"subscribe","topics":["a.**"],"since":5,"ref":"1"}'


def test_a_publish_is_nested_and_none_inside_its_data_stays() -> None:
    frame = PublishFrame(message=Publication(topic="a", data={"x": None}, id="m"), ref="7")
    assert json.loads(encode(frame)) == {
        "type": "publish",
        "message": {"topic": "a", "type": "message", "data": {"x": None}, "id": "m"},
        "ref": "7",
    }
    empty = PublishFrame(message=Publication(topic="a", data=None))
    assert json.loads(encode(empty))["message"]["data"] is None
