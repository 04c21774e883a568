"""One connection of the event stream: its first event subscribes, the others are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.eventstream.codec import ALL_TOPICS, Decoder, Event, encode_event
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.byte_session import ByteSession
from pubsub_server.listeners.byte_topics import hub_payload, hub_topic, shown
from pubsub_server.listeners.paced_publishes import AT_ONCE
from pubsub_server.shared.requests import Draft, SubscribeRequest

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Coroutine

    from pubsub_server.backplane import Published
    from pubsub_server.listeners.byte_connections import ByteConnections
    from pubsub_server.listeners.event_stream.announcements import Announcements
    from pubsub_server.listeners.local_topics import LocalTopics

EVERYTHING = "**"
"""The hub's pattern for the wildcard of the event stream."""


class EventSession(ByteSession[Event]):
    """See `byte_session.ByteSession`.

    Args:
        shared: What all connections share.
        local: Subscriptions to topics that stay among these connections.
        announcements: Notifies webhooks.
    """

    def __init__(
        self,
        shared: ByteConnections,
        local: LocalTopics[EventSession],
        announcements: Announcements,
    ) -> None:
        super().__init__(shared, Decoder())
        self._local = local
        self._announce = announcements.announce
        self._topic: bytes | None = None

    def handle(self, requests: deque[Event]) -> Coroutine[Any, Any, None] | None:
        """See `byte_session.ByteSession`."""
        if self._topic is None:
            self._subscribe(requests.popleft().topic)
            return None
        drafts: list[Draft] = []
        sizes: list[int] = []
        while requests and len(drafts) < AT_ONCE:
            event = requests[0]
            draft = self._draft(event)
            if draft is None:
                if drafts:
                    break
                return self._keep(requests.popleft())
            requests.popleft()
            drafts.append(draft)
            sizes.append(len(event.payload))
        left = iter(sizes)
        return self.publish(drafts, lambda draft, answer: self._answered(draft, answer, next(left)))

    def left(self) -> None:
        """See `byte_session.ByteSession`."""
        topic = self._topic
        if topic is None:
            return
        local = self._local
        if topic == ALL_TOPICS:
            local.discard_everything(self)
        else:
            local.discard(self, topic)
        self._announce("pubsub.unsubscribed", topic)

    def overdue(self, now: float) -> str | None:
        """See `byte_session.ByteSession`."""
        return "no_subscription" if self._topic is None else None

    # ------------------------------------------------------------ subscribing

    def _subscribe(self, topic: bytes) -> None:
        shared = self._shared
        everything = topic == ALL_TOPICS
        name = EVERYTHING if everything else hub_topic(topic)
        allowed = (
            shared.policy.may_subscribe_pattern(self.identity, EVERYTHING)
            if everything
            else shared.policy.may_subscribe(self.identity, shown(topic))
        )
        if not allowed:
            shared.service.note("subscribe", self.connection, name or shown(topic), "forbidden")
            shared.warn_denied("read", self.identity, name or shown(topic))
            self.break_off("forbidden")
            return
        self._topic = topic
        if self.lost:
            return
        if everything:
            self._local.add_everything(self)
        else:
            self._local.add(self, topic)
        if name is not None:
            request = SubscribeRequest((name,), presence=False)
            shared.service.subscribe(self.connection, request)
        else:
            shared.service.note("subscribe", self.connection, shown(topic))
        self._announce("pubsub.subscribed", topic)

    # ------------------------------------------------------------ publishing

    def _draft(self, event: Event) -> Draft | None:
        """The event as a draft for the hub; None if it stays on this listener."""
        name = hub_topic(event.topic)
        if name is None:
            return None
        data = hub_payload(event.payload, self._shared.settings.max_payload)
        if data is None:
            return None
        return Draft(name, "message", data, None, None, None)

    def _answered(self, draft: Draft, answer: Published | ServiceError, size: int) -> None:
        if not isinstance(answer, ServiceError):
            self._announce("pubsub.published", draft.topic.encode(), size)
        elif answer.code == "forbidden":
            self._shared.denied(self.identity, draft.topic)
        else:
            # The protocol cannot report a lost event, so close the connection.
            self.break_off(answer.code)

    def _keep(self, event: Event) -> Coroutine[Any, Any, None] | None:
        """Publish an event that stays among the subscribers of this listener."""
        shared = self._shared
        text = shown(event.topic)
        if not shared.policy.may_publish(self.identity, text):
            shared.denied(self.identity, text)
            shared.service.note("publish", self.connection, text, "forbidden")
            return None
        granted, _ = shared.service.budget(self.connection, 1)
        if granted:
            self._deliver(event)
            return None
        return self._keep_later(event)

    async def _keep_later(self, event: Event) -> None:
        await self.within_rate()
        if not self.closing:
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        shared = self._shared
        shared.stayed()
        text = shown(event.topic)
        shared.service.note("publish", self.connection, text)
        data = encode_event(event.topic, event.payload)
        for session, named in self._local.subscribers(event.topic):
            if session is self:
                continue
            if named or shared.policy.may_subscribe(session.identity, text):
                shared.service.send(session.connection, data)
        self._announce("pubsub.published", event.topic, len(event.payload))
