"""The simulations in Python and TypeScript write the same log, byte for byte, for each seed.

`HANZO_PUBSUB_COMPARED` sets the number of compared seeds; `make soak` compares 10,000.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulation.run import Run, simulate
from tests.simulation.streams import simulate_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOAK = "HANZO_PUBSUB_SOAK" in os.environ
SEEDS = int(os.environ.get("HANZO_PUBSUB_COMPARED", "10000" if SOAK else "100"))
BLOCK = 50
STREAMS = 10_000 if SOAK else 50


def _node(*args: str | Path) -> str:
    done = subprocess.run(
        ["node", *args], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=300, check=False
    )
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """The compiled TypeScript simulation."""
    built = Path(_node("tests/js/run.mjs", "--build").strip())
    try:
        yield built / "tests/js/simulation/main.js"
    finally:
        shutil.rmtree(built)


def _first_difference(program: Path, seed: int) -> str:
    run = Run(seed, log=True)
    run.run()
    ours, theirs = run.shell.lines or [], _node(program, str(seed)).split("\n")
    event = ""
    for n, (one, other) in enumerate(zip_longest(ours, theirs)):
        if one is not None and one[:1].isdigit():
            event = one
        if one != other:
            return f"line {n}, after {event}\nPython      {one}\nTypeScript  {other}"
    return "only in the digest"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_one_seed_is_one_log_in_both_languages(program: Path, first: int) -> None:
    end = min(first + BLOCK, SEEDS)
    digests = dict(line.split(" ", 1) for line in _node(program, str(first), str(end)).splitlines())
    assert len(digests) == end - first
    for seed in range(first, end):
        if digests[str(seed)] != simulate(seed, log=True).digest():
            pytest.fail(f"seed {seed}: {digests[str(seed)]}\n{_first_difference(program, seed)}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, STREAMS, BLOCK))
def test_one_seed_is_one_life_of_a_stream_in_both_languages(program: Path, first: int) -> None:
    streams = program.with_name("streams.js")
    end = first + BLOCK
    digests = dict(line.split(" ", 1) for line in _node(streams, str(first), str(end)).splitlines())
    assert len(digests) == BLOCK
    for seed in range(first, end):
        run = simulate_stream(seed, log=True)
        if digests[str(seed)] == run.digest():
            continue
        theirs = _node(streams, str(seed)).splitlines()
        pairs = zip_longest(run.lines or [], theirs)
        found = next((pair for pair in pairs if pair[0] != pair[1]), None)
        pytest.fail(f"seed {seed}: Python and TypeScript differ: {found}")
