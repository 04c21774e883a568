"""Receives into one buffer per thread.

Otherwise, asyncio allocates 256 KiB for each read. Depending on the state of the heap, that takes
longer than all else that a small message needs.
"""

from __future__ import annotations

import asyncio
import mmap
import threading
from typing import Final

_SIZE: Final = 1 << 16


class _Buffer(threading.local):
    """Memory for the next read of any connection: event loops in different threads read at once.

    It is mapped, so that it takes only the memory of the largest read, and private, so that a
    forked process gets its own.
    """

    def __init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, _SIZE, access=mmap.ACCESS_COPY))


_thread: Final = _Buffer()


class BufferedReads(asyncio.Protocol, asyncio.BufferedProtocol):
    """A protocol that gets the bytes of each read in `data_received`.

    It derives from both interfaces because uvloop, which has its own buffer, calls `data_received`
    only if a protocol derives from `asyncio.Protocol`.
    """

    _buffer: memoryview | bytes
    """What the last read received."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        buffer = self._buffer = _thread.view
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self.data_received(bytes(self._buffer[:nbytes]))
