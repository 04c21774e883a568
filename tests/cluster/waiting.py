"""Waiting for what no event tells of: looked at again and again, within the bound of the test."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN = 0.01


async def until(look: Callable[[], object], wanted: object = True) -> None:
    """Wait until what one looks at is what is wanted; the caller bounds the time."""
    while True:
        seen = look()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen == wanted:
            return
        await asyncio.sleep(AGAIN)
