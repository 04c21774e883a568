"""Frames over a WebSocket (HIP-56 WebSocket; RFC 6455).

Two libraries can carry it: `websockets`, and `picows` of the extra `speed`. Two can read JSON:
pydantic, and msgspec of the extra. `settings.speed` chooses; all else is the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.wire import MessageFrame, PublishedFrame
from hanzoai.pubsub.transports import TransportClosed, ignore
from hanzoai.pubsub.transports.connection import CLOSE_TIMEOUT
from hanzoai.pubsub.transports.speed import choose_codec, choose_dialer
from hanzoai.pubsub.wire.codec import MESSAGE, Malformed, Unknown, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import ClientFrame, Message
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports import Incoming
    from hanzoai.pubsub.transports.connection import Connection

logger = logging.getLogger("hanzoai.pubsub")

EARLY: Final = 16
"""Frames of one loop turn that are written before it ends.

The server then answers them while the program sends more. With 32 publishes in flight, this raises
throughput by half. With fewer frames per write, a server on Redis makes more calls of it.
"""


class WebSocketTransport:
    """One WebSocket.

    The token travels in the `auth` frame, never in the URL or a header.

    Args:
        options: `socket_url`, `open_timeout`, `max_frame`, `compression`, `proxy`, `ssl_context`,
            `speed` and `transport` are used. Connections to this machine never go through a proxy.
        clock: For `last_received`.
    """

    incremental: bool = True

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self._options = options
        self._connection: Connection | None = None
        self._codec = choose_codec(options)
        self._closed = False
        self.now = clock.now
        self.last_received: float = clock.now()
        self.largest: int | None = 0
        self.malformed: Callable[[str], None] = ignore
        self.max_frame: int = options.max_frame

    async def open(self) -> None:
        """Dial and shake hands.

        Raises:
            TransportFailed: The host is not found, rejects the connection, does not support TLS or
                WebSocket, or did not answer in `open_timeout`; `reason` has the cause.
        """
        connection = self._connection = await choose_dialer(self._options)(self, self._options)
        if self._closed:
            connection.abort()

    def send(self, frame: ClientFrame) -> None:
        """Write or queue a frame. Ignored once closed.

        Up to `EARLY` frames of one loop turn leave in one write. A program that waits for each
        answer sends one frame between two arrivals: writing it immediately saves a loop turn.
        """
        connection = self._connection
        if connection is None or self._closed:
            return
        try:
            data = self._codec.encode(frame)
        except ValueError:
            # Payloads are checked on publish; this one has changed since. The log omits the
            # exception, which would show the payload.
            logger.error("a frame of type %s cannot be written as JSON", frame.type)  # noqa: TRY400
            return
        outgoing = connection.outgoing
        outgoing.append(data)
        connection.sent += 1
        if connection.at_once or len(outgoing) == EARLY:
            connection.at_once = False
            connection.write_all()
        elif len(outgoing) == 1:
            connection.loop.call_soon(connection.write_all)

    async def receive(self) -> Sequence[Incoming]:
        """Wait for frames: returns what the next received frames carry, in order.

        Raises:
            TransportClosed: The socket is closed, and all received frames have been returned.
        """
        connection = self._connection
        if connection is None:
            raise TransportClosed(None, "The connection was never opened.")
        codec = self._codec
        read_messages, invalid, burst = codec.read_messages, codec.invalid, codec.burst
        while True:
            while not connection.arrived:
                if connection.ended:
                    raise TransportClosed(*connection.end())
                await connection.more()
            data = connection.arrived[:burst]
            del connection.arrived[:burst]
            sizes = [*map(len, data)]
            connection.arrived_bytes -= sum(sizes)
            if connection.paused:
                connection.resume()
            frames: list[Incoming] = []
            at, largest = 0, self.largest or 0
            while at < len(data):
                if data[at].startswith(MESSAGE):
                    messages: list[Message] = []
                    with suppress(*invalid):
                        messages.extend(read_messages(data[at:] if at else data))
                    if messages:
                        frames.append(messages)
                        end = at + len(messages)
                        largest = max(largest, *sizes[at:end])
                        at = end
                        if end == len(data):
                            break
                frame = decode(data[at])
                if type(frame) is PublishedFrame:  # nearly every other frame is one
                    frames.append(frame)
                elif isinstance(frame, Malformed):
                    self.malformed(frame.reason)
                elif isinstance(frame, Unknown):
                    logger.debug("a frame of unknown type %r was ignored", frame.type)
                else:
                    if type(frame) is MessageFrame:
                        largest = max(largest, sizes[at])
                    frames.append(frame)
                at += 1
            self.largest = largest
            if frames:
                return frames

    async def close(self, code: int = 1000) -> None:
        """Send a close frame, wait at most a second for the answer, then cut the connection."""
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        if connection is None:
            return
        connection.write_all()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await connection.close(code)
        except TimeoutError:
            pass
        finally:
            connection.abort()
