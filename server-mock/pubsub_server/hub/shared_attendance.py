"""`SharedAttendance`: presence of all nodes for the connections of this one.

Changes of this node's clients go to the roster, and connections receive the changes that return
from it, as on every other node. So all nodes have the same order of changes, and send each change
once.
"""

from __future__ import annotations

import asyncio
import functools
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from hanzoai.pubsub.wire.ids import message_id
from pubsub_server.errors import ServiceError
from pubsub_server.hub.attendance import (
    SNAPSHOTS_MAX,
    Attendance,
    change_bytes,
    change_entry,
    member_json,
    snapshot_bytes,
)
from pubsub_server.hub.routing import watches
from pubsub_server.hub.topic_reads import TopicRead, TopicReads
from pubsub_server.interfaces import Member
from pubsub_server.shared.encoder import Attends, Encoder
from pubsub_server.shared.exact_copy import exact_copy
from pubsub_server.shared.member_lists import too_large
from pubsub_server.shared.roster import Present

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from pubsub_server.hub.core import Core
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.roster import Change, MemberChange, Roster, Row

HELD_MAX: Final = 10_000
"""Maximum changes that wait for one connection during its greeting."""
LATE_FOR: Final = 2.0
"""Seconds within which a change that a snapshot included may arrive."""
READ_TOPICS: Final = 100
FEW: Final = 10
"""Changes that a client may make without waiting for the others."""
SHOWN_MAX: Final = 100_000
"""Maximum remembered topics of patterns whose members were shown."""
AGAIN_AFTER: Final = 1.0
"""Seconds after which a read that the store could not answer is repeated."""


class _Arrival:
    """The changes that a connection gets after its greeting.

    Args:
        behind: Whether earlier changes still wait for the connection, and follow the snapshots.
    """

    __slots__ = ("behind", "held", "overflow")

    def __init__(self, *, behind: bool) -> None:
        self.behind = behind
        self.held: list[tuple[str, int, bytes]] = []
        self.overflow: set[str] = set()


class SharedAttendance(Attendance):
    """See `attendance.Attendance`, and `roster.Audience`.

    Args:
        core: The parts of the hub.
        roster: Members of all nodes.
        end: Ends a connection with an error.
        spawn: Runs slow work in a task.
    """

    def __init__(
        self,
        core: Core,
        roster: Roster,
        end: Callable[[Connection, ServiceError], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        super().__init__(core)
        self._roster = roster
        self._end = end
        self._spawn = spawn
        self._reads = TopicReads(lambda topics: roster.read(topics), spawn)
        self._arriving: dict[Connection, _Arrival] = {}
        # The newest join in progress, by client id and topic.
        self._joining: dict[tuple[str, str], asyncio.Future[None]] = {}
        # For recently greeted connections: when each topic was read.
        self._floors: dict[Connection, dict[str, int]] = {}
        # Topics whose members were shown, the least recent first. A store that has lost its data
        # cannot name topics that only patterns match.
        self._known: dict[str, None] = {}
        # Topics to be shown again, and whether to all connections or only to event streams.
        self._stale: dict[str, bool] = {}
        # The same for topics that the store could not read; they delay no others.
        self._unread: dict[str, bool] = {}
        # Topics that are being read, with the newest change of each client since the read began.
        self._reading: dict[str, dict[str, MemberChange]] = {}
        self._reading_unread: set[str] = set()
        self._refreshing = False
        self._retrying = False
        # Patterns of subscriptions whose topics the store could not search.
        self._unsearched: dict[str, None] = {}
        self._searching = False
        roster.attend(self)

    # ------------------------------------------------------------ what clients of this node do

    def enter(self, connection: Connection, topic: str) -> None:
        """See `attendance.Attendance`."""
        self._enter(connection, topic)

    def _enter(self, connection: Connection, topic: str) -> asyncio.Future[None] | None:
        core = self._core
        identity = connection.identity
        if identity is None or topic not in connection.patterns:
            return None
        client_id = connection.client_id
        core.presence.join(client_id, identity, topic, core.wall())
        member = core.presence.member(client_id, topic)
        if member is None:
            return None
        done = self._roster.join(topic, client_id, self._shown(member))
        self._joining[client_id, topic] = done
        done.add_done_callback(functools.partial(self._joined, client_id, topic))
        return done

    def _joined(self, client_id: str, topic: str, done: asyncio.Future[None]) -> None:
        if self._joining.get((client_id, topic)) is done:
            del self._joining[client_id, topic]

    def _announce(
        self,
        change: Change,
        topic: str,
        member: Member,
        *,
        but: Connection | None = None,
        id: str | None = None,
    ) -> None:
        if change == "leave":
            self._roster.leave(topic, member.client_id)
        else:
            self._roster.update(topic, member.client_id, id or message_id(), self._shown(member))

    # ------------------------------------------------------------ what becomes of it

    def recorded(self, change: Change, topic: str, client_id: str, id: str, shown: bytes) -> None:
        """See `roster.Audience`."""
        core = self._core
        core.stats.presence_changes += 1
        hooks = core.webhooks
        if hooks is not None and hooks.wants(change, topic):
            data, kind = self._data(client_id, shown)
            hooks.notify(change, topic, change_bytes(change, topic, data, kind, core.wall(), id))

    def restored(self, topic: str, client_id: str, shown: bytes) -> None:
        """See `roster.Audience`."""
        self._core.presence.restore(client_id, topic, orjson.loads(shown))

    def refused(self, topic: str, client_id: str) -> None:
        """See `roster.Audience`."""
        self._core.presence.leave(client_id, topic)

    def overruled(self, topic: str, client_id: str) -> None:
        """See `roster.Audience`."""
        self._spawn(self._yield(topic, client_id))

    def everybody(self) -> Iterator[tuple[str, str, bytes]]:
        """See `roster.Audience`."""
        for topic, member in self._core.presence.everybody():
            yield topic, member.client_id, self._shown(member)

    def connected(self, client_id: str) -> bool:
        """See `roster.Audience`."""
        return client_id in self._core.connections

    def _shown(self, member: Member) -> bytes:
        connection = self._core.connections.get(member.client_id)
        if connection is None:
            return shown_bytes(member)
        return shown_bytes(member, *self._roster.store_time(connection.steady_since))

    async def _yield(self, topic: str, client_id: str) -> None:
        """End a connection whose client is now on another node."""
        while True:
            # After its join, the store knows whether this connection is the newer one.
            if join := self._joining.get((client_id, topic)):
                await asyncio.wait((join,))
            connection = self._core.connections.get(client_id)
            if connection is None or topic not in connection.patterns:
                return
            try:
                elsewhere = await self._roster.elsewhere(topic, client_id)
            except ServiceError:
                await asyncio.sleep(AGAIN_AFTER)
                continue
            if (client_id, topic) not in self._joining:
                break
        if elsewhere:
            self._end(connection, ServiceError("replaced", "another connection replaced this one"))

    # ------------------------------------------------------------ what others do

    def received(self, change: MemberChange) -> None:
        """See `roster.Audience`."""
        core = self._core
        if change.change == "move":
            if change.client_id in core.connections:
                self._spawn(self._yield(change.topic, change.client_id))
            return
        topic = change.topic
        reading = self._reading.get(topic)
        if reading is not None:
            reading[change.client_id] = change
        core.delivery.close_run()
        watchers = core.router.watchers(topic)
        if watchers:
            self._remember(topic)
        frames: dict[Encoder, bytes] = {}
        streams = False
        for connection in watchers:
            own = connection.client_id == change.client_id and change.change != "update"
            if own and topic in connection.patterns and watches(connection, topic):
                # The list that the connection has, or gets next, contains it.
                continue
            if connection.encoder.presence is not Attends.CHANGES:
                streams = True
                continue
            frame = frames.get(connection.encoder)
            if frame is None:
                now = core.wall()
                data, kind = self._data(change.client_id, change.shown)
                body = change_bytes(change.change, topic, data, kind, now, change.id)
                frame = connection.encoder.message(change_entry(topic, body, now))
                frames[connection.encoder] = frame
            self._give(connection, topic, change.at, frame)
        if streams and reading is None:
            self._pace.changed(topic)

    def _show_streams(self, topic: str, but: Connection | None) -> None:
        """See `attendance.Attendance`."""
        self._refresh(topic, everyone=False)

    def interrupted(self) -> None:
        """See `roster.Audience`."""
        self._floors.clear()

    def missed(self, topics: Iterable[str], *, anything: bool) -> None:
        """See `roster.Audience`."""
        router = self._core.router
        others = (*router.exact_topics(), *self._known) if anything else ()
        for topic in dict.fromkeys(chain(topics, others)):
            if router.watchers(topic):
                self._refresh(topic, everyone=True)
            else:
                self._known.pop(topic, None)

    def _remember(self, topic: str) -> None:
        self._known.pop(topic, None)
        self._known[topic] = None
        if len(self._known) > SHOWN_MAX:
            del self._known[next(iter(self._known))]

    def _give(self, connection: Connection, topic: str, at: int, data: bytes) -> None:
        arrival = self._arriving.get(connection)
        if arrival is None:
            floors = self._floors.get(connection)
            if floors is None or at >= floors.get(topic, 0):
                self._core.delivery.send(connection, data)
        elif len(arrival.held) < HELD_MAX:
            arrival.held.append((topic, at, data))
        else:
            arrival.overflow.add(topic)

    # ------------------------------------------------------------ who is there

    def changes_many(self, connection: Connection, topic: str | None) -> bool:
        """See `attendance.Attendance`."""
        client = self._core.presence.client(connection.client_id)
        return topic is None and client is not None and len(client.topics) > FEW

    async def room(self, connection: Connection) -> None:
        """See `attendance.Attendance`."""
        client = self._core.presence.client(connection.client_id)
        await self._roster.room(() if client is None else client.topics)

    def expect(self, connection: Connection) -> None:
        """See `attendance.Attendance`."""
        self._arriving[connection] = _Arrival(behind=bool(connection.pending))

    async def greet(
        self, connection: Connection, joined: Sequence[str], shown: Sequence[str]
    ) -> Iterable[bytes]:
        """See `attendance.Attendance`."""
        if connection.closed:
            return ()
        if len(joined) > FEW:
            await self._roster.room(joined)
        joins = [done for topic in joined if (done := self._enter(connection, topic)) is not None]
        names = [topic for topic in shown if not is_wildcard(topic)]
        patterns = [topic for topic in shown if is_wildcard(topic)]
        try:
            await self._roster.wait_joined(joins, shown)
            if not shown:
                return self._held(connection, {})
            if patterns:
                readable = functools.partial(self._core.may_read, connection)
                found = await self._search(patterns, readable, SNAPSHOTS_MAX)
                more = max(0, SNAPSHOTS_MAX - len(names))
                names = list(dict.fromkeys((*names, *found[:more])))
                patterns = []
            if len(names) == 1:
                read = await self._reads.read(names[0])
            else:
                read = TopicRead(await self._roster.read(names))
        except ServiceError:
            self._search_later(patterns)
            return chain(self._local(connection, names), self._held(connection, {}))
        present = read.present
        for topic, row in present.members.items():
            if row:
                self._remember(topic)
        local = self._local(connection, [name for name in names if name not in present.members])
        # The permissions may change before the frames are sent.
        frames = self._frames(connection, read)
        return chain(local, frames, self._held(connection, present.at))

    def _local(self, connection: Connection, topics: Sequence[str]) -> list[bytes]:
        """Snapshots with the members of this node. All are shown when the store is available."""
        for topic in topics:
            self._refresh(topic, everyone=True)
        return [self._snapshot(connection.encoder, topic) for topic in topics]

    def _frames(self, connection: Connection, found: TopicRead) -> Iterator[bytes]:
        for topic, row in found.present.members.items():
            if self._core.may_read(connection, topic):
                key = topic, connection.encoder
                data = found.snapshots.get(key)
                if data is None:
                    data = snapshot_bytes(connection.encoder, topic, self._members(row))
                    found.snapshots[key] = data
                yield data

    def greeted(self, connection: Connection) -> None:
        """See `attendance.Attendance`."""
        arrival = self._arriving.pop(connection, None)
        if arrival is not None:
            for _, _, data in arrival.held:
                self._core.delivery.send(connection, data)
            for topic in arrival.overflow:
                self._refresh(topic, everyone=True)

    def _held(self, connection: Connection, read: Mapping[str, int]) -> list[bytes]:
        """Changes that arrived during the greeting and are not in its snapshots.

        Args:
            connection: The one that is greeted.
            read: See `Present.at`.
        """
        arrival = self._arriving.get(connection)
        if arrival is None or arrival.behind:
            # All of them follow the earlier changes, even a `leave` that the snapshots include.
            return []
        held, arrival.held = arrival.held, []
        if read:
            floors = self._floors.get(connection)
            self._floors[connection] = {**(floors or {}), **read}
            loop = asyncio.get_running_loop()
            loop.call_later(LATE_FOR, self._floors.pop, connection, None)
        return [data for topic, at, data in held if at >= read.get(topic, 0)]

    async def members(self, topic: str) -> list[Member]:
        """See `attendance.Attendance`."""
        present = await self._roster.read([topic])
        return [_member(each) for each in self._members(present.members[topic])]

    async def _search(
        self, patterns: Iterable[str], wanted: Callable[[str], bool], limit: int
    ) -> list[str]:
        """Topics of these patterns with a member."""
        trie: TopicTrie[None] = TopicTrie()
        for pattern in patterns:
            trie.insert(pattern, None)
        return await self._roster.matching(
            lambda topic: bool(trie.match(topic)) and wanted(topic), limit
        )

    def _members(self, row: Row) -> list[dict[str, Any]]:
        found = [self._data(client_id, shown)[0] for client_id, (_, shown) in row.items()]
        if too_large(_least_bytes(shown) for _, shown in row.values()):
            for member in found:
                member.pop("metadata", None)
        return sorted(found, key=lambda member: (member["joined_at"], member["client_id"]))

    def _data(self, client_id: str, shown: bytes) -> tuple[dict[str, Any], str]:
        """A member in wire format, and its kind."""
        data: dict[str, Any] = orjson.loads(shown)
        kind: str = data.pop("kind")
        data.pop("since", None)
        data.pop("within", None)
        data["last_seen"] = self._last_seen(client_id)
        return data, kind

    def _last_seen(self, client_id: str) -> int:
        client = self._core.presence.client(client_id)
        if client is None:
            # For a member on another node, this node only knows that it is connected.
            return self._core.wall()
        return max(client.last_seen, self._seen(client_id) or 0)

    # ------------------------------------------------------------ shown again

    def _refresh(self, topic: str, *, everyone: bool) -> None:
        if topic in self._unread or topic in self._reading_unread:
            self._retry(topic, everyone=everyone)
            return
        self._stale[topic] = everyone or self._stale.get(topic, False)
        if not self._refreshing:
            self._refreshing = True
            self._spawn(self._show_again())

    def _retry(self, topic: str, *, everyone: bool) -> None:
        # Both maps must not contain a topic at the same time, so that one task reads it.
        everyone |= self._stale.pop(topic, False)
        self._unread[topic] = everyone or self._unread.get(topic, False)
        if not self._retrying:
            self._retrying = True
            self._spawn(self._show_unread())

    async def _show_again(self) -> None:
        try:
            while self._stale:
                await self._show_next(self._stale)
        finally:
            self._refreshing = False

    async def _show_unread(self) -> None:
        try:
            while self._unread:
                await asyncio.sleep(AGAIN_AFTER)
                self._reading_unread.update(islice(self._unread, READ_TOPICS))
                await self._show_next(self._unread)
                self._reading_unread.clear()
        finally:
            self._reading_unread.clear()
            self._retrying = False

    def _search_later(self, patterns: Iterable[str]) -> None:
        self._unsearched.update(dict.fromkeys(patterns))
        if self._unsearched and not self._searching:
            self._searching = True
            self._spawn(self._show_unsearched())

    async def _show_unsearched(self) -> None:
        watchers, is_held = self._core.router.watchers, self._core.router.is_held
        try:
            while self._unsearched:
                await asyncio.sleep(AGAIN_AFTER)
                patterns = [each for each in self._unsearched if is_held(each)]
                self._unsearched.clear()
                most = SNAPSHOTS_MAX * len(patterns)
                try:
                    found = await self._search(patterns, lambda topic: bool(watchers(topic)), most)
                except ServiceError:
                    self._search_later(patterns)
                else:
                    self.missed(found, anything=False)
        finally:
            self._searching = False

    async def _show_next(self, waiting: dict[str, bool]) -> None:
        topics = dict(islice(waiting.items(), READ_TOPICS))
        for topic in topics:
            del waiting[topic]
        self._reading.update({topic: {} for topic in topics})
        try:
            present = await self._roster.read(list(topics))
        except ServiceError:
            present = Present({}, {})
        finally:
            changes = {topic: self._reading.pop(topic) for topic in topics}
        self._show_some(topics, changes, present)

    def _show_some(
        self,
        topics: Mapping[str, bool],
        changes: Mapping[str, Mapping[str, MemberChange]],
        present: Present,
    ) -> None:
        core = self._core
        core.delivery.close_run()
        for topic, everyone in topics.items():
            if topic not in present.members:
                self._retry(topic, everyone=everyone)
                continue
            # Changes after the read have been sent already, so the list must contain them.
            row, at = _current(present.members[topic], present.at[topic], changes[topic].values())
            watchers = core.router.watchers(topic)
            if watchers and row:
                self._remember(topic)
            else:
                self._known.pop(topic, None)
            # The first list that is shown may begin a pause; the other encoders need it too.
            paused = self._pace.pauses(topic)
            encoded: dict[Encoder, bytes] = {}
            for connection in watchers:
                encoder = connection.encoder
                streams = encoder.presence is not Attends.CHANGES
                if not (streams or everyone):
                    continue
                if paused and streams:
                    self._pace.changed(topic)
                    continue
                if encoder not in encoded:
                    encoded[encoder] = snapshot_bytes(encoder, topic, self._members(row))
                    if streams:
                        self._pace.shown(topic, len(encoded[encoder]))
                self._give(connection, topic, at, encoded[encoder])


def _current(row: Row, at: int, changes: Iterable[MemberChange]) -> tuple[Row, int]:
    """The members of a topic that was read at this time, with later changes, and their time."""
    members, newest = dict(row), at
    for change in changes:
        if change.at < at:
            continue
        newest = max(newest, change.at)
        if change.change == "leave":
            members.pop(change.client_id, None)
        else:
            members[change.client_id] = (False, change.shown)
    return members, newest


def shown_bytes(member: Member, since: int = 0, latest: int = 0) -> bytes:
    """The stored form of a member, without `last_seen`, which changes all the time.

    Args:
        member: The member.
        since: Earliest time of the store for `Connection.steady_since` of its connection; 0 if it
            has none. It is the first field, where `members.lua` finds and compares it.
        latest: Latest time of the store for it.
    """
    begun = {"since": since, "within": latest - since}
    fields = {**begun, "kind": member.kind, **member_json(member)}
    del fields["last_seen"]
    # Thousands of changes may wait while the store is unavailable.
    return exact_copy(orjson.dumps(fields))


def _least_bytes(shown: bytes) -> int:
    """Bytes of a member in wire format, without `last_seen`.

    Args:
        shown: See `shown_bytes`: before `client_id`, it has only what clients do not receive.
    """
    return len(shown) - shown.index(b'"client_id"') + len(b"{")


def _member(fields: Mapping[str, Any]) -> Member:
    return Member(
        client_id=fields["client_id"],
        user_id=fields["user_id"],
        name=fields["name"],
        avatar_url=fields.get("avatar_url"),
        status=fields.get("status"),
        metadata=fields.get("metadata"),
        joined_at=fields["joined_at"],
        last_seen=fields["last_seen"],
    )
