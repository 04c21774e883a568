"""The codec of the extra `speed`: reads live messages with msgspec, and all else like `codec`.

msgspec reads a message into a struct: it checks types and bounds, and rejects fields that the
struct does not have. Rejected messages go to `codec.decode`, so both codecs read the same. The
struct becomes a `Message` without a second validation, in a third of pydantic's time. Senders
repeat, so msgspec skips them, and pydantic reads the bytes of each once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache, partial
from itertools import count, repeat, starmap, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json as plain_json

from hanzoai.pubsub.generated.wire import Message, MessageFrame, Sender
from hanzoai.pubsub.model import new_model
from hanzoai.pubsub.wire.codec import Codec, decode, encode
from hanzoai.pubsub.wire.readings import PRESENCE
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT: Final = 4_096
"""Maximum cached senders; above that, the cache is emptied."""

_SENDER_MAX: Final = 512
"""Maximum bytes of a sender that is kept."""

_NESTING: Final = 400
"""Minimum bytes of 200 levels of nesting: deeper is malformed, but msgspec accepts it."""

_DRAFTS: Final = sys.version_info < (3, 13)
"""Whether messages are made of drafts.

Setting attributes takes a third less time than filling the dict of a message. From Python 3.13 on,
it takes longer: an object of a class with slots no longer has its attributes in itself.
"""

_NO_SENDER: Final = Raw(b"null")

_Number = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class _Message(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    id: Annotated[str, Meta(min_length=1, max_length=128)]
    # `codec.decode` does not check the form of a topic, either.
    topic: Annotated[str, Meta(min_length=1)]
    type: str
    data: Any
    sender: Raw = _NO_SENDER
    timestamp: _Number
    ttl: _Number | None = None
    seq: _Number | None = None
    meta: dict[str, Any] | None = None


class _Frame(Struct, tag_field="type", tag="message", forbid_unknown_fields=True, gc=False):
    message: _Message


class _Draft(Message, defer_build=True):
    """A message whose fields can be set. It then becomes a `Message`, by its `__class__`."""

    __init__ = object.__init__  # pyright: ignore[reportAssignmentType]
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__  # shares the slot of `__setattr__`


class _Senders(dict[bytes, "Sender | None"]):
    """The senders of messages as models, by their JSON."""

    def __missing__(self, data: bytes) -> Sender | None:
        sender: Sender | None = _read_sender(data)
        # A program can change the other fields, so a sender with any belongs to one message.
        if len(data) <= _SENDER_MAX and (sender is None or not sender.model_extra):
            if len(self) >= _KEPT:
                self.clear()
            self[data] = sender
        return sender


_INVALID: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_decode: Final = msgspec.json.Decoder(_Frame).decode
_read_sender: Final = TypeAdapter[Any](Sender | None).validator.validate_json
_encode: Final = msgspec.json.Encoder().encode
_senders: Final = _Senders()


def read_messages(frames: Sequence[bytes]) -> list[Message]:
    """Read messages, up to a frame that only `codec.decode` may be able to read.

    Args:
        frames: Of at most `_NESTING` bytes each, or not nested too deeply.
    """
    # Each step has a loop of its own: one loop with all of them takes a third longer.
    read: list[_Frame] = []
    # An error leaves the frames before it in the list.
    with suppress(*_INVALID):
        read.extend(map(_decode, frames))
    if not read:
        return []
    # The class of drafts has no `__init__` in Python, so calling it takes less time.
    make, given = (_Draft, ()) if _DRAFTS else (new_model, (Message,))
    made: Any = starmap(make, repeat(given, len(read)))
    messages: list[Message] = [*made]
    places: list[Any] = messages if _DRAFTS else [message.__dict__ for message in messages]
    # Most messages have the topic, the type and the sender of the previous one, and share these
    # objects.
    first = read[0].message
    topic, type = first.topic, first.type
    sender: Raw = _NO_SENDER
    sender_model: Sender | None = None
    is_run = first.seq is not None and type not in PRESENCE
    for frame, place, due in zip(read, places, count(start := first.seq or 0)):
        message = frame.message
        if (seq := message.seq) != due:
            is_run = False
        if message.topic != topic:
            topic = message.topic
            is_run = False
        if message.type != type:
            type = message.type
            is_run = is_run and type not in PRESENCE
        if message.sender != sender:
            data = bytes(message.sender)
            try:
                sender_model = _senders[data]
            except ValidationError:
                # Read the frame here: the frames after it are decoded already.
                at = due - start
                other = decode(frames[at])
                if not isinstance(other, MessageFrame):
                    del messages[at:]
                    break
                messages[at] = other.message
                is_run = False
                continue
            sender = message.sender if data in _senders else Raw()
        if _DRAFTS:
            place.id = message.id
            place.topic = topic
            place.type = type
            place.data = message.data
            place.sender = sender_model
            place.timestamp = message.timestamp
            place.ttl = message.ttl
            place.seq = seq
            place.meta = message.meta
        else:
            # Filling the model's own dict is faster than creating one.
            place["id"] = message.id
            place["topic"] = topic
            place["type"] = type
            place["data"] = message.data
            place["sender"] = sender_model
            place["timestamp"] = message.timestamp
            place["ttl"] = message.ttl
            place["seq"] = seq
            place["meta"] = message.meta
    if _DRAFTS:
        for draft in messages:
            draft.__class__ = Message
    return Run(messages, start) if messages and is_run else messages


def _read_long(frames: Sequence[bytes]) -> list[Message]:
    return read_messages([*takewhile(_is_shallow, frames)])


def _is_shallow(data: bytes) -> bool:
    return len(data) <= _NESTING or data.count(b"[") + data.count(b"{") <= _NESTING // 2


def _write(fields: object) -> bytes:
    try:
        return _encode(fields)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError):
        return plain_json(fields)


@cache
def fast_codec() -> Codec:
    """Return the codec with msgspec."""
    # Objects of a class share the names of their attributes, which saves time and memory, if one of
    # them has all before many others are made.
    draft = new_model(_Draft)
    for name in Message.model_fields:
        setattr(draft, name, None)
    # A message is three objects or more. Up to Python 3.12, 700 new ones start garbage collection.
    write = partial(encode, write=_write)
    return Codec(read_messages, _read_long, _NESTING, (), write, burst=192)
