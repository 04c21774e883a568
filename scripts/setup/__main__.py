"""Set up this checkout: `python -m scripts.setup NAME…`. Parts that are ready are skipped.

Requires only Python 3.11. The parts run concurrently, print their progress, and store the output of
the tools below `.setup/`. After a failure or Ctrl-C, run it again to continue.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .running import SetupError, Step, run_all
from .steps import (
    ROOT,
    Bytecode,
    HeadlessShell,
    InOrder,
    KafkaBroker,
    MorePackages,
    NewestPython,
    NpmPackages,
    PythonPackages,
    SparkClasses,
    SystemPrograms,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

PARTS = (
    *("python", "newest", "npm", "docs", "bench", "dashboard", "coverage"),
    *("bash", "chromium", "engines", "redis", "balancers", "java", "kafka", "classes", "bytecode"),
)
STATE = ROOT / ".setup"


def plan(parts: Sequence[str]) -> tuple[list[Step], list[Step]]:
    """Return the unfinished steps of these parts, as two lists; the second list needs the first."""
    steps: list[Step] = []
    more: list[Step] = [MorePackages(name) for name in ("docs", "bench") if name in parts]
    later: list[Step] = [NewestPython()] if "newest" in parts else []
    later += [SparkClasses()] if "classes" in parts else []
    later += [Bytecode()] if "bytecode" in parts else []
    if more or later or "python" in parts:
        steps += [InOrder(PythonPackages(), *more)]
    if "bench" in parts:
        steps += [NpmPackages(ROOT / "tests" / "bench" / "node", "npm packages of the benchmarks")]
    if "npm" in parts:
        steps += [NpmPackages(ROOT, "npm packages")]
    if "docs" in parts:
        steps += [NpmPackages(ROOT / "scripts" / "diagrams", "npm packages of the site")]
    if "dashboard" in parts:
        steps += [NpmPackages(ROOT / "scripts" / "dashboard", "npm packages of the dashboard")]
    if "coverage" in parts:
        steps += [NpmPackages(ROOT / "scripts" / "v8_coverage", "npm packages of the coverage")]
    programs = [name for name in ("bash", "chromium", "redis", "java") if name in parts]
    if "balancers" in parts:
        programs += ["haproxy", "nginx"]
    if "engines" in parts:
        programs += ["firefox", "webkit", "xvfb"]
    kafka = KafkaBroker()
    if "kafka" in parts:
        programs += [name for name in kafka.programs() if name not in programs]
    system: list[Step] = [SystemPrograms(programs)]
    system += [HeadlessShell()] if "chromium" in parts else []
    system += [kafka] if "kafka" in parts else []
    steps += [InOrder(*system)]
    return [step for step in steps if not step.ready], [step for step in later if not step.ready]


@contextmanager
def alone() -> Generator[None]:
    """Wait until no other setup of this checkout is running."""
    STATE.mkdir(exist_ok=True)
    with (STATE / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: waiting for another process that sets up this folder", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def refuse_without(missing: Sequence[str]) -> None:
    """Raise one error that lists everything that is missing."""
    if missing:
        raise SetupError(
            "\n  - ".join(["this machine lacks what a set-up cannot install:", *missing])
        )


def main(arguments: Sequence[str]) -> int:
    """Set up the parts; return 0, or 1 after printing an error, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m scripts.setup", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="NAME", help=", ".join(PARTS))
    parts = parser.parse_args(arguments).parts
    try:
        if not any(plan(parts)):
            return 0
        with alone():
            stages = plan(parts)
            refuse_without([line for steps in stages for step in steps for line in step.missing()])
            for steps in stages:
                run_all(steps, STATE)
    except KeyboardInterrupt:
        print("\nsetup: stopped; run the same command again to continue", file=sys.stderr)
        return 130
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"setup: {error.strerror}: {error.filename}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
