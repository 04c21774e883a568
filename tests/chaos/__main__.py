"""`python -m tests.chaos`: run many seeds, or repeat a run.

It exits with 1 for a broken promise, and with 2 if the servers ended with the process that forked
them, so that there is no result.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.peers import bundled
from tests.chaos.plan import TOPOLOGIES, Fault, Plan, draw
from tests.chaos.run import Report, Stage
from tests.chaos.shrinker import shrink
from tests.forked import ForksGone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.plan import Topology

SHOWN = 12
AGAIN = 2
"""Maximum repetitions of a run that could not be executed."""


def main() -> int:
    """Run the command line; return 0 if every promise was kept, and 2 without a result."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", default="1", help="`7` or `1..500`; default 1")
    parser.add_argument("--topology", default="all", choices=[*TOPOLOGIES, "all"])
    parser.add_argument("--faults", help="indices of the faults to keep, with commas; default all")
    parser.add_argument("--plan", type=Path, help="run the plan in this file instead of seeds")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each plan; default 1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; default 1")
    parser.add_argument(
        "--shrink",
        type=int,
        default=0,
        metavar="RUNS",
        help="maximum runs for finding the fewest faults; default 0: don't search",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=3,
        help="runs without a violation before faults are left out; default 3",
    )
    parser.add_argument("--print", action="store_true", help="print the plans, and run nothing")
    parser.add_argument("--logs", type=Path, help="folder for plans and logs of violations")
    given = parser.parse_args()
    plans = _plans(given)
    if given.print:
        print(json.dumps([plan.to_json() for plan in plans], indent=1))
        return 0
    status = 1
    try:
        with contextlib.suppress(asyncio.CancelledError):
            status = asyncio.run(_Session(given).carry_out(plans * given.repeat))
    except* ForksGone as gone:
        print(f"chaos: {gone.exceptions[0]}", file=sys.stderr)
        status = 2
    return status


def _plans(given: argparse.Namespace) -> list[Plan]:
    if given.plan is not None:
        plans = [Plan.from_json(json.loads(given.plan.read_text(encoding="utf-8")))]
    else:
        first, _, last = given.seeds.partition("..")
        wanted: Sequence[Topology] = TOPOLOGIES if given.topology == "all" else [given.topology]
        seeds = range(int(first), int(last or first) + 1)
        plans = [draw(seed, topology) for seed in seeds for topology in wanted]
    if given.faults is not None:
        kept = {int(each) for each in given.faults.split(",") if each}
        plans = [plan.only(kept) for plan in plans]
    return plans


class _Session:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._rules: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._bad = 0

    async def carry_out(self, plans: Sequence[Plan]) -> int:
        began = time.monotonic()
        task = asyncio.current_task()
        assert task is not None
        # Cancel the run, so that all its processes end.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        waiting = list(reversed(plans))
        with bundled() as built:

            async def work() -> None:
                async with Stage(built) as stage:
                    while waiting:
                        await self._one(stage, waiting.pop())

            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._given.jobs, len(plans))):
                    group.create_task(work())
        reported = ", ".join(f"{rule} {count}" for rule, count in self._rules.most_common())
        print(
            f"{len(plans)} runs, {self._bad} with violations ({reported or 'none'});"
            f" {self._totals['acknowledged']} acknowledged, {self._totals['deliveries']} delivered,"
            f" {self._totals['gaps']} gaps,"
            f" {self._totals['repeated']} runs repeated that could not be carried out;"
            f" Python {sys.version.split()[0]}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return int(self._bad > 0)

    async def _one(self, stage: Stage, plan: Plan) -> None:
        report = await stage.run(plan)
        for _ in range(AGAIN):
            if {each.rule for each in report.violations} != {"carried_out"}:
                break
            # The machine prevented the run, for example with a port in use: ignore this result.
            self._totals["repeated"] += 1
            report = await stage.run(plan)
        for name in ("acknowledged", "deliveries", "gaps"):
            self._totals[name] += getattr(report, name)
        _tell(report)
        if not report.violations:
            return
        self._bad += 1
        rules = {each.rule for each in report.violations}
        self._rules.update(rules)
        self._keep(report)
        if self._given.shrink:
            await self._shrink(stage, plan, rules)

    def _keep(self, report: Report) -> None:
        if self._given.logs is None:
            return
        self._given.logs.mkdir(parents=True, exist_ok=True)
        plan = report.plan
        base = self._given.logs / f"{plan.topology}-{plan.seed}-{self._bad}"
        base.with_suffix(".json").write_text(json.dumps(plan.to_json(), indent=1), encoding="utf-8")
        text = "\n".join(
            [
                *map(str, report.violations),
                *report.notes,
                *(f"--- {name}\n{log}" for name, log in report.logs.items()),
            ]
        )
        base.with_suffix(".txt").write_text(text, encoding="utf-8")

    async def _shrink(self, stage: Stage, plan: Plan, rules: set[str]) -> None:
        async def fails(kept: Sequence[int]) -> bool:
            for _ in range(self._given.tries):
                report = await stage.run(plan.only(set(kept)))
                if rules & {each.rule for each in report.violations}:
                    return True
            return False

        kept = await shrink(range(len(plan.faults)), fails, self._given.shrink)
        print(f"    fewest faults that break {', '.join(sorted(rules))}:")
        for index in kept:
            print(f"      {_named(plan.faults[index])}")
        which = ",".join(map(str, kept))
        source = (
            f"--plan {self._given.plan}"
            if self._given.plan
            else f"--seeds {plan.seed} --topology {plan.topology}"
        )
        command = f"{sys.executable} -m tests.chaos {source} --faults '{which}' --repeat 5"
        print(f"    again: {command}", flush=True)


def _tell(report: Report) -> None:
    plan, found = report.plan, report.violations
    state = f"{len(found)} VIOLATIONS" if found else "kept"
    print(
        f"{plan.topology} seed {plan.seed}: {state}; {report.acknowledged} of"
        f" {report.publications} acknowledged, {report.deliveries} delivered, {report.gaps} gaps,"
        f" {len(plan.faults)} faults, settled in {report.settled:.1f} s of {report.seconds:.1f} s",
        flush=True,
    )
    if found:
        for fault in plan.faults:
            print(f"    {_named(fault)}")
    shown: Counter[str] = Counter()
    for each in found:
        shown[each.rule] += 1
        if shown[each.rule] <= SHOWN:
            print(f"  ! {each}")
    for rule, count in shown.items():
        if count > SHOWN:
            print(f"  ! {rule}: {count - SHOWN} more")
    for note in report.notes:
        print(f"    note: {note}")


def _named(fault: Fault) -> str:
    lasts = f" for {fault.lasts:g} s" if fault.lasts else ""
    to = f" to node{fault.to}" if fault.kind == "move" else ""
    return f"{fault.at:5.2f} s {fault.kind} {fault.on}{lasts}{to}"


if __name__ == "__main__":
    sys.exit(main())
