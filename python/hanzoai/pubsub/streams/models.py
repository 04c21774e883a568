"""Converts streams of model clients to pieces: `openai`, `anthropic` and LangChain.

Imports none of these packages: reads the documented fields of events, as objects or as dicts. Each
function takes the result of a streaming request, asynchronous or not, and returns a source for
``StreamWriter.pipe``::

    stream = await openai.responses.create(model=..., input=..., stream=True)
    async with stream_writer(ps, topic) as w:
        await w.pipe(from_openai(stream))

Text, reasoning, citations and tool calls become parts. The end of the stream contains the finish
reason and the usage. If a client interleaves pieces of several tool calls, each turn is a separate
part with the `id` of its call.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, overload

from hanzoai.pubsub.streams.sources import check_source

if TYPE_CHECKING:
    from hanzoai.pubsub.streams.parts import Piece

_OPENAI_CALLS: Final = {
    "function_call": "arguments",
    "mcp_call": "arguments",
    "custom_tool_call": "input",
}
"""Items of an answer that call a tool, with the field of their arguments."""

_ANTHROPIC_CALLS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Content blocks that call a tool."""


class ModelError(RuntimeError):
    """The model reported an error in the middle of its answer, or its stream was cut."""


class ModelEvents(Protocol):
    """Converts the events of one answer to pieces; pure.

    Attributes:
        finish_reason: Finish reason of the model; None if unknown.
        usage: Token counts of the model, as JSON; None if unknown.
    """

    @property
    def finish_reason(self) -> str | None: ...

    usage: Any

    def read(self, event: Any) -> list[Piece]:
        """Return the pieces of an event.

        Raises:
            ModelError: The event is an error.
        """
        ...


class _Growth:
    """The growing part of an answer: decides whether a piece begins a part or continues it."""

    def __init__(self) -> None:
        self._open: object = None
        self._calls: dict[object, dict[str, Any]] = {}

    def text(self, text: Any) -> list[Piece]:
        if not text:
            return []
        self._open = "text"
        return [str(text)]

    def reasoning(self, text: Any, key: object = None) -> list[Piece]:
        return self._grow(("reasoning", key), {"type": "reasoning"}, text) if text else []

    def call(self, key: object, id: Any, name: Any, arguments: Any) -> list[Piece]:
        known = self._calls.get(key)
        # Gemini gives all calls the same index, each with its own id and name. vLLM gives each
        # fragment of one call another id, without the name.
        if known is None or (name and id and id != known["id"]):
            self._calls[key] = {"type": "tool-call", "id": id or str(key), "name": name or ""}
            self._open = None
        elif not arguments:
            return []
        return self._grow(("call", key), self._calls[key], arguments or "")

    def citation(self, citation: Any) -> list[Piece]:
        url, title = _get(citation, "url"), _get(citation, "title")
        if not url:
            return []
        return self.whole({"type": "citation", "url": url, **({"title": title} if title else {})})

    def whole(self, part: dict[str, Any]) -> list[Piece]:
        self._open = None
        return [part]

    def _grow(self, key: object, part: dict[str, Any], text: str) -> list[Piece]:
        continues, self._open = self._open == key, key
        return [{"text": text} if continues else {**part, "text": text}]


class OpenAIEvents:
    """Events of the Responses API, and chunks of Chat Completions."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Any = None
        self._parts = _Growth()

    def read(self, event: Any) -> list[Piece]:
        """Return the pieces of an event."""
        kind = _get(event, "type")
        if not isinstance(kind, str):
            return self._chunk(event)
        if kind == "chunk":
            # Of `chat.completions.stream`, whose other events repeat what the chunks contain.
            return self._chunk(_get(event, "chunk"))
        is_response = kind == "error" or kind.startswith("response.")
        return self._response(kind, event) if is_response else []

    def _chunk(self, chunk: Any) -> list[Piece]:
        self.usage = _json(_get(chunk, "usage")) or self.usage
        pieces: list[Piece] = []
        for choice in (_get(chunk, "choices") or ())[:1]:
            delta = _get(choice, "delta")
            # Fields of DeepSeek, vLLM and OpenRouter, not of OpenAI.
            thought = _get(delta, "reasoning_content") or _get(delta, "reasoning")
            pieces += self._parts.reasoning(thought)
            for field in ("content", "refusal"):
                pieces += self._parts.text(_get(delta, field))
            for call in _get(delta, "tool_calls") or ():
                asked = _get(call, "function")
                name, arguments = _get(asked, "name"), _get(asked, "arguments")
                pieces += self._parts.call(_get(call, "index"), _get(call, "id"), name, arguments)
            self.finish_reason = _get(choice, "finish_reason") or self.finish_reason
        return pieces

    def _response(self, kind: str, event: Any) -> list[Piece]:
        delta = _get(event, "delta")
        match kind.removeprefix("response."):
            case "output_text.delta" | "refusal.delta":
                return self._parts.text(delta)
            case "reasoning_text.delta" | "reasoning_summary_text.delta":
                # A summary has several sections, each with its own title.
                at = [_get(event, name) for name in ("output_index", "summary_index")]
                return self._parts.reasoning(delta, tuple(at))
            case "output_text.annotation.added":
                return self._parts.citation(_get(event, "annotation"))
            case "output_item.added":
                item = _get(event, "item")
                field = _OPENAI_CALLS.get(_get(item, "type"))
                if field is not None:
                    at, id = _get(event, "output_index"), _get(item, "call_id") or _get(item, "id")
                    return self._parts.call(at, id, _get(item, "name"), _get(item, field))
            case (
                "function_call_arguments.delta"
                | "mcp_call_arguments.delta"
                | "custom_tool_call_input.delta"
            ):
                return self._parts.call(_get(event, "output_index"), None, None, delta)
            case "completed" | "incomplete":
                response = _get(event, "response")
                self.usage = _json(_get(response, "usage"))
                self.finish_reason = _get(_get(response, "incomplete_details"), "reason") or "stop"
            case "failed" | "error":
                problem = _get(_get(event, "response"), "error") or event
                raise ModelError(_get(problem, "message") or "The model failed.")
            case _:
                pass
        return []


class AnthropicEvents:
    """Events of the Messages API, with or without those of its helpers."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Any = None
        self._parts = _Growth()

    def read(self, event: Any) -> list[Piece]:
        """Return the pieces of an event."""
        at, delta = _get(event, "index"), _get(event, "delta")
        match _get(event, "type"):
            case "message_start":
                self.usage = _json(_get(_get(event, "message"), "usage"))
            case "content_block_start":
                block = _get(event, "content_block")
                if _get(block, "type") in _ANTHROPIC_CALLS:
                    return self._parts.call(at, _get(block, "id"), _get(block, "name"), "")
            case "content_block_delta":
                match _get(delta, "type"):
                    case "text_delta":
                        return self._parts.text(_get(delta, "text"))
                    case "thinking_delta":
                        return self._parts.reasoning(_get(delta, "thinking"), at)
                    case "input_json_delta":
                        return self._parts.call(at, None, None, _get(delta, "partial_json"))
                    case "citations_delta":
                        return self._parts.citation(_get(delta, "citation"))
                    case _:
                        pass
            case "message_delta":
                self.finish_reason = _get(delta, "stop_reason") or self.finish_reason
                self.usage = {**(self.usage or {}), **(_json(_get(event, "usage")) or {})}
            case "error":
                problem = _get(event, "error")
                raise ModelError(_get(problem, "message") or "The model failed.")
            case _:
                pass
        return []


class LangChainEvents:
    """Messages and chunks that ``stream`` and ``astream`` of a model or a graph yield."""

    def __init__(self) -> None:
        # Not every model gives a reason.
        self.finish_reason: str = "unknown"
        self.usage: Any = None
        self._parts = _Growth()

    def read(self, event: Any) -> list[Piece]:
        """Return the pieces of an event: a message or a chunk."""
        if isinstance(event, tuple):  # of a graph: the chunk, and its origin
            event = cast("Any", event)[0]
        self.note(event)
        return self.pieces(event)

    def note(self, message: Any) -> None:
        """Take the finish reason of a message, and add its usage to that of earlier ones."""
        metadata = _get(message, "response_metadata")
        reason = _get(metadata, "finish_reason") or _get(metadata, "stop_reason")
        self.finish_reason = reason or self.finish_reason
        self.usage = _sum(self.usage, _get(message, "usage_metadata"))

    def pieces(self, message: Any) -> list[Piece]:
        """Return the pieces of a message or a chunk; none for input of the model."""
        content = _get(message, "content")
        match _get(message, "type"):
            case "human" | "system":
                return []
            case "tool":
                return self.result(_get(message, "tool_call_id"), content)
            case _:
                pass
        blocks = cast("Any", content) if isinstance(content, list) else [content]
        pieces: list[Piece] = [piece for block in blocks for piece in self._block(block)]
        grown = _get(message, "tool_call_chunks")
        for call in grown or ():
            index, id = _get(call, "index"), _get(call, "id")
            key = (_get(message, "id"), id if index is None else index)
            pieces += self._parts.call(key, id, _get(call, "name"), _get(call, "args"))
        for call in _get(message, "tool_calls") or () if grown is None else ():
            id, arguments = _get(call, "id"), json.dumps(_get(call, "args"), ensure_ascii=False)
            pieces += self._parts.call((_get(message, "id"), id), id, _get(call, "name"), arguments)
        return pieces

    def result(self, id: Any, output: Any) -> list[Piece]:
        """Return the piece of a tool's result."""
        return self._parts.whole({"type": "tool-result", "id": id, "output": output})

    def _block(self, block: Any) -> list[Piece]:
        if isinstance(block, str):
            return self._parts.text(block)
        match _get(block, "type"):
            case "text":
                cited = _get(block, "annotations") or _get(block, "citations") or ()
                sources = [piece for one in cited for piece in self._parts.citation(one)]
                return self._parts.text(_get(block, "text")) + sources
            case "reasoning" | "thinking":
                return self._parts.reasoning(_get(block, "reasoning") or _get(block, "thinking"))
            case _:
                return []


class ModelSource:
    """Pieces of one answer for ``StreamWriter.pipe``, with the finish reason of the model."""

    def __init__(self, source: Any, events: ModelEvents) -> None:
        self._source = source
        self._events = events

    @property
    def finish_reason(self) -> str | None:
        """Finish reason of the model; None before the end, ``unknown`` without one in LangChain."""
        return self._events.finish_reason

    @property
    def usage(self) -> Any:
        """Token counts of the model; None if unknown."""
        return self._events.usage

    def close(self) -> None:
        """Close the source, so that the model stops."""
        close = getattr(self._source, "close", None)
        if close is not None:
            close()

    def _check_end(self) -> None:
        if self.finish_reason is None:
            raise ModelError("The stream of the model ended without a finish reason: it was cut.")

    def __iter__(self) -> Iterator[Piece]:
        try:
            for event in self._source:
                yield from self._events.read(event)
            self._check_end()
        finally:
            self.close()


class AsyncModelSource(ModelSource):
    """`ModelSource` of an asynchronous source."""

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[Piece]:
        try:
            async for event in self._source:
                for piece in self._events.read(event):
                    yield piece
            self._check_end()
        finally:
            for name in ("aclose", "close"):
                close = getattr(self._source, name, None)
                if close is not None:
                    closing = close()
                    if inspect.isawaitable(closing):
                        await closing
                    break


@overload
def from_openai(stream: AsyncIterable[Any]) -> AsyncModelSource: ...
@overload
def from_openai(stream: Iterable[Any]) -> ModelSource: ...
def from_openai(stream: AsyncIterable[Any] | Iterable[Any]) -> ModelSource:
    """Convert a stream of ``openai`` (Responses API or Chat Completions) to pieces.

    Raises:
        ModelError: While it is read: the model reported an error, or the stream ended without a
            finish reason.
    """
    return _source(stream, OpenAIEvents)


@overload
def from_anthropic(stream: AsyncIterable[Any]) -> AsyncModelSource: ...
@overload
def from_anthropic(stream: Iterable[Any]) -> ModelSource: ...
def from_anthropic(stream: AsyncIterable[Any] | Iterable[Any]) -> ModelSource:
    """Convert a stream of ``anthropic`` (``messages.create`` or ``messages.stream``) to pieces.

    Raises:
        ModelError: While it is read: the model reported an error, or the stream ended without a
            stop reason.
    """
    return _source(stream, AnthropicEvents)


@overload
def from_langchain(stream: AsyncIterable[Any]) -> AsyncModelSource: ...
@overload
def from_langchain(stream: Iterable[Any]) -> ModelSource: ...
def from_langchain(stream: AsyncIterable[Any] | Iterable[Any]) -> ModelSource:
    """Convert ``stream`` or ``astream`` of a LangChain chat model or graph to pieces."""
    return _source(stream, LangChainEvents)


def _source(stream: Any, events: Callable[[], ModelEvents]) -> ModelSource:
    check_source("stream", stream, events=True)
    if isinstance(stream, AsyncIterable):
        return AsyncModelSource(stream, events())
    return ModelSource(stream, events())


def _get(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)


def _json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", exclude_none=True)


def _sum(left: Any, right: Any) -> Any:
    """Add two counts of usage, field by field."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        one, other = cast("Mapping[str, Any]", left), cast("Mapping[str, Any]", right)
        return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return cast("Any", left if right is None else right)


__all__ = [
    "AsyncModelSource",
    "ModelError",
    "ModelSource",
    "from_anthropic",
    "from_langchain",
    "from_openai",
]
