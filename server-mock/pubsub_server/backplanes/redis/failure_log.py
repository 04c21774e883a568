"""Logs a failure that repeats once a minute."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

LOG_EVERY: Final = 60.0
"""Seconds between two lines with the same text."""


class FailureLog:
    """Log lines about one task that tries again until it succeeds.

    Args:
        logger: Writes the lines.
        level: Level of the lines.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._loop = asyncio.get_running_loop()
        self._again_at: dict[str, float] = {}

    def note(self, line: str) -> None:
        """Log a failure, unless the same line was logged within the last minute."""
        now = self._loop.time()
        if now >= self._again_at.get(line, now):
            self._again_at[line] = now + LOG_EVERY
            self._logger.log(self._level, "%s", line)

    def succeeded(self) -> None:
        """Log the next failure in any case."""
        self._again_at.clear()
