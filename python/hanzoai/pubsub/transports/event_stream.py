"""One event stream: a request, and the frames of its answer (HIP-56 SSE; WHATWG HTML, 9.2)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ProtocolError
from hanzoai.pubsub.http.connection import LOST, authorization, body_of
from hanzoai.pubsub.http.inflate import inflated
from hanzoai.pubsub.http.library import EventSource, httpx
from hanzoai.pubsub.http.problems import body_without_token
from hanzoai.pubsub.http.status import wait_of
from hanzoai.pubsub.wire.codec import decode_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from hanzoai.pubsub.wire.codec import Decoded

logger = logging.getLogger("hanzoai.pubsub")

_BOM: Final = b"\xef\xbb\xbf"
_ERROR_MAX: Final = 1 << 16


class StreamRefused(Exception):
    """The server's answer is not a stream.

    Attributes:
        status: HTTP status; 200 if only the content type was wrong.
        headers: Headers of the answer.
        body: First 64 KiB of the answer.
    """

    def __init__(self, status: int, headers: httpx.Headers, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class EventTooLarge(Exception):
    """An event is larger than the limit."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The request that opens a stream.

    Attributes:
        method: `GET`, or `POST` with a body.
        params: Query parameters.
        body: JSON of a `SubscribeRequest`, or None.
    """

    method: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class EventStream:
    """An open stream.

    Attributes:
        retry: Seconds to wait before the next stream, from the server's `retry:`.
        client_id: Presence id of this stream, if the server sends it.
    """

    def __init__(self, response: httpx.Response) -> None:
        self._source = EventSource(response)
        self.retry: float | None = None
        self.client_id: str | None = response.headers.get("Client-Id")

    async def frames(self) -> AsyncGenerator[Decoded]:
        """Yield frames until the server ends the stream.

        Raises:
            EventTooLarge: An event is over the limit.
            httpx.HTTPError: The connection was lost.
        """
        async for event in self._source.aiter_sse():
            if event.retry is not None and event.retry >= 0:
                self.retry = wait_of(event.retry)
            if not event.data:  # the library yields these; WHATWG ignores them
                continue
            yield decode_event(event.event or "message", event.data)


@asynccontextmanager
async def open_stream(
    client: httpx.AsyncClient,
    request: StreamRequest,
    token: str,
    *,
    received: Callable[[], None],
    connect_timeout: float,
    limit: int,
) -> AsyncGenerator[EventStream]:
    """Open a stream; leaving the context closes it.

    Args:
        client: A client of `http_client`.
        request: The request to send.
        token: With or without `Bearer `.
        received: Called for every chunk of bytes, comments included.
        connect_timeout: Seconds to connect and to receive the head of the answer.
        limit: Maximum bytes of an event.

    Raises:
        StreamRefused: The server's answer is not 200 with a stream.
        httpx.HTTPError: The server cannot be reached.
    """
    headers = {
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Cache-Control": "no-store",
        **authorization(token),
    }
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    built = client.build_request(
        request.method,
        "/v1/subscribe",
        params=request.params or None,
        content=request.body,
        headers=headers,
        timeout=httpx.Timeout(connect_timeout, read=None),
    )
    response: httpx.Response | None = None
    try:
        try:
            # A server may send the head byte by byte, without an end.
            async with asyncio.timeout(connect_timeout):
                response = await client.send(built, stream=True)
                kind = response.headers.get("Content-Type", "")
                if response.status_code != 200 or not kind.startswith("text/event-stream"):
                    body = body_without_token(await _refusal(response), token)
                    raise StreamRefused(response.status_code, response.headers, body)
        except TimeoutError:
            raise httpx.ReadTimeout("no response headers in time", request=built) from None
        received()
        encoding = response.headers.pop("Content-Encoding", None)
        response.stream = _Watched(response.stream, encoding, received, limit)
        response.encoding = "utf-8"
        yield EventStream(response)
    finally:
        if response is not None:
            await response.aclose()


async def _refusal(response: httpx.Response) -> bytes:
    """Return the first 64 KiB of an answer that is not a stream."""
    body = b""
    try:
        async with aclosing(body_of(response)) as portions:
            async for portion in portions:
                body += portion
                if len(body) > _ERROR_MAX:
                    break
    except (ProtocolError, *LOST):
        logger.debug("cannot read an error answer")
    return body[:_ERROR_MAX]


class _Watched(httpx.AsyncByteStream):
    """Yield the bytes of a stream for the parser, decompressed if necessary.

    Every chunk counts as received, including comments. Removes a BOM. Converts line ends to LF,
    because the parser holds back a CR at the end of a chunk until the next chunk arrives.
    """

    def __init__(
        self,
        inner: httpx.AsyncByteStream | httpx.SyncByteStream,
        encoding: str | None,
        received: Callable[[], None],
        limit: int,
    ) -> None:
        assert isinstance(inner, httpx.AsyncByteStream)
        self._inner = inner
        self._encoding = encoding
        self._received = received
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        start: bytes | None = b""
        after_cr = False
        held = 0
        newline = b""
        async for given in inflated(self._arriving(), self._encoding):
            chunk = given
            if start is not None:
                start += chunk
                if len(start) < len(_BOM) and _BOM.startswith(start):
                    continue
                chunk, start = start.removeprefix(_BOM), None
            if after_cr and chunk:
                chunk, after_cr = chunk.removeprefix(b"\n"), False
            if b"\r" in chunk:
                after_cr = chunk.endswith(b"\r")
                chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if not chunk:
                continue
            # An empty line ends an event; its newlines may be in two chunks.
            sizes = [*map(len, (newline + chunk).split(b"\n\n"))]
            sizes[0] += held
            if max(sizes) > self._limit:
                raise EventTooLarge
            newline = b"\n" if chunk.endswith(b"\n") else b""
            held = sizes[-1] - len(newline)
            yield chunk

    async def _arriving(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._received()
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
