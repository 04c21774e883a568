"""Waits for states without events by checking repeatedly, within the timeout of the test."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN = 0.01


async def until(look: Callable[[], object], wanted: object = True) -> None:
    """Wait until the observed value equals the expected one; the caller sets the timeout."""
    while True:
        seen = look()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen == wanted:
            return
        await asyncio.sleep(AGAIN)
