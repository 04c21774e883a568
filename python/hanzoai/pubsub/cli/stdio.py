r"""The standard streams of the process, so that each failure to write has one defined effect.

- Output that is not a terminal is UTF-8 in every locale, as JSON requires (RFC 8259, section 8.1).
  A terminal gets `\uXXXX` for the characters that its encoding lacks.
- A failure to write standard output is an `OutputError`, also if it was closed before the start.
- A failure to write standard error has no effect: there is no other place for a message.
- A terminal or pipe that another program has made non-blocking is written completely.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer

ESCAPE: Final = "hanzo_pubsub_escape"
"""Name of the error handler that writes characters as JSON escapes them."""


class OutputError(Exception):
    """Standard output cannot be written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"Standard output cannot be written: {cause.strerror}.")


class _Descriptor(io.FileIO):
    """A descriptor whose `write` waits until all is written."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all bytes."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            written = super().write(left)
            # The typeshed does not know that a non-blocking descriptor returns None.
            if written is None:  # pyright: ignore[reportUnnecessaryComparison]
                _wait(self.fileno())
            else:
                left = left[written:]
        return size


class Results(_Descriptor):
    """Standard output."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all bytes.

        Raises:
            BrokenPipeError: The reader has ended.
            OutputError: They cannot be written.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error) from error


class Messages(_Descriptor):
    """Standard error."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all bytes, or none if that fails."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare(*, without_output: bool = False) -> None:
    """Replace `sys.stdout` and `sys.stderr`, and open what is closed.

    Args:
        without_output: Whether the program can also run if standard output is closed.
    """
    _reserve(os.O_WRONLY if without_output else os.O_RDONLY)
    sys.stdout = _opened(sys.stdout, 1, Results)
    sys.stderr = _opened(sys.stderr, 2, Messages)


def discard_output() -> None:
    """Keep the interpreter from flushing what cannot be written."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = io.StringIO()


def texts(arguments: Sequence[str]) -> list[str]:
    """Arguments of the process as UTF-8, which the locale may not be able to decode."""
    return [
        each.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        if any("\udc80" <= character <= "\udcff" for character in each)
        else each
        for each in arguments
    ]


def file_name(text: str) -> str:
    """The name of a file in the encoding of the file system, from an argument of `texts`."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return os.fsdecode(text.encode("utf-8", "surrogateescape"))
    return text


def _reserve(output_mode: int) -> None:
    """Open closed standard descriptors, so that no file or connection gets their number.

    Writing to one that is open for reading fails, as to a closed one.
    """
    for descriptor, mode in enumerate((os.O_RDONLY, output_mode, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)


def _opened(stream: TextIO | None, descriptor: int, kind: type[_Descriptor]) -> TextIO:
    terminal = stream is not None and stream.isatty()
    if terminal and sys.platform == "win32":
        # Its console has functions of its own, which know every character.
        assert stream is not None
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(kind(descriptor)),
        encoding=stream.encoding if terminal and stream is not None else "utf-8",
        errors=ESCAPE,
        line_buffering=terminal or descriptor == 2,
        write_through=isinstance(stream, io.TextIOWrapper) and stream.write_through,
    )


def _wait(descriptor: int) -> None:
    import select

    select.select([], [descriptor], [])


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error(ESCAPE, _escape)
