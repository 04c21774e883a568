"""The event stream for programs without asyncio, with the methods of `EventStreamClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from hanzoai.pubsub.blocking.links import BlockingClient, BlockingSubscription
from hanzoai.pubsub.eventstream import client

if TYPE_CHECKING:
    import ssl

    from hanzoai.pubsub.durations import Duration

__all__ = ["EventStreamClient", "EventSubscription"]


class EventSubscription(BlockingSubscription[client.Event]):
    """Events of one topic; see `client.EventSubscription`."""

    _inner: client.EventSubscription

    @property
    def topic(self) -> str:
        """The subscribed topic."""
        return self._inner.topic


class EventStreamClient(BlockingClient[client.EventStreamClient]):
    """Publishes to an event stream, and subscribes to it; see `client.EventStreamClient`.

    Any number of threads may share a client; a subscription belongs to one thread at a time.

    Args:
        url: ``events://HOST:PORT``, ``events+tls://HOST:PORT``, ``events+unix:PATH`` or
            ``events://self``.
        ssl: SSL context for ``events+tls``: the authorities to trust, and your certificate.
        connect_timeout: Seconds or a timedelta for opening a connection; default 10.
    """

    def __init__(
        self,
        url: str = "events://self",
        *,
        ssl: ssl.SSLContext | None = None,
        connect_timeout: Duration = 10.0,
    ) -> None:
        super().__init__(client.EventStreamClient(url, ssl=ssl, connect_timeout=connect_timeout))

    def publish(self, topic: str | bytes, data: str | bytes, *, timeout: Duration = 10.0) -> int:
        """Publish one event; see `client.EventStreamClient.publish`."""
        return self._call(lambda: self._inner.publish(topic, data, timeout=timeout))

    def subscribe(self, topic: str | bytes) -> EventSubscription:
        """Receive the events of a topic; see `client.EventStreamClient.subscribe`."""
        return EventSubscription(self._portal, self._inner.subscribe(topic))

    def __enter__(self) -> Self:
        return self
