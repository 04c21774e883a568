"""The wire format of HTTP event streams: each frame of the hub is one server-sent event.

The output is a chunk of an HTTP/1.1 body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import orjson

from pubsub_server.shared.encoder import Attends, Encoder, Liveness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pubsub_server.backplane import Entry

_NAMES: Final = {"presence.snapshot": "presence", "auth.error": "error"}
"""Names of events that differ from the type of their frame."""


def stream_chunk(payload: bytes) -> bytes:
    """A chunk of an HTTP/1.1 body. RFC 9112, 7.1."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class StreamEncoder(Encoder):
    """See `encoder.Encoder`.

    Args:
        settled: See `service.Service`.
        node: Part of the event ids of a node with its own numbering, see `service.Service.node`.
    """

    name = "event_stream"
    keepalive = stream_chunk(b": keepalive\n\n")
    liveness = Liveness.COMMENTS
    presence = Attends.SNAPSHOTS
    resubscribes = False
    echoes = True

    def __init__(self, settled: Callable[[], int], node: str | None = None) -> None:
        self._settled = settled
        self._node = node

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        # An older message of another topic may still be on its way. The reader must get it when it
        # resumes, so the time is not later. Without an id, it resumes after an earlier event.
        time = min(entry.stored, self._settled())
        id = event_id(entry.topic, time, entry.seq, self._node) if time else None
        return event("message", entry.body, id)

    def frame(self, frame: Mapping[str, object]) -> bytes:
        """See `encoder.Encoder`: the type of the frame becomes the name of the event."""
        kind = str(frame["type"])
        rest = {key: value for key, value in frame.items() if key not in {"type", "followed"}}
        if kind == "presence.snapshot":
            # In HIP-56, members in an event stream have the field `id`.
            members = cast("Iterable[Mapping[str, object]]", frame["members"])
            rest["members"] = [{"id": member["user_id"], **member} for member in members]
        marked = kind == "subscribed" and "positions" in frame and "followed" not in frame
        id = _mark(frame, self._node) if marked else None
        return event(_NAMES.get(kind, kind), orjson.dumps(rest), id)


def event(name: str, data: bytes, id: str | None = None) -> bytes:
    """A chunk with one event of an event stream; ``data`` is JSON without line breaks."""
    mark = f"id: {id}\n".encode() if id is not None else b""
    return stream_chunk(b"%bevent: %b\ndata: %b\n\n" % (mark, name.encode(), data))


def event_id(topic: str, timestamp: int, seq: int | None, node: str | None = None) -> str | None:
    """The event id after this message; None if the message is not stored."""
    return None if seq is None else f"{timestamp}-{topic}@{seq}{_at(node)}"


def _at(node: str | None) -> str:
    return "" if node is None else f"~{node}"


def _mark(subscribed: Mapping[str, object], node: str | None) -> str | None:
    """The event id of a stream before its first message: a time, without a topic."""
    timestamp = cast("int", subscribed["timestamp"])
    positions = cast("Mapping[str, int]", subscribed["positions"])
    topic = next(iter(positions), None)
    if topic is None:
        return f"{timestamp}{_at(node)}"
    return event_id(topic, timestamp, positions[topic], node)
