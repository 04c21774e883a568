"""Sends presence to the members of a topic."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import orjson

from hanzoai.pubsub.topics import is_wildcard
from hanzoai.pubsub.wire.ids import message_id
from pubsub_server.backplane import Entry
from pubsub_server.hub.routing import watches
from pubsub_server.hub.stream_pace import StreamPace
from pubsub_server.shared.encoder import Attends
from pubsub_server.shared.member_lists import encode_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pubsub_server.hub.core import Core
    from pubsub_server.hub.presence import Client
    from pubsub_server.interfaces import Member
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.encoder import Encoder
    from pubsub_server.shared.roster import Change

SNAPSHOTS_MAX = 1_000
"""Maximum snapshots for one subscription by pattern."""
AT_ONCE: Final = 100
"""Maximum members in snapshots that are sent at once."""
SHARED_FOR: Final = 1.0
"""Maximum seconds for which a large snapshot is kept for other subscribers."""
LEAVES: Final = 250
"""Maximum topics that a client leaves in one turn of the loop."""


class Attendance:
    """Connects `presence.Presence` to the connections.

    Args:
        core: The parts of the hub.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pace = StreamPace(core.wheel, self._show_streams)
        # Large snapshots of topics, by encoder; none after a change of the members.
        self._shared: dict[str, dict[Encoder, bytes]] = {}

    def enter(self, connection: Connection, topic: str) -> None:
        """The connection has subscribed to this topic by name."""
        core = self._core
        identity = connection.identity
        if identity is None:
            return
        member = core.presence.join(connection.client_id, identity, topic, core.wall())
        if member is not None:
            # The list that the connection gets next contains it.
            but = connection if watches(connection, topic) else None
            self._announce("join", topic, member, but=but)

    def quit(self, connection: Connection, topic: str) -> None:
        """The connection has ended this subscription."""
        member = self._core.presence.leave(connection.client_id, topic)
        if member is not None:
            # Also to this connection, if a pattern shows it the topic.
            self._announce("leave", topic, member)

    def undo(self, connection: Connection, topic: str) -> None:
        """The subscription has failed, perhaps after `enter`.

        What the client was before on another connection, it remains for the grace period.
        """
        if self._core.presence.keeps(connection.client_id, topic):
            self.quit(connection, topic)

    def depart(self, client_id: str) -> None:
        """The client has left permanently."""
        core = self._core
        client = core.presence.lose(client_id, core.clock())
        if client is not None:
            self._leave(client)

    def lose(self, connection: Connection, grace: float) -> None:
        """The connection broke. Members are notified after the grace period, unless it returns."""
        core = self._core
        silence = core.clock() - connection.last_received
        until = core.clock() + grace
        last_seen = core.wall() - int(silence * 1000)
        client = core.presence.lose(connection.client_id, until, last_seen)
        if client is not None:
            core.wheel.call(functools.partial(self.lapse, client), until)

    def lapse(self, client: Client, now: float) -> float | None:
        """The grace period of a lost client is over, unless it has returned."""
        if client.lost_until is None or self._core.presence.client(client.client_id) is not client:
            return None
        if client.lost_until > now:
            return client.lost_until
        self._leave(client)
        return None

    def _leave(self, client: Client) -> None:
        """Leave the topics that a client has not joined again, in turns if they are many."""
        client.lost_until = None
        self._core.turns.do(functools.partial(self._leave_some, client))

    def _leave_some(self, client: Client) -> None:
        presence = self._core.presence
        if client.lost_until is not None or presence.client(client.client_id) is not client:
            return
        left = presence.lapse(client.client_id, LEAVES)
        for topic, member in left:
            self._announce("leave", topic, member)
        if len(left) == LEAVES:
            self._leave(client)

    async def members(self, topic: str) -> list[Member]:
        """All members of a topic.

        Raises:
            ServiceError: `unavailable`, if nodes share presence and the store is unavailable.
        """
        return self.local(topic)

    def local(self, topic: str) -> list[Member]:
        """All members of a topic that are connected to this node."""
        return self._core.presence.members(topic, self._seen)

    def _seen(self, client_id: str) -> int | None:
        core = self._core
        connection = core.connections.get(client_id)
        if connection is None:
            return None
        return core.wall() - int((core.clock() - connection.last_received) * 1000)

    def update(
        self, connection: Connection, topic: str | None, data: dict[str, object]
    ) -> tuple[str, int]:
        """The client changes its state.

        Returns:
            Id and time of the change.

        Raises:
            ServiceError: See `presence.Presence.update`.
        """
        core = self._core
        now = core.wall()
        id = message_id()
        for name, member in core.presence.update(connection.client_id, topic, data, now):
            self._announce("update", name, member, id=id)
        return id, now

    def changes_many(self, connection: Connection, topic: str | None) -> bool:
        """Whether an update is so large that it must wait for `room`."""
        return False

    async def room(self, connection: Connection) -> None:
        """Wait until other nodes can take many changes of this client.

        Raises:
            ServiceError: `unavailable`, if nodes share presence and the store is unavailable.
        """

    def expect(self, connection: Connection) -> None:
        """A greeting of the connection begins; see `greet`."""

    async def greet(
        self, connection: Connection, joined: Sequence[str], shown: Sequence[str]
    ) -> Iterable[bytes] | None:
        """If nodes share presence: enter these topics, and collect the snapshots of `show`.

        Args:
            connection: The subscriber.
            joined: Topics that it becomes a member of.
            shown: Topics and patterns whose members it sees.

        Returns:
            The frames after the answer to its subscription; None if `enter` and `show` send them.
        """
        return None

    def greeted(self, connection: Connection) -> None:
        """The greeting has ended, successfully or not."""

    def show(
        self, connection: Connection, topics: Sequence[str], found: Sequence[str] | None = None
    ) -> None:
        """Send snapshots of the topics that a new subscription covers.

        Args:
            connection: The subscriber.
            topics: Topics and patterns of the subscription.
            found: Readable topics of the patterns, if they have been searched.
        """
        core = self._core
        patterns = [topic for topic in topics if is_wildcard(topic)]
        names = {topic: None for topic in topics if not is_wildcard(topic)}
        if found is not None:
            names |= dict.fromkeys(found[:SNAPSHOTS_MAX])
        elif patterns:
            for topic in core.presence.matching(patterns):
                if len(names) >= SNAPSHOTS_MAX:
                    break
                if core.may_read(connection, topic):
                    names[topic] = None
        if sum(map(core.presence.count, names)) <= AT_ONCE:
            for name in names:
                core.delivery.send(connection, self._snapshot(connection.encoder, name))
        else:
            core.delivery.replay(connection, self._snapshots(connection, names))

    def _snapshots(self, connection: Connection, names: Iterable[str]) -> Iterator[bytes]:
        """Snapshots, each created in its turn, of topics that the connection still receives."""
        for name in names:
            if connection in self._core.router.watchers(name):
                yield self._shared_snapshot(connection.encoder, name)

    def _shared_snapshot(self, encoder: Encoder, topic: str) -> bytes:
        """A snapshot; a large one is created once for all who wait for it."""
        core = self._core
        if core.presence.count(topic) <= AT_ONCE:
            return self._snapshot(encoder, topic)
        shared = self._shared.get(topic)
        if shared is None:
            shared = self._shared[topic] = {}
            core.wheel.call(functools.partial(self._drop_shared, topic), core.clock() + SHARED_FOR)
        data = shared.get(encoder)
        if data is None:
            data = shared[encoder] = self._snapshot(encoder, topic)
        return data

    def _drop_shared(self, topic: str, now: float) -> None:
        del self._shared[topic]

    def _snapshot(self, encoder: Encoder, topic: str) -> bytes:
        return snapshot_bytes(encoder, topic, [member_json(m) for m in self.local(topic)])

    def _announce(
        self,
        change: Change,
        topic: str,
        member: Member,
        *,
        but: Connection | None = None,
        id: str | None = None,
    ) -> None:
        core = self._core
        if shared := self._shared.get(topic):
            shared.clear()
        core.stats.presence_changes += 1
        core.delivery.close_run()
        watchers = core.router.watchers(topic)
        hooks = core.webhooks
        hooked = hooks is not None and hooks.wants(change, topic)
        if not watchers and not hooked:
            return
        now = core.wall()
        body = change_bytes(change, topic, member_json(member), member.kind, now, id)
        if hooks is not None and hooked:
            hooks.notify(change, topic, body)
        # Created for the first subscriber that needs it.
        encoded: dict[Encoder, bytes] = {}
        streams = False
        for connection in watchers:
            if connection is but:
                continue
            encoder = connection.encoder
            if encoder.presence is not Attends.CHANGES:
                streams = True
                continue
            data = encoded.get(encoder)
            if data is None:
                data = encoded[encoder] = encoder.message(change_entry(topic, body, now))
            core.delivery.send(connection, data)
        if streams:
            self._pace.changed(topic, but)

    def _show_streams(self, topic: str, but: Connection | None) -> None:
        """Send a snapshot to the event streams that watch this topic, except to this one."""
        core = self._core
        core.delivery.close_run()
        encoded: dict[Encoder, bytes] = {}
        for connection in core.router.watchers(topic):
            encoder = connection.encoder
            if connection is but or encoder.presence is Attends.CHANGES:
                continue
            data = encoded.get(encoder)
            if data is None:
                data = encoded[encoder] = self._snapshot(encoder, topic)
                self._pace.shown(topic, len(data))
            core.delivery.send(connection, data)


def change_bytes(
    change: Change,
    topic: str,
    member: Mapping[str, object],
    kind: str,
    now: int,
    id: str | None,
) -> bytes:
    """The envelope of a presence change."""
    return orjson.dumps(
        {
            "id": id or message_id(),
            "topic": topic,
            "type": f"presence.{change}",
            "data": member,
            "sender": {"type": kind, "id": member["user_id"]},
            "timestamp": now,
        }
    )


def change_entry(topic: str, body: bytes, now: int) -> Entry:
    """A presence change as a message that is not stored."""
    return Entry(topic, "", now, None, 0, body)


def snapshot_bytes(encoder: Encoder, topic: str, members: Sequence[Mapping[str, object]]) -> bytes:
    """A frame with all members of a topic."""

    def encode(members: Sequence[Mapping[str, object]]) -> bytes:
        return encoder.frame({"type": "presence.snapshot", "topic": topic, "members": members})

    return encode_members(encode, members)


def member_json(member: Member) -> dict[str, object]:
    """`PresenceMember` of the schema."""
    fields: dict[str, object] = {
        "client_id": member.client_id,
        "user_id": member.user_id,
        "name": member.name,
        "joined_at": member.joined_at,
        "last_seen": member.last_seen,
    }
    if member.avatar_url is not None:
        fields["avatar_url"] = member.avatar_url
    if member.status is not None:
        fields["status"] = member.status
    if member.metadata is not None:
        fields["metadata"] = member.metadata
    return fields
