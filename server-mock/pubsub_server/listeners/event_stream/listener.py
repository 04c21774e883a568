"""The listener of the event stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pubsub_server.listeners.byte_listener import ByteListener, shown
from pubsub_server.listeners.event_stream.encoder import EVENTS
from pubsub_server.listeners.event_stream.session import EventSession
from pubsub_server.listeners.local_topics import LocalTopics

if TYPE_CHECKING:
    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import HookEvent, Policy, Webhooks
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings


class EventStreamListener(ByteListener):
    """Event streams on one address.

    Args:
        service: The hub.
        policy: The access rules.
        settings: Limits and deadlines.
        identity: The identity of the connections.
        webhooks: Receive subscriptions and events.
    """

    name = "event_stream"
    encoder = EVENTS

    def __init__(
        self,
        service: Service,
        policy: Policy,
        settings: Settings,
        identity: Identity,
        webhooks: Webhooks | None = None,
    ) -> None:
        super().__init__(service, policy, settings, identity)
        self.local: LocalTopics[EventSession] = LocalTopics()
        self._webhooks = webhooks

    def session(self) -> EventSession:
        """See `byte_listener.ByteListener`."""
        return EventSession(self)

    def announce(self, event: HookEvent, topic: bytes, size: int | None = None) -> None:
        """Notify the webhooks that select the event."""
        hooks, name = self._webhooks, shown(topic)
        if hooks is not None and hooks.wants(event, name):
            body: dict[str, object] = {"topic": name}
            if size is not None:
                body["size"] = size
            hooks.notify(event, name, orjson.dumps(body))
