"""Reads and writes whole WebSocket frames on a socket (RFC 6455, section 5.2).

Nearly every frame of a server is one unmasked message without extensions. The parser of the library
`websockets` uses half of the CPU time to receive such a message; reading its header here takes a
tenth of that. All other frames go to the library unchanged: control frames, fragments, and frames
that violate the protocol.
"""

from __future__ import annotations

from os import urandom
from struct import Struct
from typing import TYPE_CHECKING, Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # an installation without compiled code
    from websockets.utils import apply_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WHOLE: Final = (0x81, 0x82)
"""First byte of a message in one frame, as text or as binary data."""

_LENGTH_16: Final = 126
_LENGTH_64: Final = 127
_MASKED: Final = 128
"""Second bytes: a length of two or eight bytes follows; the lowest value of a masked frame."""


_TEXT: Final = 0x81
_MASK: Final = 4
"""Bytes of a masking key."""


_SHORT: Final = tuple(bytes((_TEXT, _MASKED | size)) for size in range(_LENGTH_16))
_LONG_16: Final = Struct(">BBH").pack
_LONG_64: Final = Struct(">BBQ").pack


def text_frames(messages: Sequence[bytes]) -> bytes:
    """Return the messages of a client as one frame each, masked with random keys."""
    keys = urandom(_MASK * len(messages))
    parts: list[bytes] = []
    at = 0
    for message in messages:
        size = len(message)
        key = keys[at : at + _MASK]
        at += _MASK
        if size < _LENGTH_16:
            head = _SHORT[size]
        elif size < 1 << 16:
            head = _LONG_16(_TEXT, _MASKED | _LENGTH_16, size)
        else:
            head = _LONG_64(_TEXT, _MASKED | _LENGTH_64, size)
        parts += (head, key, apply_mask(message, key))
    return b"".join(parts)


class WholeFrames:
    """Splits a stream of bytes that begins with a frame.

    Args:
        messages: Receives the payload of each message that arrives in one frame.
        other: Called with the bytes of any other frame. Returns whether a one-frame message may
            follow: not within a fragmented message, nor after the closing handshake.
        largest: Maximum bytes of payload of a frame.
    """

    __slots__ = ("_largest", "_messages", "_needed", "_open", "_other", "_started")

    def __init__(self, messages: list[bytes], other: Callable[[bytes], bool], largest: int) -> None:
        self._messages = messages
        self._other = other
        self._largest = largest
        self._started = bytearray()
        self._needed = 0
        self._open = True

    def feed(self, data: bytes) -> bytes | None:
        """Process received bytes.

        Returns:
            None, or the bytes that the library has to parse, with all that follow.
        """
        started = self._started
        if started:
            started += data
            if len(started) < self._needed:
                return None
            data = bytes(started)
            started.clear()
        at, end, largest = 0, len(data), self._largest
        while True:
            start = at + 2
            if start > end:
                needed = 2
                break
            kind, length = data[at], data[at + 1]
            if length >= _LENGTH_16:
                if length >= _MASKED:
                    return data[at:]
                size = 2 if length == _LENGTH_16 else 8
                start += size
                if start > end:
                    needed = start - at
                    break
                length = int.from_bytes(data[start - size : start], "big")
            if length > largest:
                return data[at:]
            stop = start + length
            if stop > end:
                needed = stop - at
                break
            if kind in _WHOLE and self._open:
                self._messages.append(data[start:stop])
            else:
                self._open = self._other(data[at:stop])
            at = stop
        if at < end:
            started += data[at:]
            self._needed = needed
        return None

    def rest(self) -> bytes:
        """Keep the beginning of an incomplete frame."""
        return bytes(self._started)
