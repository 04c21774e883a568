"""The time of Redis as the answers to calls show it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pubsub_server.backplanes.redis.failure_log import ClockLog
from pubsub_server.backplanes.redis.redis_clock import RedisClock

if TYPE_CHECKING:
    import pytest


class Steady:
    """A steady clock that the test moves, and the clock of Redis that it reads."""

    def __init__(self) -> None:
        self.ms = 0
        self.wall = 777
        self.clock = RedisClock(wall=lambda: self.wall, steady=lambda: self.ms / 1000)

    def read(self, time: int, sent: int, received: int) -> int:
        self.ms = received
        return self.clock.read(time, sent)

    def now(self, at: int) -> int:
        self.ms = at
        return self.clock.now()


def test_without_an_answer_the_clock_of_the_machine_counts() -> None:
    assert Steady().now(1_000) == 777


def test_the_clock_of_the_machine_counts_as_far_as_an_answer_allows_it() -> None:
    steady, found = Steady(), {}
    steady.read(5_010, sent=1_000, received=1_020)
    for wall in (0, 5_989, 5_990, 6_003, 6_010, 6_011, 90_000):
        steady.wall = wall
        found[wall] = steady.now(2_000)
    assert found == {
        **dict.fromkeys((0, 5_989, 5_990), 5_990),
        6_003: 6_003,
        **dict.fromkeys((6_010, 6_011, 90_000), 6_010),
    }


def test_a_slow_answer_makes_the_distance_hardly_less_accurate() -> None:
    steady = Steady()
    steady.read(5_001, sent=1_000, received=1_002)
    # Redis was stopped before it executed the call.
    steady.read(15_000, sent=6_000, received=11_001)
    assert abs(steady.now(20_000) - 24_000) <= 1


def test_a_clock_of_redis_that_was_set_is_followed() -> None:
    steady = Steady()
    steady.read(5_001, sent=1_000, received=1_002)
    steady.read(905_001, sent=6_000, received=6_002)
    assert abs(steady.now(10_000) - 909_000) <= 1


def test_a_clock_of_redis_that_was_set_back_is_noticed() -> None:
    steady = Steady()
    assert steady.read(5_001, sent=1_000, received=1_002) == 0
    assert steady.read(7_000, sent=2_000, received=6_000) == 0
    assert steady.read(5_001, sent=6_000, received=6_001) == 4_996
    assert steady.read(9_001, sent=7_000, received=7_001) == 0


def test_a_later_answer_brings_the_bounds_of_an_earlier_time_closer_together() -> None:
    steady = Steady()
    steady.read(5_050, sent=1_000, received=1_500)
    assert steady.clock.bounds_at(1_400) == (4_950, 5_450)
    steady.read(10_001, sent=6_000, received=6_002)
    assert steady.clock.bounds_at(1_400) == (5_399, 5_401)


def test_before_the_first_answer_a_time_may_be_any_time_of_redis() -> None:
    assert Steady().clock.bounds_at(900) == (0, 2**53 - 1)


def test_a_time_within_the_bounds_of_redis_is_not_apart() -> None:
    steady = Steady()
    assert steady.clock.apart(0) == 0
    steady.read(5_010, sent=1_000, received=1_020)
    assert [steady.clock.apart(time) for time in (5_009, 5_010, 5_030, 5_031)] == [-1, 0, 0, 1]


def test_clocks_that_differ_are_logged_once_until_they_agree(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steady, wall = Steady(), iter((52_000, 52_001, 51_500, 54_000, 51_000, 50_999, 47_000, 40_000))
    steady.read(50_000, sent=1_000, received=1_000)
    log = ClockLog(logging.getLogger("tests"), steady.clock, wall.__next__)
    for _ in range(8):
        log.compare()
    said = [each.getMessage().partition(" Redis")[0] for each in caplog.records]
    assert said == [
        "the clock of this machine is 2 s ahead of the clock of",
        "the clocks of this machine and of",
        "the clock of this machine is 3 s behind the clock of",
    ]
