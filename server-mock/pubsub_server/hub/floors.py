"""Joins replays and live messages without gaps and duplicates.

A node may still deliver messages that a replay includes: they are in transit from the store, or the
node missed them and reads them from a log. While a replay is being read, messages of its topics
wait; afterwards the node sends those that follow the replay. State for a topic is removed when a
message after its replays is delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import is_wildcard, matches
from pubsub_server.hub.delivery import HELD_PIECES
from pubsub_server.hub.routing import NOWHERE, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.shared.connection import Connection

FLOORS_MAX: Final = 50_000
"""Maximum positions kept, for all connections together. Beyond that, those of the topics without
messages for the longest time are removed, and their subscribers may receive a message twice.
"""


class _Beginning:
    """Subscriptions of a connection whose replay is being read."""

    __slots__ = ("fresh", "size", "waiting", "wild")

    def __init__(self, connection: Connection, fresh: Collection[str]) -> None:
        self.fresh = fresh
        # Messages that these match are sent immediately: older subscriptions have no replay to wait
        # for.
        older = (each for each in connection.patterns if each not in fresh)
        self.wild = [each for each in older if is_wildcard(each)]
        self.waiting: list[tuple[Entry, bytes]] = []
        self.size = 0

    def concerns(self, connection: Connection, topic: str) -> bool:
        """Whether the connection gets a topic only by these subscriptions."""
        if topic in connection.patterns and topic not in self.fresh:
            return False
        return not any(matches(each, topic) for each in self.wild)


class Floors:
    """Positions up to which a topic is not delivered to a connection.

    Args:
        queue_bytes: Maximum bytes that wait for a connection.
        full: Called with a connection that exceeds it.
    """

    def __init__(self, queue_bytes: int, full: Callable[[Connection], None]) -> None:
        self._queue_bytes = queue_bytes
        self._full = full
        self._topics: dict[str, dict[Connection, int]] = {}
        self._connections: dict[Connection, set[str]] = {}
        self._size = 0
        # Replays that are being read; by topic, and of patterns.
        self._beginning: dict[Connection, _Beginning] = {}
        self._named: dict[str, dict[Connection, None]] = {}
        self._wild: dict[Connection, None] = {}

    def __len__(self) -> int:
        """Number of positions kept."""
        return self._size

    @property
    def idle(self) -> bool:
        """Whether every connection gets every message of its topics immediately."""
        return not self._topics and not self._beginning

    def begin(self, connection: Connection, fresh: Collection[str]) -> None:
        """A replay is requested.

        Args:
            connection: The subscriber.
            fresh: The topics and patterns that it was not subscribed to before.
        """
        if not fresh:
            return
        self._beginning[connection] = _Beginning(connection, fresh)
        for each in fresh:
            if is_wildcard(each):
                self._wild[connection] = None
            else:
                self._named.setdefault(each, {})[connection] = None

    def answer(
        self, connection: Connection, positions: Mapping[str, int], floors: Mapping[str, int]
    ) -> Sequence[tuple[Entry, bytes]]:
        """A replay has been read.

        Args:
            connection: The subscriber.
            positions: Newest position of the replay, by topic.
            floors: By topic, the position up to which messages may still arrive that the subscriber
                has, or gets with the replay.

        Returns:
            The waiting messages that follow the replay, oldest first, with their bytes.
        """
        beginning = self._end(connection)
        if beginning is None or connection.closed:
            return ()
        for topic, floor in floors.items():
            if beginning.concerns(connection, topic):
                self._put(connection, topic, floor)
        return [
            (entry, data)
            for entry, data in beginning.waiting
            if entry.seq is None
            or entry.seq > max(positions.get(entry.topic, 0), floors.get(entry.topic, 0))
        ]

    def fail(self, connection: Connection) -> None:
        """A replay has failed."""
        self._end(connection)

    def above(self, route: Route, entry: Entry, but: Connection | None) -> Route:
        """The part of a route that gets a message now.

        Args:
            route: Of its topic.
            entry: The message.
            but: A connection to skip.
        """
        topic, seq = entry.topic, entry.seq
        without: set[Connection] = set()
        floors = self._topics.get(topic)
        if floors is not None and seq is not None:
            without = {each for each, floor in floors.items() if seq <= floor}
            for each in floors.keys() - without:
                self._drop(each, topic)
        if self._beginning:
            for each in (*self._named.get(topic, ()), *self._wild):
                if each in without or each not in route:
                    continue
                beginning = self._beginning[each]
                if beginning.concerns(each, topic):
                    without.add(each)
                    if each is not but:
                        self._wait(each, beginning, entry)
        if not without:
            return route
        rest = Route(each for each in route if each not in without)
        return rest if rest.groups else NOWHERE

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self._end(connection)
        for topic in tuple(self._connections.get(connection, ())):
            self._drop(connection, topic)

    # ------------------------------------------------------------ inside

    def _end(self, connection: Connection) -> _Beginning | None:
        beginning = self._beginning.pop(connection, None)
        if beginning is not None:
            self._wild.pop(connection, None)
            for each in beginning.fresh:
                named = self._named.get(each)
                if named is not None:
                    named.pop(connection, None)
                    if not named:
                        del self._named[each]
        return beginning

    def _wait(self, connection: Connection, beginning: _Beginning, entry: Entry) -> None:
        # Encode it now: an event id states what this node has delivered before.
        beginning.waiting.append((entry, connection.encoder.message(entry)))
        beginning.size += len(entry.body)
        limit = max(self._queue_bytes, connection.encoder.queue_bytes)
        if beginning.size > limit or len(beginning.waiting) > HELD_PIECES:
            beginning.waiting.clear()
            self._full(connection)

    def _put(self, connection: Connection, topic: str, position: int) -> None:
        floors = self._topics.setdefault(topic, {})
        self._size += connection not in floors
        floors[connection] = position
        self._connections.setdefault(connection, set()).add(topic)
        while self._size > FLOORS_MAX:
            oldest = next(iter(self._topics))
            for each in tuple(self._topics[oldest]):
                self._drop(each, oldest)

    def _drop(self, connection: Connection, topic: str) -> None:
        floors, topics = self._topics[topic], self._connections[connection]
        del floors[connection]
        topics.discard(topic)
        self._size -= 1
        if not floors:
            del self._topics[topic]
        if not topics:
            del self._connections[connection]
