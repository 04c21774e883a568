"""Bytes of a stream that no frame has been made of yet; shared by the codecs of byte protocols."""

from __future__ import annotations

from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What decoders accept as input."""


def is_bytes(value: object) -> bool:
    """Whether a value is bytes, and not their hex digits, for example."""
    return isinstance(value, Bytes)


class FrameError(ValueError):
    """The bytes of the peer break the protocol. Close the connection: it cannot go on.

    Attributes:
        reason: What is wrong, as one word for counters, such as ``oversize``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, *self.args)


class Unparsed:
    """A buffer that joins pieces only when the frame they belong to is complete.

    So a frame of any size that arrives in pieces of any size is copied a constant number of times.
    A decoder reads `data` from `at` on, moves `at`, and calls `gather` where that is too short.
    """

    __slots__ = ("_later", "at", "data")

    def __init__(self) -> None:
        self.data = b""
        self.at = 0
        self._later: bytearray = bytearray()

    def __len__(self) -> int:
        return len(self.data) - self.at + len(self._later)

    def feed(self, data: Bytes) -> None:
        """Append what has arrived."""
        if self.at == len(self.data) and not self._later:
            self.data = bytes(data)
            self.at = 0
        else:
            self._later += data

    def gather(self, size: int) -> bool:
        """Put at least `size` bytes into `data`; False if fewer have arrived."""
        left = len(self.data) - self.at
        if left >= size:
            return True
        if left + len(self._later) < size:
            if self.at:
                self.data = self.data[self.at :]
                self.at = 0
            return False
        self.data = b"".join((memoryview(self.data)[self.at :], self._later))
        self.at = 0
        self._later = bytearray()
        return True
