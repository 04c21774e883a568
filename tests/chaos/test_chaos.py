"""The real server under random faults keeps its promises; each seed is one schedule.

With HANZO_PUBSUB_SOAK set: seeds by the hundred on every topology. `python -m tests.chaos` runs any
of them again.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.chaos.peers import bundled
from tests.chaos.plan import TOPOLOGIES, Plan, draw
from tests.chaos.run import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.run import Report

SOAK: Final = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
BOUND: Final = 0 if SOAK else 300
SEEDS: Final = 500
AT_ONCE: Final = 2 if SOAK else 4
"""Runs at the same time: most of a run is waiting."""
SEED: Final = 28
"""Of the small runs: one that breaks the networks of clients on every topology."""
PINNED: Final = sorted((Path(__file__).parent / "pinned").glob("*.json"))
"""Schedules that broke a promise once, named for what happens in them."""


def networks_alone(plan: Plan) -> Plan:
    """The same run where only the networks between clients and nodes fail."""
    names = {"*", *(one.name for one in plan.clients)}
    chosen = {n for n, one in enumerate(plan.faults) if one.on in names and one.kind != "move"}
    assert chosen
    return plan.only(chosen)


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """The TypeScript peer."""
    with bundled() as folder:
        yield folder


async def carried_out(built: Path, plans: Sequence[Plan]) -> list[Report]:
    """Reports of these plans, several at the same time."""
    waiting = list(reversed(plans))
    reports: list[Report] = []

    async def work(stage: Stage) -> None:
        while waiting:
            reports.append(await stage.run(waiting.pop()))

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, len(plans))):
            group.create_task(work(await stack.enter_async_context(Stage(built))))
    return reports


def broken(reports: Sequence[Report]) -> str:
    """The promises that were broken, for people, with the plan to carry out again."""
    return "\n".join(
        "\n".join(
            [
                f"{report.plan.topology} seed {report.plan.seed}:",
                *map(str, report.plan.faults),
                *map(str, report.violations),
                "python -m tests.chaos --plan FILE carries this out again:",
                json.dumps(report.plan.to_json()),
            ]
        )
        for report in reports
        if report.violations
    )


@pytest.mark.timeout(BOUND)
async def test_a_server_under_random_faults_keeps_its_promises(built: Path) -> None:
    if SOAK:
        plans = [draw(seed, topology) for seed in range(1, SEEDS + 1) for topology in TOPOLOGIES]
    else:
        # As long as Redis does not fail, it makes no difference what it keeps.
        plans = [networks_alone(draw(SEED, one)) for one in TOPOLOGIES if one != "redis"]
    reports = await carried_out(built, plans)
    assert not broken(reports), broken(reports)
    assert all(report.deliveries for report in reports)


@pytest.mark.timeout(BOUND)
async def test_what_broke_a_promise_once_does_not_break_it_again(built: Path) -> None:
    plans = [Plan.from_json(json.loads(file.read_text(encoding="utf-8"))) for file in PINNED]
    reports = await carried_out(built, plans * (20 if SOAK else 1))
    assert not broken(reports), broken(reports)
    assert all(report.deliveries for report in reports)
