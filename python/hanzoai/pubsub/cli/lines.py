"""Reads standard input in the event loop of a command.

Without a thread where that is possible: a thread that waits for input would survive an interrupt.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast

from hanzoai.pubsub.cli.arguments import parse_json
from hanzoai.pubsub.errors import InvalidPayload

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

LINE_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of one line."""
_CHUNK: Final = 65_536


def is_terminal(stdin: TextIO | None) -> bool:
    """Whether standard input is open and a terminal."""
    return stdin is not None and stdin.isatty()


def binary_input(stdin: TextIO | None) -> BinaryIO:
    """Standard input; None if it is closed."""
    return io.BytesIO() if stdin is None else stdin.buffer


def _can_be_waited_for(stream: BinaryIO) -> bool:
    """Whether an event loop can wait for input.

    Files and devices such as /dev/null are always ready, and event loops do not accept them.
    """
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and stream.isatty())


async def read_lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Lines as they arrive.

    A line that is too long is truncated, so that it is not valid JSON.
    """
    async with _arriving(stream, LINE_MAX) as reader:
        if reader is None:
            while line := stream.readline(LINE_MAX):
                yield line
                await asyncio.sleep(0)
            return
        while line := await _next_line(reader):
            yield line


async def read_chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Bytes as they arrive."""
    async with _arriving(stream, _CHUNK) as reader:
        if reader is None:
            source = cast("io.BufferedReader", stream)
            while chunk := await asyncio.to_thread(source.read1, _CHUNK):
                yield chunk
            return
        while chunk := await reader.read(_CHUNK):
            yield chunk


def line_value(line: bytes) -> Any:
    """The JSON value in a line.

    Raises:
        InvalidPayload: Describes the problem without the line itself.
    """
    try:
        return parse_json(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidPayload("The line is not UTF-8 text.") from None
    except ValueError as error:
        raise InvalidPayload(
            f"The line is {error}.", remedy="Write one JSON value per line."
        ) from None


@contextlib.asynccontextmanager
async def _arriving(stream: BinaryIO, most: int) -> AsyncGenerator[asyncio.StreamReader | None]:
    """A reader in the event loop; None if that cannot wait for this stream.

    Args:
        stream: Standard input.
        most: It stops reading ahead above twice these bytes.
    """
    reader = asyncio.StreamReader(limit=most)
    transport = await _connect(stream, reader) if _can_be_waited_for(stream) else None
    if transport is None:
        yield None
        return
    try:
        yield reader
    finally:
        # Restore the setting: it belongs to the terminal or pipe, which other programs also use.
        os.set_blocking(stream.fileno(), True)
        transport.close()


async def _connect(stream: BinaryIO, reader: asyncio.StreamReader) -> asyncio.ReadTransport | None:
    """Connect a stream to the event loop; None if that is not possible."""
    loop = asyncio.get_running_loop()
    try:
        pipe = os.fdopen(os.dup(stream.fileno()), "rb")
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
    except (OSError, ValueError, NotImplementedError):
        return None
    return transport


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as overrun:
        return await reader.readexactly(overrun.consumed)
