"""What the nodes on one Redis share other than the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pubsub_server.settings.config import Settings


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The shared state of the nodes other than the logs.

    Attributes:
        heartbeat: Seconds between two heartbeats of a node.
        timeout: Seconds without a heartbeat after which the lease of a node is revoked.
        feed_timeout: Seconds without its own test message after which a node reports not ready.
        grace: Seconds that the members of a stopped node have to reconnect to another.
        max_members: Maximum members per topic.
        per_user: Maximum open connections per user.
        per_org: Maximum open connections per organization.
        org_limits: Limits of certain organizations, instead of ``per_org``.
        rate_user: Publishes per second of a user over REST.
        rate_service: Publishes per second of a service.
        rate_burst: Size of a burst in milliseconds of the rate.
        rate_bulk: Batch publishes per second of a bulk publisher over REST.
    """

    heartbeat: float
    timeout: float
    feed_timeout: float
    grace: float
    max_members: int
    per_user: int
    per_org: int
    org_limits: Mapping[str, int]
    rate_user: float
    rate_service: float
    rate_burst: int
    rate_bulk: float


def node_options(settings: Settings) -> NodeOptions:
    """The shared options for these settings."""
    return NodeOptions(
        heartbeat=settings.node_heartbeat / 1000,
        timeout=settings.node_timeout / 1000,
        feed_timeout=settings.feed_timeout / 1000,
        grace=settings.presence_grace / 1000,
        max_members=settings.presence_max_members,
        per_user=settings.connections_per_user,
        per_org=settings.connections_per_org,
        org_limits=settings.org_limits,
        rate_user=settings.publish_rate_user,
        rate_service=settings.publish_rate_service,
        rate_burst=settings.publish_burst,
        rate_bulk=settings.publish_rate_bulk,
    )
