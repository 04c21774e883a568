"""Publish rates and connection limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_server.auth.identity import Identity
from pubsub_server.errors import ServiceError
from pubsub_server.shared import limits
from pubsub_server.shared.limits import Bucket, ConnectionLimiter, RateLimiter

ALICE = Identity("alice", orgs=frozenset({"acme"}))
BOB = Identity("bob", orgs=frozenset({"acme", "other"}))
SERVICE = Identity("gateway", "service")
ADMIN = Identity("root", "admin")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_user_has_ten_publishes_per_second_and_a_service_a_hundred() -> None:
    clock = Clock()
    limiter = RateLimiter(10, 100, clock=clock)
    assert limiter.take(ALICE, "c1", 12) == (10, 100)
    assert limiter.take(SERVICE, "c2", 150) == (100, 10)
    assert limiter.take(ADMIN, "c3", 100) == (100, 0)
    assert [limiter.rate(who) for who in (ALICE, SERVICE, ADMIN)] == [10, 100, 100]


def test_the_budget_fills_again_with_time_up_to_the_burst() -> None:
    clock = Clock()
    limiter = RateLimiter(10, 100, clock=clock)
    limiter.take(ALICE, "c1", 10)
    assert limiter.take(ALICE, "c1", 1) == (0, 100)
    clock.now = 0.1
    assert limiter.take(ALICE, "c1", 1) == (1, 0)
    clock.now = 1000
    assert limiter.take(ALICE, "c1", 11)[0] == 10


def test_a_publisher_that_waits_for_the_returned_time_may_publish_one() -> None:
    clock = Clock()
    limiter = RateLimiter(7, 100, clock=clock)
    for _ in range(100):
        _, wait = limiter.take(ALICE, "c1", 8)
        clock.now += wait / 1000
        assert limiter.take(ALICE, "c1", 1) == (1, 0)


def test_connections_have_budgets_of_their_own_and_rest_shares_one() -> None:
    limiter = RateLimiter(10, 100, clock=Clock())
    assert limiter.take(ALICE, "c1", 10)[0] == 10
    assert limiter.take(ALICE, "c2", 10)[0] == 10
    assert limiter.take(ALICE, None, 10)[0] == 10
    assert limiter.take(ALICE, None, 1)[0] == 0
    assert limiter.take(BOB, None, 1)[0] == 1


def test_a_connection_that_is_gone_leaves_nothing() -> None:
    limiter = RateLimiter(10, 100, clock=Clock())
    limiter.take(ALICE, "c1", 10)
    limiter.forget(ALICE, "c1")
    limiter.forget(ALICE, "c1")
    assert limiter.take(ALICE, "c1", 10)[0] == 10


def test_a_rate_below_one_grants_one_now_and_then() -> None:
    clock = Clock()
    limiter = RateLimiter(0.5, 100, clock=clock)
    assert limiter.take(ALICE, None, 1) == (1, 0)
    assert limiter.take(ALICE, None, 1) == (0, 2000)
    assert limiter.rate(ALICE) == 1


def test_remembered_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BUCKETS", 100)
    clock = Clock()
    limiter = RateLimiter(10, 100, clock=clock)
    for number in range(1000):
        limiter.take(ALICE, f"c{number}", 10)
        assert len(limiter._buckets) <= 100
    clock.now += 10
    limiter.take(BOB, "last", 1)
    for number in range(200):
        limiter.take(ALICE, f"d{number}", 1)
    assert len(limiter._buckets) <= 100


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 2)), max_size=50))
def test_never_more_than_burst_and_rate_allow(steps: list[tuple[int, float]]) -> None:
    bucket = Bucket(10, 10, 0)
    now = granted = 0.0
    for count, pause in steps:
        now += pause
        got, wait = bucket.take(count, now)
        assert 0 <= got <= count
        assert (wait > 0) == (got < count)
        granted += got
        assert granted <= 10 + 10 * now + 1e-6


def test_the_connections_of_a_user_are_limited() -> None:
    limiter = ConnectionLimiter(2, 10)
    limiter.acquire(ALICE)
    limiter.acquire(ALICE)
    with pytest.raises(ServiceError) as caught:
        limiter.acquire(ALICE)
    assert caught.value.code == "connection_limit"
    assert caught.value.retry_after_ms
    limiter.release(ALICE)
    limiter.acquire(ALICE)


def test_the_connections_of_an_organization_are_limited_over_all_its_users() -> None:
    limiter = ConnectionLimiter(10, 2)
    limiter.acquire(ALICE)
    limiter.acquire(BOB)
    with pytest.raises(ServiceError, match="acme"):
        limiter.acquire(ALICE)
    limiter.release(BOB)
    limiter.acquire(ALICE)


def test_a_refused_connection_counts_nowhere() -> None:
    limiter = ConnectionLimiter(10, 10, {"other": 1})
    limiter.acquire(BOB)
    for _ in range(20):
        with pytest.raises(ServiceError, match="other"):
            limiter.acquire(BOB)
    limiter.release(BOB)
    for _ in range(10):
        limiter.acquire(ALICE)


def test_certain_organizations_have_limits_of_their_own() -> None:
    limiter = ConnectionLimiter(10, 1, {"acme": 3})
    for _ in range(3):
        limiter.acquire(ALICE)
    with pytest.raises(ServiceError):
        limiter.acquire(ALICE)


def test_counts_that_are_zero_are_forgotten() -> None:
    limiter = ConnectionLimiter(10, 10)
    limiter.acquire(BOB)
    limiter.release(BOB)
    limiter.release(BOB)
    assert not limiter._counts
