"""Baselines in separate processes, and the order in which they run."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
PATIENCE = 150.0


class Worker:
    """A child process that exchanges JSON, one object per line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self) -> Json:
        line = _stream(self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait(10)}")
        value = json.loads(line)
        if not isinstance(value, dict):
            raise TypeError(f"not an object: {line[:80]}")
        return value

    def ask(self, **message: object) -> Json:
        pipe = _stream(self.process.stdin)
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()
        return self.read()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def _stream(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the child has no such pipe")
    return pipe


@contextmanager
def worker(*command: str) -> Generator[Worker]:
    """Run `python -m COMMAND…`, or a program by its absolute path; end it after the block."""
    program = command if command[0].startswith("/") else (sys.executable, "-m", *command)
    child = Worker(
        subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
    )
    try:
        yield child
    finally:
        child.stop()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process in seconds: all threads, user and system."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def resident_kib(pid: int) -> int:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def interleave(
    baselines: Sequence[str],
    rounds: int,
    run: Callable[[str], Mapping[str, float]],
    seconds: float = math.inf,
) -> dict[str, Json]:
    """Run A B C, A B C, …; return for each the median of every figure, and all values.

    Args:
        baselines: Names of the baselines.
        rounds: Number of rounds.
        run: Runs one turn of a baseline.
        seconds: Time limit. No round starts that would end later, except the first.
    """
    values: dict[str, dict[str, list[float]]] = {name: {} for name in baselines}
    begin = time.monotonic()
    for done in range(rounds):
        taken = time.monotonic() - begin
        if done and taken + taken / done > seconds:
            break
        for name in baselines:
            for figure, value in run(name).items():
                values[name].setdefault(figure, []).append(value)
    return {
        name: {
            "median": {figure: statistics.median(found) for figure, found in figures.items()},
            "values": figures,
        }
        for name, figures in values.items()
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
