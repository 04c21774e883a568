"""Which connections a topic goes to: an exact table, a tree of patterns, and what both gave before.

A route is worked out once and kept until a subscription that could change it comes or goes. So a
publish costs one look-up, however many patterns there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from pubsub_server.interfaces import WireForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pubsub_server.connection import Connection

ROUTES_MAX: Final = 10_000
"""Routes remembered; all are forgotten when they are more."""


class Route:
    """Where one topic goes, each connection once."""

    __slots__ = ("sockets", "streams")

    def __init__(self, sockets: Sequence[Connection], streams: Sequence[Connection]) -> None:
        self.sockets = sockets
        self.streams = streams

    def __len__(self) -> int:
        return len(self.sockets) + len(self.streams)


NOWHERE: Final = Route((), ())


class Router:
    """Subscriptions of all connections.

    Args:
        allowed: Whether a connection may read a topic that one of its patterns matches. Exact
            subscriptions were asked about when they were made.
    """

    def __init__(self, allowed: Callable[[Connection, str], bool]) -> None:
        self._allowed = allowed
        # One subscriber needs no collection: most topics of a person have one.
        self._exact: dict[str, Connection | dict[Connection, None]] = {}
        self._patterns: dict[str, dict[Connection, None]] = {}
        self._trie: TopicTrie[str] = TopicTrie()
        self._routes: dict[str, Route] = {}

    def __len__(self) -> int:
        """Distinct topics and patterns with a subscriber."""
        return len(self._exact) + len(self._patterns)

    def add(self, connection: Connection, pattern: str) -> None:
        """Subscribe; the caller knows that it is not yet."""
        if is_wildcard(pattern):
            holders = self._patterns.get(pattern)
            if holders is None:
                holders = self._patterns[pattern] = {}
                self._trie.insert(pattern, pattern)
            holders[connection] = None
            self._routes.clear()
            return
        known = self._exact.get(pattern)
        if known is None:
            self._exact[pattern] = connection
        elif isinstance(known, dict):
            known[connection] = None
        else:
            self._exact[pattern] = {known: None, connection: None}
        self._routes.pop(pattern, None)

    def discard(self, connection: Connection, pattern: str) -> None:
        """End a subscription."""
        if is_wildcard(pattern):
            holders = self._patterns.get(pattern)
            if holders is not None and holders.pop(connection, self) is None:
                if not holders:
                    del self._patterns[pattern]
                    self._trie.remove(pattern, pattern)
                self._routes.clear()
            return
        known = self._exact.get(pattern)
        if known is connection:
            del self._exact[pattern]
        elif isinstance(known, dict):
            known.pop(connection, None)
            if len(known) == 1:
                self._exact[pattern] = next(iter(known))
        self._routes.pop(pattern, None)

    def changed(self, connection: Connection) -> None:
        """What this connection may read has changed."""
        connection.verdicts = None
        if any(is_wildcard(pattern) for pattern in connection.patterns):
            self._routes.clear()

    def route(self, topic: str) -> Route:
        """Where a message of this topic goes."""
        route = self._routes.get(topic)
        if route is None:
            route = self._work_out(topic)
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def _work_out(self, topic: str) -> Route:
        known = self._exact.get(topic)
        if known is None:
            found: dict[Connection, None] = {}
        elif isinstance(known, dict):
            found = known
        else:
            found = {known: None}
        if self._patterns and (patterns := self._trie.match(topic)):
            found = dict(found)
            for pattern in patterns:
                for connection in self._patterns[pattern]:
                    if connection not in found and self._allowed(connection, topic):
                        found[connection] = None
        if not found:
            return NOWHERE
        streams = [each for each in found if each.form is WireForm.EVENT_STREAM]
        if not streams:
            return Route(list(found), ())
        return Route([each for each in found if each.form is WireForm.SOCKET], streams)

    def exact_count(self, topic: str) -> int:
        """Connections subscribed to this very topic."""
        known = self._exact.get(topic)
        return 0 if known is None else len(known) if isinstance(known, dict) else 1

    def exact_topics(self) -> Sequence[str]:
        """Topics with a subscriber of their own."""
        return list(self._exact)
