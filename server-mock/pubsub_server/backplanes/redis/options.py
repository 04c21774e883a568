"""What nodes on one Redis share besides the logs: heartbeats, members, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pubsub_server.settings.config import Settings


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What the nodes share beside the logs.

    Attributes:
        heartbeat: Seconds between two heartbeats of a node.
        timeout: Seconds without a heartbeat after which the lease of a node is revoked.
        feed_timeout: Seconds after which a node that has not heard itself does not hear the others.
        grace: Seconds that the members of a node that was stopped have to go to another.
        max_members: Of one topic.
        per_user: Open connections of one user.
        per_org: Of one organization.
        org_limits: Of certain organizations, instead of ``per_org``.
        rate_user: Publishes per second of a user over REST.
        rate_service: Of a service.
        rate_burst: Milliseconds of the rate that may come at once.
        rate_bulk: Publishes per second of a bulk publisher, by batches over REST.
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
    """What nodes with these settings share."""
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
