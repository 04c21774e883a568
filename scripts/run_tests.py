"""Run the test suites side by side: `python -m scripts.run_tests [GROUP…] [--repeat N] [--load]`.

Each suite writes a line for every finished test to a file (`HANZO_PUBSUB_TEST_REPORT`). This
program shows the progress, the failures, the slowest tests, and the seed of all random choices.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
CORES = os.cpu_count() or 1
SLOWEST = 20
SLOW = 1.0
"""A test that takes at least this number of seconds is slow."""

DURATIONS = ROOT / "tests" / "durations.json"
MEASURED = ("pytest", "spark-cluster", "spark", "fuzz")
"""Suites of pytest whose durations are stored; `newest` runs tests of the first again."""

AT_ONCE = CORES
"""Number of suites that run concurrently. More of them end only a little earlier, and slow each
other down so much that tests exceed their bounds."""

INTERVAL = 10.0
"""Seconds between progress lines."""

BOUND = 3_600.0
"""Maximum seconds for all suites."""

PATIENCE = 20.0
"""Maximum seconds for a suite to end after Ctrl-C."""

MARK = "HANZO_PUBSUB_TEST_RUN"
"""Environment variable that all processes of a run inherit."""

SERIAL = (sys.executable, "-m", "pytest", "--quiet", "--no-header", "-p", "tests.reporting")
# Keep the order of tests/conftest.py: the slowest tests first.
# pytest-xdist would replace a process that crashes, but never end.
PYTEST = (*SERIAL, "--no-loadscope-reorder", "--max-worker-restart", "0", "--numprocesses")
PROCESSES = CORES + 1
"""Number of pytest processes. Slow tests wait for timeouts, so one process per core leaves cores
idle. Each process takes seven CPU seconds to collect the tests; the fast tests get one per core."""

SPARK_CLUSTER = "tests/spark/cluster"
"""These tests share one Spark cluster, and mostly wait for it."""

FUZZ = "tests/server/test_rest_fuzz.py"
"""These tests share node ids; pytest-xdist would run only the first of each."""

NEWEST = ROOT / ".venv" / "newest" / "bin" / "python"
"""The newest Python of this machine, if `.venv/` has an older one; see `scripts/setup`."""

ON_NEWEST = (
    "tests/server",
    *(f"tests/cluster/test_{name}.py" for name in ("feed", "leftovers")),
    "tests/python/test_eager_tasks.py",
)
"""Tests that depend on how a Python version runs tasks, timeouts and transports."""

PYTHON_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "python": (
        *("python", "cli", "conformance", "docs", "examples", "interop", "repository", "rules"),
        *("simulation", "spec", "traces"),
    ),
    "server": ("server",),
    "cluster": ("chaos", "cluster"),
}
FAST_FOLDERS = ("cli", "interop", "python", "repository", "rules", "server", "spec", "traces")
NODE_SUITES: Mapping[str, tuple[str, ...]] = {
    "browser": ("browser",),
    "js": ("js", "package"),
}
GROUPS = ("all", *PYTHON_FOLDERS, "spark", *NODE_SUITES, "fast")


@dataclass(frozen=True)
class Suite:
    """A program that runs tests."""

    name: str
    command: tuple[str, ...]


@dataclass
class Outcome:
    """The reported results of a suite."""

    passed: int = 0
    failed: list[str] = field(default_factory=list[str])
    total: int | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    cpu: float = 0.0
    """CPU seconds that the suite and the programs that it started have used."""

    status: int = 0

    @property
    def broken(self) -> bool:
        """Whether a test failed, or the suite failed, or it reported no test."""
        return bool(self.failed or self.status or not self.seconds)

    @property
    def done(self) -> str:
        """The number of finished tests, and the total if it is known."""
        count = self.passed + len(self.failed)
        return f"{count:,}" if self.total is None else f"{count:,} of {self.total:,}"

    def take(self, line: Mapping[str, object]) -> None:
        """Count one report."""
        if "collected" in line:
            self.total = int(str(line["collected"]))
            return
        name = str(line["test"])
        self.seconds[name] = float(str(line["seconds"]))
        if line["outcome"] == "passed":
            self.passed += 1
        elif line["outcome"] == "failed":
            self.failed.append(name)


class Running:
    """The process of a suite, and the results that it has reported so far."""

    def __init__(self, suite: Suite, folder: Path, seed: int) -> None:
        self.suite = suite
        self.outcome = Outcome()
        self.log = folder / f"{suite.name}.log"
        self._reports = folder / f"{suite.name}.jsonl"
        self._reports.touch()
        self._taken = 0
        env = {
            **os.environ,
            "HANZO_PUBSUB_TEST_REPORT": str(self._reports),
            "HANZO_PUBSUB_TEST_SEED": str(seed),
            "PYTHONHASHSEED": str(seed),
            MARK: str(folder),
        }
        with self.log.open("wb") as out:
            # Linux divides CPU time between sessions, so a suite with few processes gets its share
            # next to one with many. Spark requires that a worker starts within ten seconds.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scripts.reaper", *suite.command],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def is_over(self) -> bool:
        """Whether the suite has ended; stores its exit status and its CPU time."""
        if self.process.returncode is not None:
            return True
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return False
        # Popen must not wait for a process that was already reaped.
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.outcome.status = self.process.returncode
        self.outcome.cpu = usage.ru_utime + usage.ru_stime
        return True

    def poll(self) -> list[str]:
        """Read new reports; return the tests that failed since the last call."""
        with self._reports.open("rb") as reports:
            reports.seek(self._taken)
            text = reports.read()
        # The last line may be incomplete.
        text = text[: text.rfind(b"\n") + 1]
        self._taken += len(text)
        lines = text.splitlines()
        before = len(self.outcome.failed)
        for line in lines:
            self.outcome.take(json.loads(line))
        return self.outcome.failed[before:]

    def failures(self) -> str:
        """Return the output of the suite about its failures."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        starts = [text.find(each) for each in ("Fatal Python error", "= ERRORS =", "= FAILURES =")]
        first = min((at for at in starts if at >= 0), default=None)
        return text[-40_000:] if first is None else text[text.rfind("\n", 0, first) + 1 :]


def suites(groups: Sequence[str], seed: int, selection: Sequence[str]) -> list[Suite]:
    """Return the suites to run, in order: those that take or wait longest first.

    Args:
        groups: Names from `GROUPS`.
        seed: Seed of all random choices.
        selection: pytest arguments that replace the folders of the groups.
    """
    hypothesis = f"--hypothesis-seed={seed}"
    fast = "fast" in groups
    pytest = (*PYTEST, str(CORES if fast else PROCESSES), hypothesis)
    if selection:
        return [Suite("pytest", (*pytest, *selection))]
    wanted = GROUPS if "all" in groups else groups
    folders = [*(FAST_FOLDERS if fast else ())]
    for group, members in PYTHON_FOLDERS.items():
        folders += members if group in wanted else ()
    found: list[Suite] = []
    if "spark" in wanted:
        found.append(Suite("spark-cluster", (*SERIAL, hypothesis, SPARK_CLUSTER)))
    if folders:
        marks = ("-m", "not slow") if fast else ()
        paths = [f"tests/{name}" for name in folders]
        found.append(Suite("pytest", (*pytest, f"--ignore={FUZZ}", *marks, *paths)))
    if "server" in wanted and NEWEST.exists():
        # Properties of pure logic are the same on every Python.
        chosen = (str(CORES), "-m", "not hypothesis", f"--ignore={FUZZ}", *ON_NEWEST)
        found.append(Suite("newest", (str(NEWEST), *PYTEST[1:], *chosen)))
    if "spark" in wanted:
        found.append(
            Suite("spark", (*SERIAL, hypothesis, f"--ignore={SPARK_CLUSTER}", "tests/spark"))
        )
    for group, names in NODE_SUITES.items():
        if group in wanted:
            found += [Suite(name, ("node", f"tests/{name}/run.mjs")) for name in names]
    if fast:
        found.append(Suite("js", ("node", "tests/js/run.mjs", "--fast")))
    if "server" in wanted:
        found.append(Suite("fuzz", (*SERIAL, hypothesis, FUZZ)))
    return found


def end_leftovers(mark: str) -> list[str]:
    """Kill the processes that suites have started and left running; return their commands.

    Works only on Linux: it finds them by an environment variable that they inherit.
    """
    commands: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                os.kill(int(folder.name), signal.SIGKILL)
                commands.append(command.decode(errors="replace").strip()[:120])
    return commands


def run(chosen: Sequence[Suite], folder: Path, seed: int) -> list[Running]:
    """Run the suites, `AT_ONCE` of them at a time, until all have ended."""
    waiting = list(chosen)
    current: list[Running] = []
    ended: list[Running] = []
    began = shown = time.monotonic()
    try:
        while waiting or current:
            while waiting and len(current) < AT_ONCE:
                current.append(Running(waiting.pop(0), folder, seed))
            for running in list(current):
                over = running.is_over()
                for name in running.poll():
                    say(f"FAILED {name}")
                if over:
                    ended.append(running)
                    current.remove(running)
            if time.monotonic() - shown >= INTERVAL:
                shown = time.monotonic()
                active = [f"{running.suite.name} {running.outcome.done}" for running in current]
                say(f"tests: {' · '.join(active)} · {shown - began:.0f} s")
            if time.monotonic() - began > BOUND:
                raise TimeoutError(f"the tests did not end within {BOUND:.0f} s")
            time.sleep(0.05)
    finally:
        for running in current:
            running.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            for running in current:
                running.process.wait(PATIENCE)
        for command in end_leftovers(f"{MARK}={folder}"):
            say(f"tests: killed a process that a test left running: {command}")
    return ended


def say(text: str) -> None:
    """Print a line immediately."""
    print(text, flush=True)


def report(ended: Sequence[Running], seconds: float, seed: int, *, brief: bool) -> int:
    """Print failures, the slowest tests and the totals; return 1 if not all suites passed."""
    passed = sum(running.outcome.passed for running in ended)
    failed = sum(len(running.outcome.failed) for running in ended)
    broken = [running for running in ended if running.outcome.broken]
    for running in broken:
        none = "" if running.outcome.seconds else ", no test"
        head = f"{running.suite.name}, exit {running.outcome.status}{none}"
        say(f"\n──── {head}\n{running.failures()}")
    if not brief:
        times = [
            (took, running.suite.name, name)
            for running in ended
            for name, took in running.outcome.seconds.items()
        ]
        say(f"\nThe slowest {SLOWEST}:")
        for took, suite, name in sorted(times, reverse=True)[:SLOWEST]:
            say(f"  {took:6.1f} s  {suite}  {name}")
    parts = ", ".join(f"{r.suite.name} {r.outcome.passed + len(r.outcome.failed):,}" for r in ended)
    if not brief:
        used = ", ".join(f"{running.suite.name} {running.outcome.cpu:.0f} s" for running in ended)
        share = sum(running.outcome.cpu for running in ended) / (seconds * CORES)
        say(f"tests: CPU time: {used}; {share:.0%} of {CORES} cores")
    say(f"tests: {parts}; seed {seed}; {seconds:.0f} s")
    say(f"{passed} passed, {failed or len(broken)} failed")
    if not ended:
        say("tests: no suite ran")
    return 1 if broken or not ended else 0


@contextmanager
def load(processes: int) -> Generator[None]:
    """Keep the cores busy inside the context."""
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n sum(range(100000))"
    busy = [subprocess.Popen((sys.executable, "-c", spin)) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def repeat(groups: Sequence[str], times: int, selection: Sequence[str]) -> int:
    """Run a selection several times under load with different seeds; print the failures."""
    failures: Counter[str] = Counter()
    seeds: dict[str, list[int]] = {}
    with load(CORES):
        for number in range(1, times + 1):
            seed = new_seed()
            with tempfile.TemporaryDirectory() as folder:
                ended = run(suites(groups, seed, selection), Path(folder), seed)
                for running in ended:
                    lost = [] if running.outcome.failed else [f"{running.suite.name} as a whole"]
                    names = running.outcome.failed or (lost if running.outcome.broken else [])
                    for name in names:
                        failures[name] += 1
                        seeds.setdefault(name, []).append(seed)
                    if names:
                        say(running.failures())
            count = sum(r.outcome.passed + len(r.outcome.failed) for r in ended)
            say(f"flaky: run {number} of {times}: {count:,} tests, {len(failures)} flaky so far")
    for name, count in failures.most_common():
        say(f"  failed {count} of {times}  {name}  (seeds {', '.join(map(str, seeds[name]))})")
    say(f"flaky: {times} runs under load, {len(failures)} tests failed in some of them")
    if failures:
        say("flaky: HANZO_PUBSUB_TEST_SEED=… with N=1 and the same ONLY repeats a run")
    return 1 if failures else 0


def write_durations(ended: Sequence[Running]) -> None:
    """Store the tests that take a second or more, so that they start first.

    Tests of files that did not run keep their entries, unless the file is gone. After a failure,
    nothing is stored: the tests behind it may not have run.
    """
    if any(running.outcome.broken for running in ended):
        say(f"tests: after a failure, {DURATIONS.name} stays as it is")
        return
    measured = {
        name: took
        for running in ended
        if running.suite.name in MEASURED
        for name, took in running.outcome.seconds.items()
    }
    files = {_file(name) for name in measured}
    before: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    seconds = {
        name: took
        for name, took in before.items()
        if _file(name) not in files and (ROOT / _file(name)).exists()
    }
    seconds |= {name: round(took, 1) for name, took in measured.items() if took >= SLOW}
    DURATIONS.write_text(f"{json.dumps(seconds, indent=1, sort_keys=True)}\n", encoding="utf-8")
    say(f"tests: {len(seconds)} of them take {SLOW:.0f} s or more ({DURATIONS.name})")


def _file(name: str) -> str:
    """Return the file of a test."""
    return name.partition("::")[0]


def new_seed() -> int:
    """Return the seed in the environment, or a new one."""
    given = os.environ.get("HANZO_PUBSUB_TEST_SEED")
    return int(given) if given else random.SystemRandom().randrange(2**32)


def main(arguments: Sequence[str]) -> int:
    """Run groups of suites; return 0 if all tests passed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.run_tests", description=__doc__)
    parser.add_argument(
        "groups", nargs="*", default=["all"], metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="run N times under load")
    parser.add_argument(
        "--only", default="", metavar="ARGUMENTS", help="pass these pytest arguments instead"
    )
    parser.add_argument("--write-durations", action="store_true", help="store the slow tests")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.groups if name not in GROUPS]:
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    selection = shlex.split(chosen.only)
    if chosen.write_durations and (selection or chosen.repeat or "fast" in chosen.groups):
        # Each file that ran would lose the entries of its tests that did not run.
        parser.error("--write-durations needs whole groups: omit `fast`, --only and --repeat")
    try:
        if chosen.repeat:
            return repeat(chosen.groups, chosen.repeat, selection)
        seed = new_seed()
        say(f"tests: {', '.join(chosen.groups)}; seed {seed} (HANZO_PUBSUB_TEST_SEED repeats it)")
        began = time.monotonic()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            ended = run(suites(chosen.groups, seed, selection), folder, seed)
            if chosen.write_durations:
                write_durations(ended)
            brief = chosen.groups == ["fast"]
            return report(ended, time.monotonic() - began, seed, brief=brief)
    except KeyboardInterrupt:
        say("tests: stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
