"""Members per topic, from snapshots, joins, updates and leaves; changes for subscriptions."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from sys import maxunicode
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from pydantic import ValidationError

from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.generated.wire import PresenceMember
from hanzoai.pubsub.session.routes import Routes
from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from hanzoai.pubsub.values import PresenceChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hanzoai.pubsub.generated.wire import Message, PresenceSnapshotFrame
    from hanzoai.pubsub.session.ports import Context
    from hanzoai.pubsub.session.routes import SubscriptionState
    from hanzoai.pubsub.values import PresenceChangeKind

LEAVE: Final = "presence.leave"
TYPES: Final = frozenset({"presence.join", "presence.update", LEAVE})
"""The types of presence messages."""

MAX_TOPICS: Final = 10_000
"""Maximum topics; beyond that, those without members are dropped, or else the one idle longest."""

MAX_MEMBERS: Final = 10_000
"""Maximum members per topic; more are not shown."""

_REQUIRED: Final = frozenset({"user_id", "name", "joined_at", "last_seen"})
"""Required fields of a member, in addition to `client_id`."""

_Members: TypeAlias = dict[str, PresenceMember]
"""Members by client id, which may change with a reconnect."""


@dataclass(slots=True)
class _Room:
    topic: str
    members: _Members = field(default_factory=_Members)
    awaited: _Members = field(default_factory=_Members)  # may return after a reconnect
    doubted: bool = False  # a snapshot, if one arrives, names all awaited ones that are present
    complete: bool = False  # a snapshot has arrived
    proven: bool = True  # the members have not left unnoticed
    opened: int = 0  # grows with each opening of a room: the order of the rooms


class Presence:
    """Members by topic and client id, reported to subscriptions (PRES-1, PRES-4, H-082 to H-085).

    A member is one connection of a user. A user joins with the first connection and leaves with the
    last one; the others connect and disconnect.

    The members known before a reconnect stay until the snapshot that follows it; then only the
    differences are reported. Without a snapshot, they stay until `expire` is called. If the server
    has lost this client, it may also have lost the others: members that it does not name stay until
    they return or `expire` is called.
    """

    def __init__(self, context: Context) -> None:
        self._ports = context.ports
        self._timers = context.timers
        self._routes = Routes()  # only of subscriptions with presence
        self._rooms: OrderedDict[str, _Room] = OrderedDict()
        self._sorted: list[str] = []  # the topics by name
        self._opened = 0

    # ---------------------------------------------------------------- from the server

    def message(self, message: Message) -> None:
        """Process a join, update or leave."""
        data = _member_data(message.data)
        if data is None or not self._routes.matching(message.topic):
            return
        client_id = cast("str", data["client_id"])
        room = self._open(message.topic)
        before = room.members.get(client_id)
        if message.type == LEAVE:
            if before is not None:
                self._take(room, before)
            return
        if before is None and len(room.members) - len(room.awaited) >= MAX_MEMBERS:
            return
        member = _merge(before, data, message.timestamp)
        if member is None:
            return
        room.awaited.pop(client_id, None)
        self._put(room, before, member)

    def snapshot(self, frame: PresenceSnapshotFrame) -> None:
        """Process the list of all members: report it the first time, and differences later."""
        if not self._routes.matching(frame.topic):
            return
        room = self._open(frame.topic)
        room.proven = True
        new = {member.client_id: member for member in frame.members[:MAX_MEMBERS]}
        if room.doubted:
            room.doubted = False
            room.awaited = {}
        if not room.complete:
            room.complete = True
            room.members = new
            room.awaited = {}
            self._report(PresenceChange(room.topic, _in_order(room), "snapshot"))
            return
        for client_id in new:
            room.awaited.pop(client_id, None)
        # Report joins before leaves, so that a user whose connection has a new id stays.
        for client_id, member in new.items():
            self._put(room, room.members.get(client_id), member)
        for client_id, member in list(room.members.items()):
            if client_id not in new and not (client_id in room.awaited and member.user_id):
                self._take(room, member)

    def lost(self) -> None:
        """The connection or stream is lost: members may leave unnoticed."""
        for room in self._rooms.values():
            room.proven = False

    def reconnected(self, *, known: bool) -> None:
        """The connection is restored; `known`: otherwise, members may return with other ids."""
        rooms = self._rooms.values()
        for room in rooms:
            if not known or room.awaited:
                room.doubted = known and room.doubted
                room.awaited = dict(room.members)
        if any(room.awaited for room in rooms):
            self._timers.start("grace", LIMITS.presence_grace)

    def expire(self) -> None:
        """The timer `grace` fired: drop the members that have not returned."""
        # All of a topic leave together, because each change has a list of the remaining members: a
        # list for each would take half a gigabyte if 10,000 leave.
        for room in self._rooms.values():
            gone, room.awaited, room.doubted = room.awaited, {}, False
            for client_id in gone:
                del room.members[client_id]
            members = _in_order(room)
            users = {member.user_id for member in members}
            changes: list[PresenceChange] = []
            for member in reversed(gone.values()):
                stays = bool(member.user_id) and member.user_id in users
                kind: PresenceChangeKind = "disconnect" if stays else "leave"
                changes.append(PresenceChange(room.topic, members, kind, member))
                users.add(member.user_id)
            for change in reversed(changes):
                self._report(change)

    # ---------------------------------------------------------------- from the subscriptions

    def add(self, state: SubscriptionState) -> None:
        """Report changes to a subscription, and first the known members of topics new to it."""
        if state.request.presence:
            self.show(state, self._routed(state))
            self._routes.add(state)

    def remove(self, state: SubscriptionState, patterns: Sequence[str]) -> None:
        """Stop reporting changes of these patterns to it; forget topics that no other one has."""
        if state.request.presence:
            self._routes.remove(state, patterns)
            for topic in self._matching(patterns):
                if not self._routes.matching(topic):
                    self._forget(topic)

    def show(
        self, state: SubscriptionState, others: Sequence[str], *, hidden: bool = False
    ) -> None:
        """Report the known members of its topics, but not of `others`; if `hidden`, empty lists."""
        if not state.request.presence:
            return
        known = set(self._matching(others))
        for topic in self._matching(state.patterns):
            if topic not in known and (room := self._rooms[topic]).complete:
                change = PresenceChange(topic, () if hidden else _in_order(room), "snapshot")
                self._ports.presence_changed(state.request.sub, change)

    def answered(self, state: SubscriptionState) -> None:
        """The server answered: await the members that no snapshot will certainly confirm."""
        found = False
        for topic in self._matching(self._routed(state)):
            room = self._rooms[topic]
            # A server sends a snapshot of each named topic, and of the topics of a pattern that
            # have members.
            is_named = room.complete and topic in self._routes.by_pattern
            if room.proven or is_named or not room.members:
                continue
            room.proven = True
            if not room.awaited:
                room.awaited = room.members.copy()
                room.doubted = found = True
        if found:
            self._timers.start("grace", LIMITS.presence_grace)

    def watches(self, state: SubscriptionState) -> bool:
        """Whether presence is wanted by any subscription that shares a pattern with this one."""
        return any(pattern in self._routes.by_pattern for pattern in state.patterns)

    # ---------------------------------------------------------------- inside

    def _routed(self, state: SubscriptionState) -> list[str]:
        """The patterns whose changes are reported to a subscription."""
        routes = self._routes.by_pattern
        return [pattern for pattern in state.patterns if state in routes.get(pattern, ())]

    def _report(self, change: PresenceChange) -> None:
        for state in self._routes.find(change.topic):
            self._ports.presence_changed(state.request.sub, change)

    def _put(self, room: _Room, before: PresenceMember | None, member: PresenceMember) -> None:
        """Add a member, or change it if anything except `last_seen` differs."""
        if before is not None and not _differs(before, member):
            return
        kind: PresenceChangeKind = "update"
        if before is None:
            kind = "connect" if _has_user(room, member) else "join"
        room.members[member.client_id] = member
        self._report(PresenceChange(room.topic, _in_order(room), kind, member))
        if before is None and member.user_id:
            same_user = (one for one in room.awaited.values() if one.user_id == member.user_id)
            if (returned := next(same_user, None)) is not None:
                self._take(room, returned)

    def _take(self, room: _Room, member: PresenceMember) -> None:
        """A member has left."""
        del room.members[member.client_id]
        room.awaited.pop(member.client_id, None)
        kind: PresenceChangeKind = "disconnect" if _has_user(room, member) else "leave"
        self._report(PresenceChange(room.topic, _in_order(room), kind, member))

    def _open(self, topic: str) -> _Room:
        room = self._rooms.get(topic)
        if room is None:
            if len(self._rooms) >= MAX_TOPICS:
                empty = [name for name, each in self._rooms.items() if not each.members]
                for name in empty or [next(iter(self._rooms))]:
                    self._forget(name)
            room = self._rooms[topic] = _Room(topic)
            insort(self._sorted, topic)
        else:
            self._rooms.move_to_end(topic)
        self._opened = room.opened = self._opened + 1
        return room

    def _forget(self, topic: str) -> None:
        del self._rooms[topic]
        del self._sorted[bisect_left(self._sorted, topic)]

    def _matching(self, patterns: Sequence[str]) -> list[str]:
        """The topics that any of the patterns matches; the least recently opened one first."""
        if not any(map(is_wildcard, patterns)):
            return [pattern for pattern in patterns if pattern in self._rooms]
        found: set[str] = set()
        for pattern in patterns:
            trie: TopicTrie[None] = TopicTrie()
            trie.insert(pattern, None)
            # Most topics of a program already differ before the first wildcard, or after the last.
            beginning, _, rest = pattern.partition("*")
            ending = rest.rpartition("*")[2]
            first = bisect_left(self._sorted, beginning)
            end = bisect_left(self._sorted, beginning + chr(maxunicode), first)
            found.update(
                topic
                for topic in self._sorted[first:end]
                if topic.endswith(ending) and trie.match(topic)
            )
        return sorted(found, key=lambda topic: self._rooms[topic].opened)


def _has_user(room: _Room, member: PresenceMember) -> bool:
    """Whether another connection of the user is a member; some peers do not name users."""
    user = member.user_id
    return bool(user) and any(other.user_id == user for other in room.members.values())


def _in_order(room: _Room) -> tuple[PresenceMember, ...]:
    return tuple(sorted(room.members.values(), key=lambda m: (m.joined_at, m.client_id)))


def _differs(a: PresenceMember, b: PresenceMember) -> bool:
    """Whether anything except `last_seen` differs."""
    return not _same({**dict(a), "last_seen": 0}, {**dict(b), "last_seen": 0})


def _same(a: object, b: object) -> bool:
    """Whether two JSON values are equal. Python's `==` takes 1 and true for the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        ours, others = cast("dict[str, Any]", a), cast("dict[str, Any]", b)
        return ours.keys() == others.keys() and all(_same(ours[key], others[key]) for key in ours)
    if isinstance(a, list) and isinstance(b, list):
        one, other = cast("Sequence[object]", a), cast("Sequence[object]", b)
        return len(one) == len(other) and all(map(_same, one, other))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _member_data(data: object) -> dict[str, Any] | None:
    """The member in the data of a presence message: directly, or under `member`."""
    if not isinstance(data, dict):
        return None
    outer = cast("dict[str, Any]", data)
    if isinstance(outer.get("client_id"), str):
        return outer
    inner = outer.get("member")
    if isinstance(inner, dict) and isinstance(cast("dict[str, Any]", inner).get("client_id"), str):
        return cast("dict[str, Any]", inner)
    return None


def _merge(
    before: PresenceMember | None, data: Mapping[str, Any], at: int
) -> PresenceMember | None:
    """A member after a join or update: data with all required fields replaces it."""
    fields: dict[str, Any] = {}
    if not data.keys() >= _REQUIRED:
        fields = {"user_id": "", "name": "", "joined_at": at}
        if before is not None:
            fields |= before.wire()
        fields["last_seen"] = at
    fields |= data
    try:
        return PresenceMember.model_validate(fields)
    except ValidationError:
        return None
