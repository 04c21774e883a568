"""Decodes requests, and encodes messages once per wire format.

Requests are accepted in every plausible reading of HIP-56 (see `decode`); each problem becomes a
`ServiceError` that names the field and never contains a value. Messages are the envelope's JSON,
encoded once, in a WebSocket text frame or a chunk of an event stream.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.topics import validate_pattern
from pubsub_server.errors import ServiceError
from pubsub_server.shared.publications import (
    MAX_PAYLOAD,
    kind_of,
    message_of,
    publish_request,
    topic_of,
)
from pubsub_server.shared.requests import (
    AuthRequest,
    PingRequest,
    PresenceRequest,
    PublishRequest,
    Ref,
    Request,
    SubscribeRequest,
    UnsubscribeRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_core import ErrorDetails

    from pubsub_server.backplane import Published

MAX_NAMED: Final = 1_000
"""Maximum topics of one subscribe frame; its ``after`` may have ten times as many positions."""
MAX_AFTER: Final = 10 * MAX_NAMED
LARGE: Final = 65_536
"""Bytes of JSON that is parsed without garbage collections."""
COLLECTS_IN_C: Final = sys.version_info < (3, 12)
"""Whether garbage collections run while C code creates objects. In later versions, they wait."""


def _not_too_long(value: object) -> object:
    if isinstance(value, dict) and len(value) > MAX_AFTER:  # pyright: ignore[reportUnknownArgumentType]
        raise PydanticCustomError("too_long", "must have at most {most} items", {"most": MAX_AFTER})
    return value  # pyright: ignore[reportUnknownVariableType]


# pydantic compares the length after it has checked all items: a million of them take a second.
After: TypeAlias = Annotated[dict[str, wire.Seq] | None, BeforeValidator(_not_too_long)]
"""Positions by topic."""


class _Subscribe(BaseModel):
    """`wire.SubscribeFrame` with any strings as patterns, to reject only the invalid ones."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)

    topics: Annotated[list[str], Field(max_length=MAX_NAMED, min_length=1)]
    since: wire.Timestamp | None = None
    after: After = None
    history: Annotated[int | None, Field(ge=0, le=10_000)] = None
    presence: bool | None = None


class _Unsubscribe(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)

    topics: Annotated[list[str], Field(max_length=MAX_NAMED, min_length=1)]


class _Presence(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)

    topic: str | None = None
    data: dict[str, Any]


# ---------------------------------------------------------------- in


def decode(data: str | bytes, *, max_payload: int = MAX_PAYLOAD) -> Request:
    """One inbound frame.

    Accepted readings of `publish`: the publication nested under ``message``,
    ``envelope`` or ``payload``; flat with the application's type in ``message_type``, ``msg_type``
    or ``event``; flat without one (type ``message``); and a frame with ``topic`` and ``data`` whose
    ``type`` is not a frame type, as in HIP-56's table of fields if the second ``type`` takes
    precedence.

    Raises:
        ServiceError: `invalid_frame`, `invalid_topic`, `unsupported`; for a publish with
            ``message`` the error is in the request, so that its ``ref`` is known. ``ref`` of a
            frame that failed is found by `ref_of`.
    """
    return decode_object(parse(data), max_payload=max_payload)


def parse(data: str | bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ServiceError: `invalid_frame`.
        MemoryError: The process has too little memory to parse it.
    """
    try:
        if COLLECTS_IN_C and len(data) >= LARGE and gc.isenabled():
            value = _without_collections(data)
        else:
            value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "memory" in error.msg:
            # Only the text of the error tells this from invalid JSON.
            raise MemoryError(error.msg) from None
        raise ServiceError(
            "invalid_frame", f"not valid JSON: {error.msg} at character {error.pos + 1}"
        ) from None
    if not isinstance(value, dict):
        raise ServiceError("invalid_frame", f"a frame is a JSON object, not {kind_of(value)}")
    return value  # pyright: ignore[reportUnknownVariableType]


def _without_collections(data: str | bytes) -> object:
    """Like `orjson.loads`. Collections while it creates millions of lists take half a second."""
    try:
        # For all threads, but none of them runs meanwhile: `orjson` holds the interpreter's lock.
        gc.disable()
        return orjson.loads(data)
    finally:
        gc.enable()


def ref_of(frame: Mapping[str, Any]) -> Ref:
    """The ``ref`` of a frame that may be invalid otherwise."""
    ref = frame.get("ref")
    return ref if isinstance(ref, str) and 0 < len(ref) <= 64 else None


def decode_object(frame: Mapping[str, Any], *, max_payload: int = MAX_PAYLOAD) -> Request:
    """Like `decode`, for a parsed object."""
    kind = frame.get("type")
    if not isinstance(kind, str):
        raise ServiceError(
            "invalid_frame",
            "`type` is missing"
            if kind is None
            else f"`type` must be a string, not {kind_of(kind)}",
            field="type",
        )
    ref = frame.get("ref")
    if ref is not None and (type(ref) is not str or not 0 < len(ref) <= 64):
        raise ServiceError(
            "invalid_frame", "`ref` must be a string of 1 to 64 characters", field="ref"
        )
    if kind == "publish":
        return publish_request(frame, ref, max_payload)
    if kind == "ping":
        return PingRequest(ref)
    if kind == "subscribe":
        return decode_subscription(frame)
    if kind == "unsubscribe":
        return UnsubscribeRequest(
            tuple(dict.fromkeys(checked(_Unsubscribe, frame, "invalid_frame").topics)), ref
        )
    if kind == "auth":
        auth = checked(wire.AuthFrame, frame, "invalid_frame")
        return AuthRequest(auth.token, auth.client_id or None, ref)
    if kind == "presence.update":
        update = checked(_Presence, frame, "invalid_frame")
        topic = None if update.topic is None else topic_of(update.topic)
        return PresenceRequest(topic, update.data, ref)
    if "topic" in frame and "data" in frame:
        return PublishRequest([message_of(frame, frame, kind, "", max_payload)], False, ref)
    raise ServiceError("unsupported", "the type of this frame is unknown", field="type")


def decode_subscription(frame: Mapping[str, Any]) -> SubscribeRequest:
    """A subscribe frame, or one item of `SubscribeRequest` of the HTTP API.

    Raises:
        ServiceError: `invalid_frame`.
    """
    wanted = checked(_Subscribe, frame, "invalid_frame")
    good: dict[str, None] = {}
    bad: list[ServiceError] = []
    for pattern in wanted.topics:
        try:
            good[validate_pattern(pattern)] = None
        except InvalidTopic as error:
            bad.append(
                ServiceError("invalid_topic", error.message, topic=pattern[:255], field="topics")
            )
    return SubscribeRequest(
        topics=tuple(good),
        since=wanted.since,
        after=wanted.after,
        history=wanted.history,
        presence=wanted.presence,
        ref=ref_of(frame),
        invalid=bad,
    )


_M = TypeVar("_M", bound=BaseModel)


def checked(model: type[_M], value: Mapping[str, Any], code: str, prefix: str = "") -> _M:
    """Validate a value with this model.

    Raises:
        ServiceError: With this code; it names the field below the prefix, never the value.
    """
    try:
        return model.model_validate(value)
    except ValidationError:
        pass
    try:
        # In JSON, 1.0 equals 1, and some encoders write the former.
        return model.model_validate(_whole(value, model.model_fields))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise _problem(first, code, prefix) from None


def _whole(value: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The object with whole numbers where one of these fields is one, in ``after`` too."""
    whole = dict(value)
    for name in names:
        item = whole.get(name)
        if isinstance(item, float) and item.is_integer():
            whole[name] = int(item)
        elif name == "after" and isinstance(item, dict) and len(item) <= MAX_AFTER:  # pyright: ignore[reportUnknownArgumentType]
            after = cast("dict[str, Any]", item)
            whole[name] = _whole(after, after)
    return whole


def _problem(first: ErrorDetails, code: str, prefix: str) -> ServiceError:
    path = [str(part) for part in first["loc"]]
    # A key of the client's own map may be private: leave it out of the message.
    shown = [part for part in path if part.isascii() and part.replace("_", "").isalnum()]
    field = prefix + ".".join(shown[:4])
    detail = (
        "is missing" if first["type"] == "missing" else first["msg"][:1].lower() + first["msg"][1:]
    )
    return ServiceError(
        code,
        f"`{field}`: {detail}" if detail != "is missing" else f"`{field}` is missing",
        field=field,
    )


# ---------------------------------------------------------------- out


def error_frame(error: ServiceError, ref: Ref = None, *, type: str = "error") -> dict[str, object]:
    """The error frame of a socket or stream; ``type`` may be ``auth.error``."""
    frame: dict[str, object] = {"type": type, **error_info(error)}
    if type != "error":
        frame.pop("topic", None)
        frame.pop("field", None)
    if ref is not None:
        frame["ref"] = ref
    return frame


def publish_result(result: Published | ServiceError) -> dict[str, object]:
    """`PublishResult` of the schema."""
    if isinstance(result, ServiceError):
        return {"error": error_info(result)}
    fields: dict[str, object] = {"id": result.id, "timestamp": result.timestamp}
    if result.seq is not None:
        fields["seq"] = result.seq
    fields["duplicate"] = result.duplicate
    return fields


def error_info(error: ServiceError) -> dict[str, object]:
    """`ErrorInfo` of the schema."""
    info: dict[str, object] = {"code": error.code, "message": error.message}
    record = CODES.get(error.code)
    remedy = error.remedy or (None if record is None else record.remedy)
    if remedy is not None:
        info["remedy"] = remedy
    if error.topic is not None:
        info["topic"] = error.topic
    if error.field is not None:
        info["field"] = error.field
    if error.retry_after_ms is not None:
        info["retry_after_ms"] = error.retry_after_ms
    return info
