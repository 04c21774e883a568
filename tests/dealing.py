"""Which tests the processes of `-n` get: whole groups, in the order of the collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out groups of tests; a process that has nothing left gets the next one.

    Args:
        config: Of pytest.
        log: Of pytest-xdist.
        group_of: The group of a test, by its node id.
    """

    def __init__(self, config: pytest.Config, log: Any, group_of: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._group_of = group_of

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of(nodeid)
