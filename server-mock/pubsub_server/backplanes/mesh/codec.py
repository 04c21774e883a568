"""The wire of the mesh: bytes ↔ frames, without I/O.

A frame is an opcode, the length of its body as 32 bits, and the body; all integers are big-endian.
Opcodes 1 to 6 are those of the proposal "Designing Distributed Pub/Sub" (statements Z-16 … Z-28 in
`docs/mesh.md`). The others are specific to this server; a peer that does not know them skips them
by their length.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from hanzoai.pubsub.links.unparsed import Bytes, FrameError, Unparsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_T = TypeVar("_T")

HEARTBEAT: Final = 1
SUBSCRIBE: Final = 2
SUBSCRIBE_ACK: Final = 3
UNSUBSCRIBE: Final = 4
UNSUBSCRIBE_ACK: Final = 5
FORWARD: Final = 6
HELLO: Final = 7
PROOF: Final = 8
WELCOME: Final = 9
MEMBERS: Final = 10
ENVELOPE: Final = 11
PATTERNS: Final = 12
PATTERNS_ACK: Final = 13
PATTERNS_END: Final = 14
PATTERNS_END_ACK: Final = 15
LEAVING: Final = 16

VERSION: Final = 1
"""Version of the opcodes from 7 on."""
MAX_TOPIC: Final = 255
MAX_TOPICS: Final = 255
"""Maximum topics of one forward."""
MAX_LIST: Final = 65_536
"""Bytes of one list of topics that this node sends; more topics take several frames."""
MAX_LIST_IN: Final = 4_194_304
"""Maximum bytes of a list of topics that this node accepts."""
MAX_SMALL: Final = 65_536
"""Maximum bytes of any body except a message."""
MAX_MEMBERS: Final = 256
"""Maximum nodes of one list of members."""
FORWARD_HEAD: Final = 1 + MAX_TOPICS * (1 + MAX_TOPIC) + 4
"""Maximum bytes of a forward in addition to its data."""

PING: Final = b"ping"
PONG: Final = b"pong"
OK: Final = b"\x01"
REFUSED: Final = b"\x00"

_HEAD: Final = Struct(">BI")
_LENGTH: Final = Struct(">I")


class Frame(NamedTuple):
    """One frame; the opcode defines the format of the body."""

    opcode: int
    body: bytes


class Hello(msgspec.Struct, frozen=True):
    """The first frame in each direction between two of our nodes.

    Attributes:
        version: Of the opcodes from 7 on; nodes with different versions do not connect.
        node: Id of the node, new with each start.
        start: Random and new with each start, to tell a node from another with the same id.
        address: ``HOST:PORT`` where others reach it; without a host, that of the connection.
        nonce: Random and new with each connection.
        keyed: Whether it asks for a proof of the shared key.
    """

    version: int
    node: str
    start: str
    address: str
    nonce: bytes
    keyed: bool


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A node that the sender is connected to."""

    node: str
    address: str


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A forwarded message: what its subscribers receive, and the id that identifies repeats.

    Attributes:
        topic: Its topic.
        id: Its id.
        given: Whether its publisher chose the id, and may repeat the message with it.
        type: As published.
        data: Its JSON.
        kind: Kind of the sender.
        user: Id of the sender.
        timestamp: Unix ms, by the clock of the node that it was published on.
        ttl: Seconds; None for none.
        meta: Its JSON; None for none.
    """

    topic: str
    id: str
    given: bool
    type: str
    data: bytes
    kind: str
    user: str
    timestamp: int
    ttl: int | None = None
    meta: bytes | None = None


_ENCODER: Final = msgspec.msgpack.Encoder()
_HELLO: Final = msgspec.msgpack.Decoder(Hello)
_MEMBERS: Final = msgspec.msgpack.Decoder(list[Member])
_RECORD: Final = msgspec.msgpack.Decoder(Record)


def frame(opcode: int, body: bytes = b"") -> bytes:
    """One frame, ready to be written."""
    return _HEAD.pack(opcode, len(body)) + body


def topic_list(topics: Iterable[bytes]) -> bytes:
    """The body of opcodes 2, 4, 12 and 14: names with their lengths, without a count.

    Raises:
        ValueError: A topic has more than 255 bytes.
    """
    parts: list[bytes] = []
    for topic in topics:
        if len(topic) > MAX_TOPIC:
            raise ValueError(f"A topic has at most {MAX_TOPIC} bytes, not {len(topic)}.")
        parts += (len(topic).to_bytes(1), topic)
    return b"".join(parts)


def read_topic_list(body: bytes) -> list[bytes]:
    """The names of an opcode 2, 4, 12 or 14.

    Raises:
        FrameError: A length exceeds the end of the body.
    """
    topics: list[bytes] = []
    at = 0
    while at < len(body):
        start = at + 1
        at = start + body[at]
        if at > len(body):
            raise FrameError("bad_length", "A topic extends past the end of its list.")
        topics.append(body[start:at])
    return topics


def forward(topics: Sequence[bytes], data: bytes) -> bytes:
    """An opcode 6.

    Raises:
        ValueError: More than 255 topics, a topic of more than 255 bytes, or data of 4 GiB.
    """
    if len(topics) > MAX_TOPICS:
        raise ValueError(f"A forward has at most {MAX_TOPICS} topics, not {len(topics)}.")
    if len(data) > 0xFFFF_FFFF:
        raise ValueError(f"Data has less than 4 GiB, not {len(data)} bytes.")
    names = topic_list(topics)
    size = 1 + len(names) + 4 + len(data)
    head = _HEAD.pack(FORWARD, size)
    return b"".join((head, len(topics).to_bytes(1), names, _LENGTH.pack(len(data)), data))


def read_forward(body: bytes) -> tuple[list[bytes], bytes]:
    """Topics and data of an opcode 6.

    Raises:
        FrameError: The lengths in it do not add up to the length of the body.
    """
    if not body:
        raise FrameError("bad_length", "A forwarded message has no number of topics.")
    topics: list[bytes] = []
    at = 1
    for _ in range(body[0]):
        if at >= len(body):
            raise FrameError("bad_length", "A forwarded message has fewer topics than stated.")
        start = at + 1
        at = start + body[at]
        topics.append(body[start:at])
    if at + 4 > len(body):
        raise FrameError("bad_length", "A forwarded message ends before its data.")
    (size,) = _LENGTH.unpack_from(body, at)
    if at + 4 + size != len(body):
        raise FrameError(
            "bad_length", "The data of a forwarded message does not have the stated length."
        )
    return topics, body[at + 4 :]


def hello(value: Hello) -> bytes:
    """An opcode 7."""
    return frame(HELLO, _ENCODER.encode(value))


def members(nodes: Sequence[Member]) -> bytes:
    """An opcode 10."""
    return frame(MEMBERS, _ENCODER.encode(list(nodes)))


def record(value: Record) -> bytes:
    """An opcode 11."""
    return frame(ENVELOPE, _ENCODER.encode(value))


def read_hello(body: bytes) -> Hello:
    """An opcode 7.

    Raises:
        FrameError: It has another form.
    """
    value = _read(_HELLO, body, "A hello")
    if not 1 <= len(value.node) <= 64 or not 1 <= len(value.start) <= 64:
        raise FrameError("bad_hello", "A hello has no id of 1 to 64 characters.")
    if len(value.address) > MAX_TOPIC or not 8 <= len(value.nonce) <= 64:
        raise FrameError("bad_hello", "A hello with a long address, or a nonce of another length.")
    return value


def read_members(body: bytes) -> list[Member]:
    """An opcode 10, its first `MAX_MEMBERS`.

    Raises:
        FrameError: It has another form.
    """
    return _read(_MEMBERS, body, "A list of members")[:MAX_MEMBERS]


def read_record(body: bytes) -> Record:
    """An opcode 11.

    Raises:
        FrameError: It has another form.
    """
    return _read(_RECORD, body, "An envelope")


def _read(decoder: msgspec.msgpack.Decoder[_T], body: bytes, what: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError("bad_body", f"{what} that cannot be read: {error}") from None


class FrameDecoder:
    """Bytes in, whole frames out.

    Args:
        max_message: Maximum bytes of the body of a message.
        trusted: See the attribute.

    Attributes:
        skipped: Frames with an opcode that this node does not know.
        trusted: Whether bodies may exceed `MAX_SMALL`. False before a peer proves the shared key,
            so that strangers cannot fill the memory.
    """

    def __init__(self, max_message: int, *, trusted: bool) -> None:
        self.skipped = 0
        self.trusted = trusted
        self._most = {
            SUBSCRIBE: MAX_LIST_IN,
            UNSUBSCRIBE: MAX_LIST_IN,
            PATTERNS: MAX_LIST_IN,
            PATTERNS_END: MAX_LIST_IN,
            FORWARD: max_message,
            ENVELOPE: max_message,
        }
        self._unparsed = Unparsed()
        # Remaining bytes of a frame that is skipped.
        self._skip = 0

    def feed(self, data: Bytes) -> Iterator[Frame]:
        """Yield the frames that are now complete.

        Raises:
            FrameError: A body exceeds the limit of its opcode.
        """
        self._unparsed.feed(data)
        while (frame := self._next(self._unparsed)) is not None:
            yield frame

    def _next(self, unparsed: Unparsed) -> Frame | None:
        while True:
            if self._skip:
                piece = min(self._skip, len(unparsed))
                if not piece:
                    return None
                unparsed.gather(piece)
                unparsed.at += piece
                self._skip -= piece
                if self._skip:
                    return None
            if not unparsed.gather(_HEAD.size):
                return None
            opcode, size = _HEAD.unpack_from(unparsed.data, unparsed.at)
            if HEARTBEAT <= opcode <= LEAVING:
                break
            # Skipped without buffering, regardless of its length.
            self.skipped += 1
            self._skip = size
            unparsed.at += _HEAD.size
        most = self._most.get(opcode, MAX_SMALL) if self.trusted else MAX_SMALL
        if size > most:
            detail = f"Opcode {opcode} with a body of {size} bytes exceeds {most}."
            if self.trusted and opcode in {FORWARD, ENVELOPE}:
                detail += " Give max_payload the same value on all nodes."
            raise FrameError("oversize", detail)
        if not unparsed.gather(_HEAD.size + size):
            return None
        start = unparsed.at + _HEAD.size
        unparsed.at = start + size
        return Frame(opcode, unparsed.data[start : start + size])
