"""Random schedules in virtual time: each published message is delivered, or one gap covers it.

`HANZO_PUBSUB_SEEDS` sets the number of seeds; `make soak` runs 20,000. To repeat a failing seed and
print its events, run `python -m tests.simulation SEED`.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.prng import Random
from tests.simulation.run import Result, simulate

SEEDS = int(
    os.environ.get("HANZO_PUBSUB_SEEDS", "20000" if os.environ.get("HANZO_PUBSUB_SOAK") else "300")
)
"""More seeds than the mutants of `test_mutants.py` need."""
BLOCK = 50
COUNTED = 100
"""Seeds whose events are counted."""


def settled(seed: int) -> Result:
    try:
        return simulate(seed)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def test_the_seeds_contain_enough_drops_gaps_and_messages() -> None:
    results = [settled(seed) for seed in range(COUNTED)]
    assert sum(result.drops for result in results) > 300
    assert sum(result.gaps for result in results) > 100
    assert sum(result.delivered for result in results) > 20_000
    assert sum(result.settled for result in results) > 1_500


@pytest.mark.parametrize("first", range(COUNTED, SEEDS, BLOCK))
def test_each_message_arrives_once_or_a_gap_covers_it(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        settled(seed)


def test_one_seed_is_one_run() -> None:
    assert simulate(7, log=True).digest() == simulate(7, log=True).digest()
    assert simulate(7, log=True).digest() != simulate(8, log=True).digest()


def test_the_generator_gives_the_numbers_that_it_gives_in_every_language() -> None:
    random = Random(1)
    assert [random.u32() for _ in range(4)] == [2693262067, 11749833, 2265367787, 4213581821]
    assert Random(1).unit() == 2693262067 / 2**32
