"""Open connections for administrators: lists them with their lag, and closes one."""

from __future__ import annotations

import heapq
import itertools
import logging
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import matches, validate_topic
from pubsub_server.errors import ADMINISTRATOR_REMEDY, ServiceError
from pubsub_server.interfaces import ConnectionReport
from pubsub_server.shared.connection import about

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.hub.core import Core
    from pubsub_server.interfaces import Caller, Identity
    from pubsub_server.shared.connection import Connection

CONNECTIONS_MAX: Final = 1_000
"""Maximum connections of one answer."""
PATTERNS_SHOWN: Final = 20
"""Maximum subscriptions of one connection in an answer."""
PIECE: Final = 1_000
"""Maximum connections that are read in one turn of the loop."""
CONNECTION_SECONDS: Final = 1e-6
"""Expected seconds for one connection; see `turns`."""
CUT: Final = "an administrator closed this connection; reconnect to continue"

logger = logging.getLogger(__name__)


class OpenConnections:
    """The authenticated connections of this node.

    Args:
        core: The parts of the hub.
        end: Ends a connection with a reason.
    """

    def __init__(self, core: Core, end: Callable[[Connection, ServiceError], None]) -> None:
        self._core = core
        self._end = end

    async def reports(
        self, identity: Identity, *, user: str | None, topic: str | None, limit: int
    ) -> tuple[list[ConnectionReport], int]:
        """See `service.Service.connections`."""
        core = self._core
        if not core.policy.may_administer(identity):
            raise ServiceError(
                "forbidden",
                "only an administrator may list connections",
                remedy=ADMINISTRATOR_REMEDY,
            )
        if not 1 <= limit <= CONNECTIONS_MAX:
            raise ServiceError(
                "invalid_option", f"`limit` is 1 to {CONNECTIONS_MAX}", field="limit"
            )
        if topic is not None:
            try:
                validate_topic(topic)
            except InvalidTopic as error:
                raise ServiceError(
                    "invalid_topic", error.message, topic=topic, field="topic"
                ) from None
        # Copy the ids: the dictionary changes between two turns.
        ids = iter(tuple(core.connections))
        found: list[tuple[int, int, str]] = []
        total = 0
        while piece := list(itertools.islice(ids, PIECE)):
            await core.turns.wait(len(piece) * CONNECTION_SECONDS)
            for client_id in piece:
                connection = core.connections.get(client_id)
                if connection is None or not _is_wanted(connection, user, topic):
                    continue
                total += 1
                found.append((_queued(connection), connection.since, client_id))
            found = heapq.nlargest(limit, found)
        chosen = [
            (queued, core.connections[client_id])
            for queued, _, client_id in found
            if client_id in core.connections
        ]
        return [self._report(connection, queued) for queued, connection in chosen], total

    def cut(self, identity: Identity, client_id: str, caller: Caller | None) -> None:
        """See `service.Service.cut`."""
        core = self._core
        refusal: ServiceError | None = None
        connection = core.connections.get(client_id)
        if not core.policy.may_administer(identity):
            refusal = ServiceError(
                "forbidden",
                "only an administrator may cut a connection",
                remedy=ADMINISTRATOR_REMEDY,
            )
        elif connection is None:
            refusal = ServiceError(
                "not_found",
                "this node has no connection with this client id",
                remedy="List the connections again: the client may have left, "
                "or may be connected to another node.",
            )
        if core.audit is not None:
            code = None if refusal is None else refusal.code
            core.audit.cut(identity, caller, client_id=client_id, refused=code)
        if refusal is not None:
            raise refusal
        assert connection is not None
        logger.info("an administrator has cut a connection", extra=about(connection))
        self._end(connection, ServiceError("going_away", CUT))

    def _report(self, connection: Connection, queued: int) -> ConnectionReport:
        identity = connection.identity
        assert identity is not None, "only authenticated connections have an id"
        caller = connection.sink.caller
        return ConnectionReport(
            client_id=connection.client_id,
            user_id=identity.user_id,
            kind=identity.kind,
            name=identity.name,
            transport=connection.encoder.name,
            address=None if caller is None else caller.address,
            connected_at=connection.since,
            patterns=tuple(itertools.islice(connection.patterns, PATTERNS_SHOWN)),
            subscriptions=len(connection.patterns),
            queued_bytes=queued,
            queue_limit=max(self._core.settings.send_queue_bytes, connection.encoder.queue_bytes),
            stalled=bool(connection.stalled),
        )


def _queued(connection: Connection) -> int:
    """Bytes that the client has not read: those in the hub's queue and in the transport."""
    return connection.held + connection.sink.buffered()


def _is_wanted(connection: Connection, user: str | None, topic: str | None) -> bool:
    identity = connection.identity
    if identity is None or (user is not None and identity.user_id != user):
        return False
    return topic is None or any(matches(pattern, topic) for pattern in connection.patterns)
