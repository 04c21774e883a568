"""Plants each fault, and checks that the tests that it names fail; `make statements`.

The faults are those of `faults.yaml`, `protocol_faults.yaml` and `loss_faults.yaml`.

`python -m tests.interop.prove [WORD ...]` selects the faults with one of the words in a statement
number, a test name, or their description. The faults are planted in a copy of the product, so the
repository does not change. First, all tests must pass on a copy without a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from tests.interop import statements
from tests.interop.faults import PACKAGES, ROOT, Fault, every_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BOUND = 300.0
"""Maximum seconds for one fault."""
ATTEMPTS = 3
"""Maximum attempts for a fault if the machine is too busy."""
PATIENCE = 5.0
"""Maximum seconds that a test waits for an answer; with many faults, none arrives."""
BATCH = 20
"""Tests per process if no fault is planted."""
UNTOUCHED = "Nothing is planted."


@dataclass
class Job:
    """Tests to run with a fault, or without one.

    Attributes:
        tests: Names of the tests.
        fault: The fault to plant; None for none.
        wrong: Reasons for which the result proves nothing, one per line; set at the end.
        failures: The failure of each test that must fail.
        starved: Whether the machine was too busy for a result.
        seconds: Duration.
    """

    tests: Sequence[str]
    fault: Fault | None
    wrong: Sequence[str] = ()
    failures: dict[str, str] = field(default_factory=dict[str, str])
    starved: bool = False
    seconds: float = 0.0


class Overlay:
    """A copy of the product's packages, with one planted fault at a time.

    Args:
        folder: Folder for the copy.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package)

    async def run(self, job: Job, nodes: Sequence[str]) -> None:
        """Run the tests of a job, and store the result."""
        began = monotonic()
        fault = job.fault
        path = None if fault is None else self._folder / fault.file
        if fault is not None and path is not None:
            source = path.read_text(encoding="utf-8")
            path.write_text(fault.planted(source), encoding="utf-8")
        try:
            for _ in range(ATTEMPTS):
                job.starved = False
                job.wrong = await self._judge(job, nodes)
                if not job.starved:
                    break
        finally:
            if fault is not None and path is not None:
                shutil.copy2(ROOT / fault.file, path)
        job.seconds = monotonic() - began

    async def _judge(self, job: Job, nodes: Sequence[str]) -> list[str]:
        report = self._folder / "report.jsonl"
        report.unlink(missing_ok=True)
        ending = await self._pytest(report, nodes)
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        if report.exists():
            for line in report.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                found[row["test"]].setdefault(row["outcome"], row["reason"])
        wrong = [f"not planted: {reason}" for reason in found.pop("", {}).values()]
        for test in job.tests:
            outcomes = found[test]
            if not outcomes:
                wrong.append(f"{test} did not run: {ending}")
            elif "starved" in outcomes and "failed" not in outcomes:
                job.starved = True
                wrong.append(f"{test} {outcomes['starved']}: this machine is too busy")
            elif "broken" in outcomes:
                wrong.append(f"{test} broke otherwise: {outcomes['broken']}")
            elif job.fault is not None and "failed" not in outcomes:
                wrong.append(f"{test} passes all the same")
            elif job.fault is None and "failed" in outcomes:
                wrong.append(f"{test} fails without a fault: {outcomes['failed']}")
            elif job.fault is not None:
                job.failures[test] = outcomes["failed"]
        return wrong

    async def _pytest(self, report: Path, nodes: Sequence[str]) -> str:
        """Run tests; return the reason for which pytest ended early, and its last line."""
        roots = os.pathsep.join(str((self._folder / each).parent) for each in PACKAGES)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short"),
            *("-p", "no:cacheprovider", "-p", "tests.interop.witness", "-o", "timeout=60", *nodes),
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": roots,
                "FAULT_OVERLAY": str(self._folder),
                "FAULT_REPORT": str(report),
                "FAULT_PATIENCE": str(PATIENCE),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(BOUND):
                output, _ = await process.communicate()
        except TimeoutError:
            return f"stopped after {BOUND:g} s"
        finally:
            # This also kills processes that a test left running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        lines = output.decode(errors="replace").strip().splitlines()
        ended = [line.strip("! ") for line in lines if line.startswith("!!!")]
        return "; ".join((*ended, *lines[-1:])) or "pytest ending nothing"


def chosen(words: Sequence[str]) -> list[Fault]:
    """Return the faults that contain one of the words; all faults without words."""

    def has(fault: Fault, word: str) -> bool:
        texts = (fault.breaks, *fault.statements, *fault.tests, *fault.files.values())
        return any(word.lower() in text.lower() for text in texts)

    every = every_fault()
    return [fault for fault in every if not words or any(has(fault, word) for word in words)]


async def prove(planted: Iterable[Fault], jobs_at_once: int, *, verbose: bool = False) -> list[Job]:
    """Run the tests without faults and with each fault; return the finished jobs."""
    files = {name: file for rows in statements.marked().values() for file, name in rows}
    planted = list(planted)
    for fault in planted:
        files.update(fault.files)
    tests = list(dict.fromkeys(test for fault in planted for test in fault.tests))
    jobs = [Job(tests[at : at + BATCH], None) for at in range(0, len(tests), BATCH)]
    jobs += [Job(fault.tests, fault) for fault in planted]
    done = 0

    async def work(overlay: Overlay, waiting: Iterable[Job], of: int) -> None:
        nonlocal done
        for job in waiting:
            await overlay.run(job, [f"{files[test]}::{test}" for test in job.tests])
            done += 1
            _report(job, done, of, verbose=verbose)

    with tempfile.TemporaryDirectory(prefix="statements-") as folder:
        overlays = [Overlay(Path(folder) / str(number)) for number in range(jobs_at_once)]
        waiting = iter(jobs)
        async with asyncio.TaskGroup() as group:
            for overlay in overlays:
                group.create_task(work(overlay, waiting, len(jobs)))
        # The jobs themselves may have made the machine too busy, so repeat these one by one.
        starved = [job for job in jobs if job.starved]
        await work(overlays[0], starved, len(jobs) + len(starved))
    return jobs


def _report(job: Job, done: int, of: int, *, verbose: bool) -> None:
    numbers = "" if job.fault is None else " ".join(job.fault.statements) + ": "
    what = UNTOUCHED if job.fault is None else job.fault.breaks
    verdict = "NOT PROVEN" if job.wrong else "proven" if job.fault else "passed"
    print(f"[{done}/{of}] {verdict}, {job.seconds:.0f} s: {numbers}{what}", flush=True)
    reasons = [f"{test}: {reason}" for test, reason in job.failures.items()] if verbose else []
    for line in (*job.wrong, *reasons):
        print(f"    {line}", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.prove", description=__doc__)
    parser.add_argument("words", nargs="*", help="select faults that contain one of these words")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--verbose", action="store_true", help="print how each test failed")
    given = parser.parse_args(arguments)
    planted = chosen(given.words)
    unfit = [f"{fault.breaks} {fault.problem}" for fault in planted if fault.problem]
    if unfit or not planted:
        print("\n".join(unfit) or "No fault has any of these words.")
        return 2
    # Clean up: stop running processes, and remove the copies.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = monotonic()
    jobs = asyncio.run(prove(planted, max(1, given.jobs), verbose=given.verbose))
    bad = [job for job in jobs if job.wrong]
    good = {test for job in jobs if job.fault and not job.wrong for test in job.tests}
    print(
        f"{len(planted)} faults, {len(good)} tests proven, {len(bad)} faults or batches that prove"
        f" nothing, {monotonic() - began:.0f} s"
    )
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
