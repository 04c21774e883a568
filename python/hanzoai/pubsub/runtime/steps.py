"""Performs the steps of a session one at a time."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


class Steps:
    """Calls into a session: what calls it during a step waits for the end of the step."""

    def __init__(self) -> None:
        self.busy = False  # a step runs
        self.waiting: deque[Callable[[], None]] = deque()  # the calls that wait for its end

    def call(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Perform a step, now or after those that run and wait."""
        self.waiting.append(partial(step, *args, **kwargs))
        if not self.busy:
            self.run_waiting()

    def run_waiting(self) -> None:
        """Perform the steps that wait."""
        while self.waiting:
            self.busy = True
            try:
                self.waiting.popleft()()
            finally:
                self.busy = False
