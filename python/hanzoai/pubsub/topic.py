"""`ps.topic("a.b")`: the operations of a client with the topic filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.settings.options import ReceiveQueue
    from hanzoai.pubsub.values import (
        Message,
        Outgoing,
        PresenceChange,
        PresenceMember,
        Published,
        Since,
        Via,
    )


class TopicHandle:
    """One topic of one client. Making it has no effect on the wire, and it holds no state.

    Attributes:
        name: The topic, or for ``subscribe`` alone a pattern.
    """

    def __init__(self, client: PubSubClient, name: str) -> None:
        self.name = name
        self._client = client

    async def publish(
        self,
        message: Outgoing,
        *,
        ttl: int | None = None,
        id: str | None = None,
        key: str | None = None,
        background: bool = False,
        timeout: float | None = None,
        via: Via = "auto",
    ) -> Published:
        """Publish to this topic; see ``PubSubClient.publish``."""
        return await self._client.publish(
            self.name,
            message,
            ttl=ttl,
            id=id,
            key=key,
            background=background,
            timeout=timeout,
            via=via,
        )

    def subscribe(
        self,
        *,
        since: Since | None = None,
        history: int | None = None,
        after: int | None = None,
        on_message: Handler[Message] | None = None,
        on_presence: Handler[PresenceChange] | None = None,
        on_gap: GapHandler | None = None,
        presence: bool | None = None,
        state_loader: StateLoader | None = None,
        queue: ReceiveQueue | None = None,
    ) -> Subscription:
        """Subscribe; see ``PubSubClient.subscribe``. ``after`` is a position of this topic."""
        return self._client.subscribe(
            self.name,
            since=since,
            history=history,
            after=None if after is None else {self.name: after},
            on_message=on_message,
            on_presence=on_presence,
            on_gap=on_gap,
            presence=presence,
            state_loader=state_loader,
            queue=queue,
        )

    def history(
        self,
        *,
        since: Since | None = None,
        before: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Message]:
        """Retained messages of this topic, oldest first; see ``PubSubClient.history``."""
        return self._client.history(
            self.name, since=since, before=before, after=after, limit=limit, timeout=timeout
        )

    async def presence(self, *, timeout: float | None = None) -> list[PresenceMember]:
        """Everybody present on this topic."""
        return await self._client.presence(self.name, timeout=timeout)

    async def update_presence(
        self, data: Mapping[str, Any], *, timeout: float | None = None
    ) -> None:
        """Change how this client appears on this topic; see ``PubSubClient.update_presence``."""
        await self._client.update_presence(self.name, data, timeout=timeout)

    def __repr__(self) -> str:
        return f"<TopicHandle {self.name}>"
