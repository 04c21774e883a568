"""Virtual time: the order of events depends only on the seed."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from tests.simulation.prng import Random

if TYPE_CHECKING:
    from collections.abc import Callable

START = 1_700_000_000_000
"""Unix milliseconds at which a simulation begins."""


class World:
    """A clock, a queue of scheduled events, and a random generator.

    Attributes:
        now: Virtual Unix milliseconds.
        random: Random generator of the scenario, the server and the network.
        calm: Whether the faults have ended.
    """

    def __init__(self, seed: int) -> None:
        self.now = START
        self.random = Random(seed)
        self.calm = False
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._number = 0

    def after(self, milliseconds: int, do: Callable[[], object]) -> int:
        """Schedule an event; events of the same time run in the order of the calls."""
        self._number += 1
        heappush(self._queue, (self.now + milliseconds, self._number, do))
        return self._number

    def run(self, until: int) -> None:
        """Run all events up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, do = heappop(queue)
            do()
        self.now = until

    def fault(self, thousandths: int) -> bool:
        """Whether a fault with this probability occurs; never in the calm phase."""
        return self.random.chance(thousandths) and not self.calm
