"""Answers of language models, streamed token by token over a topic.

A writer publishes an answer while it grows. Any number of readers follow it, join late, reconnect,
or cancel it, and all end with the same text::

    async with stream_writer(ps, "chat.session.abc", id=response_id) as w:
        async for chunk in llm:
            await w.write(chunk)

    async with stream_reader(ps, "chat.session.abc") as s:
        async for event in s:
            match event:
                case Delta(text=text): print(text, end="")
        final = await s.final()

docs/streams.md is the guide. Streams work with every server of HIP-56.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.streams.blocking import BlockingStreamReader, BlockingStreamWriter
from hanzoai.pubsub.streams.both_clients import for_both_clients
from hanzoai.pubsub.streams.events import (
    Aborted,
    Delta,
    Done,
    Final,
    Gap,
    Snapshot,
    Stalled,
    Started,
    StreamEvent,
)
from hanzoai.pubsub.streams.models import (
    ModelError,
    ModelSource,
    from_anthropic,
    from_langchain,
    from_openai,
)
from hanzoai.pubsub.streams.parts import (
    CitationPart,
    ImagePart,
    Part,
    Piece,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    partial_json,
    text_of,
)
from hanzoai.pubsub.streams.reader import StreamReader
from hanzoai.pubsub.streams.sse import sse
from hanzoai.pubsub.streams.writer import StreamCancelled, StreamWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.durations import Duration


@for_both_clients(BlockingStreamWriter)
def stream_writer(
    client: PubSubClient,
    topic: str,
    *,
    id: str | None = None,
    epoch: int = 0,
    take_over: bool = False,
    sender: str = "",
    meta: Mapping[str, Any] | None = None,
    window: Duration = 0.04,
    listen: bool = True,
    allow: Callable[[str], bool] | None = None,
    on_steer: Callable[[Any, str], Any] | None = None,
) -> StreamWriter:
    """Return a writer of a stream; use it with ``async with``.

    With the blocking client, use it with ``with``.

    Args:
        client: Publishes it: a ``PubSubClient`` or a ``PubSub``. Any number of streams may share
            one client and its rate.
        topic: A topic without wildcards.
        id: Id of the stream, for example that of the response: 1 to 100 characters, except
            ``latest`` and ``next``. Default: ``st_`` and a ULID.
        epoch: Number of the attempt: higher than that of any earlier writer of the stream;
            default 0.
        take_over: Continue where an earlier writer of ``id`` stopped: the writer reads the history,
            takes the next epoch, and begins with a snapshot. ``writer.text`` is the text so far.
        sender: Id of the sender whose frames ``take_over`` accepts; default: the sender of the
            first frame.
        meta: JSON that readers receive with the start, for example the name of the model.
        window: Seconds, or a timedelta, for which the writer collects text before it publishes it,
            after the first token; default 0.04.
        listen: Whether to subscribe to the topic, so that readers can cancel and steer; default
            True.
        allow: Called with the id of a sender who cancels or steers, empty if the server sends none;
            returns whether this is allowed. It is not a coroutine function. If it raises, this is
            not allowed. Default: every sender who may publish to the topic.
        on_steer: Called with the data of a reader's ``steer`` and the id of its sender; a function
            or a coroutine function, called one at a time, in order. With a ``PubSub``, a function
            runs in a thread, and may block and call the client.

    Returns:
        A ``StreamWriter``, or for a ``PubSub`` a ``BlockingStreamWriter``.

    Raises:
        InvalidTopic: The topic is not valid, or has a wildcard.
        UsageError: ``take_over`` without ``id``.
        InvalidOption: An option has a wrong type, or ``id`` is not valid.
    """
    return StreamWriter(
        client,
        topic,
        id=id,
        epoch=epoch,
        take_over=take_over,
        sender=sender,
        meta=meta,
        window=window,
        listen=listen,
        allow=allow,
        on_steer=on_steer,
    )


@for_both_clients(BlockingStreamReader)
def stream_reader(
    client: PubSubClient,
    topic: str,
    *,
    id: str = "latest",
    sender: str = "",
    on_cancel: Callable[[str, str], Any] | None = None,
) -> StreamReader:
    """Return a reader of a stream; iterate it, or wait for its ``final()``.

    Args:
        client: Subscribes; a ``PubSubClient`` or a ``PubSub``.
        topic: A topic without wildcards.
        id: Id of the stream; ``latest`` for the newest one, running or ended, ``next`` for the
            first one that begins after the reader has subscribed.
        sender: Id of the sender whose frames the reader accepts; default: the sender of the first
            frame.
        on_cancel: Called with the id of the stream and the reason instead of publishing
            ``stream.cancel``, for example to call a route of your backend; a function or a
            coroutine function.

    Returns:
        A ``StreamReader``, or for a ``PubSub`` a ``BlockingStreamReader``.

    Raises:
        InvalidTopic: The topic is not valid, or has a wildcard.
        InvalidOption: An option has a wrong type.
    """
    return StreamReader(client, topic, id=id, sender=sender, on_cancel=on_cancel)


__all__ = [
    "Aborted",
    "BlockingStreamReader",
    "BlockingStreamWriter",
    "CitationPart",
    "Delta",
    "Done",
    "Final",
    "Gap",
    "ImagePart",
    "ModelError",
    "ModelSource",
    "Part",
    "Piece",
    "ReasoningPart",
    "Snapshot",
    "Stalled",
    "Started",
    "StreamCancelled",
    "StreamEvent",
    "StreamReader",
    "StreamWriter",
    "TextPart",
    "ToolCallPart",
    "from_anthropic",
    "from_langchain",
    "from_openai",
    "partial_json",
    "sse",
    "stream_reader",
    "stream_writer",
    "text_of",
]
