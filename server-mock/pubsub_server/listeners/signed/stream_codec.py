"""The stream between nodes: bytes ↔ headers and frames, without I/O.

The opener sends its headers: a protobuf message of keys and values, prefixed with its length as a
varint. The other side answers with its own. A publisher then sends untyped frames. The broker sends
typed frames: a handshake with id, owner and the first message, then data, and pings.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from hanzoai.pubsub import soc
from hanzoai.pubsub.links.unparsed import FrameError, Unparsed
from pubsub_server.listeners.signed.modes import Parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADERS_MAX: Final = 131_072
"""Maximum bytes of a headers message."""
_HEADER_COUNT_MAX: Final = 64
_VARINT_MAX: Final = 5
_IDENTITY: Final = soc.ID_BYTES + soc.OWNER_BYTES


class Numbering(Enum):
    """Type bytes of the two revisions of the protocol."""

    HEAD = "head"
    SEED = "seed"

    @property
    def ping(self) -> int:
        """Keeps the stream alive."""
        return 0xFF if self is Numbering.HEAD else 0x01

    @property
    def handshake(self) -> int:
        """A message with id and owner: the first one for a receiver."""
        return 0x00 if self is Numbering.HEAD else 0x02

    @property
    def data(self) -> int:
        """A message without id and owner."""
        return 0x01 if self is Numbering.HEAD else 0x03


class Opening(NamedTuple):
    """The request of a stream's opener.

    Attributes:
        topic: Address, 32 bytes.
        mode: Number of the mode.
        writes: Whether it publishes.
        parameters: Parameters of a publisher.
    """

    topic: bytes
    mode: int
    writes: bool
    parameters: Parameters | None


class Received(NamedTuple):
    """A message from the broker; the first one has `parameters`."""

    frame: bytes
    parameters: Parameters | None


def encode_opening(opening: Opening) -> bytes:
    """The headers that open a stream."""
    headers = {
        "pubsub-topic-address": opening.topic,
        "pubsub-mode": bytes((opening.mode,)),
        "pubsub-readwrite": bytes((opening.writes,)),
    }
    if opening.parameters is not None:
        headers["pubsub-gsoc-owner"] = opening.parameters.owner
        headers["pubsub-gsoc-id"] = opening.parameters.id
    body = b"".join(
        _field(1, _field(1, key.encode()) + _field(2, value)) for key, value in headers.items()
    )
    return _varint(len(body)) + body


class BrokerDecoder:
    """Decodes the bytes of a stream's opener: its opening, then its frames."""

    def __init__(self) -> None:
        self._unparsed = Unparsed()
        self._opening: Opening | None = None

    @property
    def pending(self) -> int:
        """Number of bytes that were fed and not decoded."""
        return len(self._unparsed)

    def feed(self, data: bytes) -> None:
        """Append bytes from the peer. Data from a subscriber is ignored."""
        if self._opening is None or self._opening.writes:
            self._unparsed.feed(data)

    def decode(self, limit: int = -1) -> list[Opening | bytes]:
        """The opening, then complete frames.

        Raises:
            FrameError: ``bad_headers`` or ``bad_span``.
        """
        found: list[Opening | bytes] = []
        if self._opening is None:
            body = read_delimited(self._unparsed)
            if body is None:
                return found
            self._opening = _opening(parse_headers(body))
            found.append(self._opening)
            if not self._opening.writes:
                _read(self._unparsed, len(self._unparsed))
        while len(found) != limit and (frame := take_frame(self._unparsed, 0)) is not None:
            found.append(frame)
        return found


class SubscriberDecoder:
    """Decodes the bytes of a broker. The first byte that is not a ping shows the revision."""

    def __init__(self) -> None:
        self._unparsed = Unparsed()
        self._answered = False
        self._numbering: Numbering | None = None
        self._shaken = False

    @property
    def answered(self) -> bool:
        """Whether the broker has sent its headers."""
        return self._answered

    def feed(self, data: bytes) -> None:
        """Append bytes from the broker."""
        self._unparsed.feed(data)

    def decode(self) -> list[Received]:
        """Complete messages; pings are left out.

        Raises:
            FrameError: ``bad_headers``, ``bad_type``, ``bad_span`` or ``no_handshake``.
        """
        found: list[Received] = []
        if not self._answered:
            body = read_delimited(self._unparsed)
            if body is None:
                return found
            parse_headers(body)
            self._answered = True
        while len(self._unparsed):
            kind = _peek(self._unparsed, 1)[0]
            if self._numbering is None:
                self._numbering = Numbering.HEAD if kind in {0x00, 0xFF} else Numbering.SEED
            if kind == self._numbering.ping:
                _read(self._unparsed, 1)
                continue
            if kind not in {self._numbering.handshake, self._numbering.data}:
                raise FrameError("bad_type", "no frame begins with this byte")
            before = 1 if kind == self._numbering.data else 1 + _IDENTITY
            if before == 1 and not self._shaken:
                raise FrameError("no_handshake", "the first message names neither id nor owner")
            whole = take_frame(self._unparsed, before)
            if whole is None:
                break
            parameters = None
            if before > 1:
                self._shaken = True
                id, owner = whole[1 : 1 + soc.ID_BYTES], whole[1 + soc.ID_BYTES : before]
                parameters = Parameters(owner, id)
            found.append(Received(whole[before:], parameters))
        return found


def take_frame(unparsed: Unparsed, before: int) -> bytes | None:
    """The next frame after this many bytes; None until it is complete.

    Raises:
        FrameError: ``bad_span``: it announces more than 4,096 bytes of payload.
    """
    head = before + soc.HEAD_BYTES
    if len(unparsed) < head:
        return None
    span = int.from_bytes(_peek(unparsed, head)[-soc.SPAN_BYTES :], "little")
    if span > soc.MAX_PAYLOAD:
        raise FrameError("bad_span", f"a payload has at most {soc.MAX_PAYLOAD:,} bytes")
    if len(unparsed) < head + span:
        return None
    return _read(unparsed, head + span)


def split(message: bytes) -> list[bytes]:
    """The frames of one WebSocket message.

    Raises:
        FrameError: ``bad_span``, or ``half_a_frame`` if the last one is not complete.
    """
    unparsed = Unparsed()
    unparsed.feed(message)
    found: list[bytes] = []
    while (frame := take_frame(unparsed, 0)) is not None:
        found.append(frame)
    if len(unparsed) or not found:
        raise FrameError("half_a_frame", "a message is one or more complete frames")
    return found


def read_delimited(unparsed: Unparsed) -> bytes | None:
    """A length-prefixed message; None until it is complete.

    Raises:
        FrameError: ``bad_headers``: it is too long.
    """
    head = _peek(unparsed, min(len(unparsed), _VARINT_MAX))
    size = shift = 0
    for at, byte in enumerate(head):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if size > HEADERS_MAX:
                break
            if len(unparsed) < at + 1 + size:
                return None
            return _read(unparsed, at + 1 + size)[at + 1 :]
    else:
        if len(head) < _VARINT_MAX:
            return None
    raise FrameError("bad_headers", f"headers have at most {HEADERS_MAX:,} bytes")


def parse_headers(body: bytes) -> dict[str, bytes]:
    """Keys and values of a headers message.

    Raises:
        FrameError: ``bad_headers``.
    """
    found: dict[str, bytes] = {}
    for number, part in _fields(body):
        if number != 1:
            continue
        header = dict(_fields(part))
        try:
            found[header.get(1, b"").decode()] = header.get(2, b"")
        except UnicodeDecodeError:
            raise FrameError("bad_headers", "a key is not UTF-8") from None
        if len(found) > _HEADER_COUNT_MAX:
            raise FrameError("bad_headers", f"there are at most {_HEADER_COUNT_MAX} headers")
    return found


def _peek(unparsed: Unparsed, size: int) -> bytes:
    unparsed.gather(size)
    return unparsed.data[unparsed.at : unparsed.at + size]


def _read(unparsed: Unparsed, size: int) -> bytes:
    taken = _peek(unparsed, size)
    unparsed.at += size
    return taken


def _opening(headers: Mapping[str, bytes]) -> Opening:
    topic, mode = headers.get("pubsub-topic-address", b""), headers.get("pubsub-mode", b"")
    writes = headers.get("pubsub-readwrite", b"")
    if len(topic) != soc.ID_BYTES or len(mode) != 1 or len(writes) != 1:
        raise FrameError("bad_headers", "topic, mode and readwrite have 32, 1 and 1 bytes")
    parameters = None
    if writes != b"\0":
        owner, id = headers.get("pubsub-gsoc-owner", b""), headers.get("pubsub-gsoc-id", b"")
        if len(owner) != soc.OWNER_BYTES or len(id) != soc.ID_BYTES:
            raise FrameError("bad_headers", "a publisher must send its owner and id")
        parameters = Parameters(owner, id)
    return Opening(topic, mode[0], writes != b"\0", parameters)


def _fields(message: bytes) -> list[tuple[int, bytes]]:
    """Number and bytes of each length-delimited field; varints are skipped."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        size, at = _read_varint(message, at)
        if key & 7 == 0:
            continue
        if key & 7 != 2 or at + size > len(message):
            raise FrameError("bad_headers", "the headers are not a valid protobuf message")
        found.append((key >> 3, message[at : at + size]))
        at += size
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in message[at : at + _VARINT_MAX]:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return value, at
    raise FrameError("bad_headers", "a number is truncated or too long")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data
