"""The listener of the hub protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.listeners.byte_listener import ByteListener
from pubsub_server.listeners.hub_protocol.encoder import PUSHES
from pubsub_server.listeners.hub_protocol.session import HubSession
from pubsub_server.listeners.local_topics import LocalTopics

if TYPE_CHECKING:
    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Policy
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings


class HubListener(ByteListener):
    """Clients of the hub protocol on one address; arguments as for `ByteListener`."""

    name = "hub"
    encoder = PUSHES

    def __init__(
        self, service: Service, policy: Policy, settings: Settings, identity: Identity
    ) -> None:
        super().__init__(service, policy, settings, identity)
        self.local: LocalTopics[HubSession] = LocalTopics()

    def session(self) -> HubSession:
        """See `byte_listener.ByteListener`."""
        return HubSession(self)
