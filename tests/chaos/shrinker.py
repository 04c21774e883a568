"""Delta debugging: finds the fewest items with which something still fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")


async def shrink(
    items: Sequence[T], fails: Callable[[Sequence[T]], Awaitable[bool]], budget: int
) -> list[T]:
    """Return the fewest of these items, in their order, that still fail.

    Removing any one of them makes the failure disappear, unless the budget ran out first.

    Args:
        items: Items that fail together.
        fails: Whether some of them fail. If that depends on chance, it should try several times. A
            missed failure keeps unnecessary items, but never removes a necessary one.
        budget: Maximum calls of `fails`.
    """
    kept = list(items)
    parts = 2
    while len(kept) >= 1 and budget > 0:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if budget <= 0:
                return kept
            budget -= 1
            if await fails(fewer):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if size <= 1:
                return kept
            parts = min(len(kept), parts * 2)
    return kept
