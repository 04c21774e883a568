"""How workers on a bus of their own end together: first no one publishes, then listeners leave.

The supervisor marks in their folder that all end, before it asks any of them to. Each then says on
its standard output that it takes no publish any more; when all have, the supervisor tells each on
its standard input. Who went on before could acknowledge what no one hears: the bus ends with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

QUIET: Final = b"quiet\n"
GO: Final = b"go\n"


class ShutdownBarrier:
    """One worker's part.

    Args:
        folder: What the supervisor has given to all of them.
        end: Set when the supervisor is gone.
    """

    def __init__(self, folder: Path, end: asyncio.Event) -> None:
        self._mark = mark(folder)
        self._end = end
        self._released = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sys.stdin.fileno(), self._read)

    @property
    def wanted(self) -> bool:
        """Whether all workers end, and with them what they have kept."""
        return self._mark.exists()

    async def wait(self) -> None:
        """Report that this worker accepts no more publishes, and wait until no worker does."""
        sys.stdout.buffer.write(QUIET)
        sys.stdout.buffer.flush()
        await self._released.wait()

    def _read(self) -> None:
        if not os.read(sys.stdin.fileno(), len(GO)):
            # The supervisor is gone.
            self._loop.remove_reader(sys.stdin.fileno())
            self._end.set()
        self._released.set()


def mark(folder: Path) -> Path:
    """What is there when all workers end."""
    return folder / "ending"


async def release(workers: Iterable[asyncio.subprocess.Process]) -> None:
    """The supervisor's part: wait until all have said that they are quiet, or have ended."""
    present = [each for each in workers if each.stdout is not None and each.stdin is not None]
    await asyncio.gather(*(each.stdout.readline() for each in present if each.stdout is not None))
    for each in present:
        with contextlib.suppress(OSError):
            assert each.stdin is not None
            each.stdin.write(GO)
