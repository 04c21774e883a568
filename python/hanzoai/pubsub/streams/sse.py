"""Converts a stream to server-sent events, for programs that serve HTTP themselves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, overload

from hanzoai.pubsub.settings.checks import check_seconds
from hanzoai.pubsub.streams.blocking import BlockingStreamReader, driven

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from hanzoai.pubsub.streams.reader import StreamReader
    from hanzoai.pubsub.values import Duration

KEEPALIVE: Final = 15.0


@overload
def sse(reader: StreamReader, *, keepalive: Duration = KEEPALIVE) -> AsyncIterator[str]: ...
@overload
def sse(reader: BlockingStreamReader, *, keepalive: Duration = KEEPALIVE) -> Iterator[str]: ...
def sse(
    reader: StreamReader | BlockingStreamReader, *, keepalive: Duration = KEEPALIVE
) -> AsyncIterator[str] | Iterator[str]:
    """Return the events of a stream as the body of a ``text/event-stream`` response.

    With FastAPI or Starlette: ``StreamingResponse(sse(stream_reader(ps, topic)),
    media_type="text/event-stream")``. The names of the events are ``started``, ``delta``,
    ``snapshot``, ``gap``, ``stalled``, ``done`` and ``aborted``; their data is the attributes as
    JSON. The end of the response closes the reader. The stream continues.

    Args:
        reader: A reader from ``stream_reader`` that nothing else reads.
        keepalive: Seconds or a timedelta without an event after which a comment is sent, from 0.001
            to 86,400 s; default 15.

    Returns:
        An asynchronous generator, or for a reader of a ``PubSub`` a generator.

    Raises:
        InvalidOption: ``keepalive`` is not such a time.
    """
    seconds = check_seconds("keepalive", keepalive)
    if isinstance(reader, BlockingStreamReader):
        return driven(reader, lambda inner: _body(inner, seconds))
    return _body(reader, seconds)


async def _body(reader: StreamReader, keepalive: float) -> AsyncGenerator[str]:
    async with reader:
        source = aiter(reader)
        following = asyncio.ensure_future(anext(source))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=keepalive)
                if not done:
                    yield ": keepalive\n\n"
                    continue
                try:
                    event = following.result()
                except StopAsyncIteration:
                    return
                name = type(event).__name__.lower()
                data = json.dumps(asdict(event), ensure_ascii=False, separators=(",", ":"))
                yield f"event: {name}\ndata: {data}\n\n"
                following = asyncio.ensure_future(anext(source))
        finally:
            following.cancel()


__all__ = ["sse"]
