"""State and helpers that the parts of the hub share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pubsub_server.shared.codec import error_frame
from pubsub_server.shared.encoder import Attends

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pubsub_server.backplane import Backplane
    from pubsub_server.errors import ServiceError
    from pubsub_server.hub.delivery import Delivery
    from pubsub_server.hub.echoes import Echoes
    from pubsub_server.hub.floors import Floors
    from pubsub_server.hub.presence import Presence
    from pubsub_server.hub.routing import Router
    from pubsub_server.interfaces import (
        Audit,
        AuditAction,
        Authenticator,
        ConnectionLimiter,
        Identity,
        Inspector,
        Policy,
        RateLimiter,
        Stats,
        Tracing,
        Webhooks,
    )
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.client_ids import ClientIds
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import SubscribeRequest
    from pubsub_server.shared.roster import Roster
    from pubsub_server.shared.turns import Turns
    from pubsub_server.shared.wheel import Wheel


@dataclass(slots=True)
class Core:
    """The parts of the hub, connected by `hub.Hub`.

    Attributes:
        presence: Members that are connected to this node.
        inspectors: Check publications before they are accepted.
        echoes: Messages that must not come back to their publisher.
        floors: Positions that connections have from replays.
        roster: Members of all nodes; None for a single node.
        ids: Issues and recognizes client ids.
        connections: Authenticated connections, by client id.
        clock: Monotonic seconds.
        wall: Unix ms for messages; never decreases.
        today: Unix ms of the machine, for the expiry of tokens.
    """

    settings: Settings
    authenticator: Authenticator
    policy: Policy
    inspectors: Sequence[Inspector]
    rates: RateLimiter
    limiter: ConnectionLimiter
    audit: Audit | None
    webhooks: Webhooks | None
    tracing: Tracing | None
    backplane: Backplane
    delivery: Delivery
    router: Router
    presence: Presence
    echoes: Echoes
    floors: Floors
    roster: Roster | None
    ids: ClientIds
    wheel: Wheel
    stats: Stats
    turns: Turns
    connections: dict[str, Connection]
    clock: Callable[[], float]
    wall: Callable[[], int]
    today: Callable[[], int]

    def send(self, connection: Connection, frame: Mapping[str, object]) -> None:
        """Send a frame at the end of this loop turn, if the protocol has such a frame."""
        data = connection.encoder.frame(frame)
        if data:
            self.delivery.send(connection, data)

    def refuse(self, connection: Connection, error: ServiceError, ref: str | None = None) -> None:
        """Send an error frame; the connection stays open."""
        self.count(error)
        self.send(connection, error_frame(error, ref))

    def count(self, error: ServiceError) -> None:
        """Count a rejection."""
        refused = self.stats.refused
        refused[error.code] = refused.get(error.code, 0) + 1

    def schedule(self, connection: Connection, at: float) -> None:
        """Check a connection at this time, unless an earlier check is planned."""
        if at < connection.next_check:
            connection.next_check = at
            self.wheel.add(connection, at)

    def may_read(self, connection: Connection, topic: str) -> bool:
        """Whether a connection may read a topic that one of its patterns matches; cached."""
        verdicts = connection.verdicts
        if verdicts is None:
            verdicts = connection.verdicts = {}
        verdict = verdicts.get(topic)
        if verdict is None:
            identity = connection.identity
            verdict = identity is not None and self.policy.may_subscribe(identity, topic)
            if len(verdicts) >= _VERDICTS_MAX:
                verdicts.clear()
            verdicts[topic] = verdict
        return verdict

    def note(
        self,
        action: AuditAction,
        identity: Identity,
        topic: str,
        connection: Connection | None,
        *,
        message_id: str | None = None,
        refused: str | None = None,
    ) -> None:
        """Write to the audit log, if there is one."""
        if self.audit is not None:
            self.audit.record(
                action,
                identity,
                topic,
                client_id=None if connection is None else connection.client_id,
                message_id=message_id,
                refused=refused,
            )


_VERDICTS_MAX = 1024


def wants_presence(connection: Connection, request: SubscribeRequest) -> bool:
    """Whether a subscription receives presence: supported, and not declined by the client."""
    return request.presence is not False and connection.encoder.presence is not Attends.NEVER
