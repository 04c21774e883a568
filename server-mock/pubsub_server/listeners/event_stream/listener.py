"""The listener of the event stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.listeners.byte_connections import ByteConnections
from pubsub_server.listeners.byte_listener import ByteListener
from pubsub_server.listeners.event_stream.announcements import Announcements
from pubsub_server.listeners.event_stream.encoder import EVENTS
from pubsub_server.listeners.event_stream.session import EventSession
from pubsub_server.listeners.local_topics import LocalTopics

if TYPE_CHECKING:
    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Policy, Webhooks
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings


def event_stream_listener(
    service: Service,
    policy: Policy,
    settings: Settings,
    identity: Identity,
    webhooks: Webhooks | None = None,
) -> ByteListener:
    """Event streams on one address.

    Args:
        service: The hub.
        policy: The access rules.
        settings: Limits and deadlines.
        identity: The identity of the connections.
        webhooks: Receive subscriptions and events.
    """
    shared = ByteConnections("event_stream", EVENTS, service, policy, settings, identity)
    local: LocalTopics[EventSession] = LocalTopics()
    announcements = Announcements(webhooks)
    return ByteListener(shared, lambda: EventSession(shared, local, announcements))
