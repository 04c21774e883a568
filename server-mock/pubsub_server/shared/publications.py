"""Decodes publications from JSON, of `publish` frames and of HTTP requests."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_topic
from pubsub_server.errors import ServiceError
from pubsub_server.shared.exact_copy import exact_copy
from pubsub_server.shared.requests import Draft, PublishRequest, Ref

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PAYLOAD: Final = 262_144
"""Maximum bytes of JSON-encoded ``data``. HIP-56 Security 5."""
MAX_META: Final = 8_192
"""Maximum bytes of JSON-encoded ``meta``."""
MAX_DEPTH: Final = 100
"""Maximum nested levels of ``data``, ``meta`` and metadata of presence.

Readers parse frames of at most 200 levels, and request a message that they cannot read again and
again.
"""
MAX_BATCH: Final = 1_000
MAX_TEXT: Final = 128
"""Maximum characters of an id and of a type."""
MAX_WHOLE: Final = 2**53 - 1
TOPICS_KNOWN: Final = 10_000
"""Maximum valid names that are cached."""

_ENCODER_DEPTH: Final = 254
"""Maximum nested levels that orjson encodes."""
_TEXT: Final = f"a string of 1 to {MAX_TEXT} characters"
_valid = lru_cache(TOPICS_KNOWN)(validate_topic)


def publish_request(frame: Mapping[str, Any], ref: Ref, max_payload: int) -> PublishRequest:
    """A `publish` frame, in every reading that `codec.decode` names.

    Raises:
        ServiceError: `invalid_frame`, if it has no list of messages. The error of a single message
            takes its place in the list, so that the others are published.
    """
    messages = frame.get("messages")
    if messages is not None:
        if not isinstance(messages, list) or not 0 < len(messages) <= MAX_BATCH:  # pyright: ignore[reportUnknownArgumentType]
            raise ServiceError(
                "invalid_frame",
                f"`messages` must be a list of 1 to {MAX_BATCH} items",
                field="messages",
            )
        items = [
            message_of(message, frame, None, f"messages.{index}", max_payload)
            for index, message in enumerate(cast("list[object]", messages))
        ]
        return PublishRequest(items, True, ref)
    sent: Any = frame.get("message")
    if type(sent) is dict and "topic" in sent:
        # The format of the SDKs.
        try:
            draft = decode_publication(sent, field="message", max_payload=max_payload)  # pyright: ignore[reportUnknownArgumentType]
            return PublishRequest([draft], False, ref)
        except ServiceError as error:
            return PublishRequest([error], False, ref)
    for name in ("message", "envelope", "payload"):
        nested = frame.get(name)
        if isinstance(nested, dict) or (nested is not None and "data" not in frame):
            body = cast("object", nested)
            return PublishRequest([message_of(body, frame, None, name, max_payload)], False, ref)
    kind: object = None
    for name in ("message_type", "msg_type", "event"):
        if name in frame:
            kind = frame[name]
            break
    return PublishRequest([message_of(frame, frame, kind, "", max_payload, flat=True)], False, ref)


def message_of(
    body: object,
    frame: Mapping[str, Any],
    kind: object,
    field: str,
    max_payload: int,
    *,
    flat: bool = False,
) -> Draft | ServiceError:
    """One message of a frame, or its error.

    Args:
        body: The message.
        frame: Provides the topic if the message has none.
        kind: Its application type, if it is not in the message.
        field: Its path in the frame, for errors.
        max_payload: Maximum bytes of JSON-encoded ``data``.
        flat: Whether the message is the frame itself, whose ``type`` is the frame type.
    """
    if not isinstance(body, dict):
        return ServiceError(
            "invalid_frame", f"`{field}` must be an object, not {kind_of(body)}", field=field
        )
    fields = cast("dict[str, Any]", body)
    if kind is not None or flat:
        fields = {**fields, "type": kind}
    elif "topic" not in fields and "topic" in frame:
        fields = {**fields, "topic": frame["topic"]}
    try:
        return decode_publication(fields, field=field, max_payload=max_payload)
    except ServiceError as error:
        return error


def decode_publication(
    body: Mapping[str, Any],
    *,
    topic: str | None = None,
    field: str = "",
    max_payload: int = MAX_PAYLOAD,
) -> Draft:
    """One publication.

    Args:
        body: ``type``, ``data``, ``ttl``, ``id``, ``meta``, and ``topic`` if not given separately.
        topic: The topic, if it is in the URL.
        field: Path of the body in a larger one, for errors.
        max_payload: Maximum bytes of JSON-encoded ``data``.

    Raises:
        ServiceError: `invalid_topic`, `invalid_frame`, `invalid_payload`, `payload_too_large`.
    """
    name = body.get("topic") if topic is None else topic
    try:
        name = _valid(name)
    except (InvalidTopic, TypeError):
        name = topic_of(name, field)
    kind, id, ttl, meta = body.get("type"), body.get("id"), body.get("ttl"), body.get("meta")
    if kind is not None or ttl is not None or id is not None or meta is not None:
        if ttl is not None:
            ttl = _whole(ttl)
        check_fields(kind, ttl, id, meta, field)
        if meta is not None:
            meta = encode_payload(meta, "meta", MAX_META, name, field)
    try:
        value = body["data"]
    except KeyError:
        raise ServiceError(
            "invalid_frame", "`data` is missing", topic=name, field=_path(field, "data")
        ) from None
    data = encode_payload(value, "data", max_payload, name, field)
    return Draft(name, kind or "message", data, ttl, id, meta)


def _whole(value: Any) -> Any:
    # In JSON, 1.0 equals 1, and some encoders write the former.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_fields(kind: object, ttl: object, id: object, meta: object, within: str = "") -> None:
    """Validate these fields of a publication.

    Args:
        kind: ``type``; each field may be None.
        ttl: ``ttl``.
        id: ``id``.
        meta: ``meta``.
        within: Path of the object that has them, for errors.

    Raises:
        ServiceError: `invalid_frame`.
    """
    if kind is not None and (type(kind) is not str or not 0 < len(kind) <= MAX_TEXT):
        raise _wrong(within, "type", _TEXT, kind)
    if id is not None and (type(id) is not str or not 0 < len(id) <= MAX_TEXT):
        raise _wrong(within, "id", _TEXT, id)
    if ttl is not None and (type(ttl) is not int or not 0 <= ttl <= MAX_WHOLE):
        raise _wrong(within, "ttl", "a whole number of seconds, at least 0", ttl)
    if meta is not None and type(meta) is not dict:
        raise _wrong(within, "meta", "an object", meta)


def _path(within: str, name: str) -> str:
    return f"{within}.{name}" if within else name


def _wrong(within: str, name: str, wanted: str, value: object) -> ServiceError:
    field = _path(within, name)
    detail = f"`{field}` must be {wanted}"
    found = kind_of(value)
    # The type is right, so the size is wrong.
    if found != "a number" and not (found == "a string" and wanted == _TEXT):
        detail += f", not {found}"
    return ServiceError("invalid_frame", detail, field=field)


def encode_payload(
    value: object, name: str, limit: int, topic: str | None = None, within: str = ""
) -> bytes:
    """Encode a value as JSON, within a limit.

    Args:
        value: A JSON value.
        name: Name of its field.
        limit: Maximum bytes.
        topic: Topic of the message, for errors.
        within: Path of the object that has the field, for errors.

    Raises:
        ServiceError: `invalid_payload`, `payload_too_large`.
    """
    try:
        data = orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError):
        field = _path(within, name)
        raise ServiceError(
            "invalid_payload",
            f"`{field}` cannot be written as JSON: it is nested too deeply, or has a number or"
            " character that JSON does not support",
            topic=topic,
            field=field,
        ) from None
    if _may_be_deep(data) and _is_deep(value):
        field = _path(within, name)
        raise ServiceError(
            "invalid_payload",
            f"`{field}` is nested deeper than {MAX_DEPTH} levels",
            topic=topic,
            field=field,
            remedy="Flatten it.",
        )
    if len(data) > limit:
        field = _path(within, name)
        raise ServiceError(
            "payload_too_large",
            f"`{field}` has {len(data):,} bytes of JSON; at most {limit:,} are allowed",
            topic=topic,
            field=field,
        )
    # Thousands of publishes may wait for their backplane.
    return exact_copy(data)


def _may_be_deep(data: bytes) -> bool:
    """Whether the JSON of a value has enough brackets for more than `MAX_DEPTH` levels."""
    if len(data) <= 2 * MAX_DEPTH:
        return False
    count = 0
    for opening in (b"[", b"{"):
        # `find` skips long text forty times as fast as `count`.
        at = data.find(opening)
        while at >= 0:
            count += 1
            if count > MAX_DEPTH:
                return True
            at = data.find(opening, at + 1)
    return False


def _is_deep(value: object) -> bool:
    """Whether a value has more than `MAX_DEPTH` levels."""
    # With these around it, it then exceeds the limit of the encoder.
    for _ in range(_ENCODER_DEPTH - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError):
        return True
    return False


def topic_of(name: object, within: str = "") -> str:
    """A valid topic.

    Raises:
        ServiceError: `invalid_frame`, `invalid_topic`; it names the field in that object.
    """
    field = _path(within, "topic")
    if name is None:
        raise ServiceError("invalid_frame", "`topic` is missing", field=field)
    if not isinstance(name, str):
        raise ServiceError(
            "invalid_frame", f"`{field}` must be a string, not {kind_of(name)}", field=field
        )
    try:
        return _valid(name)
    except InvalidTopic as error:
        raise ServiceError("invalid_topic", error.message, topic=name[:255], field=field) from None


def kind_of(value: object) -> str:
    """The JSON type of a value, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"
