"""Callbacks for LangChain: a chain, an agent or a graph writes its answer into a stream.

For programs that call ``ainvoke`` or ``invoke`` and do not receive tokens. If yours reads
``astream`` itself, ``from_langchain`` is enough. Needs the package ``langchain-core``::

    async with stream_writer(ps, topic, id=response_id) as w:
        callback = StreamCallback(w)
        await agent.ainvoke(question, config={"callbacks": [callback]})
        await w.complete(callback.finish_reason, usage=callback.usage)

All models of the run write into the same answer, with the results of tools in between. Models with
the tag ``nostream`` write nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.errors import MissingPackage, UsageError
from hanzoai.pubsub.streams.models import LangChainEvents

try:
    from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
except ImportError as missing:
    raise MissingPackage(
        "The callbacks for LangChain need the package langchain-core.",
        remedy="Install it: pip install langchain-core.",
    ) from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from uuid import UUID

    from hanzoai.pubsub.streams.blocking import BlockingStreamWriter
    from hanzoai.pubsub.streams.parts import Piece
    from hanzoai.pubsub.streams.writer import StreamWriter


class _Answer:
    """Converts the events of one run to pieces; pure."""

    def __init__(self) -> None:
        self.events = LangChainEvents()
        self._streamed: set[UUID] = set()
        self._silent: set[UUID] = set()

    def begin(self, run: UUID, tags: Sequence[str] | None) -> None:
        """A model starts."""
        if "nostream" in (tags or ()):
            self._silent.add(run)

    def token(self, run: UUID, token: Any, chunk: Any) -> Sequence[Piece]:
        """A model produced a token."""
        if run in self._silent:
            return ()
        self._streamed.add(run)
        message = getattr(chunk, "message", None)
        return self.events.pieces({"content": token} if message is None else message)

    def end(self, run: UUID, response: Any) -> Sequence[Piece]:
        """A model has ended; without streaming, this is its only event."""
        if run in self._silent:
            self._silent.discard(run)
            return ()
        first = response.generations[0][0]
        message = getattr(first, "message", None)
        self.events.note(message)
        if run in self._streamed:
            self._streamed.discard(run)
            return ()
        return self.events.pieces({"content": first.text} if message is None else message)

    def failed(self, run: UUID) -> None:
        """A model has failed; a chain may call another one."""
        self._streamed.discard(run)
        self._silent.discard(run)

    def tool(self, output: Any) -> Sequence[Piece]:
        """A tool has answered; ignored if no model called it."""
        return self.events.pieces(output) if getattr(output, "type", None) == "tool" else ()


class _Streaming:
    """Base of both callbacks; its taps make models stream."""

    raise_error = True
    """A cancelled stream ends the run."""

    def __init__(self) -> None:
        self._answer = _Answer()

    @property
    def finish_reason(self) -> str:
        """Finish reason of the last model; ``unknown`` if it gave none."""
        return self._answer.events.finish_reason

    @property
    def usage(self) -> Any:
        """The sum of the usage of all models of the run; None if no model reported any."""
        return self._answer.events.usage

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return the output unchanged."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """Return the output unchanged."""
        return output


class StreamCallback(_Streaming, AsyncCallbackHandler):
    """Writes the output of models into a stream; for ``ainvoke`` and similar calls.

    When a reader cancels the stream, the run ends with ``StreamCancelled``, which the block of the
    writer takes. Leaving the block completes the stream; call ``complete`` to pass on the finish
    reason and the usage.

    Args:
        writer: An open writer.

    Raises:
        UsageError: No event loop is running. LangChain only logs it if ``invoke`` or another event
            loop calls the model.
    """

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__()
        self._writer = writer
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "No event loop is running.", remedy="Make the callback inside `async with`."
            ) from None

    async def on_llm_start(self, *_: Any, run_id: UUID, tags: Any = None, **__: Any) -> None:
        """Read the tags of a model."""
        self._answer.begin(run_id, tags)

    async def on_chat_model_start(self, *_: Any, run_id: UUID, tags: Any = None, **__: Any) -> None:
        """Read the tags of a chat model."""
        self._answer.begin(run_id, tags)

    async def on_llm_new_token(
        self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any
    ) -> None:
        """Write the pieces of a chunk."""
        await self._write(self._answer.token(run_id, token, chunk))

    async def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """Write the answer of a model that does not stream."""
        await self._write(self._answer.end(run_id, response))

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Remove the model. The caller receives its error."""
        self._answer.failed(run_id)

    async def on_tool_end(self, output: Any, **_: Any) -> None:
        """Write the result of a tool."""
        await self._write(self._answer.tool(output))

    async def _write(self, pieces: Sequence[Piece]) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "`invoke` needs `BlockingStreamCallback` and a writer of `PubSub`; "
                "`StreamCallback` is for `ainvoke` in the event loop of its writer.",
            )
        for piece in pieces:
            await self._writer.write(piece)


class BlockingStreamCallback(_Streaming, BaseCallbackHandler):
    """``StreamCallback`` for ``invoke`` and a writer of ``PubSub``, the blocking client.

    Args:
        writer: An open writer.
    """

    def __init__(self, writer: BlockingStreamWriter) -> None:
        super().__init__()
        self._writer = writer

    def on_llm_start(self, *_: Any, run_id: UUID, tags: Any = None, **__: Any) -> None:
        """Read the tags of a model."""
        self._answer.begin(run_id, tags)

    def on_chat_model_start(self, *_: Any, run_id: UUID, tags: Any = None, **__: Any) -> None:
        """Read the tags of a chat model."""
        self._answer.begin(run_id, tags)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """Write the pieces of a chunk."""
        self._write(self._answer.token(run_id, token, chunk))

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """Write the answer of a model that does not stream."""
        self._write(self._answer.end(run_id, response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Remove the model. The caller receives its error."""
        self._answer.failed(run_id)

    def on_tool_end(self, output: Any, **_: Any) -> None:
        """Write the result of a tool."""
        self._write(self._answer.tool(output))

    def _write(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._writer.write(piece)


__all__ = ["BlockingStreamCallback", "StreamCallback"]
