"""Bytes ↔ frames: sends one canonical shape, reads every plausible one.

A canonical frame takes the fast path, one call of pydantic's JSON validator. If that fails,
`readings` tries the other shapes that HIP-56 allows. Data from the network never raises an error,
and reasons and logs never contain a payload.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json
from pydantic_core import to_json as plain_json

from hanzoai.pubsub.generated.wire import (
    MessageFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    ServerFrame,
)
from hanzoai.pubsub.wire.readings import read_event, read_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hanzoai.pubsub.generated.wire import ClientFrame, Message
    from hanzoai.pubsub.model import Model

_SHOWN: Final = 64
_ESCAPES: Final = re.compile(
    r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)", re.DOTALL
)
_LONE: Final = re.compile(r"\\u[dD][89a-fA-F]..\Z", re.DOTALL)

MESSAGE: Final = b'{"type":"message",'
"""First bytes of a canonical message."""

PUBLISHED: Final = b'{"type":"published",'
"""First bytes of the canonical answer to a publish."""

_STRICT: Final = ConfigDict(strict=True, hide_input_in_errors=True)
_WRITTEN: Final = frozenset({"type", "message", "ref"})


@dataclass(frozen=True, slots=True)
class Malformed:
    """Data that is not a frame in any reading.

    Attributes:
        reason: The reason, without any of the content.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A well-formed frame of an unknown type; ignore it.

    Attributes:
        type: First 64 characters of the type.
    """

    type: str


Decoded: TypeAlias = ServerFrame | Malformed | Unknown


@dataclass(frozen=True, slots=True)
class Codec:
    """Reads and writes the frames of a socket, with one of two libraries.

    Attributes:
        read_messages: Reads messages, like nearly every frame, up to one that `decode` has to read;
            there, it ends or raises an error. The frames have at most `short` bytes each.
        read_long: The same, for frames of any size.
        short: Maximum bytes of a short frame.
        invalid: These errors.
        encode: Writes a frame; see `encode`.
        burst: Frames to read together, at most `transports.BURST`. Measured: fewer cost wake-ups;
            more cost time of the garbage collector, which visits waiting messages.
    """

    read_messages: Callable[[Sequence[bytes]], Iterable[Message]]
    read_long: Callable[[Sequence[bytes]], Iterable[Message]]
    short: int
    invalid: tuple[type[Exception], ...]
    encode: Callable[[ClientFrame], bytes]
    burst: int


@cache
def plain_codec() -> Codec:
    """The codec of every installation."""
    read = partial(map, envelope_validator())
    return Codec(read, read, 0, (ValidationError,), encode, burst=64)


# Call the validators directly: the adapter's method costs a tenth of the time of a small frame.
# Build them at first use: they take a tenth of the import time.


@cache
def message_validator() -> Callable[[str | bytes], MessageFrame]:
    """Read a frame that begins with ``MESSAGE``, like nearly every frame.

    Raises pydantic's ``ValidationError`` if only `decode` may be able to read the frame.
    """
    return TypeAdapter(MessageFrame).validator.validate_json


@cache
def envelope_validator() -> Callable[[bytes], Message]:
    """The same, without the frame around the message."""
    unwrap = AfterValidator(attrgetter("message"))
    return TypeAdapter[Any](Annotated[MessageFrame, unwrap]).validator.validate_json


@cache
def published_validator() -> Callable[[str | bytes], PublishedFrame]:
    """Read the answer to a publish, which begins with ``PUBLISHED``."""
    return TypeAdapter(PublishedFrame).validator.validate_json


@cache
def _frame_validator() -> Callable[[str | bytes], ServerFrame]:
    # The aliases within a union inherit strictness from the adapter.
    adapter = TypeAdapter[ServerFrame](ServerFrame, config=_STRICT)
    return adapter.validator.validate_json


def decode(data: str | bytes) -> Decoded:
    """Read one frame of a socket.

    Never raises. Integers may have any size, NaN and infinity are read as floats, an unpaired
    surrogate becomes U+FFFD, and nesting deeper than 200 levels is malformed.
    """
    try:
        if isinstance(data, bytes):
            if data.startswith(PUBLISHED):
                return published_validator()(data)
            if data.startswith(MESSAGE):
                return message_validator()(data)
        return _frame_validator()(data)
    except ValidationError:
        return _decode_leniently(data)


def decode_event(event: str, data: str | bytes) -> Decoded:
    """Read one server-sent event (HIP-56 SSE).

    Args:
        event: Its name; `message` if it had none.
        data: Its data: an envelope for `message`, `{topics, history}` for `subscribed`,
            `{topic, members}` for `presence`, or a whole frame.
    """
    value = _parse(data or "{}")
    if isinstance(value, Malformed):
        return value
    return _finish(read_event(event, value), event)


def encode(frame: ClientFrame, write: Callable[[object], bytes] = plain_json) -> bytes:
    """Write one frame as compact UTF-8 JSON, without fields that are None.

    Args:
        frame: The frame.
        write: Writes a publish, as plain objects.

    Raises:
        ValueError: A payload is not plain JSON; `check_publication` reports that earlier.
    """
    if type(frame) is PublishFrame and frame.__pydantic_fields_set__ <= _WRITTEN:
        one = frame.message
        if type(one) is Publication and not one.__pydantic_extra__:
            # The serializer of the model calls back into Python for each payload, which takes
            # five times as long for the same JSON.
            message: dict[str, object] = {"topic": one.topic, "type": one.type, "data": one.data}
            if one.ttl is not None:
                message["ttl"] = one.ttl
            if one.id is not None:
                message["id"] = one.id
            if one.meta is not None:
                message["meta"] = one.meta
            fields: dict[str, object] = {"type": "publish", "message": message}
            if frame.ref is not None:
                fields["ref"] = frame.ref
            return write(fields)
    return frame.__pydantic_serializer__.to_json(frame, exclude_none=True)


def to_json(value: Model) -> bytes:
    """Write any value of the wire as compact UTF-8 JSON, without fields that are None."""
    return value.__pydantic_serializer__.to_json(value, exclude_none=True)


def _decode_leniently(data: str | bytes) -> Decoded:
    value = _parse(data)
    if isinstance(value, Malformed):
        return value
    kind = value.get("type")
    return _finish(read_frame(value), kind if isinstance(kind, str) else "")


def _finish(read: ServerFrame | str | None, kind: str) -> Decoded:
    if read is None:
        return Unknown(kind[:_SHOWN])
    if isinstance(read, str):
        return Malformed(read)
    return read


def _parse(data: str | bytes) -> dict[str, object] | Malformed:
    try:
        text = (data.encode(errors="replace") if isinstance(data, str) else data).decode()
    except UnicodeDecodeError:
        return Malformed("not UTF-8")
    text = text.removeprefix("\ufeff")
    try:
        value: object = from_json(text)
    except (ValueError, RecursionError):
        try:
            value = from_json(_ESCAPES.sub(_pair_or_replace, text))
        except (ValueError, RecursionError) as error:
            return Malformed(f"not JSON: {_place(error)}")
    if not isinstance(value, dict):
        return Malformed("not a JSON object")
    return cast("dict[str, object]", value)


def _pair_or_replace(found: re.Match[str]) -> str:
    escape = found[0]
    return "\\ufffd" if len(escape) == 6 and _LONE.match(escape) else escape


def _place(error: Exception) -> str:
    # jiter's messages contain the kind of the fault and the place, never the content.
    return str(error)[: _SHOWN * 2]
