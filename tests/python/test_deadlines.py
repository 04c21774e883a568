"""One timer ends all publishes whose timeout has elapsed."""

from __future__ import annotations

import math

from hanzoai.pubsub.runtime.deadlines import EXPIRED, Deadlines
from hanzoai.pubsub.testing import VirtualClock


class Rig:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.expired: list[int] = []
        self.deadlines = Deadlines(self.clock, self.expired.append)

    def wait(self, number: int, seconds: float) -> None:
        deadline = self.deadlines.pending[number] = self.clock.now() + seconds
        if deadline < self.deadlines.next:
            self.deadlines.arm(deadline)


async def test_each_publish_times_out_once_at_its_own_deadline() -> None:
    rig = Rig()
    rig.wait(1, 30)
    rig.wait(2, 10)
    rig.wait(3, 20)
    await rig.clock.advance(10)
    assert rig.expired == [2]
    await rig.clock.advance(10)
    assert rig.expired == [2, 3]
    await rig.clock.advance(60)
    assert rig.expired == [2, 3, 1]
    assert set(rig.deadlines.pending.values()) == {EXPIRED}


async def test_a_settled_publish_does_not_time_out_and_the_timer_serves_the_next() -> None:
    rig = Rig()
    rig.wait(1, 10)
    rig.wait(2, 15)
    del rig.deadlines.pending[1]
    await rig.clock.advance(14)
    assert rig.expired == []
    await rig.clock.advance(1)
    assert rig.expired == [2]


async def test_no_timer_runs_when_nothing_is_pending_or_after_stop() -> None:
    rig = Rig()
    rig.wait(1, 10)
    del rig.deadlines.pending[1]
    await rig.clock.advance(10)
    assert rig.deadlines.next == math.inf
    rig.wait(2, 10)
    rig.deadlines.stop()
    await rig.clock.advance(20)
    assert rig.expired == []
