"""The listener of SP subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub_server.listeners.byte_connections import ByteConnections
from pubsub_server.listeners.byte_listener import ByteListener
from pubsub_server.listeners.sp_pub.encoder import ENCODERS
from pubsub_server.listeners.sp_pub.session import SpSession

if TYPE_CHECKING:
    from hanzoai.pubsub.sp.codec import Framing
    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Policy
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings

HELLO_SECONDS: Final = 10.0
"""Seconds for the hello of a subscriber."""


def sp_listener(
    service: Service, policy: Policy, settings: Settings, identity: Identity, framing: Framing
) -> ByteListener:
    """SP subscribers on one address.

    Args:
        service: The hub.
        policy: The access rules.
        settings: Limits and deadlines.
        identity: The identity of the connections.
        framing: Framing of the transport.
    """
    shared = ByteConnections("sp_pub", ENCODERS[framing], service, policy, settings, identity)
    shared.first_within = HELLO_SECONDS
    return ByteListener(shared, lambda: SpSession(shared, framing))
