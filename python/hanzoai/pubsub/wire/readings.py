"""Converts every plausible reading of a HIP-56 frame to the canonical shape.

One JSON object cannot contain both the `type` of a frame and the `type` of its message, but HIP-56
requires both. Peers may therefore nest a message under `message`, `envelope` or `payload`; or send
it flat with the application's type in `message_type`, `msg_type` or `event`; or flat with that type
instead of the frame's; or flat without any. Presence events arrive bare or as messages, error codes
as numbers, members with `id` instead of `client_id`, and messages without a timestamp.

Omits an invalid optional field, and an invalid member or history entry from its list, and keeps the
rest. Rejects only a frame that has no plausible reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pydantic import ValidationError

from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.wire.ids import message_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.generated.wire import Message, ServerFrame
    from hanzoai.pubsub.model import Model

_Fields = dict[str, object]

_CONTROL: Final[Mapping[str, type[Model]]] = {
    "auth.ok": wire.AuthOkFrame,
    "auth.error": wire.AuthErrorFrame,
    "auth.expiring": wire.AuthExpiringFrame,
    "subscribed": wire.SubscribedFrame,
    "unsubscribed": wire.UnsubscribedFrame,
    "published": wire.PublishedFrame,
    "presence.snapshot": wire.PresenceSnapshotFrame,
    "pong": wire.PongFrame,
    "error": wire.ErrorFrame,
}
PRESENCE: Final = ("presence.join", "presence.leave", "presence.update")
_NESTS: Final = ("message", "envelope", "payload")
_APP_TYPES: Final = ("message_type", "msg_type", "event")
_SEQ_MAX: Final = 2**53 - 1
_NOT_DATA: Final = frozenset({"type", "topic", "id", "timestamp", "sender", "seq", "ttl", "ref"})


def read_frame(fields: _Fields) -> ServerFrame | str | None:
    """Read a parsed frame.

    Returns:
        The frame; or the reason why it is malformed; or None for an unknown type.
    """
    kind = fields.get("type", "message")
    if not isinstance(kind, str):
        return "`type` is not a string"
    if kind in PRESENCE:
        return _read_presence(kind, fields)
    if kind in _CONTROL:
        if kind == "error" and _is_flat_message(fields):
            return _read_message(kind, fields)
        return _read_control(kind, fields)
    if kind == "message":
        return _read_message(_app_type(fields), fields)
    if "topic" in fields and "id" in fields:
        return _read_message(kind, fields)
    return None


def read_event(event: str, fields: _Fields) -> ServerFrame | str | None:
    """Read a parsed server-sent event; returns what `read_frame` returns.

    On an event stream, the name of the event is the type of the frame, and `type` is the
    application's: `message` carries a bare envelope.
    """
    if event == "message":
        kind = fields.get("type")
        if _nested(fields) is not None or (kind == "message" and _app_type(fields) != "message"):
            return read_frame(fields)
        return _read_message(kind if isinstance(kind, str) else "message", fields)
    if event in ("presence", "presence.snapshot"):
        if "members" in fields:
            return _read_control("presence.snapshot", fields)
        kind = fields.get("type")
        return _read_presence(kind, fields) if kind in PRESENCE else None
    return read_frame({**fields, "type": event})


def read_envelope(value: object) -> Message | str:
    """Read a message without a frame around it, as REST and `subscribed.history` carry it.

    Returns:
        The message, or the reason why it is malformed.
    """
    fields = _object(value)
    if fields is None:
        return "the message is not an object"
    try:
        return wire.Message.model_validate(fields)
    except ValidationError:
        kind = fields.get("type")
        return _envelope(kind if isinstance(kind, str) else _app_type(fields), fields)


def read_member(value: object) -> wire.PresenceMember | None:
    """Read one presence member; None if it names no client (ambiguity A7)."""
    fields = _object(value)
    if fields is None:
        return None
    who = next(
        (fields[key] for key in ("client_id", "id", "user_id") if _is_text(fields.get(key))), None
    )
    if who is None:
        return None
    user = fields.get("user_id")
    user = user if _is_text(user) else who
    name = fields.get("name")
    full = {
        **fields,
        "client_id": who,
        "user_id": user,
        "name": name if _is_text(name) else user,
        "joined_at": _whole(fields.get("joined_at")) or 0,
        "last_seen": _whole(fields.get("last_seen")) or 0,
    }
    read = _validate(wire.PresenceMember, full)
    return read if isinstance(read, wire.PresenceMember) else None


def _read_message(kind: str, fields: _Fields) -> ServerFrame | str:
    nested = _nested(fields)
    if nested is None:
        read = _envelope(kind, fields)
    else:
        inner = nested.get("type")
        outer = {key: value for key, value in fields.items() if key not in _NESTS}
        read = _envelope(inner if isinstance(inner, str) else kind, {**outer, **nested})
    return read if isinstance(read, str) else wire.MessageFrame(message=read)


def _read_presence(kind: object, fields: _Fields) -> ServerFrame | str:
    nested = _nested(fields)
    if nested is not None:
        return _read_message(str(kind), fields)
    if "data" not in fields:
        member = _object(fields.get("member"))
        fields = {**fields, "data": _without(fields, _NOT_DATA) if member is None else member}
    return _read_message(str(kind), fields)


def _read_control(kind: str, fields: _Fields) -> ServerFrame | str:
    full = {**fields, "type": kind}
    for name in ("topics", "truncated", "reset", "features"):
        if isinstance(full.get(name), str):
            full[name] = [full[name]]
    if isinstance(full.get("ref"), int):
        full["ref"] = str(full["ref"])
    match kind:
        case "error" | "auth.error":
            default = "internal" if kind == "error" else "unauthenticated"
            code = full.get("code", full.get("error"))
            full["code"] = str(code) if isinstance(code, str | int) else default
            full.setdefault("message", "")
        case "auth.ok":
            full.setdefault("client_id", "")
        case "subscribed" | "unsubscribed":
            full.setdefault("topics", [])
        case "presence.snapshot":
            members = full.get("members")
            if isinstance(members, list):
                read = [read_member(member) for member in cast("list[object]", members)]
                full["members"] = [member for member in read if member is not None]
        case _:
            pass
    history = full.get("history")
    if isinstance(history, list):
        envelopes = [read_envelope(entry) for entry in cast("list[object]", history)]
        full["history"] = [entry for entry in envelopes if not isinstance(entry, str)]
    frame = _validate(_CONTROL[kind], full)
    return frame if isinstance(frame, str) else cast("ServerFrame", frame)


def _validate(model: type[Model], fields: _Fields) -> Model | str:
    """Validate with conversions; then again without the invalid optional fields."""
    validate = model.__pydantic_validator__.validate_python
    try:
        return cast("Model", validate(fields, strict=False))
    except ValidationError as error:
        odd = {str(found["loc"][0]) for found in error.errors(include_url=False) if found["loc"]}
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    if odd & required:
        return f"{model.__name__}: `{min(odd & required)}` is missing or of a wrong type"
    try:
        return cast("Model", validate(_without(fields, odd), strict=False))
    except ValidationError:
        return f"{model.__name__} cannot be read"


def _envelope(kind: str, fields: Mapping[str, object]) -> Message | str:
    topic = fields.get("topic")
    if not _is_text(topic):
        return "the message has no topic"
    if "data" not in fields:
        return "the message has no data"
    given = fields.get("id")
    full: _Fields = {
        **_without(fields, _APP_TYPES),
        # Without an id, a repeat looks like a new message; a loss would be worse.
        "id": str(given) if _is_text(given) or isinstance(given, int) else message_id(),
        "type": kind,
        # This machine's clock must not move a position in server time: 0 moves none.
        "timestamp": _whole(fields.get("timestamp")) or 0,
        "sender": _sender(fields.get("sender")),
        "ttl": _whole(fields.get("ttl")),
        "seq": _whole(fields.get("seq")),
        "meta": _object(fields.get("meta")),
    }
    return wire.Message.model_construct(**full)  # type: ignore[arg-type]


def _sender(sender: object) -> wire.Sender | None:
    if isinstance(sender, str):
        return wire.Sender(type="", id=sender)
    fields = _object(sender)
    if fields is None:
        return None
    read = _validate(wire.Sender, {"type": "", **fields})
    return read if isinstance(read, wire.Sender) else None


def _nested(fields: _Fields) -> _Fields | None:
    for name in _NESTS:
        inner = _object(fields.get(name))
        if inner and "data" in inner and ("topic" in inner or "id" in inner or "type" in inner):
            return inner
    return None


def _object(value: object) -> _Fields | None:
    return cast("_Fields", value) if isinstance(value, dict) else None


def _is_flat_message(fields: _Fields) -> bool:
    return all(name in fields for name in ("id", "topic", "data"))


def _app_type(fields: Mapping[str, object]) -> str:
    for name in _APP_TYPES:
        value = fields.get(name)
        if _is_text(value):
            return str(value)
    return "message"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _whole(value: object) -> int | None:
    """Read a count up to 2^53-1 from an integer, a float or digits; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if len(value) <= 20 and value.isdecimal() else None
    if isinstance(value, float):
        value = int(value) if 0 <= value <= _SEQ_MAX else None
    if not isinstance(value, int) or not 0 <= value <= _SEQ_MAX:
        return None
    return value


def _without(fields: Mapping[str, object], names: object) -> _Fields:
    left_out = cast("frozenset[str]", names)
    return {key: value for key, value in fields.items() if key not in left_out}
