from __future__ import annotations

import gc
import subprocess
import sys
from sys import maxsize
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from pubsub_server.backplane import Entry
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.http.encoder import StreamEncoder
from pubsub_server.listeners.websocket.encoder import SOCKET, text_frame
from pubsub_server.shared import codec
from pubsub_server.shared.codec import decode
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.position_requests import decode_positions
from pubsub_server.shared.requests import (
    AuthRequest,
    Draft,
    PingRequest,
    PresenceRequest,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)

STREAM = StreamEncoder(lambda: maxsize)


def refused(data: object) -> ServiceError:
    raw = data if isinstance(data, str | bytes) else orjson.dumps(data)
    with pytest.raises(ServiceError) as caught:
        decode(raw)
    return caught.value


def outcome(data: bytes | str) -> str | None:
    """Return the error code, or None; any exception except a `ServiceError` fails the test."""
    try:
        decode(data)
    except ServiceError as error:
        return error.code
    return None


def draft_of(frame: dict[str, Any]) -> Draft:
    request = decode(orjson.dumps(frame))
    assert isinstance(request, PublishRequest)
    (item,) = request.items
    assert isinstance(item, Draft), item
    return item


def error_of(frame: dict[str, Any]) -> ServiceError:
    request = decode(orjson.dumps(frame))
    assert isinstance(request, PublishRequest)
    (item,) = request.items
    assert isinstance(item, ServiceError), item
    return item


BODY: dict[str, Any] = {"topic": "a.b", "type": "token", "data": {"x": 1}}


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "publish", "message": BODY},
        {"type": "publish", "envelope": BODY},
        {"type": "publish", "payload": BODY},
        {"type": "publish", "topic": "a.b", "message": {"type": "token", "data": {"x": 1}}},
        {"type": "publish", "topic": "a.b", "data": {"x": 1}, "message_type": "token"},
        {"type": "publish", "topic": "a.b", "data": {"x": 1}, "msg_type": "token"},
        {"type": "publish", "topic": "a.b", "data": {"x": 1}, "event": "token"},
        {
            "type": "publish",
            "topic": "a.b",
            "data": {"x": 1},
            "message_type": "token",
            "message": BODY,
        },
        BODY,
    ],
)
def test_every_plausible_shape_of_a_publish_is_read(frame: dict[str, Any]) -> None:
    assert draft_of(frame) == Draft("a.b", "token", b'{"x":1}', None, None, None)


def test_a_flat_publish_without_an_application_type_is_of_type_message() -> None:
    assert draft_of({"type": "publish", "topic": "a", "data": 1}).type == "message"


def test_the_second_type_of_a_doubled_key_is_the_applications() -> None:
    request = decode('{"type":"publish","topic":"a.b","type":"token","data":{}}')
    assert isinstance(request, PublishRequest)
    (item,) = request.items
    assert isinstance(item, Draft)
    assert item.type == "token"


def test_ttl_id_and_meta_are_taken() -> None:
    item = draft_of(
        {"type": "publish", "message": {**BODY, "ttl": 5, "id": "m1", "meta": {"a": "b"}}}
    )
    assert (item.ttl, item.id, item.meta) == (5, "m1", b'{"a":"b"}')


def test_any_json_value_is_a_payload() -> None:
    values: tuple[object, ...] = (None, 0, "", [], {}, False, "é\U0001f600")
    for value in values:
        assert (
            orjson.loads(draft_of({"type": "publish", "topic": "a", "data": value}).data) == value
        )


def test_a_batch_has_an_outcome_for_each_item() -> None:
    request = decode(
        orjson.dumps(
            {
                "type": "publish",
                "ref": "7",
                "messages": [BODY, {"topic": "a..b", "data": 1}, 3, BODY],
            }
        )
    )
    assert isinstance(request, PublishRequest)
    assert request.batch
    assert request.ref == "7"
    kinds = [item.code if isinstance(item, ServiceError) else "ok" for item in request.items]
    assert kinds == ["ok", "invalid_topic", "invalid_frame", "ok"]
    second = request.items[1]
    assert isinstance(second, ServiceError)
    assert second.field == "messages.1.topic"


@pytest.mark.parametrize(
    ("frame", "code", "field"),
    [
        ({"type": "publish", "message": {"data": 1}}, "invalid_frame", "message.topic"),
        ({"type": "publish", "message": {"topic": "a"}}, "invalid_frame", "message.data"),
        ({"type": "publish", "topic": "a"}, "invalid_frame", "data"),
        ({"type": "publish", "topic": 5, "data": 1}, "invalid_frame", "topic"),
        ({"type": "publish", "topic": "a.*", "data": 1}, "invalid_topic", "topic"),
        ({"type": "publish", "topic": "a b", "data": 1}, "invalid_topic", "topic"),
        ({"type": "publish", "topic": "a", "data": 1, "ttl": -1}, "invalid_frame", "ttl"),
        ({"type": "publish", "topic": "a", "data": 1, "ttl": "1"}, "invalid_frame", "ttl"),
        ({"type": "publish", "topic": "a", "data": 1, "ttl": True}, "invalid_frame", "ttl"),
        ({"type": "publish", "topic": "a", "data": 1, "id": ""}, "invalid_frame", "id"),
        ({"type": "publish", "topic": "a", "data": 1, "message_type": 1}, "invalid_frame", "type"),
        ({"type": "publish", "topic": "a", "data": "x" * 262_143}, "payload_too_large", "data"),
        ({"type": "publish", "message": 5}, "invalid_frame", "message"),
    ],
)
def test_a_wrong_publish_names_the_field(frame: dict[str, Any], code: str, field: str) -> None:
    error = error_of(frame)
    assert (error.code, error.field) == (code, field)


def test_a_payload_of_exactly_the_limit_is_taken() -> None:
    assert len(draft_of({"type": "publish", "topic": "a", "data": "x" * 262_142}).data) == 262_144


@pytest.mark.parametrize(
    ("data", "code", "field"),
    [
        ("{nope", "invalid_frame", None),
        ("", "invalid_frame", None),
        (b"\xff\xfe", "invalid_frame", None),
        ('{"a": NaN}', "invalid_frame", None),
        ('{"a": "\\ud800"}', "invalid_frame", None),
        ([1], "invalid_frame", None),
        ("7", "invalid_frame", None),
        ({}, "invalid_frame", "type"),
        ({"type": 3}, "invalid_frame", "type"),
        ({"type": "levitate"}, "unsupported", "type"),
        ({"type": "ping", "ref": 5}, "invalid_frame", "ref"),
        ({"type": "ping", "ref": "x" * 65}, "invalid_frame", "ref"),
        ({"type": "auth"}, "invalid_frame", "token"),
        ({"type": "auth", "token": 5}, "invalid_frame", "token"),
        ({"type": "auth", "token": "x" * 20_000}, "invalid_frame", "token"),
        ({"type": "subscribe"}, "invalid_frame", "topics"),
        ({"type": "subscribe", "topics": []}, "invalid_frame", "topics"),
        ({"type": "subscribe", "topics": "a"}, "invalid_frame", "topics"),
        ({"type": "subscribe", "topics": ["a"] * 1001}, "invalid_frame", "topics"),
        ({"type": "subscribe", "topics": ["a"], "since": "now"}, "invalid_frame", "since"),
        ({"type": "subscribe", "topics": ["a"], "since": -1}, "invalid_frame", "since"),
        ({"type": "subscribe", "topics": ["a"], "history": 10_001}, "invalid_frame", "history"),
        ({"type": "subscribe", "topics": ["a"], "after": {"a": "x"}}, "invalid_frame", "after.a"),
        ({"type": "subscribe", "topics": ["a"], "presence": 1}, "invalid_frame", "presence"),
        ({"type": "unsubscribe", "topics": [3]}, "invalid_frame", "topics.0"),
        ({"type": "publish", "messages": []}, "invalid_frame", "messages"),
        ({"type": "publish", "messages": {}}, "invalid_frame", "messages"),
        ({"type": "presence.update"}, "invalid_frame", "data"),
        ({"type": "presence.update", "data": []}, "invalid_frame", "data"),
        ({"type": "presence.update", "data": {}, "topic": "a.*"}, "invalid_topic", "topic"),
    ],
)
def test_a_wrong_frame_names_the_field(data: object, code: str, field: str | None) -> None:
    error = refused(data)
    assert (error.code, error.field) == (code, field)


def test_no_error_repeats_a_token_or_payload() -> None:
    secret = "sesame-open"
    wrong: list[dict[str, Any]] = [
        {"type": "auth", "token": [secret]},
        {"type": "auth", "token": {"x": secret}},
        {"type": secret},
        {"type": "subscribe", "topics": ["a"], "since": secret},
        {"type": "subscribe", "topics": ["a"], "after": {secret + "!": secret}},
        {"type": "presence.update", "data": secret},
    ]
    for frame in wrong:
        assert secret not in str(refused(frame))
    wrong = [
        {"type": "publish", "topic": "a", "data": secret * 50_000},
        {"type": "publish", "topic": "a", "data": 1, "meta": secret},
        {"type": "publish", "topic": "a", "data": 1, "ttl": secret},
    ]
    for frame in wrong:
        assert secret not in str(error_of(frame))
    assert secret not in repr(decode(orjson.dumps({"type": "auth", "token": secret})))


def test_a_payload_nested_too_deeply_is_an_error() -> None:
    deep = '{"type":"publish","topic":"a","data":' + "[" * 600 + "]" * 600 + "}"
    request = decode(deep)
    assert isinstance(request, PublishRequest)
    (item,) = request.items
    assert isinstance(item, ServiceError)
    assert item.code == "invalid_payload"
    assert refused('{"type":"publish","topic":"a","data":' + "[" * 100_000).code == "invalid_frame"


def test_a_huge_number_is_harmless() -> None:
    for number in ("1" * 400, "1e400", "-" + "9" * 100_000):
        assert outcome('{"type":"publish","topic":"a","data":' + number + "}") in {
            None, "invalid_frame",
        }  # fmt: skip


def test_invalid_patterns_are_distinguished_from_valid_ones() -> None:
    request = decode(orjson.dumps({"type": "subscribe", "topics": ["a.*", "a..b", "a.*", "x*"]}))
    assert isinstance(request, SubscribeRequest)
    assert request.topics == ("a.*",)
    assert [(e.code, e.topic) for e in request.invalid] == [
        ("invalid_topic", "a..b"),
        ("invalid_topic", "x*"),
    ]


def test_the_other_frames_are_read() -> None:
    assert decode('{"type":"ping","ref":"1","extra":5}') == PingRequest("1")
    assert decode('{"type":"unsubscribe","topics":["a","a"]}') == UnsubscribeRequest(("a",), None)
    update = decode('{"type":"presence.update","topic":"a","data":{"status":"typing"}}')
    assert update == PresenceRequest("a", {"status": "typing"}, None)
    auth = decode('{"type":"auth","token":"Bearer t","version":1,"client_id":"cl_1","ref":"r"}')
    assert auth == AuthRequest("Bearer t", "cl_1", "r")
    wanted = decode('{"type":"subscribe","topics":["a"],"since":5,"after":{"a":7},"history":3}')
    assert isinstance(wanted, SubscribeRequest)
    assert (wanted.since, wanted.after, wanted.history, wanted.presence) == (5, {"a": 7}, 3, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
names = st.sampled_from(
    ["type", "topic", "topics", "data", "message", "messages", "envelope", "payload", "ref", "id",
     "ttl", "meta", "since", "after", "history", "presence", "token", "client_id", "message_type"]
)  # fmt: skip
kinds = st.sampled_from(
    ["auth", "subscribe", "unsubscribe", "publish", "presence.update", "ping", "token", "message"]
)
frames = st.dictionaries(names, json_values | kinds, max_size=6).flatmap(
    lambda fields: st.one_of(st.just(fields), kinds.map(lambda kind: {**fields, "type": kind}))
)


@settings(deadline=None)
@given(st.one_of(st.binary(), st.text()))
def test_bytes_of_any_kind_give_a_frame_or_a_service_error(data: bytes | str) -> None:
    assert outcome(data) in {None, "invalid_frame", "unsupported"}


@settings(deadline=None)
@given(frames)
def test_objects_of_any_kind_give_a_frame_or_a_service_error(frame: dict[str, Any]) -> None:
    try:
        request = codec.decode_object(frame)
    except ServiceError:
        return
    if isinstance(request, PublishRequest):
        for item in request.items:
            if isinstance(item, Draft):
                envelope(item, "id", 1, None, ("user", "u"))


@settings(deadline=None)
@given(st.binary(max_size=200) | st.integers(65_530, 65_540).map(lambda n: b"x" * n))
def test_a_text_frame_is_what_the_library_reads(payload: bytes) -> None:
    parser = Protocol(CLIENT, max_size=None)
    parser.receive_data(text_frame(payload))
    (frame,) = parser.events_received()
    assert isinstance(frame, Frame)
    assert (frame.opcode, bytes(frame.data), frame.fin) == (Opcode.TEXT, payload, True)


def test_a_message_is_the_envelope_in_both_forms() -> None:
    draft = Draft("a.b", "token", b'{"x":"\\n"}', 9, None, b'{"k":1}')
    body = envelope(draft, "m1", 1234, 77, ("service", "bot"))
    expected = {
        "id": "m1", "topic": "a.b", "type": "token", "data": {"x": "\n"}, "timestamp": 1234,
        "sender": {"type": "service", "id": "bot"}, "ttl": 9, "seq": 77, "meta": {"k": 1},
    }  # fmt: skip
    assert orjson.loads(body) == expected
    text = SOCKET.message(Entry("a.b", "m1", 1234, 77, 0, body))
    assert text == text_frame(b'{"type":"message","message":' + body + b"}")
    chunk = STREAM.message(Entry("a.b", "m1", 1234, 77, 0, body))
    event = b"id: 1234-a.b@77\nevent: message\ndata: " + body + b"\n\n"
    assert chunk == f"{len(event):x}\r\n".encode() + event + b"\r\n"


def test_a_message_that_is_not_kept_is_no_place_to_resume_from() -> None:
    assert b"id:" not in STREAM.message(Entry("a", "m1", 1, None, 0, b"{}"))


def test_an_event_id_has_the_time_at_which_the_node_stored_the_message() -> None:
    late = Entry("a", "m1", 1000, 7, 0, b"{}", late=234)
    assert b"id: 1234-a@7\n" in STREAM.message(late)


def test_an_error_frame_carries_the_remedy_and_the_ref() -> None:
    error = ServiceError("rate_limited", "too fast", topic="a", retry_after_ms=250)
    frame = codec.error_frame(error, "9")
    assert frame["remedy"]
    assert (frame["code"], frame["topic"], frame["retry_after_ms"], frame["ref"]) == (
        "rate_limited", "a", 250, "9",
    )  # fmt: skip


@pytest.mark.parametrize("position", [1, 1.0, "x"])
def test_too_many_positions_are_refused_before_each_is_checked(position: object) -> None:
    after = {f"demo.{number}": position for number in range(10_001)}
    request = {"type": "subscribe", "topics": ["demo"], "after": after}
    for decoder in (codec.decode_object, decode_positions):
        with pytest.raises(ServiceError) as caught:
            decoder(request)
        assert caught.value.message == "`after`: must have at most 10000 items"


def test_garbage_collections_wait_until_a_large_frame_is_parsed() -> None:
    frame = orjson.dumps({"type": "ping", "data": [[]] * 50_000})
    collections: list[str] = []
    parsing = True

    def collected(phase: str, info: object) -> None:
        if parsing:
            collections.append(phase)

    gc.callbacks.append(collected)
    try:
        parsed = codec.parse(frame)
        parsing = False
    finally:
        gc.callbacks.remove(collected)
    assert collections in ([], ["start", "stop"])
    assert len(parsed["data"]) == 50_000
    assert gc.isenabled()
    assert refused(b"[" * codec.LARGE).code == "invalid_frame"
    assert gc.isenabled()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory by RLIMIT_AS")
def test_a_frame_that_memory_does_not_suffice_for_is_not_called_invalid() -> None:
    program = """
import resource
from pathlib import Path
from pubsub_server.shared import codec
frame = b'{"data":"%b"}' % (b"x" * 4_000_000)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 12_000_000, used + 12_000_000))
try:
    codec.parse(frame)
except Exception as error:
    print(type(error).__name__)
"""
    ended = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "MemoryError"), ended.stderr


def test_parsing_a_large_frame_enables_no_garbage_collection_that_the_program_disabled() -> None:
    gc.disable()
    try:
        codec.parse(orjson.dumps({"data": "x" * codec.LARGE}))
        assert not gc.isenabled()
    finally:
        gc.enable()
