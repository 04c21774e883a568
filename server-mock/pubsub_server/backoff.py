"""Backoff: the waits between the attempts of a task."""

from __future__ import annotations

import asyncio


class Backoff:
    """Waits that double, up to a maximum.

    Args:
        first: Seconds of the first wait.
        most: Maximum seconds of a wait.

    Attributes:
        pause: Seconds of the next wait.
    """

    def __init__(self, first: float = 0.05, most: float = 1.0) -> None:
        self._first = first
        self._most = most
        self.pause = first

    async def wait(self) -> None:
        """Wait before the next attempt."""
        pause = self.pause
        self.pause = min(self._most, pause * 2)
        await asyncio.sleep(pause)

    def reset(self) -> None:
        """An attempt has succeeded: begin with the first wait again."""
        self.pause = self._first
