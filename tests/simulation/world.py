"""Virtual time: what happens when, in one order that depends on the seed alone."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from tests.simulation.prng import Random

if TYPE_CHECKING:
    from collections.abc import Callable

START = 1_700_000_000_000
"""Unix milliseconds at which a simulation begins."""


class World:
    """A clock, a queue of what is going to happen, and chance.

    Attributes:
        now: Virtual Unix milliseconds.
        random: Draws of the scenario, the server and the network.
        calm: Faults have ended.
    """

    def __init__(self, seed: int) -> None:
        self.now = START
        self.random = Random(seed)
        self.calm = False
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._number = 0

    def after(self, milliseconds: int, do: Callable[[], object]) -> int:
        """Have something happen; of two things at one time the one that was planned first."""
        self._number += 1
        heappush(self._queue, (self.now + milliseconds, self._number, do))
        return self._number

    def run(self, until: int) -> None:
        """Let everything happen up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, do = heappop(queue)
            do()
        self.now = until

    def fault(self, thousandths: int) -> bool:
        """Whether a fault of this likelihood happens; none does when all is calm."""
        return self.random.chance(thousandths) and not self.calm
