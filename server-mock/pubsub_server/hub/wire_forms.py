"""Messages to bytes: the envelope's JSON, made once, in each wire form.

A WebSocket text message or a chunk of an event stream; whoever receives it gets the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from pubsub_server.interfaces import WireForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pubsub_server.hub.requests import Draft


def envelope(
    draft: Draft, id: str, timestamp: int, seq: int | None, sender: tuple[str, str]
) -> bytes:
    """The JSON of a message, as every transport delivers it. HIP-56 Message Format."""
    body: dict[str, object] = {
        "id": id,
        "topic": draft.topic,
        "type": draft.type,
        "data": orjson.Fragment(draft.data),
        "sender": {"type": sender[0], "id": sender[1]},
        "timestamp": timestamp,
    }
    if draft.ttl is not None:
        body["ttl"] = draft.ttl
    if seq is not None:
        body["seq"] = seq
    if draft.meta is not None:
        body["meta"] = orjson.Fragment(draft.meta)
    return orjson.dumps(body)


def text_frame(payload: bytes) -> bytes:
    """A whole WebSocket text message, unmasked as servers send it. RFC 6455, 5.2."""
    length = len(payload)
    if length < 126:
        return bytes((0x81, length)) + payload
    if length < 65_536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + payload
    return b"\x81\x7f" + length.to_bytes(8, "big") + payload


def stream_chunk(payload: bytes) -> bytes:
    """A chunk of an HTTP/1.1 body. RFC 9112, 7.1."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(name: str, data: bytes, id: str | None = None) -> bytes:
    """A chunk with one event of an event stream; ``data`` is JSON without line breaks."""
    mark = f"id: {id}\n".encode() if id is not None else b""
    return stream_chunk(b"%bevent: %b\ndata: %b\n\n" % (mark, name.encode(), data))


def event_id(topic: str, timestamp: int, seq: int | None) -> str | None:
    """Where a stream resumes after this message; None for one that is not kept."""
    return None if seq is None else f"{timestamp}-{topic}@{seq}"


KEEPALIVE: Final = {
    WireForm.SOCKET: b"\x89\x00",
    WireForm.EVENT_STREAM: stream_chunk(b": keepalive\n\n"),
}
"""A WebSocket ping without payload, which browsers answer by themselves; a comment on a stream."""


def message_frame(body: bytes) -> bytes:
    """A delivered message on a WebSocket."""
    length = len(body) + _WRAPPED
    if 126 <= length < 65_536:
        # As `text_frame`, and the envelope copied once.
        return b'\x81\x7e%b{"type":"message","message":%b}' % (length.to_bytes(2, "big"), body)
    return text_frame(b'{"type":"message","message":%b}' % body)


_WRAPPED: Final = len(b'{"type":"message","message":}')


def message_event(body: bytes, topic: str, timestamp: int, seq: int | None) -> bytes:
    """A delivered message on an event stream."""
    return event("message", body, event_id(topic, timestamp, seq))


def message_bytes(
    form: WireForm, body: bytes, topic: str, timestamp: int, seq: int | None
) -> bytes:
    """A delivered message in one wire form."""
    if form is WireForm.SOCKET:
        return message_frame(body)
    return message_event(body, topic, timestamp, seq)


def frame_bytes(form: WireForm, frame: Mapping[str, object], id: str | None = None) -> bytes:
    """Any other frame in one wire form: on an event stream its type becomes the event's name."""
    if form is WireForm.SOCKET:
        return text_frame(orjson.dumps(frame))
    name = str(frame["type"])
    rest = {key: value for key, value in frame.items() if key != "type"}
    return event("presence" if name == "presence.snapshot" else name, orjson.dumps(rest), id)
