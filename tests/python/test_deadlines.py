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


async def test_each_publish_is_given_up_at_its_own_time_and_once() -> None:
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


async def test_what_is_settled_is_not_given_up_and_the_timer_goes_on_for_the_next() -> None:
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
