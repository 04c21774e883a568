"""Runs the same random programs on both SDKs, and in Python with and without its fast libraries.

Set HANZO_PUBSUB_SOAK to run hundreds of programs, and HANZO_PUBSUB_PROGRAMS to begin at a seed.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.conformance.playing import Play, differences
from tests.conformance.random_programs import program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conformance.peer_process import Language, Peers, Speed
    from tests.conformance.playing import Json, Log

FIRST: Final = int(os.environ.get("HANZO_PUBSUB_PROGRAMS", "1"))
PROGRAMS: Final = 400 if "HANZO_PUBSUB_SOAK" in os.environ else 12
KINDS: Final[tuple[tuple[Language, Speed], ...]] = (
    ("python", "off"),
    ("typescript", "off"),
    ("python", "on"),
)
ATTEMPTS: Final = 3
"""A difference counts if each attempt shows it: a cut races with what is on its way."""


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + PROGRAMS))
async def test_a_random_program_does_the_same_in_each_client(
    seed: int, peers: Peers, tmp_path: Path
) -> None:
    steps = program(seed)
    found: list[str] = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        first, *others = await _logs(steps, peers, folder)
        found = [
            f"{KINDS[0]} | {kind}: {line}"
            for kind, log in zip(KINDS[1:], others, strict=True)
            for line in differences(first, log, steps)
        ]
        if not found:
            return
    pytest.fail("\n".join([f"seed {seed}", *found]))


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_always_gives_the_same_program(seed: int) -> None:
    assert program(seed) == program(seed)
    assert program(seed) != program(seed + 1)


async def _logs(steps: Sequence[Json], peers: Peers, folder: Path) -> list[Log]:
    async with AsyncExitStack() as stack:
        plays: list[Play] = []
        for language, speed in KINDS:
            own = folder / f"{language}-{speed}"
            own.mkdir()
            peer = await peers.get(language, speed)
            plays.append(await stack.enter_async_context(Play(peer, own)))
        return list(await asyncio.gather(*(play.run(steps) for play in plays)))
