"""The codec of the extra `speed`: reads live messages with msgspec, and all else like `codec`.

msgspec reads a message into a struct: it checks types and bounds, and rejects fields that the
struct does not have. Rejected messages go to `codec.decode`, so both codecs read the same. The
struct becomes an `Envelope` without a second validation, in a third of pydantic's time.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import product
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict
from pydantic import ValidationError
from pydantic_core import to_json as plain_json

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.generated.wire import Envelope, Sender
from hanzoai.pubsub.model import trusted
from hanzoai.pubsub.topics import valid_topics, validate_topic
from hanzoai.pubsub.wire.codec import Codec, encode, published_validator

_KEPT: Final = 4_096
"""Maximum cached senders; above that, the cache is emptied."""

_NESTING: Final = 400
"""Minimum bytes of 200 levels of nesting: deeper is malformed, but msgspec accepts it."""

_Number = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class _Sender(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    type: str
    id: str


class _Message(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    id: Annotated[str, Meta(min_length=1, max_length=128)]
    topic: str
    type: str
    data: Any
    sender: _Sender | None = None
    timestamp: _Number
    ttl: Annotated[int, Meta(ge=0)] | None = None
    seq: _Number | None = None
    meta: dict[str, Any] | None = None


class _Frame(Struct, tag_field="type", tag="message", forbid_unknown_fields=True, gc=False):
    message: _Message


class _Refused(Exception):
    """The other codec has to read the frame."""


def _fields_set(absent: tuple[bool, ...]) -> set[str]:
    optional = ("sender", "ttl", "seq", "meta")
    left_out = {name for name, missing in zip(optional, absent, strict=True) if missing}
    return set(Envelope.model_fields) - left_out


_SHAPES: Final = {absent: _fields_set(absent) for absent in product((False, True), repeat=4)}
"""Fields of a message, by its absent optional fields."""

_decode: Final = msgspec.json.Decoder(_Frame).decode
_encode: Final = msgspec.json.Encoder().encode
_senders: Final[dict[_Sender, Sender]] = {}


def read_message(data: bytes) -> Envelope:
    """Read a frame that begins with ``MESSAGE``.

    Raises:
        _Refused: `codec.decode` may be able to read it.
        msgspec.DecodeError: The same.
        RecursionError: The same.
    """
    message = _decode(data).message
    if message.topic not in valid_topics:
        _check_topic(message.topic)
    if len(data) > _NESTING and data.count(b"[") + data.count(b"{") > _NESTING // 2:
        raise _Refused
    fields = asdict(message)
    sender = message.sender
    if sender is not None:
        fields["sender"] = _senders.get(sender) or _keep_sender(sender)
    return trusted(
        Envelope,
        fields,
        _SHAPES[sender is None, message.ttl is None, message.seq is None, message.meta is None],
    )


def _write(fields: object) -> bytes:
    try:
        return _encode(fields)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError):
        return plain_json(fields)


@cache
def fast_codec() -> Codec:
    """Return the codec with msgspec."""
    of_messages = (msgspec.MsgspecError, _Refused, UnicodeDecodeError, RecursionError)
    return Codec(
        read_message,
        published_validator(),
        (*of_messages, ValidationError),
        partial(encode, write=_write),
    )


def _check_topic(topic: str) -> None:
    try:
        validate_topic(topic)
    except InvalidTopic:
        raise _Refused from None


def _keep_sender(sender: _Sender) -> Sender:
    if len(_senders) >= _KEPT:
        _senders.clear()
    kept = _senders[sender] = Sender(type=sender.type, id=sender.id)
    return kept
