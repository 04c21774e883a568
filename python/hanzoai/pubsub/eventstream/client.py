"""Client of the event stream for asyncio."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import InvalidOption, InvalidTopic, PayloadTooLarge
from hanzoai.pubsub.eventstream.codec import (
    ALL_TOPICS,
    MAX_PAYLOAD,
    MAX_TOPIC,
    Decoder,
    encode_event,
)
from hanzoai.pubsub.links.clients import LinkClient, LinkSubscription, TimeLimit, foreign
from hanzoai.pubsub.links.connections import (
    Target,
    check_url,
    parse_target,
    payload,
    to_text,
    topic_bytes,
)
from hanzoai.pubsub.links.unparsed import FrameError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from hanzoai.pubsub.durations import Duration
    from hanzoai.pubsub.errors import ProtocolError
    from hanzoai.pubsub.links.clients import Dialing
    from hanzoai.pubsub.links.connections import Link

PORT: Final = 1002
"""Default port."""
_PROTOCOL: Final = "the event stream"
_ANSWER_WITHIN: Final = 1.0
"""Seconds that `close` waits for the server to read everything and close the connection."""
_VARIABLE: Final = "HANZO_PUBSUB_EVENT_STREAM"
_NO_WILDCARD: Final = b"**"
"""The topic to which a publishing connection subscribes instead of `*`, which is all topics."""


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


class EventStreamClient(LinkClient):
    """Publishes to an event stream, and subscribes to it.

    Delivery is at most once: nothing is acknowledged, stored or repeated. Each subscription has its
    own connection. All publishes share another one, which keeps the order of the calls.

    Args:
        url: ``events://HOST:PORT``, ``events+tls://HOST:PORT``, ``events+unix:PATH``, or
            ``events://self`` for the node of this machine: the address in the environment variable
            ``HANZO_PUBSUB_EVENT_STREAM``, or ``127.0.0.1:1002``.
        ssl: SSL context for ``events+tls``: the authorities to trust, and your certificate if the
            server requires one.
        connect_timeout: Seconds or a timedelta for opening a connection; default 10.
        reconnect_min: Seconds or a timedelta before the first attempt after a lost connection;
            default 0.1.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta; default 10.

    Raises:
        InvalidOption: The URL cannot be read, another option has a wrong type, or ``ssl`` is given
            for a URL without TLS.
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
        super().__init__(_target(url), ssl, connect_timeout, reconnect_min, reconnect_max)
        self._foreign: ProtocolError | None = None

    async def close(self) -> None:
        """End all connections; calling it again does nothing.

        Raises:
            ProtocolError: The server has answered a publish with data of another protocol.
        """
        self._closed = True
        if self._link is not None and self._reading is not None:
            self._link.end()
            await asyncio.wait((self._reading,), timeout=_ANSWER_WITHIN)
        await super().close()
        self._check_answer()

    async def publish(
        self, topic: str | bytes, data: str | bytes, *, timeout: Duration = 10.0
    ) -> int:
        """Publish one event.

        If the connection has ended, the client opens it again first. When this returns, the
        operating system has the event; no peer confirms that it arrived. If the server answers with
        data of another protocol, the next ``publish`` or ``close`` raises ProtocolError.

        Args:
            topic: At most 1,024 bytes.
            data: At most 16 MiB; text is sent as UTF-8.
            timeout: Seconds or a timedelta, opening the connection included; default 10.

        Returns:
            The size of the payload in bytes.

        Raises:
            InvalidTopic: The topic is too long.
            InvalidPayload: `data` is neither text nor bytes.
            PayloadTooLarge: The payload is too large.
            ConnectionFailed: The server cannot be reached, or the connection ended meanwhile.
            OperationTimeout: It took longer than `timeout`; part of the event may have been sent.
            ProtocolError: The server has answered an earlier publish with data of another protocol.
            ClosedError: The client is closed.
        """
        self._check_answer()
        body = payload(data)
        wire = _encode(topic, body)

        def begin(link: Link) -> Coroutine[Any, Any, None]:
            # The first event of a connection subscribes. Use the topic of the publish: a client
            # that may publish usually may read, and a special topic could be denied, so that the
            # server would close the connection.
            link.begin(_encode(_NO_WILDCARD if topic_bytes(topic) == ALL_TOPICS else topic, b""))
            return self._discard(link)

        async with TimeLimit(seconds_of(timeout), self._dialing.target, "accepted no data"):
            await self._write(wire, begin)
        return len(body)

    def subscribe(self, topic: str | bytes) -> EventSubscription:
        """Receive the events of a topic; ``*`` means all topics and is the only wildcard.

        The connection opens with ``async with``, or with the first requested event.

        Raises:
            InvalidTopic: The topic is longer than 1,024 bytes.
            ClosedError: The client is closed.
        """
        self._check_open()
        subscription = EventSubscription(self._dialing, topic, self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    async def _discard(self, link: Link) -> None:
        """Read and discard, so that the server never waits for this side."""
        decoder = Decoder()
        try:
            while data := await link.read():
                decoder.feed(data)
                while decoder.decode():
                    pass
        except FrameError as error:
            self._foreign = foreign(self.target, _PROTOCOL, error)
            await link.close()

    def _check_answer(self) -> None:
        """Raise the error of the publishing connection once."""
        error, self._foreign = self._foreign, None
        if error is not None:
            raise error


class EventSubscription(LinkSubscription[Event]):
    """Events of one topic, in the order in which they arrive.

    The client reconnects after a lost connection; events published meanwhile are lost. The protocol
    does not confirm a subscription: you may also miss events that are published immediately after
    ``open``. A program that does not read delays only its own connection.

    Attributes:
        topic: The subscribed topic.
        reconnects: Number of reconnects.
    """

    _protocol = _PROTOCOL

    def __init__(
        self,
        dialing: Dialing,
        topic: str | bytes,
        closing: Callable[[LinkSubscription[Any]], None],
    ) -> None:
        super().__init__(dialing, closing)
        self._opening = _encode(topic, b"")
        self._decoder = Decoder()
        self.topic = to_text(topic_bytes(topic))

    async def _subscribe(self, link: Link) -> None:
        self._decoder = Decoder()
        link.begin(self._opening)

    def _decode(self, data: bytes) -> None:
        self._backoff.reset()
        self._decoder.feed(data)
        while events := self._decoder.decode():
            self._found += [Event(to_text(topic), data) for topic, data in events]


def _target(url: str) -> Target:
    check_url(url)
    if url.rstrip("/") != "events://self":
        return parse_target(url, "events", PORT)
    address = os.environ.get(_VARIABLE, "")
    if address.startswith("unix:"):
        url = f"events+{address}"
    else:
        host, _, port = address.rpartition(":")
        url = f"events://{host or '127.0.0.1'}:{port or PORT}"
    try:
        return parse_target(url, "events", PORT)
    except InvalidOption:
        raise InvalidOption(
            f"{_VARIABLE} is {address!r}, which is not an address.",
            field="url",
            remedy="Set it to a port, HOST:PORT or unix:PATH.",
        ) from None


def _encode(topic: str | bytes, body: bytes) -> bytes:
    name = topic_bytes(topic)
    if len(name) > MAX_TOPIC:
        raise InvalidTopic(f"A topic has at most {MAX_TOPIC:,} bytes, not {len(name):,}.")
    if len(body) > MAX_PAYLOAD:
        raise PayloadTooLarge(
            f"A payload has at most {MAX_PAYLOAD:,} bytes, not {len(body):,}.",
            size=len(body),
            limit=MAX_PAYLOAD,
        )
    return encode_event(name, body)
