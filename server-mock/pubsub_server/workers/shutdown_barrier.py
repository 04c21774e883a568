"""Coordinates the shutdown of workers on a private bus: first publishing ends, then delivery.

The supervisor creates a mark in their folder before it stops any of them. Each worker then reports
on its standard output that it accepts no more publishes; when all have, the supervisor notifies
each on its standard input. Without this, a worker could acknowledge a message that is lost with the
bus.
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
        folder: The shared folder of the supervisor.
        end: Set when the supervisor has ended.
    """

    def __init__(self, folder: Path, end: asyncio.Event) -> None:
        self._mark = mark(folder)
        self._end = end
        self._released = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sys.stdin.fileno(), self._read)

    @property
    def wanted(self) -> bool:
        """Whether all workers stop, so that their logs are lost."""
        return self._mark.exists()

    async def wait(self) -> None:
        """Report that this worker accepts no more publishes, and wait until no worker does."""
        sys.stdout.buffer.write(QUIET)
        sys.stdout.buffer.flush()
        await self._released.wait()

    def _read(self) -> None:
        if not os.read(sys.stdin.fileno(), len(GO)):
            # The supervisor has ended.
            self._loop.remove_reader(sys.stdin.fileno())
            self._end.set()
        self._released.set()


def mark(folder: Path) -> Path:
    """The file that marks a shutdown of all workers."""
    return folder / "ending"


async def release(workers: Iterable[asyncio.subprocess.Process]) -> None:
    """The supervisor's part: wait until all workers are quiet or have ended."""
    present = [each for each in workers if each.stdout is not None and each.stdin is not None]
    await asyncio.gather(*(each.stdout.readline() for each in present if each.stdout is not None))
    for each in present:
        with contextlib.suppress(OSError):
            assert each.stdin is not None
            each.stdin.write(GO)
