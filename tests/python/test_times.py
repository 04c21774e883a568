"""Times in the forms that programs pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.runtime.arguments import unix_ms

NOW = 1_740_307_200_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (NOW, NOW),
        (10**11, 10**11),
        (timedelta(minutes=5), NOW - 300_000),
        (-timedelta(minutes=5), NOW - 300_000),
        (datetime(2025, 2, 23, 10, 40, tzinfo=UTC), NOW),
        (datetime(2025, 2, 23, 12, 40, tzinfo=timezone(timedelta(hours=2))), NOW),
    ],
)
def test_milliseconds_moments_and_spans_are_times(value: Any, expected: int) -> None:
    assert unix_ms(value, NOW) == expected


@pytest.mark.parametrize(
    "value",
    [
        "5m",
        1.5,
        True,
        None,
        datetime(2025, 1, 1),
        -1,
        NOW // 1000,
        10**11 - 1,
        2**60,
        timedelta(days=40_000),
    ],
)
def test_anything_else_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        unix_ms(value, NOW, "before")
    assert caught.value.field == "before"
    assert caught.value.remedy
