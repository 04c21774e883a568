"""Random lives of one stream in virtual time: a view is a prefix of the answer or stale.

`make soak` runs 10,000 seeds, which tests/simulation/test_languages.py compares between languages.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.streams import simulate_stream

SEEDS = 10_000 if "HANZO_PUBSUB_SOAK" in os.environ else 100
BLOCK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_every_reader_of_a_stream_ends_with_the_whole_answer(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            simulate_stream(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_seeds_of_streams_exercise_what_they_are_meant_to() -> None:
    runs = [simulate_stream(seed) for seed in range(60)]
    assert sum(run.takeovers for run in runs) > 10
    assert sum(reader.gaps for run in runs for reader in run.readers) > 2
    assert sum(run.plain for run in runs) > 5
    assert sum(run.published for run in runs) > 1_000


def test_one_seed_is_one_life_of_a_stream() -> None:
    assert simulate_stream(7).digest() == simulate_stream(7).digest()
    assert simulate_stream(7).digest() != simulate_stream(8).digest()
