"""Scalability Protocols (SP) on a byte stream: bytes ↔ messages, without I/O.

Both sides first send an 8-byte hello: ``00 53 50 00``, the role as 16 bits, ``00 00``. Messages
follow. On TCP, a message is a 64-bit length and the body; on IPC, the byte ``01`` precedes them.
All integers are big-endian. A WebSocket carries one message in each binary message, without hello
and length, and needs no codec.

The source is NNG 1.11. The draft *sp-ipc-mapping-01* specifies the byte ``00`` on IPC, but no
program in use sends it.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from struct import Struct
from typing import Final

from hanzoai.pubsub.links.unparsed import Bytes, FrameError, Unparsed

HELLO_SIZE: Final = 8
"""Length of a hello in bytes."""

MAX_MESSAGE_SIZE: Final = 16 * 1024 * 1024
"""Default limit of a received message, in bytes."""

_LENGTH: Final = Struct(">Q")
_IPC_HEAD: Final = Struct(">BQ")
_IPC_TYPE: Final = 1


class Role(IntEnum):
    """The role of a socket; the value is its number on the wire."""

    PUB = 0x20
    SUB = 0x21

    @property
    def peer(self) -> Role:
        """The only role that this role can connect to."""
        return Role.SUB if self is Role.PUB else Role.PUB


class Framing(Enum):
    """The format that separates messages in a byte stream."""

    TCP = "tcp"
    IPC = "ipc"


def encode_hello(role: Role) -> bytes:
    """The first 8 bytes that a socket sends."""
    return b"\0SP\0" + role.to_bytes(2, "big") + b"\0\0"


def encode_message(body: Bytes, framing: Framing) -> bytes:
    """Encode one message."""
    if framing is Framing.TCP:
        return b"".join((_LENGTH.pack(len(body)), body))
    return b"".join((_IPC_HEAD.pack(_IPC_TYPE, len(body)), body))


class Decoder:
    """Reads the hello and the messages of a peer, in pieces of any size.

    Args:
        role: The role of this side. A peer whose role is not ``role.peer`` is refused, as are
            messages to a PUB.
        framing: ``Framing.IPC`` for Unix sockets, else ``Framing.TCP``.
        max_message_size: Longest accepted body, in bytes.
    """

    __slots__ = ("_framing", "_head", "_role", "_unparsed", "greeted", "max_message_size")

    def __init__(
        self, role: Role, framing: Framing, *, max_message_size: int = MAX_MESSAGE_SIZE
    ) -> None:
        self._role = role
        self._framing = framing
        self._head = _LENGTH.size if framing is Framing.TCP else _IPC_HEAD.size
        self._unparsed = Unparsed()
        self.max_message_size = max_message_size
        self.greeted = False
        """Whether a valid hello of the peer has arrived."""

    @property
    def pending(self) -> int:
        """Number of bytes that were fed and not decoded."""
        return len(self._unparsed)

    def feed(self, data: Bytes) -> None:
        """Append bytes from the peer; `decode` decodes them."""
        self._unparsed.feed(data)

    def decode(self, limit: int = -1) -> list[bytes]:
        """Decode the next complete messages.

        Args:
            limit: Maximum number; default: all of them.

        Raises:
            FrameError: The peer violates the protocol: ``bad_hello``, ``bad_type``, ``oversize``,
                or ``unexpected_data`` for data to a PUB. Messages before the fault are returned by
                an earlier call.
        """
        if not self.greeted and not self._greet():
            return []
        unparsed = self._unparsed
        if self._role is Role.PUB:
            if len(unparsed):
                raise FrameError("unexpected_data", "A subscriber sends nothing after its hello.")
            return []
        found: list[bytes] = []
        ipc, head, largest = self._framing is Framing.IPC, self._head, self.max_message_size
        unpack = _LENGTH.unpack_from
        data, at, end = unparsed.data, unparsed.at, len(unparsed.data)
        while len(found) != limit:
            start = at + head
            need = head
            fault = None
            if at < end and ipc and data[at] != _IPC_TYPE:
                fault = FrameError("bad_type", f"IPC messages begin with 01, not {data[at]:02x}.")
            elif start <= end:
                (size,) = unpack(data, start - 8)
                stop = start + size
                if size > largest:
                    fault = FrameError("oversize", f"A message of {size} bytes exceeds {largest}.")
                elif stop <= end:
                    found.append(data[start:stop])
                    at = stop
                    continue
                need += size
            unparsed.at = at
            if fault is not None:
                if found:
                    return found
                raise fault
            if not unparsed.gather(need) and not (ipc and at == end and unparsed.gather(1)):
                return found
            data, at, end = unparsed.data, unparsed.at, len(unparsed.data)
        unparsed.at = at
        return found

    def _greet(self) -> bool:
        unparsed = self._unparsed
        expected = encode_hello(self._role.peer)
        complete = unparsed.gather(HELLO_SIZE)
        if not complete and not unparsed.gather(len(unparsed)):
            return False
        got = unparsed.data[unparsed.at : unparsed.at + HELLO_SIZE]
        if not expected.startswith(got):
            raise FrameError("bad_hello", f"Expected the hello {expected.hex()}, got {got.hex()}.")
        if complete:
            unparsed.at += HELLO_SIZE
            self.greeted = True
        return complete
