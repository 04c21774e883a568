"""The other nodes: the connection to each, what each wants, and whether it has missed messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.mesh.interest import InterestTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pubsub_server.backplanes.mesh.link import Link

REMEMBERED: Final = 600.0
"""Seconds for which the interest of a node that disappeared is remembered."""
REMEMBERED_MAX: Final = 64
"""Maximum nodes whose interest is remembered."""


class Remote:
    """Another node.

    Attributes:
        node: Its id; for a plain peer, a name that no node can have.
        start: See `codec.Hello`.
        address: Its address; empty for a plain peer.
        plain: Whether it uses only the six opcodes.
        link: The connection; None while there is none.
        missed: Whether a message that it wanted was published without a connection.
        lost_at: When the connection was lost.
        known_until: It surely knew all names that this node had added by then.
        stale: Names that it wanted before the connection was lost, and has not requested since.
        stale_until: When the stale names are removed.
    """

    __slots__ = (
        "address",
        "known_until",
        "link",
        "lost_at",
        "missed",
        "node",
        "plain",
        "stale",
        "stale_until",
        "start",
    )

    def __init__(self, node: str, start: str, address: str, *, plain: bool) -> None:
        self.node = node
        self.start = start
        self.address = address
        self.plain = plain
        self.link: Link | None = None
        self.missed = False
        self.lost_at = 0.0
        self.known_until = 0.0
        self.stale: set[str] = set()
        self.stale_until = 0.0


class Remotes:
    """All other nodes that are known by name.

    Args:
        most: Maximum topics and patterns per node.
    """

    def __init__(self, most: int) -> None:
        self.table: InterestTable[Remote] = InterestTable(most)
        self._remotes: dict[str, Remote] = {}

    def get(self, node: str) -> Remote | None:
        """A node by its id."""
        return self._remotes.get(node)

    def linked(self, node: str) -> bool:
        """Whether there is a connection with a node."""
        remote = self._remotes.get(node)
        return remote is not None and remote.link is not None

    def __iter__(self) -> Iterator[Remote]:
        """The nodes with a connection."""
        return iter([each for each in self._remotes.values() if each.link is not None])

    def connect(self, remote: Remote, link: Link, until: float) -> None:
        """A connection is in use.

        Args:
            remote: The node.
            link: The connection.
            until: When to remove the names that it wanted earlier and has not requested again.
        """
        before = self._remotes.get(remote.node)
        if before is not None and before is not remote:
            self._drop(before)
        self._remotes[remote.node] = remote
        remote.link = link
        remote.missed = False
        remote.stale = set(self.table.of(remote))
        remote.stale_until = until

    def wants(self, remote: Remote, names: Iterable[str], until: float) -> bool:
        """Add names that the node wants; False if there would be too many.

        Args:
            remote: The node.
            names: The names.
            until: See `connect`; applies if the node has wanted some of the names earlier. It
                requests many names in several frames.
        """
        names = list(names)
        if not remote.stale.isdisjoint(names):
            remote.stale.difference_update(names)
            remote.stale_until = until
        return self.table.add(remote, names)

    def disconnect(self, remote: Remote, now: float, *, for_good: bool) -> None:
        """The connection is lost.

        Args:
            remote: The node.
            now: Monotonic seconds.
            for_good: Whether it is not expected back under this id.
        """
        remote.link = None
        remote.lost_at = now
        if for_good:
            self._drop(remote)
            return
        away = [each for each in self._remotes.values() if each.link is None]
        if len(away) > REMEMBERED_MAX:
            self._drop(min(away, key=lambda each: each.lost_at))

    def expire(self, now: float) -> None:
        """Forget what is no longer needed."""
        for remote in list(self._remotes.values()):
            if remote.link is None and now - remote.lost_at >= REMEMBERED:
                self._drop(remote)
            elif remote.link is not None and remote.stale and now >= remote.stale_until:
                self.table.discard(remote, remote.stale)
                remote.stale = set()

    def _drop(self, remote: Remote) -> None:
        self.table.drop(remote)
        if self._remotes.get(remote.node) is remote:
            del self._remotes[remote.node]
