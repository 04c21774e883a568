"""The shrinker finds the fewest necessary faults within its budget."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from tests.chaos.shrinker import shrink

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    "needed", [set(each) for count in (0, 1, 2, 3) for each in combinations(range(8), count)]
)
async def test_what_is_needed_for_the_failure_is_all_that_is_left(needed: set[int]) -> None:
    async def fails(kept: Sequence[int]) -> bool:
        return needed <= set(kept)

    assert await shrink(range(8), fails, 200) == sorted(needed)


async def test_any_of_several_causes_is_enough() -> None:
    async def fails(kept: Sequence[int]) -> bool:
        return {1, 4} <= set(kept) or 6 in kept

    assert await shrink(range(8), fails, 200) in ([1, 4], [6])


async def test_the_budget_bounds_the_runs_and_what_is_left_still_fails() -> None:
    asked: list[Sequence[int]] = []

    async def fails(kept: Sequence[int]) -> bool:
        asked.append(kept)
        return {3, 17} <= set(kept)

    left = await shrink(range(20), fails, 5)
    assert len(asked) == 5
    assert {3, 17} <= set(left)
    assert len(left) < 20


async def test_a_failure_that_does_not_show_each_time_removes_nothing_that_is_needed() -> None:
    turns = iter([True, False] * 100)

    async def fails(kept: Sequence[int]) -> bool:
        return {2, 5} <= set(kept) and next(turns)

    assert {2, 5} <= set(await shrink(range(8), fails, 200))
