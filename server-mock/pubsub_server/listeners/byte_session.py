"""One connection of a byte protocol: bytes in, requests in order, bytes out."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from hanzoai.pubsub.links.unparsed import FrameError
from hanzoai.pubsub.network.keepalive import keep_alive
from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Caller
from pubsub_server.listeners.paced_publishes import publish, within_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pubsub_server.backplane import Published
    from pubsub_server.listeners.byte_connections import ByteConnections
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import Draft

SOFT_BYTES: Final = 262_144
"""Maximum unsent bytes in a transport; beyond that, the hub queues messages."""
CLOSE_SECONDS: Final = 1.0
"""Seconds for sending written bytes; then the connection is cut."""
MEDIUM: Final = 2_048
"""Bytes of a read that can take milliseconds, and that waits for its turn."""
TAKEN: Final = 64
"""Maximum requests handled before the time of the turn is checked."""
FINISH_SECONDS: Final = 300.0
"""Seconds for the requests that a client sent before it closed; the rest is dropped."""

UNREAD_BYTES: Final = 268_435_456
"""Maximum bytes of half-read frames, and of requests of closed connections, of a listener."""

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)


class Decoder(Protocol[_R_co]):
    """Bytes in pieces of any size → requests."""

    @property
    def pending(self) -> int:
        """Number of bytes that were fed and not decoded."""
        ...

    def feed(self, data: bytes) -> None:
        """Append bytes from the peer."""
        ...

    def decode(self, limit: int = -1) -> Sequence[_R_co]:
        """The next complete requests.

        Raises:
            FrameError: The peer violates the protocol.
        """
        ...


class ByteSession(asyncio.Protocol, ABC, Generic[_R]):
    """The hub's `interfaces.Sink`. Requests are handled one after the other.

    Reading stops while a request waits for something: the access rules, the publish rate or the
    backplane. So a client that sends too fast is slowed down, and no message is dropped.

    A session outlives its connection until the requests are done that the client sent before it
    closed, for at most `FINISH_SECONDS` and without subscriptions: TLS reports the end while
    reading is paused, too, and has no half-closed state.

    Args:
        shared: What all connections share.
        decoder: Reads its requests.

    Attributes:
        identity: Its identity.
    """

    def __init__(self, shared: ByteConnections, decoder: Decoder[_R]) -> None:
        self._shared = shared
        self.identity = shared.identity
        self._decoder = decoder
        self._transport: asyncio.Transport | None = None
        self._peer: object = None
        self._connection: Connection | None = None
        self._requests: deque[_R] = deque()
        self._unread = 0
        # Bytes of the requests that were decoded last.
        self._taken = 0
        # Reasons to handle nothing: its identity or a request is pending, the hub requested it, or
        # it waits for its turn.
        self._working = True
        self._held = False
        self._queued = False
        self._paused = False
        self._watched = False
        self._closing = False
        self._advancing = False
        # When it gives up its requests, after its connection was lost.
        self._finish_by: float | None = None
        self._nap: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ for the protocols

    @property
    def connection(self) -> Connection:
        """The hub's connection of a session that has entered."""
        assert self._connection is not None
        return self._connection

    @property
    def closing(self) -> bool:
        """Whether it has ended."""
        return self._closing

    @property
    def lost(self) -> bool:
        """Whether its client has closed, and only its publishes remain to be done."""
        return self._finish_by is not None

    @property
    def unread(self) -> int:
        """Bytes of its half-read frames; if its client has closed, of its requests, too."""
        return self._unread

    @abstractmethod
    def handle(self, requests: deque[_R]) -> Coroutine[Any, Any, None] | None:
        """Handle the next request or requests, and remove them.

        Returns:
            An awaitable to wait for before the next ones.
        """

    @abstractmethod
    def left(self) -> None:
        """The connection is closed: remove its subscriptions from what all share."""

    def overdue(self, now: float) -> str | None:
        """The reason to close a client without pending input; called once per connection."""
        return None

    def break_off(self, reason: str) -> None:
        """Close a connection whose client violates the protocol, without an answer."""
        if not self._closing:
            self._shared.broke(reason)
            self._requests.clear()
            self.close(1002, reason)

    def drop(self, reason: str) -> None:
        """Cut a connection to release its bytes at once, even if it has unsent messages."""
        if not self._closing:
            self._shared.broke(reason)
        self._release()
        self.abort()

    def publish(
        self, drafts: Sequence[Draft], answered: Callable[[Draft, Published | ServiceError], None]
    ) -> Coroutine[Any, Any, None] | None:
        """Publish in order; wait if the rate is exceeded. See `paced_publishes.publish`."""
        return publish(self, self._shared.service, drafts, answered)

    async def within_rate(self) -> None:
        """Wait until the rate allows one more message that does not go through the hub."""
        await within_rate(self, self._shared.service)

    async def nap(self, seconds: float) -> None:
        """Wait, but only until the session ends."""
        self._nap = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._nap], timeout=seconds)
        self._nap = None

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        made = self._transport = cast("asyncio.Transport", transport)
        self._peer = made.get_extra_info("peername")
        shared = self._shared
        shared.open.add(self)
        self.identity = shared.identify(made.get_extra_info("peercert"))
        made.set_write_buffer_limits(high=SOFT_BYTES)
        keep_alive(made)
        if shared.full:
            self.break_off("too_many")
            return
        try:
            self._connection = shared.service.open(self, shared.encoder)
        except ServiceError as error:
            self.break_off(error.code)
            return
        # The first read pauses reading: uvloop ignores a pause in this method.
        shared.tasks.spawn(self._enter(self._connection))

    async def _enter(self, connection: Connection) -> None:
        try:
            await self._shared.service.enter(connection, self.identity)
        except ServiceError as error:
            if not self._closing:
                self._shared.broke(error.code)
                self._shared.service.end(connection, error)
            return
        except Exception:
            self.break_off("internal")
            raise
        self._working = False
        self._watch(self._shared.first_within)
        self._advance()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        connection = self._connection
        if connection is None or self._closing:
            return
        connection.last_received = self._shared.service.clock()
        self._decoder.feed(data)
        if len(data) >= MEDIUM and not self._shared.turns.free:
            self._wait_for_turn()
        self._advance()
        self._account()

    def pause_writing(self) -> None:
        """The transport has too many unsent bytes."""
        if self._connection is not None:
            self._shared.service.pause(self._connection)

    def resume_writing(self) -> None:
        """The transport has room again."""
        if self._connection is not None:
            self._shared.service.resume(self._connection)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._transport = None
        connection = self._connection
        self.left()
        if connection is None or self._closing or not self._unfinished(connection):
            self._leave()
            return
        service = self._shared.service
        service.mute(connection)
        self._finish_by = service.clock() + FINISH_SECONDS
        self._shared.outliving += 1
        service.wheel.add(self, self._finish_by)
        self._account()

    def _unfinished(self, connection: Connection) -> bool:
        """Whether received requests wait for something."""
        if self._working and connection.identity is not None:
            return True
        return self._waits and bool(self._requests or self._decoder.pending)

    def _leave(self) -> None:
        """The session has ended."""
        connection, self._connection = self._connection, None
        self._closing = True
        self._release()
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)
        if self.lost:
            self._shared.outliving -= 1
        self._shared.gone(self)
        if connection is not None:
            self._shared.service.closed(connection)

    def _release(self) -> None:
        """Release the bytes that it has received: a timer can still hold the session itself."""
        self._requests.clear()
        self._decoder = _Spent()
        self._shared.unread -= self._unread
        self._unread = 0

    # ------------------------------------------------------------ Sink

    @property
    def caller(self) -> Caller | None:
        """See `interfaces.Sink`."""
        name = self._peer
        return Caller(str(cast("tuple[object]", name)[0])) if isinstance(name, tuple) else None

    def write(self, data: bytes) -> None:
        """See `interfaces.Sink`."""
        if self._transport is not None and not self._closing:
            self._transport.write(data)

    def buffered(self) -> int:
        """See `interfaces.Sink`."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """See `interfaces.Sink`: the protocol has no close frame."""
        transport = self._transport
        if transport is None:
            self.abort()
            return
        if self._closing:
            return
        self._closing = True
        transport.close()
        self._shared.service.wheel.add(self, self._shared.service.clock() + CLOSE_SECONDS)

    def hold(self, on: bool) -> None:
        """See `interfaces.Sink`."""
        self._held = on
        if not on:
            self._advance()

    def abort(self) -> None:
        """See `interfaces.Sink`."""
        outlives = self._transport is None and not self._closing
        self._closing = True
        if outlives:
            # The hub may be in the middle of something.
            asyncio.get_running_loop().call_soon(self._leave)
        elif self._transport is not None:
            self._transport.abort()

    def freeze(self, frozen: bool) -> None:
        """Stop handling requests, for tests; or continue."""
        self.hold(frozen)

    # ------------------------------------------------------------ requests

    @property
    def _waits(self) -> bool:
        """Whether there is a reason to handle nothing now."""
        return self._working or self._held or self._queued

    def _advance(self) -> None:
        """Handle received requests, until one must wait."""
        if self._advancing:
            return
        self._advancing = True
        try:
            begun = False
            while not (self._waits or self._closing):
                if not self._requests:
                    if begun and self._shared.turns.over:
                        self._wait_for_turn()
                        break
                    decoder = self._decoder
                    before = decoder.pending
                    try:
                        self._requests.extend(decoder.decode(TAKEN))
                    except FrameError as error:
                        self.break_off(error.reason)
                        return
                    self._taken = before - decoder.pending
                    if not self._requests:
                        break
                    begun = True
                work = self.handle(self._requests)
                if work is not None:
                    self._working = True
                    self._shared.tasks.spawn(self._finish(work))
        except Exception:
            # The protocol cannot report that the server failed.
            self.break_off("internal")
            raise
        finally:
            self._advancing = False
        if self.lost:
            if not (self._waits or self._closing):
                self._leave()
            return
        self._read_or_not()
        if self._decoder.pending and not self._watched and not self._paused:
            self._watch(self._shared.settings.body_timeout / 1000)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            self.break_off("internal")
            raise
        finally:
            self._working = False
        self._advance()
        self._account()

    def _wait_for_turn(self) -> None:
        if not self._queued:
            self._queued = True
            self._shared.turns.enqueue(self._take_turn)

    def _take_turn(self) -> None:
        self._queued = False
        self._advance()
        self._account()

    def _read_or_not(self) -> None:
        paused = self._waits
        transport = self._transport
        if transport is None or transport.is_closing() or paused is self._paused:
            return
        self._paused = paused
        if paused:
            transport.pause_reading()
        else:
            # The client could not send in the meantime.
            self.connection.last_received = self._shared.service.clock()
            transport.resume_reading()

    def _account(self) -> None:
        if self._closing:
            return
        shared, pending = self._shared, self._decoder.pending
        if self.lost:
            pending += self._taken
        shared.unread += pending - self._unread
        more = pending > self._unread
        self._unread = pending
        if more and shared.unread > UNREAD_BYTES:
            # Not this client, unless it occupies the most: a few could shut out all others.
            largest = max(shared.open, key=lambda each: each.unread)
            largest.drop("unread_bytes")

    # ------------------------------------------------------------ the wheel

    def _watch(self, seconds: float) -> None:
        self._watched = True
        service = self._shared.service
        service.wheel.add(self, service.clock() + seconds)

    def due(self, now: float) -> float | None:
        """See `wheel.Waiting`: a frame that is incomplete for too long, or a slow close."""
        if self._closing:
            if self._transport is not None:
                self._transport.abort()
            return None
        connection = self._connection
        if connection is None:
            return None
        if self._finish_by is not None:
            if now < self._finish_by:
                return self._finish_by
            self.break_off("unfinished")
            return None
        reason = self.overdue(now)
        if reason is not None:
            self.break_off(reason)
            return None
        if not self._decoder.pending or self._paused:
            self._watched = False
            return None
        end = connection.last_received + self._shared.settings.body_timeout / 1000
        if now < end:
            return end
        self.break_off("half_a_frame")
        return None


class _Spent:
    """The decoder of a session that has ended."""

    pending = 0

    def feed(self, data: bytes) -> None:
        """See `Decoder`."""

    def decode(self, limit: int = -1) -> Sequence[Any]:
        """See `Decoder`."""
        return ()
