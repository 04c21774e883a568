"""Frames over a WebSocket (HIP-56 WebSocket; RFC 6455).

Two libraries can carry it: `websockets`, and `picows` of the extra `speed`. Two can read JSON:
pydantic, and msgspec of the extra. `settings.speed` chooses; all else is the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.wire import MessageFrame
from hanzoai.pubsub.transports import TransportClosed
from hanzoai.pubsub.transports.connection import CLOSE_TIMEOUT
from hanzoai.pubsub.transports.speed import choose_codec, choose_dialer
from hanzoai.pubsub.wire.codec import MESSAGE, decode

if TYPE_CHECKING:
    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import ClientFrame, Message
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports import Incoming, Receiver
    from hanzoai.pubsub.transports.connection import Connection

logger = logging.getLogger("hanzoai.pubsub")

EARLY: Final = 16
"""Frames of one loop turn that are written before it ends.

The server then answers them while the program sends more. With 32 publishes in flight, this raises
throughput by half. With fewer frames per write, a server on Redis makes more calls of it.
"""

_UNREAD: Final = 1 << 20
"""Limit of received and unread bytes; above it, reading from the network stops."""


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
        self._paused = True
        self._unread = 0
        self._held = False
        self._receiver: Receiver
        self.now = clock.now
        self.last_received: float = clock.now()
        self.largest: float = 0
        self.max_frame: int = options.max_frame

    async def open(self, receiver: Receiver) -> None:
        """Dial and shake hands.

        Raises:
            TransportFailed: The host is not found, rejects the connection, does not support TLS or
                WebSocket, or did not answer in `open_timeout`; `reason` has the cause.
        """
        self._receiver = receiver
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

    def pause(self) -> None:
        """Keep what arrives."""
        self._paused = True

    def resume(self) -> None:
        """Pass on what has arrived, and from now on what arrives."""
        self._paused = False
        if self._connection is not None:
            self.pass_on(self._connection)

    def pass_on(self, connection: Connection, size: int = 0) -> None:
        """See `Owner`."""
        if self._closed:
            connection.arrived.clear()
            return
        self._unread += size
        receiver, codec = self._receiver, self._codec
        invalid, burst = codec.invalid, codec.burst
        while connection.arrived and not self._paused:
            data = connection.arrived[:burst]
            del connection.arrived[:burst]
            sizes = [*map(len, data)]
            self._unread -= sum(sizes)
            frames: list[Incoming] = []
            at, largest, longest = 0, self.largest, max(sizes)
            read_messages = codec.read_messages if longest <= codec.short else codec.read_long
            while at < len(data):
                if data[at].startswith(MESSAGE):
                    found = read_messages(data[at:] if at else data)
                    messages: list[Message] = found if isinstance(found, list) else []
                    with suppress(*invalid):
                        if messages is not found:
                            messages.extend(found)
                    if messages:
                        frames.append(messages)
                        end = at + len(messages)
                        if longest > largest:
                            largest = max(largest, *sizes[at:end])
                        at = end
                        if end == len(data):
                            break
                frame = decode(data[at])
                if type(frame) is MessageFrame:
                    largest = max(largest, sizes[at])
                frames.append(frame)
                at += 1
            self.largest = largest
            receiver.frames(frames)
        if not connection.arrived:
            self._unread = 0
            if connection.ended and not self._paused:
                self._paused = True
                receiver.ended(TransportClosed(*connection.end()))
        held = self._unread > _UNREAD
        if held != self._held and not connection.ended:
            self._held = held
            connection.hold(held)

    async def close(self, code: int = 1000) -> None:
        """Send a close frame, wait at most a second for the answer, then cut the connection."""
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        if connection is None:
            return
        connection.write_all()
        # The answer is behind messages that the program no longer reads.
        connection.hold(False)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await connection.close(code)
        except TimeoutError:
            pass
        finally:
            connection.abort()
