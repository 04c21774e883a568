"""The hub protocol for programs without asyncio, with the methods of `HubClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from hanzoai.pubsub.blocking.links import BlockingClient, BlockingSubscription
from hanzoai.pubsub.hub import client

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from hanzoai.pubsub.durations import Duration

__all__ = ["HubClient", "HubSubscription"]


class HubSubscription(BlockingSubscription[client.HubMessage]):
    """Messages of several topics; see `client.HubSubscription`."""

    _inner: client.HubSubscription

    @property
    def id(self) -> int:
        """Id that the hub assigns."""
        return self._inner.id

    @property
    def topics(self) -> tuple[str, ...]:
        """The current topics."""
        return self._inner.topics

    def add(self, *topics: str | bytes) -> int:
        """Subscribe to more topics; see `client.HubSubscription.add`."""
        return self._portal.call(lambda: self._inner.add(*topics))

    def remove(self, *topics: str | bytes) -> int:
        """Unsubscribe from topics; see `client.HubSubscription.remove`."""
        return self._portal.call(lambda: self._inner.remove(*topics))


class HubClient(BlockingClient[client.HubClient]):
    """Publishes to a hub, and subscribes to it; see `client.HubClient`.

    Any number of threads may share a client; a subscription belongs to one thread at a time.

    Args:
        url: ``hub://HOST:PORT``, ``hub+tls://HOST:PORT`` or ``hub+unix:PATH``.
        ssl: SSL context for ``hub+tls``: the authorities to trust, and your certificate.
        connect_timeout: Seconds or a timedelta for opening a connection; default 10.
    """

    def __init__(
        self,
        url: str = "hub://127.0.0.1",
        *,
        ssl: ssl.SSLContext | None = None,
        connect_timeout: Duration = 10.0,
    ) -> None:
        super().__init__(client.HubClient(url, ssl=ssl, connect_timeout=connect_timeout))

    def publish(
        self,
        topics: str | bytes | Iterable[str | bytes],
        data: str | bytes,
        *,
        timeout: Duration = 10.0,
    ) -> int:
        """Publish data to one topic or several; see `client.HubClient.publish`."""
        return self._call(lambda: self._inner.publish(topics, data, timeout=timeout))

    def subscribe(self, *topics: str | bytes) -> HubSubscription:
        """Receive messages of these topics; see `client.HubClient.subscribe`."""
        return HubSubscription(self._portal, self._inner.subscribe(*topics))

    def __enter__(self) -> Self:
        return self
