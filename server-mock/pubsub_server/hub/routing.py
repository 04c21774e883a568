"""The connections for a topic: an exact table, a tree of patterns, and a cache of routes.

A route is computed once and cached until a subscription that could change it begins or ends. So a
publish costs one look-up, regardless of the number of patterns. A pattern that begins or ends
changes only the routes of topics that it matches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from pubsub_server.hub.topic_tree import TopicTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.encoder import Encoder

ROUTES_MAX: Final = 10_000
"""Maximum cached routes; the cache is emptied above this number."""
PLACES_MAX: Final = 1_000_000
"""Maximum connections in all cached routes together; one route is always cached."""

SEGMENTS_MAX: Final = 8
"""Maximum segments of a topic in the tree of cached topics: each takes about 250 bytes."""

STEPS: Final = 8
"""Steps of a search for affected routes that take as long as working out a short route."""


class Group:
    """The connections of a route that get the same bytes.

    Attributes:
        encoder: Encodes the messages.
        connections: In the order in which they subscribed.
        pieces: Encoded messages of the current run of `delivery`.
    """

    __slots__ = ("connections", "encoder", "pieces")

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.connections: dict[Connection, None] = {}
        self.pieces: list[bytes] = []


class Route:
    """The connections of one topic, each once.

    Attributes:
        groups: Connections by encoder.
        watchers: Connections that receive presence of the topic; None until requested.
    """

    __slots__ = ("groups", "watchers")

    def __init__(self, connections: Iterable[Connection]) -> None:
        self.groups: dict[Encoder, Group] = {}
        self.watchers: dict[Connection, None] | None = None
        for connection in connections:
            self.add(connection)

    def __len__(self) -> int:
        return sum(len(group.connections) for group in self.groups.values())

    def __iter__(self) -> Iterator[Connection]:
        for group in self.groups.values():
            yield from group.connections

    def __contains__(self, connection: Connection) -> bool:
        group = self.groups.get(connection.encoder)
        return group is not None and connection in group.connections

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        encoder = connection.encoder
        group = self.groups.get(encoder)
        if group is None:
            group = self.groups[encoder] = Group(encoder)
        group.connections[connection] = None

    def discard(self, connection: Connection) -> None:
        """Remove a connection."""
        group = self.groups.get(connection.encoder)
        if group is not None:
            group.connections.pop(connection, None)
            if not group.connections:
                del self.groups[connection.encoder]
        if self.watchers is not None:
            self.watchers.pop(connection, None)


NOWHERE: Final = Route(())


class Router:
    """Subscriptions of all connections.

    Args:
        allowed: Whether a connection may read a topic that one of its patterns matches. Exact
            subscriptions were checked when they were made.
        first: Called with a topic or pattern when it gets its first subscriber.
        last: Called with a topic or pattern when it loses its last subscriber.
    """

    def __init__(
        self,
        allowed: Callable[[Connection, str], bool],
        first: Callable[[str], None],
        last: Callable[[str], None],
    ) -> None:
        self._allowed = allowed
        self._first = first
        self._last = last
        # A single subscriber is stored without a collection: most topics of a user have one.
        self._exact: dict[str, Connection | dict[Connection, None]] = {}
        self._patterns: dict[str, dict[Connection, None]] = {}
        self._trie: TopicTrie[str] = TopicTrie()
        self._routes: dict[str, Route] = {}
        # Topics with a cached route, and some that had one; those with many segments apart.
        self._cached = TopicTree()
        self._long: dict[str, None] = {}
        # Count since the cache was emptied; an upper bound, as some connections may have left.
        self._places = 0

    def __len__(self) -> int:
        """Distinct topics and patterns with a subscriber."""
        return len(self._exact) + len(self._patterns)

    def add(self, connection: Connection, pattern: str) -> None:
        """Subscribe; the caller has checked that it is not subscribed yet."""
        if is_wildcard(pattern):
            holders = self._patterns.get(pattern)
            if holders is None:
                holders = self._patterns[pattern] = {}
                self._trie.insert(pattern, pattern)
                self._first(pattern)
            holders[connection] = None
            connection.wild += 1
            for topic in self._affected(pattern):
                self._extend(topic, connection)
            return
        known = self._exact.get(pattern)
        if known is None:
            self._exact[pattern] = connection
            self._first(pattern)
        elif isinstance(known, dict):
            known[connection] = None
        else:
            self._exact[pattern] = {known: None, connection: None}
        route = self._routes.get(pattern)
        if route is NOWHERE:
            del self._routes[pattern]
        elif route is not None:
            route.add(connection)
            self._places += 1
            if route.watchers is not None and watches(connection, pattern):
                route.watchers[connection] = None

    def discard(self, connection: Connection, pattern: str) -> None:
        """End a subscription."""
        if is_wildcard(pattern):
            holders = self._patterns.get(pattern)
            if holders is not None and connection in holders:
                del holders[connection]
                connection.wild -= 1
                if not holders:
                    del self._patterns[pattern]
                    self._trie.remove(pattern, pattern)
                    self._last(pattern)
                for topic in self._affected(pattern):
                    self._reduce(topic, connection)
            return
        known = self._exact.get(pattern)
        if known is connection:
            del self._exact[pattern]
            self._last(pattern)
        elif isinstance(known, dict):
            known.pop(connection, None)
            if len(known) == 1:
                self._exact[pattern] = next(iter(known))
        route = self._routes.get(pattern)
        if route is None:
            return
        if connection.wild or len(route) <= 1:
            # A pattern may also match it; and a route without connections is not kept.
            del self._routes[pattern]
        else:
            route.discard(connection)

    def changed(self, connection: Connection) -> None:
        """The read permissions of this connection have changed."""
        connection.verdicts = None
        if connection.wild:
            for pattern in filter(is_wildcard, connection.patterns):
                for topic in self._affected(pattern):
                    self._routes.pop(topic, None)

    def presence_changed(self, pattern: str) -> None:
        """A connection starts or stops receiving presence for this pattern."""
        for topic in self._affected(pattern) if is_wildcard(pattern) else (pattern,):
            route = self._routes.get(topic)
            if route is not None:
                route.watchers = None

    def watchers(self, topic: str) -> dict[Connection, None]:
        """Connections that receive presence of a topic."""
        route = self.route(topic)
        if route.watchers is None:
            loud = {
                each
                for name in (topic, *self._trie.match(topic))
                for each in self._holders(name)
                if watches(each, name)
            }
            route.watchers = {each: None for each in route if each in loud}
        return route.watchers

    def route(self, topic: str) -> Route:
        """The route of a topic."""
        route = self._routes.get(topic)
        if route is None:
            route = self._work_out(topic)
            size = len(route)
            cached = len(self._cached) + len(self._long)
            if cached >= ROUTES_MAX or self._places + size > PLACES_MAX:
                self._forget_routes()
            if topic.count(".") < SEGMENTS_MAX:
                self._cached.add(topic, STEPS + size // 2)
            else:
                self._long[topic] = None
            self._routes[topic] = route
            self._places += size
        return route

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._cached.clear()
        self._long.clear()
        self._places = 0

    def _affected(self, pattern: str) -> Iterable[str]:
        """Topics whose cached routes a pattern can change; forgets the routes of long topics.

        If searches have taken longer than working out all routes again, the cache is emptied: a
        client that changes patterns without end costs at most twice as much as the routes.
        """
        for topic in self._long:
            self._routes.pop(topic, None)
        self._long.clear()
        topics = self._cached.matching(pattern)
        if topics is None:
            self._forget_routes()
            return ()
        return topics

    def _extend(self, topic: str, connection: Connection) -> None:
        """One more pattern of this connection matches a topic."""
        route = self._routes.get(topic)
        if route is NOWHERE:
            del self._routes[topic]
        elif route is not None and self._allowed(connection, topic):
            if connection not in route:
                route.add(connection)
                self._places += 1
            route.watchers = None

    def _reduce(self, topic: str, connection: Connection) -> None:
        """One pattern less of this connection matches a topic."""
        route = self._routes.get(topic)
        if route is None or connection not in route:
            return
        known = self._exact.get(topic)
        if known is connection or (isinstance(known, dict) and connection in known):
            route.watchers = None
        elif connection.wild or len(route) <= 1:
            # Another pattern may also match it; and a route without connections is not kept.
            del self._routes[topic]
        else:
            route.discard(connection)

    def _work_out(self, topic: str) -> Route:
        found = dict.fromkeys(self._holders(topic))
        holders: dict[Connection, None] = {}
        for pattern in self._trie.match(topic):
            holders |= self._patterns[pattern]
        for connection in holders:
            if connection not in found and self._allowed(connection, topic):
                found[connection] = None
        return Route(found) if found else NOWHERE

    def _holders(self, name: str) -> Iterable[Connection]:
        """The connections with a subscription to exactly this topic or pattern."""
        known = self._patterns.get(name) or self._exact.get(name) or ()
        return known if isinstance(known, dict | tuple) else (known,)

    def is_held(self, name: str) -> bool:
        """Whether a connection subscribes to exactly this topic or pattern."""
        return bool(self._holders(name))

    def exact_topics(self) -> Sequence[str]:
        """Topics with a subscriber by name."""
        return list(self._exact)


def watches(connection: Connection, pattern: str) -> bool:
    """Whether a subscription of the connection was made with presence."""
    return connection.silent is None or pattern not in connection.silent
