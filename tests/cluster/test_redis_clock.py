"""The time of Redis as the answers to calls show it."""

from __future__ import annotations

from pubsub_server.backplanes.redis.redis_clock import RedisClock


def test_without_an_answer_the_clocks_count_as_equal() -> None:
    assert RedisClock().redis_time(1_000) == 1_000


def test_the_distance_lies_in_the_middle_of_what_an_answer_allows() -> None:
    clock = RedisClock()
    clock.read(5_010, sent=1_000, received=1_020)
    assert clock.redis_time(2_000) == 6_000


def test_a_slow_answer_makes_the_distance_hardly_less_accurate() -> None:
    clock = RedisClock()
    clock.read(5_001, sent=1_000, received=1_002)
    # Redis was stopped before it executed the call.
    clock.read(15_000, sent=6_000, received=11_001)
    assert abs(clock.redis_time(20_000) - 24_000) <= 1


def test_a_clock_that_was_set_is_followed() -> None:
    clock = RedisClock()
    clock.read(5_001, sent=1_000, received=1_002)
    clock.read(905_001, sent=6_000, received=6_002)
    assert clock.redis_time(10_000) == 909_000
