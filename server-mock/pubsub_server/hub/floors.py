"""What each connection has from its replays, so that no message comes to it a second time.

A backplane that reads from a log what its node missed delivers it to the subscribers who were there
before. Others subscribed meanwhile, and have it from a replay. Nothing is kept for a topic once a
message that follows the replays is delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import is_wildcard, matches
from pubsub_server.hub.routing import NOWHERE, Route

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pubsub_server.backplane import Entry
    from pubsub_server.shared.connection import Connection

FLOORS_MAX: Final = 50_000
"""Positions kept, of all connections together. Beyond that, those of the topics that have been
silent longest are forgotten: their subscribers may get a message twice."""


class Floors:
    """Positions up to which a topic is not delivered to a connection."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[Connection, int]] = {}
        self._connections: dict[Connection, set[str]] = {}
        # With a replay in progress: the topics and patterns that begin with it.
        self._beginning: dict[Connection, Collection[str]] = {}
        self._size = 0

    def __len__(self) -> int:
        """Positions kept."""
        return self._size

    @property
    def idle(self) -> bool:
        """Whether every connection gets every message of its topics."""
        return not self._topics and not self._beginning

    def begin(self, connection: Connection, fresh: Collection[str]) -> None:
        """A replay is requested.

        Args:
            connection: Whose.
            fresh: The topics and patterns that it was not subscribed to before.
        """
        if fresh:
            self._beginning[connection] = fresh

    def answer(
        self, connection: Connection, positions: Mapping[str, int], topics: Collection[str]
    ) -> None:
        """A replay has been read; the connection gets what follows these positions.

        Args:
            connection: Whose.
            positions: Newest position by topic, of the replay.
            topics: Those of which older messages may still be delivered.
        """
        fresh = self._beginning.pop(connection, None)
        if fresh is None or connection.closed:
            return
        # What it is subscribed to twice is delivered to its older subscription.
        held = [each for each in connection.patterns if each not in fresh]
        wild = [each for each in held if is_wildcard(each)]
        exact = set(held)
        for topic in topics:
            position = positions.get(topic)
            if position and topic not in exact and not any(matches(each, topic) for each in wild):
                self._put(connection, topic, position)

    def fail(self, connection: Connection) -> None:
        """A replay has failed."""
        self._beginning.pop(connection, None)

    def above(self, route: Route, entry: Entry, *, recovered: bool = False) -> Route:
        """The part of a route that lacks a message.

        Args:
            route: Of its topic.
            entry: The message.
            recovered: It was read from a log; replays in progress include it.
        """
        seq = entry.seq
        if seq is None:
            return route
        having: set[Connection] = set()
        floors = self._topics.get(entry.topic)
        if floors is not None:
            having = {each for each, floor in floors.items() if seq <= floor}
            for each in floors.keys() - having:
                self._drop(each, entry.topic)
        if recovered:
            for each, fresh in self._beginning.items():
                if each in route and not _held(each, fresh, entry.topic):
                    having.add(each)
        if not having:
            return route
        rest = Route(each for each in route if each not in having)
        return rest if rest.groups else NOWHERE

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._beginning.pop(connection, None)
        for topic in tuple(self._connections.get(connection, ())):
            self._drop(connection, topic)

    # ------------------------------------------------------------ inside

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


def _held(connection: Connection, fresh: Collection[str], topic: str) -> bool:
    """Whether it was subscribed to a topic before the subscription in progress."""
    return any(each not in fresh and matches(each, topic) for each in connection.patterns)
