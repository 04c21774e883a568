"""`ps.topic("a.b")`: the operations of a client with the topic filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, cast

from hanzoai.pubsub.model import Data, Data_co

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from hanzoai.pubsub.payload_models import PayloadModel
    from hanzoai.pubsub.runtime.handlers import GapHandler, Handler, StateLoader
    from hanzoai.pubsub.runtime.subscription import Subscription
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
    """What a handle needs of its client."""

    async def publish(
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
    ) -> Subscription:
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
    ) -> AsyncIterator[Message]:
        """Retained messages of a topic."""
        ...

    async def presence(self, topic: str, *, timeout: Duration | None) -> list[PresenceMember]:
        """The members of a topic."""
        ...

    async def occupancy(self, topic: str, *, timeout: Duration | None) -> Occupancy:
        """The number of members of a topic."""
        ...

    async def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None
    ) -> None:
        """Change how the client appears on a topic."""


class TopicHandle(Generic[Data]):
    """One topic of one client. Creating a handle sends nothing, and it has no state.

    With a model, as in ``TopicHandle[Order]``, the ``data`` of its messages are objects of the
    model.

    Attributes:
        name: The topic. For ``subscribe`` only, it may be a pattern.
    """

    def __init__(self, client: Client, name: str, model: PayloadModel[Data] | None = None) -> None:
        self.name = name
        self._client = client
        self._model = model

    async def publish(
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
        """Publish to this topic; see ``PubSubClient.publish``.

        Args:
            message: ``{"type": ..., "data": ...}``, optionally ``ttl``, ``id``, ``meta``; or an
                object of a model alone.
            ttl: Seconds in history, or a timedelta; 0 stores nothing.
            id: Message id; default ``msg_`` and a ULID.
            key: See ``PubSubClient.publish``.
            background: See ``PubSubClient.publish``.
            timeout: Seconds or a timedelta; default: ``operation_timeout``.
            via: See ``PubSubClient.publish``.

        Raises:
            SchemaError: The payload does not match the model, or the contract of the server.
        """
        model = self._model
        sent = message if model is None else model.outgoing(self.name, message)
        return await self._client.publish(
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
    ) -> Subscription[Data]:
        """Subscribe; see ``PubSubClient.subscribe``. ``after`` is a position of this topic.

        If a message does not match the model, the iteration raises ``SchemaError``; iterate again
        to continue after the message. With ``on_message``, the error goes to ``on_error``.
        ``PubSubClient.topic`` describes other policies.
        """
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
    ) -> AsyncIterator[Message[Data]]:
        """Iterate over the retained messages of this topic; see ``PubSubClient.history``.

        If a message does not match the model, the iterator raises ``SchemaError``, and then
        continues after it.
        """
        messages = self._client.history(
            self.name, since=since, before=before, after=after, limit=limit, timeout=timeout
        )
        return messages if self._model is None else _Read(messages, self._model)

    async def presence(self, *, timeout: Duration | None = None) -> list[PresenceMember]:
        """Return the members of this topic."""
        return await self._client.presence(self.name, timeout=timeout)

    async def occupancy(self, *, timeout: Duration | None = None) -> Occupancy:
        """Return the number of members of this topic; see ``PubSubClient.occupancy``."""
        return await self._client.occupancy(self.name, timeout=timeout)

    async def update_presence(
        self, data: Mapping[str, Any], *, timeout: Duration | None = None
    ) -> None:
        """Change how this client appears on this topic; see ``PubSubClient.update_presence``."""
        await self._client.update_presence(self.name, data, timeout=timeout)

    def __repr__(self) -> str:
        return f"<TopicHandle {self.name}>"


class _Read(Generic[Data_co]):
    """An iterator of messages that a model has read; an error does not end it."""

    def __init__(self, messages: AsyncIterator[Message], model: PayloadModel[Data_co]) -> None:
        self._messages = messages
        self._model = model

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[Data_co]:
        while (read := self._model.read(await anext(self._messages))) is None:
            pass
        return read
