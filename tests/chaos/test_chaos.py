"""The real server keeps its promises under random faults; each seed is one schedule.

Set HANZO_PUBSUB_SOAK to run hundreds of seeds on every topology. `python -m tests.chaos` repeats
any of them.
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
"""Number of concurrent runs: a run spends most of its time waiting."""
SEED: Final = 28
"""Seed of the small runs, which disturbs the networks of clients on every topology."""
PINNED: Final = sorted((Path(__file__).parent / "pinned").glob("*.json"))
"""Schedules that once broke a promise, named after their events."""


def networks_alone(plan: Plan) -> Plan:
    """Return the same run with faults only on the networks of clients, and late answers."""
    names = {"*", *(one.name for one in plan.clients)}
    chosen = {
        n
        for n, one in enumerate(plan.faults)
        if (one.on in names and one.kind != "move") or one.kind == "lag"
    }
    assert chosen
    return plan.only(chosen)


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """The folder of the TypeScript peer."""
    with bundled() as folder:
        yield folder


async def carried_out(built: Path, plans: Sequence[Plan]) -> list[Report]:
    """Run these plans concurrently, and return their reports."""
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
    """Describe the broken promises, and the plan to repeat."""
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
        # While Redis does not fail, its persistence makes no difference.
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
