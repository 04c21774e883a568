"""Standard output that never blocks the program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from typing import TYPE_CHECKING

from hanzoai.pubsub.cli.output import json_line
from hanzoai.pubsub.cli.stdio import ESCAPE, OutputError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hanzoai.pubsub.cli.output import Json, Output


class Writer:
    """Standard output for a program that must keep running while its output is not read.

    A full pipe suspends only the caller: the connection stays open, and Ctrl-C works. The end of
    the reader is detected immediately, not at the next line.
    """

    _CHUNK = 4096
    """Bytes that a writable pipe accepts without blocking (POSIX PIPE_BUF on Linux)."""

    def __init__(self, output: Output) -> None:
        self._out = output.out
        self._fd: int | None = None
        try:
            fd = self._out.fileno()
            mode = os.fstat(fd).st_mode
        except (OSError, ValueError):
            return
        if sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            self._fd = fd

    async def record(self, value: Json) -> None:
        """Write one result as a line of JSON, and flush."""
        await self.write(json_line(self._out, value))

    async def write(self, text: str) -> None:
        """Write and flush.

        Raises:
            BrokenPipeError: The reader has ended.
            OutputError: Standard output cannot be written.
        """
        if self._fd is None:
            self._out.write(text)
            self._out.flush()
            return
        data = memoryview(text.encode("utf-8", ESCAPE))
        while data:
            await self._writable(self._fd)
            try:
                data = data[os.write(self._fd, data[: self._CHUNK]) :]
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputError(error) from error

    async def _writable(self, fd: int) -> None:
        import select  # Windows has no poll

        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        if poll.poll(0):
            return
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(fd, _finish, ready)
        try:
            await ready
        finally:
            loop.remove_writer(fd)

    async def until_reader_gone(self, work: Awaitable[object]) -> None:
        """Do the work, and cancel it when the reader of standard output ends.

        Raises:
            BrokenPipeError: The reader has ended.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._reader_gone())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                raise BrokenPipeError
            await working
        finally:
            for task in (working, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _reader_gone(self) -> None:
        """Wait until the reader of standard output ends; forever if this cannot be detected."""
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        if self._fd is None or not stat.S_ISFIFO(os.fstat(self._fd).st_mode):
            await gone
            return
        # The writing end of a pipe never becomes readable; poll reports it only when its reader has
        # ended.
        loop.add_reader(self._fd, _finish, gone)
        try:
            await gone
        finally:
            loop.remove_reader(self._fd)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
