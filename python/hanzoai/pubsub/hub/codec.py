"""The hub protocol on a byte stream: bytes ↔ requests, replies and pushes, without I/O.

A request is an opcode, the length of its body as 32 bits, and the body. Frames of the hub have an
opcode and no length. A list of topics is their number and, for each, its length, one byte each; all
other integers are big-endian. The source is pub0sub, whose hub listens on port 13000.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct, error
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from hanzoai.pubsub.links.unparsed import Bytes, FrameError, Unparsed

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_TOPIC: Final = 255
"""Maximum bytes of a topic."""

MAX_TOPICS: Final = 255
"""Maximum topics of one request."""

MAX_DATA: Final = 16 * 1024 * 1024
"""Default limit of the data of a message, in bytes."""

_LISTS: Final = 1 + MAX_TOPICS * (1 + MAX_TOPIC)

_HEAD: Final = Struct(">BI")
_LENGTH: Final = Struct(">I")
_ID: Final = Struct(">Q")
_SUBSCRIBED: Final = Struct(">BQI")

PUBLISH: Final = 2
PUBLISHED: Final = 3
SUBSCRIBE: Final = 4
SUBSCRIBED: Final = 5
PUSH: Final = 6
ADD: Final = 7
ADDED: Final = 8
REMOVE: Final = 9
REMOVED: Final = 10


class Publish(NamedTuple):
    """PUB_REQ: deliver `data` once for each topic."""

    topics: tuple[bytes, ...]
    data: bytes


class Subscribe(NamedTuple):
    """NEW_SUB_REQ: become a subscriber of these topics."""

    topics: tuple[bytes, ...]


class Add(NamedTuple):
    """ADD_SUB_REQ: more topics for the subscriber `id`."""

    id: int
    topics: tuple[bytes, ...]


class Remove(NamedTuple):
    """UNSUB_REQ: fewer topics for the subscriber `id`."""

    id: int
    topics: tuple[bytes, ...]


class Published(NamedTuple):
    """PUB_RESP: number of subscribers of the message, summed over its topics."""

    reached: int


class Subscribed(NamedTuple):
    """NEW_SUB_RESP: the id of the subscriber, and its number of topics."""

    id: int
    topics: int


class Push(NamedTuple):
    """MSG_PUSH: a message on one topic."""

    topic: bytes
    data: bytes


class Added(NamedTuple):
    """ADD_SUB_RESP: number of new topics."""

    topics: int


class Removed(NamedTuple):
    """UNSUB_RESP: number of removed topics."""

    topics: int


Request: TypeAlias = Publish | Subscribe | Add | Remove
Reply: TypeAlias = Published | Subscribed | Push | Added | Removed
Frame = TypeVar("Frame")


def encode(frame: Request | Reply) -> bytes:
    """Encode one request, reply or push.

    Raises:
        ValueError: More than 255 topics, a topic of more than 255 bytes, or data of 4 GiB.
    """
    match frame:
        case Publish(topics, data):
            return _request(PUBLISH, _list(topics), _length(data), data)
        case Subscribe(topics):
            return _request(SUBSCRIBE, _list(topics))
        case Add(id_, topics):
            return _request(ADD, _ID.pack(id_), _list(topics))
        case Remove(id_, topics):
            return _request(REMOVE, _ID.pack(id_), _list(topics))
        case Published(count):
            return _HEAD.pack(PUBLISHED, count)
        case Subscribed(id_, count):
            return _SUBSCRIBED.pack(SUBSCRIBED, id_, count)
        case Push(topic, data):
            if len(topic) > MAX_TOPIC:
                raise ValueError(f"A topic has at most {MAX_TOPIC} bytes, not {len(topic)}.")
            return b"".join((_HEAD.pack(PUSH, len(topic)), topic, _length(data), data))
        case Added(count):
            return _HEAD.pack(ADDED, count)
        case Removed(count):
            return _HEAD.pack(REMOVED, count)


def _length(data: bytes) -> bytes:
    try:
        return _LENGTH.pack(len(data))
    except error:
        raise ValueError(f"Data has less than 4 GiB, not {len(data)} bytes.") from None


def _list(topics: Sequence[bytes]) -> bytes:
    if len(topics) > MAX_TOPICS:
        raise ValueError(f"A request has at most {MAX_TOPICS} topics, not {len(topics)}.")
    parts = [len(topics).to_bytes(1)]
    for topic in topics:
        if len(topic) > MAX_TOPIC:
            raise ValueError(f"A topic has at most {MAX_TOPIC} bytes, not {len(topic)}.")
        parts += (len(topic).to_bytes(1), topic)
    return b"".join(parts)


def _request(opcode: int, *parts: bytes) -> bytes:
    return b"".join((_HEAD.pack(opcode, sum(map(len, parts))), *parts))


class _Decoder(ABC, Generic[Frame]):
    __slots__ = ("_unparsed", "max_data")

    def __init__(self, *, max_data: int = MAX_DATA) -> None:
        self._unparsed = Unparsed()
        self.max_data = max_data

    @property
    def pending(self) -> int:
        """Number of bytes that were fed and not decoded."""
        return len(self._unparsed)

    def feed(self, data: Bytes) -> None:
        """Append bytes from the peer; `decode` decodes them."""
        self._unparsed.feed(data)

    def decode(self, limit: int = -1) -> list[Frame]:
        """Decode the next complete frames.

        Args:
            limit: Maximum number; default: all of them.

        Raises:
            FrameError: See the class. Frames before the fault are returned by an earlier call.
        """
        found: list[Frame] = []
        unparsed = self._unparsed
        while len(found) != limit:
            try:
                frame = self._next(unparsed)
            except FrameError:
                if found:
                    return found
                raise
            if frame is None:
                return found
            found.append(frame)
        return found

    @abstractmethod
    def _next(self, unparsed: Unparsed) -> Frame | None:
        """Decode the next frame; None if it is not complete."""


class RequestDecoder(_Decoder[Request]):
    """Decodes the requests of a client in pieces of any size; for a hub.

    `decode` raises FrameError with ``bad_opcode``, ``oversize``, or ``bad_length`` where the
    lengths in a body contradict the length of the body.

    Args:
        max_data: Maximum bytes of a publish's data.
    """

    __slots__ = ()

    def _next(self, unparsed: Unparsed) -> Request | None:
        if not unparsed.gather(1):
            return None
        opcode = unparsed.data[unparsed.at]
        if opcode not in _LEAST:
            raise FrameError("bad_opcode", f"A client does not send opcode {opcode}.")
        if not unparsed.gather(_HEAD.size):
            return None
        _, size = _HEAD.unpack_from(unparsed.data, unparsed.at)
        if size < _LEAST[opcode]:
            raise FrameError("bad_length", f"Opcode {opcode} with a body of {size} bytes.")
        most = _LISTS + (4 + self.max_data if opcode == PUBLISH else 8)
        if size > most:
            raise FrameError("oversize", f"A body of {size} bytes exceeds {most}.")
        if not unparsed.gather(_HEAD.size + size):
            return None
        start = unparsed.at + _HEAD.size
        request = self._read(opcode, unparsed.data, start, start + size)
        unparsed.at = start + size
        return request

    def _read(self, opcode: int, data: bytes, at: int, end: int) -> Request:
        id_ = 0
        if opcode in (ADD, REMOVE):
            (id_,) = _ID.unpack_from(data, at)
            at += 8
        topics: list[bytes] = []
        left, at = data[at], at + 1
        while left and at < end:
            start = at + 1
            at = start + data[at]
            topics.append(data[start:at])
            left -= 1
        body = at
        if opcode == PUBLISH and at + 4 <= end:
            (size,) = _LENGTH.unpack_from(data, at)
            body = at + 4
            at = body + size
            if size > self.max_data:
                raise FrameError("oversize", f"Data of {size} bytes exceeds {self.max_data}.")
        elif opcode == PUBLISH:
            at = end + 1
        if left or at != end:
            raise FrameError("bad_length", "The lengths in a body contradict its own length.")
        if opcode == PUBLISH:
            return Publish(tuple(topics), data[body:end])
        if opcode == SUBSCRIBE:
            return Subscribe(tuple(topics))
        return (Add if opcode == ADD else Remove)(id_, tuple(topics))


_LEAST: Final = {PUBLISH: 5, SUBSCRIBE: 1, ADD: 9, REMOVE: 9}
"""Minimum bytes of the body, by opcode."""


class ReplyDecoder(_Decoder[Reply]):
    """Decodes the replies and pushes of a hub in pieces of any size; for a client.

    `decode` raises FrameError with ``bad_opcode``, ``topic_too_long`` or ``oversize``.

    Args:
        max_data: Maximum bytes of a push's data.
    """

    __slots__ = ()

    def _next(self, unparsed: Unparsed) -> Reply | None:
        if not unparsed.gather(1):
            return None
        opcode = unparsed.data[unparsed.at]
        if opcode not in (PUBLISHED, SUBSCRIBED, PUSH, ADDED, REMOVED):
            raise FrameError("bad_opcode", f"A hub does not send opcode {opcode}.")
        need = _SUBSCRIBED.size if opcode == SUBSCRIBED else _HEAD.size
        if not unparsed.gather(need):
            return None
        data, at = unparsed.data, unparsed.at
        if opcode == SUBSCRIBED:
            _, id_, count = _SUBSCRIBED.unpack_from(data, at)
            unparsed.at += need
            return Subscribed(id_, count)
        _, count = _HEAD.unpack_from(data, at)
        if opcode == PUSH:
            return self._push(unparsed, count)
        unparsed.at += need
        if opcode == PUBLISHED:
            return Published(count)
        return Added(count) if opcode == ADDED else Removed(count)

    def _push(self, unparsed: Unparsed, length: int) -> Push | None:
        if length > MAX_TOPIC:
            raise FrameError("topic_too_long", f"A topic of {length} bytes.")
        need = _HEAD.size + length + 4
        if not unparsed.gather(need):
            return None
        (size,) = _LENGTH.unpack_from(unparsed.data, unparsed.at + need - 4)
        if size > self.max_data:
            raise FrameError("oversize", f"Data of {size} bytes exceeds {self.max_data}.")
        if not unparsed.gather(need + size):
            return None
        data, at = unparsed.data, unparsed.at
        topic = data[at + _HEAD.size : at + _HEAD.size + length]
        unparsed.at = at + need + size
        return Push(topic, data[at + need : unparsed.at])
