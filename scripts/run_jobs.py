"""Runs the commands of workflow jobs on this machine.

    python scripts/run_jobs.py [--here] [JOB...]

Without a JOB, it lists the jobs. It runs the `run:` steps of each named job in a clean clone of the
last commit, or with `--here` in this checkout. It skips steps with `uses:`, all steps of jobs that
publish, and `sudo` as root. Set up the tools of skipped steps yourself. For each step it prints one
line. A step that fails ends its job, not the jobs after it; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
WORKFLOWS: Final = ROOT / ".github" / "workflows"

_EXPRESSION: Final = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_SUDO: Final = re.compile(r"^sudo --preserve-env ")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a job.

    Attributes:
        name: Its name, otherwise its first line.
        command: The shell command; empty for a step with `uses:`.
        reason: Why it is skipped; empty for one that runs.
        environment: Variables of the step.
    """

    name: str
    command: str
    reason: str
    environment: Mapping[str, str]


def jobs(folder: Path = WORKFLOWS) -> dict[str, list[Step]]:
    """Return the steps of every job, by `workflow:job`.

    Raises:
        ValueError: A step has neither `run:` nor `uses:`.
    """
    return {
        f"{file.stem}:{name}": list(_steps(job, f"{file.name}: {name}"))
        for file in sorted(folder.glob("*.yml"))
        for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items()
    }


def _steps(job: Mapping[str, Any], where: str) -> Iterator[Step]:
    if "uses" in job:
        yield Step(job["uses"], "", "another workflow", {})
    # A token that may write is what lets a job publish.
    publishes = "write" in str(job.get("permissions", ""))
    for number, step in enumerate(job.get("steps", ()), 1):
        if "uses" in step:
            yield Step(step.get("name", step["uses"]), "", "an action", {})
        elif "run" in step:
            command = step["run"].strip()
            environment = {name: str(value) for name, value in step.get("env", {}).items()}
            texts = (command, *environment.values())
            unknown = [found for text in texts for found in _EXPRESSION.findall(text)]
            reason = f"needs {unknown[0]}" if unknown else ""
            if publishes:
                reason = "the job publishes"
            name = step.get("name", command.splitlines()[0])
            yield Step(name, command, reason, environment)
        else:
            raise ValueError(f"{where}: step {number} has neither `run:` nor `uses:`")


def run(step: Step, folder: Path) -> bool:
    """Run a step in a folder, print one line, and return whether it succeeded."""
    if step.reason:
        print(f"skipped  {step.name} ({step.reason})", flush=True)
        return True
    command = step.command
    if os.geteuid() == 0:
        command = _SUDO.sub("", command)
    started = time.monotonic()
    # Like the shell of a runner, stop at the first command that fails.
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "CI": "true", **step.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    result = "ok     " if done.returncode == 0 else f"failed {done.returncode}"
    print(f"{result}  {step.name} ({time.monotonic() - started:.0f} s)", flush=True)
    if done.returncode != 0:
        print("\n".join((done.stdout + done.stderr).splitlines()[-40:]), flush=True)
    return done.returncode == 0


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the commands of workflow jobs.")
    parser.add_argument("--here", action="store_true", help="run in this checkout, not in a clone")
    parser.add_argument("job", nargs="*", help="such as checks:chart; default: list the jobs")
    given = parser.parse_args(argv)
    known = jobs()
    if not given.job:
        print("\n".join(f"{name} ({len(steps)} steps)" for name, steps in known.items()))
        return 0
    for name in given.job:
        if name not in known:
            print(f"there is no job {name}; jobs: {', '.join(known)}", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = ROOT
        if not given.here:
            folder = Path(temporary) / "clone"
            git = shutil.which("git") or "git"
            subprocess.run([git, "clone", "--quiet", str(ROOT), str(folder)], check=True)
        failed: list[str] = []
        for name in given.job:
            print(name, flush=True)
            if not all(run(step, folder) for step in known[name]):
                failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
