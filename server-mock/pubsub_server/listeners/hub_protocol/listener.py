"""The listener of the hub protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.listeners.byte_connections import ByteConnections
from pubsub_server.listeners.byte_listener import ByteListener
from pubsub_server.listeners.hub_protocol.encoder import PUSHES
from pubsub_server.listeners.hub_protocol.session import HubSession
from pubsub_server.listeners.local_topics import LocalTopics

if TYPE_CHECKING:
    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Policy
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings


def hub_listener(
    service: Service, policy: Policy, settings: Settings, identity: Identity
) -> ByteListener:
    """Clients of the hub protocol on one address; arguments as for `ByteConnections`."""
    shared = ByteConnections("hub", PUSHES, service, policy, settings, identity)
    local: LocalTopics[HubSession] = LocalTopics()
    return ByteListener(shared, lambda: HubSession(shared, local))
