"""Searches the names of many topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AT_ONCE: Final = 500
"""Names to compare before other work continues: a connection must not delay the others."""


async def matching(names: Sequence[str], wanted: Callable[[str], bool], limit: int) -> list[str]:
    """Return the first wanted names, at most `limit`, in their order."""
    found: list[str] = []
    for start in range(0, len(names), AT_ONCE):
        if start:
            await asyncio.sleep(0)
        found += filter(wanted, names[start : start + AT_ONCE])
        if len(found) >= limit:
            break
    return found[:limit]
