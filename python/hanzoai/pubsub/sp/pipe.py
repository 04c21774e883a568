"""One connection of an SP socket, behind an asyncio transport."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from hanzoai.pubsub.links.unparsed import FrameError
from hanzoai.pubsub.network.keepalive import keep_alive
from hanzoai.pubsub.network.receiving import BufferedReads
from hanzoai.pubsub.sp.stats import PeerStats

if TYPE_CHECKING:
    from hanzoai.pubsub.sp.inbox import Inbox
    from hanzoai.pubsub.sp.wires import Wire

_SLICE = 1024
"""Maximum messages to read from one connection before other connections get a turn."""


class Owner(Protocol):
    """The interface of a socket for its connections."""

    inbox: Inbox | None
    """Where messages go; None for a PUB."""

    hello_timeout: float

    def deliver(self, messages: list[bytes]) -> None:
        """Take messages from a peer."""
        ...

    def opened(self, pipe: Pipe) -> None:
        """The connection is open; the handshake is not complete."""
        ...

    def joined(self, pipe: Pipe) -> None:
        """The peer has completed the handshake."""
        ...

    def left(self, pipe: Pipe, reason: str | None) -> None:
        """The connection has ended; `reason` names the peer's protocol violation, if any."""
        ...


class Pipe(BufferedReads):
    """Reads and writes one connection.

    Args:
        owner: The socket.
        wire: Encoder and decoder of this connection.
        queue_size: Maximum messages that wait for a peer that does not read.
    """

    def __init__(self, owner: Owner, wire: Wire, queue_size: int) -> None:
        self._owner = owner
        self._wire = wire
        self._queue: deque[bytes] = deque()
        self._queue_size = queue_size
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None
        self._full = False
        self._paused = False
        self._file: int | None = None
        """File descriptor for direct writes; None if the connection is encrypted."""
        self._drained: asyncio.Future[None] | None = None
        self._taken = -1
        self._reason: str | None = None
        self.encoding = wire.encoding
        self.encode = wire.encode
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.greeted = False
        self.sent = 0
        self.dropped = 0
        self.received = 0

    # ------------------------------------------------------------ out

    def send(self, data: bytes) -> None:
        """Write an encoded message, or queue it; a full queue drops its oldest message."""
        if not self._full:
            self.sent += 1
            if self._file is None:
                self._write(data)
                return
            # The transport buffers nothing, so write directly: it takes half the time.
            try:
                written = os.write(self._file, data)
            except OSError:
                written = 0
            if written < len(data):
                self._write(data[written:])
            return
        if len(self._queue) >= self._queue_size:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(data)

    @property
    def idle(self) -> bool:
        """Whether the system has accepted everything."""
        return not self._queue and not self._full

    def pause_writing(self) -> None:
        """Queue messages from now on: the system's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """Write the queued messages: the system's buffer has room again."""
        self._full = False
        queue = self._queue
        while queue and not self._full and self._transport is not None:
            self._transport.write(queue.popleft())
            self.sent += 1
        self._announce()
        self._resume_reading()

    async def drain(self) -> None:
        """Wait until the system has accepted everything, or the connection ends."""
        while (self._full or self._queue) and not self.ended.done():
            self._drained = self._loop.create_future()
            await self._drained

    def _write(self, data: bytes) -> None:
        # asyncio logs each write to a connection whose end it has not reported yet.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        else:
            self.sent -= 1
            self.dropped += 1

    def _announce(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # ------------------------------------------------------------ in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello, and start the timeout for the peer's hello."""
        self._transport = cast("asyncio.Transport", transport)
        # A SUB sends nothing, so it would wait forever for a PUB that has vanished.
        keep_alive(transport)
        encrypted = transport.get_extra_info("sslcontext") is not None
        # Data that the system does not accept immediately waits in the bounded queue. With a high
        # mark of 0, asyncio's TLS transport would always report that it is full.
        self._transport.set_write_buffer_limits(high=int(encrypted), low=0)
        if os.name == "posix" and not encrypted:
            self._file = transport.get_extra_info("socket").fileno()
        self._flush()
        self._timer = self._loop.call_later(self._owner.hello_timeout, self._fail, "no_hello")
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Decode the received bytes, unless a later read of earlier bytes is scheduled."""
        self._wire.feed(data)
        if self._next is None:
            self._read()

    def eof_received(self) -> bool:
        """End the connection: SP has no half-closed connections."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the socket and the waiting calls, once all received messages are delivered."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._file = None
        # TLS reports the end while reading is paused, too.
        if self._next is None:
            self._leave()

    def _leave(self) -> None:
        self.dropped += len(self._queue)
        self._queue.clear()
        self._owner.left(self, self._reason)
        self.ended.set_result(None)
        self._announce()

    def _read(self) -> None:
        self._next = None
        self._deliver()
        if self._transport is None and self._next is None:
            self._leave()

    def _deliver(self) -> None:
        inbox = self._owner.inbox
        limit = _SLICE
        if inbox is not None and inbox.closed:
            inbox = None  # nothing waits for the program
        if inbox is not None:
            room = inbox.room
            if room <= 0 and inbox.received != self._taken:
                # The program is receiving: let it take messages before the queue drops any.
                self._taken = inbox.received
                self._again(inbox.patience)
                return
            limit = min(room, _SLICE) if room > 0 else _SLICE
        try:
            while found := self._wire.decode(limit):
                self._introduce()
                self.received += len(found)
                self._owner.deliver(found)
                if len(found) >= limit:
                    self._again(inbox.patience if inbox is not None else 0)
                    return
        except FrameError as error:
            self._flush()
            self._fail(error.reason)
            return
        self._resume_reading()
        self._flush()
        self._introduce()

    def _introduce(self) -> None:
        if not self.greeted and self._wire.ready:
            self.greeted = True
            if self._timer is not None:
                self._timer.cancel()
            self._owner.joined(self)

    def _again(self, delay: float) -> None:
        self._pause_reading()
        if delay:
            self._next = self._loop.call_later(delay, self._read)
            if self._owner.inbox is not None:
                self._owner.inbox.when_empty(self._hurry)
        else:
            self._next = self._loop.call_soon(self._read)

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _hurry(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._read_early)

    def _read_early(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._read()

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """End the connection after the written data is sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._wire.finish()
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def stats(self) -> PeerStats:
        """The counters of this connection."""
        where = ""
        if self._transport is not None:
            peer = self._transport.get_extra_info("peername")
            where = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        return PeerStats(where, self.sent, self.dropped, self.received, len(self._queue))

    def _flush(self) -> None:
        if self._transport is not None and (output := self._wire.output()):
            self._transport.write(output)
            if self._full:
                # Read no more pings from a peer that does not read the pongs.
                self._pause_reading()
            if self._wire.ended:
                self._end()

    def _fail(self, reason: str) -> None:
        self._reason = reason
        self._end()

    def _end(self) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()
