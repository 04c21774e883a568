"""Interest: which peers subscribe to which topics, and what this node subscribes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from hanzoai.pubsub.topics import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    P = TypeVar("P", bound=Hashable)
else:
    P = TypeVar("P")

ROUTES_MAX: Final = 10_000
"""Maximum topics whose peers are cached; the cache is emptied above this number."""


class InterestTable(Generic[P]):
    """Topics and patterns by peer.

    Args:
        most: Maximum names of one peer; more are rejected.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[P, dict[str, None]] = {}
        self._trie: TopicTrie[P] = TopicTrie()
        self._routes: dict[str, tuple[P, ...]] = {}

    def __len__(self) -> int:
        return len(self._trie)

    def of(self, peer: P) -> list[str]:
        """Topics and patterns that one peer wants."""
        return list(self._names.get(peer, ()))

    def add(self, peer: P, names: Iterable[str]) -> bool:
        """Add names that the peer wants. If there would be too many, add none and return False."""
        held = self._names.setdefault(peer, {})
        fresh = [name for name in dict.fromkeys(names) if name not in held]
        if len(held) + len(fresh) > self._most:
            return False
        for name in fresh:
            held[name] = None
            self._trie.insert(name, peer)
        if fresh:
            self._routes.clear()
        return True

    def discard(self, peer: P, names: Iterable[str]) -> None:
        """Remove names that the peer no longer wants."""
        held = self._names.get(peer, {})
        for name in names:
            if name in held:
                del held[name]
                self._trie.remove(name, peer)
                self._routes.clear()

    def drop(self, peer: P) -> None:
        """Remove all names of the peer."""
        self.discard(peer, self.of(peer))
        self._names.pop(peer, None)

    def peers(self, topic: str) -> tuple[P, ...]:
        """The peers that subscribe to a topic, each once."""
        found = self._routes.get(topic)
        if found is None:
            found = tuple(dict.fromkeys(self._trie.match(topic)))
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = found
        return found


class Wanted:
    """The topics and patterns that the clients of this node subscribe to.

    Args:
        linger: Seconds for which a name stays wanted after its last client has left.
    """

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._names: dict[str, float] = {}  # when they were added
        self._trie: TopicTrie[None] = TopicTrie()
        # Names without a client and when they end, in this order.
        self._ending: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def join(self, name: str, now: float) -> bool:
        """Add a name for a client; False if it was already wanted."""
        if self._ending.pop(name, None) is not None:
            return False
        self._names[name] = now
        self._trie.insert(name, None)
        return True

    def leave(self, name: str, now: float) -> None:
        """The last client has left; the name ends after `linger`, see `ended`."""
        self._ending[name] = now + self._linger

    def ended(self, now: float) -> list[str]:
        """Names whose time after the last client has passed."""
        found: list[str] = []
        for name, at in self._ending.items():
            if at > now:
                break
            found.append(name)
        for name in found:
            del self._ending[name]
            del self._names[name]
            self._trie.remove(name, None)
        return found

    def since(self, time: float) -> list[str]:
        """Names added after this time."""
        return [name for name, at in self._names.items() if at > time]

    def covers(self, topic: str) -> bool:
        """Whether messages of this topic are wanted."""
        return bool(self._trie.match(topic))
