"""Base classes of the clients of byte protocols: connections, reconnects and timeouts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from hanzoai.pubsub.durations import positive_seconds, seconds_of, waits_of
from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidOption,
    OperationTimeout,
    ProtocolError,
)
from hanzoai.pubsub.links.connections import (
    CHECK_SERVER,
    CHECK_URL,
    Backoff,
    Link,
    check_context,
)
from hanzoai.pubsub.links.unparsed import FrameError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine
    from types import TracebackType

    from hanzoai.pubsub.durations import Duration
    from hanzoai.pubsub.links.connections import Target


class TimeLimit:
    """A context that raises OperationTimeout when its time has passed.

    Args:
        seconds: The time; None for no limit.
        who: The subject of the message.
        what: What it did, or did not do, in this time.
        remedy: How to fix it.
        outcome_unknown: Whether the operation may have taken effect.
    """

    def __init__(
        self,
        seconds: float | None,
        who: object,
        what: str,
        *,
        remedy: str = CHECK_SERVER,
        outcome_unknown: bool = False,
    ) -> None:
        self._seconds = seconds
        self._who = who
        self._what = what
        self._remedy = remedy
        self._outcome_unknown = outcome_unknown
        self._timeout = asyncio.timeout(seconds)

    def __aenter__(self) -> Coroutine[Any, Any, asyncio.Timeout]:
        return self._timeout.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(exc_type, exc, traceback)
        except TimeoutError:
            message = f"{self._who} {self._what} within {self._seconds:g} s."
            raise OperationTimeout(
                message, remedy=self._remedy, outcome_unknown=self._outcome_unknown
            ) from None


@dataclass(frozen=True, slots=True)
class Dialing:
    """How a client opens its connections.

    Attributes:
        target: The address.
        ssl: SSL context for an encrypted connection; None trusts the authorities of the system.
        timeout: Seconds for opening a connection.
        waits: Shortest and longest wait between attempts, in seconds.
    """

    target: Target
    ssl: ssl.SSLContext | None
    timeout: float
    waits: tuple[float, float]

    async def open(self) -> Link:
        """Open a connection; see `Link.open`."""
        return await Link.open(self.target, self.ssl, self.timeout)


Message = TypeVar("Message")


class LinkClient:
    """A client with one connection for all publishes, and one for each subscription."""

    def __init__(
        self,
        target: Target,
        ssl: ssl.SSLContext | None,
        connect_timeout: Duration,
        reconnect_min: Duration,
        reconnect_max: Duration,
    ) -> None:
        check_context(ssl)
        if ssl is not None and not target.tls:
            raise InvalidOption(
                "The URL does not use TLS, and ssl would have no effect.",
                field="ssl",
                remedy="Add +tls to the scheme of the URL, or leave ssl out.",
            )
        timeout = positive_seconds(connect_timeout, "connect_timeout")
        waits = waits_of(reconnect_min, reconnect_max)
        self._dialing = Dialing(target, ssl, timeout, waits)
        self._link: Link | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._subscriptions: set[LinkSubscription[Any]] = set()
        self._closed = False

    @property
    def target(self) -> str:
        """The address of the peer, ``HOST:PORT`` or a path."""
        return str(self._dialing.target)

    async def close(self) -> None:
        """End all connections; calling it again does nothing."""
        self._closed = True
        closing = [subscription.close() for subscription in self._subscriptions]
        await asyncio.gather(*closing, self._hang_up())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target}{' closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError

    async def _write(
        self,
        data: bytes,
        begin: Callable[[Link], Coroutine[Any, Any, None]],
        writing: Callable[[], object] | None = None,
    ) -> None:
        """Write a publish; open the connection of the publishes first, if necessary.

        Args:
            data: The publish.
            begin: Called with a new connection; returns what reads it.
            writing: Called before the publish is written.
        """
        async with self._lock:
            try:
                self._check_open()
                if self._link is not None and self._link.ended:
                    await self._hang_up()
                if self._link is None:
                    self._link = await self._dialing.open()
                    self._check_open()
                    self._reading = asyncio.create_task(begin(self._link))
                if writing is not None:
                    writing()
                await self._link.write(data)
            except BaseException:
                # A partial publish would corrupt all later ones.
                await self._hang_up()
                raise

    async def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None


class LinkSubscription(ABC, Generic[Message]):
    """Messages of a connection of its own, which is opened again after it was lost.

    Attributes:
        reconnects: Number of reconnects.
    """

    _protocol: ClassVar[str]

    def __init__(self, dialing: Dialing, closing: Callable[[LinkSubscription[Any]], None]) -> None:
        self._dialing = dialing
        self._backoff = Backoff(*dialing.waits)
        self._closing = closing
        self._link: Link | None = None
        self._found: deque[Message] = deque()
        self._lock = asyncio.Lock()
        self._opened = False
        self._ended = asyncio.Event()
        self.reconnects = 0

    @abstractmethod
    async def _subscribe(self, link: Link) -> None:
        """Subscribe on a new connection; raises FrameError."""

    @abstractmethod
    def _decode(self, data: bytes) -> None:
        """Decode received bytes; raises FrameError."""

    def _lost(self) -> None:
        """The connection is lost."""

    async def open(self) -> None:
        """Connect and subscribe.

        Raises:
            ConnectionFailed: The server cannot be reached.
            OperationTimeout: It did not answer in time.
            ProtocolError: The answer is not of this protocol.
            ClosedError: The subscription is closed.
        """
        async with self._lock:
            await self._ensure()

    async def recv(self, timeout: Duration | None = None) -> Message:
        """Return the next message.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No message arrived within `timeout`.
            ConnectionFailed: The first connection could not be opened.
            ProtocolError: The server sends data that does not belong to this protocol.
            ClosedError: The subscription is closed.
        """
        seconds = seconds_of(timeout)
        if self._found:
            return self._found.popleft()
        async with TimeLimit(seconds, "No message", "arrived", remedy=""):
            while True:
                async with self._lock:
                    if not self._found:
                        await self._read(await self._ensure())
                    if self._found:
                        return self._found.popleft()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield messages until the subscription is closed."""
        while True:
            try:
                yield await self.recv()
            except ClosedError:
                return

    async def close(self) -> None:
        """Unsubscribe and end the connection; calling it again does nothing."""
        self._ended.set()
        self._closing(self)
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ensure(self) -> Link:
        """The connection, opened if necessary: at once the first time, later after a wait."""
        while self._link is None:
            if self._opened:
                await self._backoff.sleep(self._ended)
            self._check_open()
            try:
                async with TimeLimit(self._dialing.timeout, self._dialing.target, "did not answer"):
                    link = await self._connect()
            except FrameError as error:
                raise foreign(self._dialing.target, self._protocol, error) from None
            except (ConnectionFailed, OperationTimeout):
                if not self._opened:
                    raise
                continue
            self.reconnects += self._opened
            self._opened = True
            self._link = link
        return self._link

    async def _connect(self) -> Link:
        link = await self._dialing.open()
        try:
            self._check_open()
            await self._subscribe(link)
            self._check_open()
        except BaseException:
            await link.close()
            raise
        return link

    async def _read(self, link: Link) -> None:
        """Read once. Forget a connection that has ended: the next read opens another one."""
        data = await link.read()
        if not data:
            self._link = None
            self._lost()
            await link.close()
            return
        try:
            self._decode(data)
        except FrameError as error:
            await self.close()
            raise foreign(self._dialing.target, self._protocol, error) from None

    def _check_open(self) -> None:
        if self._ended.is_set():
            raise ClosedError


def foreign(target: Target | str, protocol: str, error: FrameError) -> ProtocolError:
    """The error for a server that answers with data of another protocol."""
    return ProtocolError(f"{target} does not use {protocol}: {error}", remedy=CHECK_URL)
