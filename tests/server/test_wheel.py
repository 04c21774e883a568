from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pubsub_server.shared.wheel import Wheel

if TYPE_CHECKING:
    import pytest


class Sleeper:
    def __init__(self, *again: float | None) -> None:
        self.again = list(again)
        self.asked: list[float] = []

    def due(self, now: float) -> float | None:
        self.asked.append(now)
        return self.again.pop(0) if self.again else None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_no_deadline_fires_early() -> None:
    clock = Clock()
    wheel = Wheel(clock, tick=0.1)
    sleeper = Sleeper()
    wheel.add(sleeper, 101.0)
    for clock.now in (100.0, 100.5, 100.99, 101.0):
        wheel.run()
        assert not sleeper.asked
    clock.now = 101.11
    wheel.run()
    assert sleeper.asked == [101.11]


def test_a_deadline_can_be_renewed() -> None:
    clock = Clock()
    wheel = Wheel(clock)
    sleeper = Sleeper(102.0, 103.0, None)
    wheel.add(sleeper, 101.0)
    for _ in range(100):
        clock.now += 0.1
        wheel.run()
    assert [int(at) for at in sleeper.asked] == [101, 102, 103]


def test_a_deadline_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def due(self, now: float) -> float | None:
            raise RuntimeError("broken")

    clock = Clock()
    wheel = Wheel(clock)
    sleeper = Sleeper()
    wheel.add(Broken(), 101.0)
    wheel.add(sleeper, 101.0)
    clock.now = 102.0
    with caplog.at_level(logging.ERROR):
        wheel.run()
    assert sleeper.asked
    assert "a timer failed" in caplog.text


async def test_the_loop_calls_at_the_earliest_deadline() -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    wheel = Wheel(loop.time, loop.call_at, tick=0.001)
    came: list[str] = []
    done = asyncio.Event()

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def due(self, now: float) -> float | None:
            came.append(self.name)
            if self.name == "late":
                done.set()
            return None

    now = loop.time()
    wheel.add(Named("never"), now + 1000)
    wheel.add(Named("late"), now + 0.03)
    wheel.add(Named("early"), now + 0.01)
    async with asyncio.timeout(60):
        await done.wait()
    assert came == ["early", "late"]
    wheel.add(Named("never"), loop.time() + 0.01)
    wheel.stop()
    assert not wheel._buckets
