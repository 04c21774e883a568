"""Gauges of the hub, in addition to its counters; read on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.instruments import Reading

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence, Sized

    from pubsub_server.hub.core import Core
    from pubsub_server.shared.connection import Connection


def gauges(core: Core, connections: Collection[Connection], held: Sized) -> Sequence[Reading]:
    """The gauges of a hub.

    Args:
        core: The parts of the hub.
        connections: All open connections; read on each call.
        held: Number of held requests for positions.
    """
    return (
        Reading(
            "stalled_connections",
            "Connections that currently accept no data.",
            lambda: sum(1 for each in connections if each.stalled),
        ),
        Reading(
            "stalled_bytes",
            "Bytes that wait for stalled connections.",
            lambda: sum(each.held for each in connections if each.stalled),
        ),
        Reading("presence_topics", "Topics with members.", lambda: len(core.presence)),
        Reading(
            "presence_members",
            "Members of all topics; a client on several topics counts once per topic.",
            lambda: core.presence.places,
        ),
        Reading(
            "held_requests",
            "Long-polling requests for positions that wait for a change.",
            lambda: len(held),
        ),
        Reading(
            "subscribed_topics",
            "Topics subscribed to by name.",
            lambda: len(core.router.exact_topics()),
        ),
    )
