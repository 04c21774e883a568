"""Client of the event stream for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidTopic,
    OperationTimeout,
    PayloadTooLarge,
    ProtocolError,
)
from hanzoai.pubsub.eventstream.codec import MAX_PAYLOAD, MAX_TOPIC, Decoder, encode_event
from hanzoai.pubsub.links import (
    Backoff,
    Link,
    Target,
    parse_target,
    payload,
    to_bytes,
    to_text,
)
from hanzoai.pubsub.unparsed import FrameError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from hanzoai.pubsub.durations import Duration

PORT: Final = 1002
"""Default port."""


@dataclass(frozen=True, slots=True)
class Event:
    """A published event.

    Attributes:
        topic: The topic; bytes that are not UTF-8 are lone surrogates (PEP 383).
        data: The payload.
    """

    topic: str
    data: bytes

    @property
    def text(self) -> str:
        """The payload as UTF-8; invalid bytes become U+FFFD."""
        return self.data.decode("utf-8", "replace")


class EventStreamClient:
    """Publishes to an event stream, and subscribes to it.

    Delivery is at most once: nothing is acknowledged, stored or repeated. Each subscription has its
    own connection. All publishes share another one, which keeps the order of the calls.

    Args:
        url: ``events://HOST:PORT``, ``events+tls://HOST:PORT``, ``events+unix:PATH``, or
            ``events://self`` for the node of this machine: the address in the environment variable
            ``HANZO_PUBSUB_EVENT_STREAM``, or ``127.0.0.1:1002``.
        ssl: SSL context for ``events+tls``: the authorities to trust, and your certificate if the
            server requires one.
        connect_timeout: Seconds or a timedelta for opening a connection.
        reconnect_min: Seconds or a timedelta before the first attempt after a lost connection.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta.

    Raises:
        InvalidOption: The URL cannot be read.
    """

    def __init__(
        self,
        url: str = "events://self",
        *,
        ssl: ssl.SSLContext | None = None,
        connect_timeout: Duration = 10.0,
        reconnect_min: Duration = 0.1,
        reconnect_max: Duration = 10.0,
    ) -> None:
        self._target = _target(url)
        self._ssl = ssl
        self._connect_timeout = seconds_of(connect_timeout)
        self._reconnect = (seconds_of(reconnect_min), seconds_of(reconnect_max))
        self._link: Link | None = None
        self._discarding: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._subscriptions: set[EventSubscription] = set()
        self._closed = False

    @property
    def target(self) -> str:
        """The address of the peer, ``HOST:PORT`` or a path."""
        return str(self._target)

    async def publish(
        self, topic: str | bytes, data: str | bytes, *, timeout: Duration = 10.0
    ) -> int:
        """Publish one event.

        If the connection has ended, the client opens it again first. When this returns, the system
        has the event; no peer confirms that it arrived.

        Args:
            topic: At most 1,024 bytes.
            data: At most 16 MiB; text is sent as UTF-8.
            timeout: Seconds or a timedelta, opening the connection included.

        Returns:
            The size of the payload in bytes.

        Raises:
            InvalidTopic: The topic is too long.
            InvalidPayload: `data` is neither text nor bytes.
            PayloadTooLarge: The payload is too large.
            ConnectionFailed: The server cannot be reached, or the connection ended meanwhile.
            OperationTimeout: It took longer than `timeout`; part of the event may have been sent.
            ClosedError: The client is closed.
        """
        seconds = seconds_of(timeout)
        body = payload(data)
        wire = _encode(topic, body)
        try:
            async with asyncio.timeout(seconds), self._lock:
                try:
                    link = await self._publishing(topic)
                    await link.write(wire)
                except BaseException:
                    # A partial event would corrupt all later ones.
                    await self._hang_up()
                    raise
        except TimeoutError as error:
            if isinstance(error, OperationTimeout):
                raise
            raise OperationTimeout(
                f"{self._target} accepted no data within {seconds:g} s."
            ) from None
        return len(body)

    def subscribe(self, topic: str | bytes) -> EventSubscription:
        """Receive the events of a topic; ``*`` means all topics and is the only wildcard.

        The connection opens with ``async with``, or with the first requested event.

        Raises:
            InvalidTopic: The topic is longer than 1,024 bytes.
            ClosedError: The client is closed.
        """
        if self._closed:
            raise ClosedError
        subscription = EventSubscription(
            self._target,
            _encode(topic, b""),
            to_text(to_bytes(topic)),
            self._ssl,
            self._connect_timeout,
            Backoff(*self._reconnect),
            self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    async def close(self) -> None:
        """End all connections; calling it again does nothing."""
        self._closed = True
        closing = [subscription.close() for subscription in self._subscriptions]
        await asyncio.gather(*closing, self._hang_up())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _publishing(self, topic: str | bytes) -> Link:
        if self._closed:
            raise ClosedError
        if self._link is not None and self._link.ended:
            await self._hang_up()
        if self._link is None:
            self._link = await Link.open(self._target, self._ssl, self._connect_timeout)
            if self._closed:
                raise ClosedError
            # The first event of a connection subscribes. Use the topic of the publish: a client
            # that may publish usually may read, and a special topic could be denied, so that the
            # server would close the connection.
            self._link.begin(_encode(topic, b""))
            self._discarding = asyncio.create_task(_discard(self._link))
        return self._link

    async def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        if self._discarding is not None:
            self._discarding.cancel()
            await asyncio.gather(self._discarding, return_exceptions=True)
            self._discarding = None


class EventSubscription:
    """Events of one topic, in the order in which they arrive.

    The client reconnects after a lost connection; events published meanwhile are lost. A program
    that does not read delays only its own connection.

    Attributes:
        topic: The subscribed topic.
        reconnects: Number of reconnects.
    """

    def __init__(
        self,
        target: Target,
        opening: bytes,
        topic: str,
        ssl: ssl.SSLContext | None,
        timeout: float,
        backoff: Backoff,
        closing: Callable[[EventSubscription], None],
    ) -> None:
        self._target = target
        self._opening = opening
        self._ssl = ssl
        self._timeout = timeout
        self._backoff = backoff
        self._closing = closing
        self._link: Link | None = None
        self._decoder = Decoder()
        self._found: deque[Event] = deque()
        self._lock = asyncio.Lock()
        self._opened = False
        self._ended = asyncio.Event()
        self.topic = topic
        self.reconnects = 0

    async def open(self) -> None:
        """Connect and subscribe.

        The protocol does not confirm a subscription: you may miss events that are published
        immediately after it.

        Raises:
            ConnectionFailed: The server cannot be reached.
            OperationTimeout: It did not answer in time.
            ClosedError: The subscription is closed.
        """
        async with self._lock:
            await self._ensure()

    async def recv(self, timeout: Duration | None = None) -> Event:
        """Return the next event.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No event arrived within `timeout`.
            ConnectionFailed: The first connection could not be opened.
            ProtocolError: The server sends data that is not an event stream.
            ClosedError: The subscription is closed.
        """
        seconds = seconds_of(timeout)
        if self._found:
            return self._found.popleft()
        try:
            async with asyncio.timeout(seconds), self._lock:
                while not self._found:
                    await self._read()
                return self._found.popleft()
        except TimeoutError as error:
            if isinstance(error, OperationTimeout):
                raise
            raise OperationTimeout(f"No event arrived within {seconds:g} s.", remedy="") from None

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events until the subscription is closed."""
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

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _read(self) -> None:
        link = await self._ensure()
        data = await link.read()
        if self._ended.is_set():
            raise ClosedError
        if not data:
            self._link = None
            await link.close()
            return
        self._backoff.reset()
        self._decoder.feed(data)
        try:
            while events := self._decoder.take():
                self._found += [Event(to_text(topic), data) for topic, data in events]
        except FrameError as error:
            await self.close()
            raise ProtocolError(f"{self._target} does not send an event stream: {error}") from None

    async def _ensure(self) -> Link:
        while self._link is None:
            if self._opened:
                await self._backoff.sleep(self._ended)
            if self._ended.is_set():
                raise ClosedError
            try:
                link = await Link.open(self._target, self._ssl, self._timeout)
            except (ConnectionFailed, OperationTimeout):
                if not self._opened:
                    raise
                continue
            if self._ended.is_set():
                await link.close()
                raise ClosedError
            link.begin(self._opening)
            self._decoder = Decoder()
            self.reconnects += self._opened
            self._opened = True
            self._link = link
        return self._link


def _target(url: str) -> Target:
    if url.rstrip("/") == "events://self":
        address = os.environ.get("HANZO_PUBSUB_EVENT_STREAM", "")
        if address.startswith("unix:"):
            return Target(path=address.removeprefix("unix:"))
        host, _, port = address.rpartition(":")
        return parse_target(f"events://{host or '127.0.0.1'}:{port or PORT}", "events", PORT)
    return parse_target(url, "events", PORT)


def _encode(topic: str | bytes, body: bytes) -> bytes:
    name = to_bytes(topic)
    if len(name) > MAX_TOPIC:
        raise InvalidTopic(f"A topic has at most {MAX_TOPIC:,} bytes, not {len(name):,}.")
    if len(body) > MAX_PAYLOAD:
        raise PayloadTooLarge(
            f"A payload has at most {MAX_PAYLOAD:,} bytes, not {len(body):,}.",
            size=len(body),
            limit=MAX_PAYLOAD,
        )
    return encode_event(name, body)


async def _discard(link: Link) -> None:
    """Read and discard, so that the server never waits for this side."""
    while await link.read():
        pass
