"""Writers and readers of streams for programs without asyncio."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hanzoai.pubsub.blocking.parts import iterate
from hanzoai.pubsub.errors import ClosedError, UsageError
from hanzoai.pubsub.runtime.environment import ForkedError
from hanzoai.pubsub.streams.sources import check_source, close_source

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
    from types import TracebackType

    from hanzoai.pubsub.streams.events import Final, StreamEvent
    from hanzoai.pubsub.streams.parts import Part, Piece
    from hanzoai.pubsub.streams.reader import StreamReader
    from hanzoai.pubsub.streams.writer import StreamWriter

T = TypeVar("T")


class BlockingStreamWriter:
    """Publishes one answer token by token; see ``StreamWriter``."""

    def __init__(self, writer: StreamWriter, call: Callable[..., Any]) -> None:
        self._writer = writer
        self._call = call

    @property
    def id(self) -> str:
        """Id of the stream."""
        return self._writer.id

    @property
    def epoch(self) -> int:
        """Epoch of this writer."""
        return self._writer.epoch

    @property
    def text(self) -> str:
        """The text so far, with that of earlier writers."""
        return self._writer.text

    @property
    def parts(self) -> list[Part]:
        """The parts so far, with those of earlier writers."""
        return self._writer.parts

    @property
    def cancelled(self) -> bool:
        """Whether a reader has cancelled the stream."""
        return self._writer.cancelled

    @property
    def stats(self) -> Mapping[str, int]:
        """Counters of publishes; see ``StreamWriter.stats``."""
        return self._writer.stats

    def open(self) -> Self:
        """Publish the start of the stream. ``with`` does this."""
        self._call(self._writer.open)
        return self

    def write(self, piece: Piece) -> None:
        """Add text or a part; see ``StreamWriter.write``."""
        self._call(lambda: self._writer.write(piece))

    def pipe(self, source: Iterable[Piece], *, finish_reason: str = "stop") -> None:
        """Write everything that an iterator yields, and complete the stream.

        Raises:
            StreamCancelled: A reader has cancelled the stream.
            InvalidOption: ``source`` is not a plain iterator.
            Exception: What the iterator raises; the stream is aborted with the reason ``error``.
        """
        check_source("source", source, blocking=True)
        pieces = iter(source)
        try:
            for piece in pieces:
                self.write(piece)
        except Exception:
            self.abort("error")
            raise
        finally:
            close_source(pieces)
        stated = getattr(source, "finish_reason", None)
        self.complete(stated or finish_reason, usage=getattr(source, "usage", None))

    def complete(self, finish_reason: str = "stop", *, usage: object = None) -> None:
        """End the stream, and wait until the end is published; see ``StreamWriter.complete``."""
        self._call(lambda: self._writer.complete(finish_reason, usage=usage))

    def abort(self, reason: str = "error") -> None:
        """End the stream before the answer is complete."""
        self._call(lambda: self._writer.abort(reason))

    def cancel(self, reason: str = "cancelled", by: str = "") -> None:
        """End the stream as a reader's ``cancel`` does; another thread may call it."""
        self._call(lambda: self._writer.cancel(reason, by))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            ended: bool = self._call(lambda: self._writer.__aexit__(exc_type, exc, traceback))
        except ForkedError:
            if exc_type is None:
                raise
            return False
        return ended

    def __repr__(self) -> str:
        return repr(self._writer).replace("<Stream", "<BlockingStream")


class BlockingStreamReader:
    """Reads one answer while it grows: an iterator and a context manager; see ``StreamReader``."""

    def __init__(self, reader: StreamReader, call: Callable[..., Any]) -> None:
        self._reader = reader
        self._call = call

    @property
    def id(self) -> str | None:
        """Id of the stream that the reader follows; None before there is one."""
        return self._reader.id

    @property
    def text(self) -> str:
        """The text so far: a prefix of the answer, unless ``stale``."""
        return self._reader.text

    @property
    def parts(self) -> list[Part]:
        """All parts so far, including the text."""
        return self._reader.parts

    @property
    def stale(self) -> bool:
        """Whether tokens are missing, until the next snapshot."""
        return self._reader.stale

    @property
    def meta(self) -> Any:
        """The ``meta`` of the writer."""
        return self._reader.meta

    @property
    def ignored(self) -> int:
        """Number of ignored frames: not valid, or from another writer."""
        return self._reader.ignored

    def open(self) -> Self:
        """Start to follow the stream. ``with`` and the first iteration do this."""

        async def begin() -> None:
            self._reader.open()

        self._call(begin)
        return self

    def final(self) -> Final:
        """Wait for the end of the stream; see ``StreamReader.final``."""
        end: Final = self._call(self._reader.final)
        return end

    def cancel(self, reason: str = "user") -> None:
        """Ask the writer to end the stream; see ``StreamReader.cancel``."""
        self._call(lambda: self._reader.cancel(reason))

    def steer(self, data: object) -> None:
        """Send data to the writer; see ``StreamReader.steer``."""
        self._call(lambda: self._reader.steer(data))

    def close(self) -> None:
        """Stop reading. The stream continues without this reader. You can call it several times."""
        # The end of the client has closed the reader.
        with contextlib.suppress(ClosedError):
            self._call(self._reader.close)

    def __iter__(self) -> Iterator[StreamEvent]:
        self.open()
        return iterate(self._reader, self._call)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ForkedError):
            self.close()

    def __repr__(self) -> str:
        return repr(self._reader).replace("<Stream", "<BlockingStream")


def driven(
    reader: BlockingStreamReader, make: Callable[[StreamReader], AsyncGenerator[T]]
) -> Generator[T]:
    """Iterate over what an asynchronous generator makes of a reader, until the client is closed.

    Args:
        reader: The blocking reader.
        make: Called with the reader behind it.
    """
    call = reader._call  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    source = make(reader._reader)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    with contextlib.suppress(ClosedError):
        try:
            yield from iterate(source, call)
        except GeneratorExit:
            # After any other exception, the source has ended. A call is not possible in the thread
            # of the loop, where the garbage collector may run; the loop then ends the source. In a
            # forked process, there is nothing to end.
            with contextlib.suppress(UsageError):
                call(source.aclose)
            raise


__all__ = ["BlockingStreamReader", "BlockingStreamWriter", "driven"]
