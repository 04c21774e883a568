"""Measures the lag of the event loop, which delays every delivery."""

from __future__ import annotations

import asyncio
from typing import Final

from pubsub_server.instruments import Distribution, Timing

EVERY: Final = 0.25
"""Seconds between two measurements."""


class LoopLag:
    """A timer that records its delay. Use it inside a running event loop."""

    def __init__(self) -> None:
        self._late = Distribution()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def timing(self) -> Timing:
        """The histogram of delays."""
        return Timing(
            "loop_lag_seconds", "Delay with which the event loop runs timers.", {"": self._late}
        )

    def start(self) -> None:
        """Start measuring."""
        due = self._loop.time() + EVERY
        self._timer = self._loop.call_at(due, self._note, due)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, due: float) -> None:
        self._late.observe(max(0.0, self._loop.time() - due))
        self.start()
