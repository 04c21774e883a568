"""Topics and patterns that this node asks its backplane for, with a count of their users."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Interests:
    """Topics and patterns, each joined once while someone wants it.

    Args:
        join: Gets one with its first user; see `backplane.Backplane.join`.
        leave: Gets one that has lost its last user.
    """

    def __init__(self, join: Callable[[str], None], leave: Callable[[str], None]) -> None:
        self._join = join
        self._leave = leave
        # Those that several want: most have one.
        self._others: dict[str, int] = {}
        self._wanted: set[str] = set()

    def join(self, pattern: str) -> None:
        """One more wants it."""
        if pattern in self._wanted:
            self._others[pattern] = self._others.get(pattern, 0) + 1
        else:
            self._wanted.add(pattern)
            self._join(pattern)

    def leave(self, pattern: str) -> None:
        """One less."""
        others = self._others.get(pattern)
        if others is None:
            self._wanted.discard(pattern)
            self._leave(pattern)
        elif others == 1:
            del self._others[pattern]
        else:
            self._others[pattern] = others - 1
