"""Distributes tests to the processes of `-n`: whole groups, in the order of the collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Distributes groups of tests; a process without tests gets the next group.

    Args:
        config: The configuration of pytest.
        log: The log of pytest-xdist.
        group_of: Returns the group of a test by its node id.
    """

    def __init__(self, config: pytest.Config, log: Any, group_of: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._group_of = group_of

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of(nodeid)
