"""One connection of a byte protocol: bytes in, requests in order, bytes out."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from hanzoai.pubsub.unparsed import FrameError
from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Caller
from pubsub_server.shared.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pubsub_server.interfaces import Published
    from pubsub_server.listeners.byte_listener import ByteListener
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import Draft

SOFT_BYTES: Final = 262_144
"""Unsent bytes in a transport; the hub keeps what comes beyond."""
PROBE_AFTER: Final = 60
"""Seconds of silence after which the system probes whether a client is still there."""
CLOSE_SECONDS: Final = 1.0
"""For what was written to leave; then the connection is cut."""
TAKEN: Final = 256
"""Requests that are decoded at once."""
AT_ONCE: Final = 64
"""Publishes that are handed to the hub at once."""

UNREAD_BYTES: Final = 268_435_456
"""Bytes of half-read frames that a listener holds for all of its connections together."""

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)


class Decoder(Protocol[_R_co]):
    """Bytes in pieces of any size → requests."""

    @property
    def pending(self) -> int:
        """Bytes that have been fed and not been taken."""
        ...

    def feed(self, data: bytes) -> None:
        """Append bytes from the peer."""
        ...

    def take(self, limit: int = -1) -> Sequence[_R_co]:
        """The next complete requests.

        Raises:
            FrameError: The peer breaks the protocol.
        """
        ...


class ByteSession(asyncio.Protocol, ABC, Generic[_R]):
    """The hub's `interfaces.Sink`. Requests are handled one after the other.

    Reading stops while a request waits for something: the access rules, the publish rate or the
    backplane. So a client that sends faster is slowed down, and nothing of it is dropped.

    Args:
        listener: What all connections share.
        decoder: Reads its requests.

    Attributes:
        identity: As whom it acts.
    """

    def __init__(self, listener: ByteListener, decoder: Decoder[_R]) -> None:
        self._listener = listener
        self.identity = listener.identity
        self._decoder = decoder
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._requests: deque[_R] = deque()
        self._unread = 0
        # Why nothing is handled: its first identity or a request takes time, or the hub asks so.
        self._working = True
        self._held = False
        self._paused = False
        self._watched = False
        self._closing = False
        self._advancing = False

    # ------------------------------------------------------------ for the protocols

    @property
    def connection(self) -> Connection:
        """Of a session that has entered."""
        assert self._connection is not None
        return self._connection

    @property
    def closing(self) -> bool:
        """Whether it has ended."""
        return self._closing

    @abstractmethod
    def handle(self, requests: deque[_R]) -> Coroutine[Any, Any, None] | None:
        """Handle the next request or requests, and take them out.

        Returns:
            What has to be awaited before the next ones.
        """

    @abstractmethod
    def left(self) -> None:
        """The connection is gone: forget what the listener knows of it."""

    def overdue(self, now: float) -> str | None:
        """Why a client that owes nothing to the decoder is closed; asked once a connection."""
        return None

    def break_off(self, reason: str) -> None:
        """Close a connection whose client breaks the protocol, without an answer."""
        if not self._closing:
            self._listener.broke(reason)
            self._requests.clear()
            self.close(1002, reason)

    def publish(
        self, drafts: Sequence[Draft], answered: Callable[[Draft, Published | ServiceError], None]
    ) -> Coroutine[Any, Any, None] | None:
        """Publish in order; wait where the rate is exceeded.

        Args:
            drafts: At most `AT_ONCE`.
            answered: Called once for each, in order.

        Returns:
            What has to be awaited, unless all is done.
        """
        answer: Answer[list[Published | ServiceError]] = Answer()
        self._listener.service.put(self.identity, drafts, self.connection, answer)
        results = answer.here
        if results is None or _too_often(results) is not None:
            return self._publish_on(drafts, answer, answered)
        for draft, result in zip(drafts, results, strict=True):
            answered(draft, result)
        return None

    async def _publish_on(
        self,
        drafts: Sequence[Draft],
        answer: Answer[list[Published | ServiceError]],
        answered: Callable[[Draft, Published | ServiceError], None],
    ) -> None:
        service = self._listener.service
        results = await answer
        size = len(drafts)
        while True:
            wait = _too_often(results)
            taken = [each for each in results if wait is None or _too_often([each]) is None]
            for draft, result in zip(drafts, taken, strict=False):
                answered(draft, result)
            drafts = drafts[len(taken) :]
            if not drafts:
                return
            if wait is not None:
                # One until that is granted again: each refusal is counted and audited.
                size = 1
                await asyncio.sleep(wait)
            else:
                size *= 2
            if self._closing:
                return
            some = drafts[:size]
            results = await service.publish(self.identity, some, connection=self.connection)

    async def within_rate(self) -> None:
        """Wait until the rate allows one more message, for one that the hub does not see."""
        while not self._closing:
            granted, wait = self._listener.service.budget(self.connection, 1)
            if granted:
                return
            await asyncio.sleep(wait / 1000)

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        made = self._transport = cast("asyncio.Transport", transport)
        listener = self._listener
        listener.sessions.add(self)
        self.identity = listener.identify(made.get_extra_info("peercert"))
        made.set_write_buffer_limits(high=SOFT_BYTES)
        _probe(made)
        if len(listener.sessions) > listener.settings.max_connections:
            self.break_off("too_many")
            return
        try:
            self._connection = listener.service.open(self, listener.encoder)
        except ServiceError as error:
            self.break_off(error.code)
            return
        made.pause_reading()
        self._paused = True
        listener.tasks.spawn(self._enter(self._connection))

    async def _enter(self, connection: Connection) -> None:
        try:
            await self._listener.service.enter(connection, self.identity)
        except ServiceError as error:
            if not self._closing:
                self._listener.broke(error.code)
                self._listener.service.end(connection, error)
            return
        self._working = False
        self._watch(self._listener.first_within)
        self._advance()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        connection = self._connection
        if connection is None or self._closing:
            return
        connection.last_heard = self._listener.service.clock()
        self._decoder.feed(data)
        self._advance()
        self._account()

    def eof_received(self) -> bool:
        """The client has ended its side: so do we, when what it asked for is done."""
        return False

    def pause_writing(self) -> None:
        """The transport holds too much."""
        if self._connection is not None:
            self._listener.service.pause(self._connection)

    def resume_writing(self) -> None:
        """It has room again."""
        if self._connection is not None:
            self._listener.service.resume(self._connection)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        connection, self._connection = self._connection, None
        self._transport = None
        self._closing = True
        self._requests.clear()
        self._listener.unread -= self._unread
        self._unread = 0
        self.left()
        self._listener.gone(self)
        if connection is not None:
            self._listener.service.closed(connection)

    # ------------------------------------------------------------ Sink

    @property
    def caller(self) -> Caller | None:
        """See `interfaces.Sink`."""
        name: object = (
            None if self._transport is None else self._transport.get_extra_info("peername")
        )
        return Caller(str(cast("tuple[object]", name)[0])) if isinstance(name, tuple) else None

    def write(self, data: bytes) -> None:
        """See `interfaces.Sink`."""
        if self._transport is not None and not self._closing:
            self._transport.write(data)

    def buffered(self) -> int:
        """See `interfaces.Sink`."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """See `interfaces.Sink`: the protocol has no close of its own."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._closing = True
        transport.close()
        self._listener.service.wheel.add(self, self._listener.service.clock() + CLOSE_SECONDS)

    def hold(self, on: bool) -> None:
        """See `interfaces.Sink`."""
        self._held = on
        if not on:
            self._advance()

    def abort(self) -> None:
        """See `interfaces.Sink`."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def freeze(self, frozen: bool) -> None:
        """Handle nothing, for tests; or go on."""
        self.hold(frozen)

    # ------------------------------------------------------------ requests

    def _advance(self) -> None:
        """Handle what has come, until something has to be waited for."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while not (self._working or self._held or self._closing):
                if not self._requests:
                    try:
                        self._requests.extend(self._decoder.take(TAKEN))
                    except FrameError as error:
                        self.break_off(error.reason)
                        return
                    if not self._requests:
                        break
                work = self.handle(self._requests)
                if work is not None:
                    self._working = True
                    self._listener.tasks.spawn(self._finish(work))
        finally:
            self._advancing = False
        self._read_or_not()
        if self._decoder.pending and not self._watched and not self._paused:
            self._watch(self._listener.settings.body_timeout / 1000)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._working = False
        self._advance()
        self._account()

    def _read_or_not(self) -> None:
        paused = self._working or self._held
        transport = self._transport
        if transport is None or transport.is_closing() or paused is self._paused:
            return
        self._paused = paused
        if paused:
            transport.pause_reading()
        else:
            # It could not send meanwhile.
            self.connection.last_heard = self._listener.service.clock()
            transport.resume_reading()

    def _account(self) -> None:
        if self._closing:
            return
        listener, pending = self._listener, self._decoder.pending
        listener.unread += pending - self._unread
        more = pending > self._unread
        self._unread = pending
        if more and listener.unread > UNREAD_BYTES:
            self.break_off("unread_bytes")

    # ------------------------------------------------------------ the wheel

    def _watch(self, seconds: float) -> None:
        self._watched = True
        service = self._listener.service
        service.wheel.add(self, service.clock() + seconds)

    def due(self, now: float) -> float | None:
        """See `wheel.Waiting`: half a frame and silence, or a close that takes too long."""
        if self._closing:
            if self._transport is not None:
                self._transport.abort()
            return None
        connection = self._connection
        if connection is None:
            return None
        reason = self.overdue(now)
        if reason is not None:
            self.break_off(reason)
            return None
        if not self._decoder.pending or self._paused:
            self._watched = False
            return None
        end = connection.last_heard + self._listener.settings.body_timeout / 1000
        if now < end:
            return end
        self.break_off("half_a_frame")
        return None


def _probe(transport: asyncio.Transport) -> None:
    """Let the system notice clients that are gone without a word: the protocols have no pings."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        for option, value in (
            (socket.TCP_KEEPIDLE, PROBE_AFTER),
            (socket.TCP_KEEPINTVL, PROBE_AFTER // 4),
            (socket.TCP_KEEPCNT, 4),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _too_often(results: Sequence[Published | ServiceError]) -> float | None:
    """Seconds until the rate allows the next one; None where it allowed all."""
    for result in results:
        if isinstance(result, ServiceError) and result.code == "rate_limited":
            return (result.retry_after_ms or 100) / 1000
    return None
