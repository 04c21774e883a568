"""The interface of a client for requests and replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.values import Duration, Gap, Outgoing, Published, Topics


class Client(Protocol):
    """The part of `PubSubClient` that requests and replies use."""

    @property
    def clock(self) -> Clock:
        """See `PubSubClient.clock`."""
        ...

    def subscribe(
        self, topics: Topics, *, on_gap: Callable[[Gap], None] | None = None
    ) -> Subscription:
        """See `PubSubClient.subscribe`."""
        ...

    async def publish(
        self, topic: str, message: Outgoing, *, timeout: Duration | None = None
    ) -> Published:
        """See `PubSubClient.publish`."""
        ...
