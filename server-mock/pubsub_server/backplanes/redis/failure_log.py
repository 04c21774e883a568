"""Logs a failure that repeats once a minute."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

LOG_EVERY: Final = 60.0
"""Seconds between two lines with the same text."""


class FailureLog:
    """Warnings about one task that tries again until it succeeds.

    Args:
        logger: Writes the warnings.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._again_at: dict[str, float] = {}

    def warn(self, line: str) -> None:
        """Log a failure, unless the same line was logged within the last minute."""
        now = self._loop.time()
        if now >= self._again_at.get(line, now):
            self._again_at[line] = now + LOG_EVERY
            self._logger.warning("%s", line)

    def succeeded(self) -> None:
        """Log the next failure in any case."""
        self._again_at.clear()
