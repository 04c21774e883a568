"""Reports a test that waits for virtual time that does not advance.

With a virtual clock, a call that waits for a timer waits forever unless the test advances time, and
a test that hangs does not show the reason. This module checks the clock in real time.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.testing.clock import VirtualClock

PATIENCE: Final = 5.0
"""Real seconds without activity before a report."""


_SHOWN: Final = 3
"""Maximum places in a report."""

_OWN: Final = ("hanzoai.pubsub.", "pubsub_server.")
"""Modules whose tasks are of no interest to the test."""


class _Timer(Protocol):
    def cancel(self) -> None: ...


class Standstill:
    """Watches one clock.

    Args:
        clock: The clock to watch.
        call_later: `call_later` of the event loop, in real time.
        tell: Called with the report, once for each standstill.
        patience: Real seconds without activity before a report.
    """

    def __init__(
        self,
        clock: VirtualClock,
        call_later: Callable[[float, Callable[[], None]], _Timer],
        tell: Callable[[str], None],
        patience: float = PATIENCE,
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._tell = tell
        self._patience = patience
        self._seen: tuple[int, float] | None = None
        self._reported = False
        self._timer: _Timer | None = None

    def start(self) -> None:
        """Start to watch."""
        self._timer = self._call_later(self._patience, self._check)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        seen = (self._clock.begun, self._clock.now())
        pending = self._clock.pending
        if seen != self._seen:
            self._reported = False
        elif pending and not self._reported:
            self._reported = True
            timers = "1 timer is" if pending == 1 else f"{pending} timers are"
            self._tell(
                f"virtual time does not advance, {timers} pending: advance the clock "
                f"(`await server.clock.advance(seconds)`){_waiting()}"
            )
        self._seen = seen
        self.start()


def _waiting() -> str:
    """Where the tasks of the test and its program wait; empty if there are none."""
    frames = [frame for task in asyncio.all_tasks() for frame in task.get_stack(limit=1)]
    places = sorted(
        f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
        for frame in frames
        if not f"{frame.f_globals.get('__name__')}.".startswith(_OWN)
    )
    return f"; waiting at {', '.join(places[:_SHOWN])}" if places else ""


def _to_stderr(sentence: str) -> None:
    sys.stderr.write(f"hanzoai.pubsub.testing: {sentence}\n")
    sys.stderr.flush()


_reports: Final[list[Callable[[str], None]]] = [_to_stderr]


def report(sentence: str) -> None:
    """Write a report to standard error, or as the newest `report_by` says."""
    _reports[-1](sentence)


def report_by(write: Callable[[str], None]) -> Callable[[], None]:
    """Write reports with a function, until the returned function is called."""
    _reports.append(write)
    return lambda: _reports.remove(write)


__all__ = ["PATIENCE", "Standstill", "report", "report_by"]
