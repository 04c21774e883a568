"""`PubSub.topic("a.b")`: the operations of a blocking client with the topic filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, cast

from hanzoai.pubsub.blocking.parts import parsed
from hanzoai.pubsub.model import Data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hanzoai.pubsub.blocking.parts import BlockingSubscription
    from hanzoai.pubsub.payload_models import PayloadModel
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.settings.options import ReceiveQueue
    from hanzoai.pubsub.values import (
        Before,
        Duration,
        Message,
        Occupancy,
        Outgoing,
        OutgoingOf,
        PresenceChange,
        PresenceMember,
        Publication,
        Published,
        Since,
        Topics,
        Ttl,
        Types,
        Via,
    )


class Client(Protocol):
    """The part of a client that a handle uses."""

    def publish(
        self,
        topic: str,
        message: Outgoing,
        *,
        ttl: Ttl | None,
        id: str | None,
        key: str | None,
        background: bool,
        timeout: Duration | None,
        via: Via,
    ) -> Published:
        """Publish one message."""
        ...

    def subscribe(
        self,
        topics: Topics,
        *,
        types: Types | None,
        since: Since | None,
        history: int | None,
        after: Mapping[str, int] | None,
        on_message: Handler[Message] | None,
        on_presence: Handler[PresenceChange] | None,
        on_gap: GapHandler | None,
        presence: bool | Mapping[str, Any] | None,
        state_loader: StateLoader | None,
        queue: ReceiveQueue | None,
    ) -> BlockingSubscription:
        """Subscribe to topics or patterns."""
        ...

    def history(
        self,
        topic: str,
        *,
        since: Since | None,
        before: Before | None,
        after: int | None,
        limit: int | None,
        timeout: Duration | None,
    ) -> Iterator[Message]:
        """Retained messages of a topic."""
        ...

    def presence(self, topic: str, *, timeout: Duration | None) -> list[PresenceMember]:
        """The members of a topic."""
        ...

    def occupancy(self, topic: str, *, timeout: Duration | None) -> Occupancy:
        """The number of members of a topic."""
        ...

    def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None
    ) -> None:
        """Change how the client appears on a topic."""


class BlockingTopicHandle(Generic[Data]):
    """One topic of one blocking client; see ``TopicHandle``.

    Attributes:
        name: The topic. For ``subscribe`` only, it may be a pattern.
    """

    def __init__(self, client: Client, name: str, model: PayloadModel[Data] | None = None) -> None:
        self.name = name
        self._client = client
        self._model = model

    def publish(
        self,
        message: Data | OutgoingOf[Data] | Publication,
        *,
        ttl: Ttl | None = None,
        id: str | None = None,
        key: str | None = None,
        background: bool = False,
        timeout: Duration | None = None,
        via: Via = "auto",
    ) -> Published:
        """Publish to this topic; see ``TopicHandle.publish``."""
        model = self._model
        sent = message if model is None else model.outgoing(self.name, message)
        return self._client.publish(
            self.name,
            cast("Outgoing", sent),
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
        types: Types | None = None,
        since: Since | None = None,
        history: int | None = None,
        after: int | None = None,
        on_message: Handler[Message[Data]] | None = None,
        on_presence: Handler[PresenceChange] | None = None,
        on_gap: GapHandler | None = None,
        presence: bool | Mapping[str, Any] | None = None,
        state_loader: StateLoader | None = None,
        queue: ReceiveQueue | None = None,
    ) -> BlockingSubscription[Data]:
        """Subscribe to this topic; see ``TopicHandle.subscribe``."""
        model = self._model
        subscription = self._client.subscribe(
            self.name,
            types=types,
            since=since,
            history=history,
            after=None if after is None else {self.name: after},
            on_message=on_message if model is None else model.handler(on_message),
            on_presence=on_presence,
            on_gap=on_gap,
            presence=presence,
            state_loader=state_loader,
            queue=queue,
        )
        return subscription if model is None else subscription.typed(model)

    def history(
        self,
        *,
        since: Since | None = None,
        before: Before | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout: Duration | None = None,
    ) -> Iterator[Message[Data]]:
        """Iterate over the retained messages of this topic; see ``TopicHandle.history``."""
        messages = self._client.history(
            self.name, since=since, before=before, after=after, limit=limit, timeout=timeout
        )
        if self._model is None:
            return messages
        return cast("Iterator[Message[Data]]", parsed(messages, self._model))

    def presence(self, *, timeout: Duration | None = None) -> list[PresenceMember]:
        """Return the members of this topic."""
        return self._client.presence(self.name, timeout=timeout)

    def occupancy(self, *, timeout: Duration | None = None) -> Occupancy:
        """Return the number of members of this topic; see ``PubSubClient.occupancy``."""
        return self._client.occupancy(self.name, timeout=timeout)

    def update_presence(self, data: Mapping[str, Any], *, timeout: Duration | None = None) -> None:
        """Change how this client appears on this topic."""
        self._client.update_presence(self.name, data, timeout=timeout)

    def __repr__(self) -> str:
        return f"<BlockingTopicHandle {self.name}>"
