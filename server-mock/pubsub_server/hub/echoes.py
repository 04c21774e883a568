"""Messages in transit that must not return to the connection that published them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.wire.ids import message_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pubsub_server.hub.routing import Router
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import Draft

AWAITED_MAX: Final = 65_536
"""Maximum messages in transit; the oldest is dropped, and may return to its publisher."""


class Echoes:
    """Remembers the publishers of messages until the backplane delivers them.

    Args:
        router: Knows whether a publisher would receive its own message.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._publishers: dict[str, Connection] = {}
        # The ids of each publisher: it may close while thousands of messages of others wait.
        self._ids: dict[Connection, set[str]] = {}

    def expect(self, connection: Connection, drafts: Iterable[Draft]) -> None:
        """Record the publisher of messages and give each an id, before the backplane gets them."""
        if connection.encoder.echoes:
            return
        for draft in drafts:
            if connection in self._router.route(draft.topic):
                if draft.id is None:
                    draft.id = message_id()
                if len(self._publishers) >= AWAITED_MAX:
                    self.publisher(next(iter(self._publishers)))
                # Another connection may have published the same id.
                self.publisher(draft.id)
                self._publishers[draft.id] = connection
                self._ids.setdefault(connection, set()).add(draft.id)

    def publisher(self, id: str) -> Connection | None:
        """The connection that must not receive this message; call it once."""
        connection = self._publishers.pop(id, None)
        if connection is not None:
            ids = self._ids[connection]
            ids.discard(id)
            if not ids:
                del self._ids[connection]
        return connection

    def forget(self, connection: Connection) -> None:
        """The connection is closed; some of its messages may never be delivered."""
        for id in self._ids.pop(connection, ()):
            del self._publishers[id]
