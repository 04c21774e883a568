"""Which pages may use the server, and the log line about a page that may not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOG: Final = logging.getLogger(__name__)

LOG_EVERY: Final = 60.0
"""Seconds between two log lines: browsers repeat a request that was rejected."""

SHOWN: Final = 128
"""Maximum characters of an origin in the log."""


class Origins:
    """The setting `cors_origins`, for all listeners of a server.

    A browser hides from a page why its request fails, so the log of the server names the reason.

    Args:
        listed: The setting.
        clock: Monotonic seconds.

    Attributes:
        listed: The origins that may use the server; None for all.
    """

    def __init__(self, listed: Sequence[str], clock: Callable[[], float]) -> None:
        self.listed = None if "*" in listed else frozenset(listed)
        self._clock = clock
        self._log_again_at = float("-inf")

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may use the server; if not, log it."""
        if self.listed is None or origin in self.listed:
            return True
        now = self._clock()
        if now >= self._log_again_at:
            self._log_again_at = now + LOG_EVERY
            _LOG.warning(
                "pages of %r may not use this server: the origin is not in cors_origins; add it if"
                " the page is yours",
                origin[:SHOWN],
            )
        return False
