"""The members of the topics of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.generated.wire import PresenceMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World


class Rooms:
    """Members by topic and client id; `tell` is called with change, topic and member."""

    def __init__(self, world: World, tell: Callable[[str, str, PresenceMember], None]) -> None:
        self._world = world
        self._tell = tell
        self._rooms: dict[str, dict[str, PresenceMember]] = {}

    def occupied(self) -> list[str]:
        """Topics with members."""
        return sorted(topic for topic, room in self._rooms.items() if room)

    def members(self, topic: str) -> list[PresenceMember]:
        """Return all members of a topic."""
        return list(self._rooms.get(topic, {}).values())

    def find(self, topic: str, client_id: str) -> PresenceMember | None:
        """Return one member of a topic."""
        return self._rooms.get(topic, {}).get(client_id)

    def enter(self, topic: str, client_id: str) -> None:
        """Add a member unless it exists."""
        room = self._rooms.setdefault(topic, {})
        if client_id not in room:
            now = self._world.now
            member = PresenceMember(
                client_id=client_id, user_id="u", name=client_id, joined_at=now, last_seen=now
            )
            room[client_id] = member
            self._tell("join", topic, member)

    def leave(self, topic: str, client_id: str) -> None:
        """Remove a member if it exists."""
        member = self._rooms.get(topic, {}).pop(client_id, None)
        if member is not None:
            self._tell("leave", topic, member)

    def update(self, topic: str, client_id: str, data: dict[str, Any]) -> None:
        """Update the `status` or the keys of `metadata` of a member; None deletes."""
        member = self.find(topic, client_id)
        if member is None:
            return
        fields = member.model_dump(exclude_none=True)
        metadata = fields.get("metadata", {})
        for key, value in data.items():
            place = fields if key == "status" else metadata
            place.pop(key, None)
            if value is not None:
                place[key] = value
        fields |= {"metadata": metadata or None, "last_seen": self._world.now}
        member = self._rooms[topic][client_id] = PresenceMember.model_validate(fields)
        self._tell("update", topic, member)
