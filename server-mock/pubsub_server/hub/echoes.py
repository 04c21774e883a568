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

    def __len__(self) -> int:
        return len(self._publishers)

    def expect(self, connection: Connection, drafts: Iterable[Draft]) -> None:
        """Record the publisher of messages and give each an id, before the backplane gets them."""
        if connection.encoder.echoes:
            return
        for draft in drafts:
            if connection in self._router.route(draft.topic):
                if draft.id is None:
                    draft.id = message_id()
                if len(self._publishers) >= AWAITED_MAX:
                    del self._publishers[next(iter(self._publishers))]
                self._publishers[draft.id] = connection

    def publisher(self, id: str) -> Connection | None:
        """The connection that must not receive this message; call it once."""
        return self._publishers.pop(id, None)

    def forget(self, connection: Connection) -> None:
        """The connection is closed; some of its messages may never be delivered."""
        if connection.encoder.echoes:
            return
        ids = [id for id, publisher in self._publishers.items() if publisher is connection]
        for id in ids:
            del self._publishers[id]
