"""Topics and patterns that this node requests from its backplane, with use counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Interests:
    """Joins each topic or pattern once, while it has users.

    Args:
        join: Called with its first user; see `backplane.Backplane.join`.
        leave: Called without its last user.
    """

    def __init__(self, join: Callable[[str], None], leave: Callable[[str], None]) -> None:
        self._join = join
        self._leave = leave
        # Counts above one only: most topics have one user.
        self._others: dict[str, int] = {}
        self._wanted: set[str] = set()

    def join(self, pattern: str) -> None:
        """Add a user."""
        if pattern in self._wanted:
            self._others[pattern] = self._others.get(pattern, 0) + 1
        else:
            self._wanted.add(pattern)
            self._join(pattern)

    def leave(self, pattern: str) -> None:
        """Remove a user."""
        others = self._others.get(pattern)
        if others is None:
            self._wanted.discard(pattern)
            self._leave(pattern)
        elif others == 1:
            del self._others[pattern]
        else:
            self._others[pattern] = others - 1
