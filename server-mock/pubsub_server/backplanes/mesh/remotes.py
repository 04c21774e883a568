"""The other nodes: which connection leads to each, what each wants, and what it has missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.mesh.interest import InterestTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pubsub_server.backplanes.mesh.link import Link

REMEMBERED: Final = 600.0
"""Seconds for which it is remembered what a node wanted that went without a word."""
REMEMBERED_MAX: Final = 64
"""Nodes of which that is remembered."""


class Remote:
    """Another node.

    Attributes:
        node: Its id; of a plain peer a name that no node has.
        start: See `codec.Hello`.
        address: Where it is reached; empty for a plain peer.
        plain: Whether it speaks the six opcodes alone.
        link: The connection; None while there is none.
        missed: Whether something was published that it wanted, while there was none.
        lost_at: Since when there is none.
        stale: What it wanted before the connection was lost, and has not asked for since.
        stale_until: When it wants that no more.
    """

    __slots__ = (
        "address",
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
        self.stale: set[str] = set()
        self.stale_until = 0.0


class Remotes:
    """All other nodes that are known by name.

    Args:
        most: Topics and patterns that one may want.
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
        """Those with a connection."""
        return iter([each for each in self._remotes.values() if each.link is not None])

    def connect(self, remote: Remote, link: Link, until: float) -> None:
        """There is a connection.

        Args:
            remote: With which node.
            link: The connection.
            until: When what it wanted before, and has not asked for by then, is wanted no more.
        """
        self._remotes[remote.node] = remote
        remote.link = link
        remote.missed = False
        remote.stale = set(self.table.of(remote))
        remote.stale_until = until

    def wants(self, remote: Remote, names: Iterable[str]) -> bool:
        """It wants these; False if it would have too many."""
        names = list(names)
        if remote.stale:
            remote.stale.difference_update(names)
        return self.table.add(remote, names)

    def disconnect(self, remote: Remote, now: float, *, for_good: bool) -> None:
        """There is no connection any more.

        Args:
            remote: With which node.
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
