"""Programs that a test runs: each writes a log, and none outlives the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.waiting import AGAIN, until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BOUND = 120
"""Maximum seconds of a program for one step, on a busy machine."""
TAIL = 4_000


class Program:
    """A process and its descendants, in a separate process group.

    Args:
        command: Command line.
        log: File for its output.
        folder: Working folder.
        variables: Variables to add to the environment.
    """

    def __init__(
        self, command: Sequence[str], log: Path, folder: Path, variables: Mapping[str, str]
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **variables},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Id of the process and of its group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is running."""
        return self._process.poll() is None

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-TAIL:]

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    async def came_to(self, look: Callable[[], bool], seconds: float = BOUND) -> None:
        """Wait until a condition holds; fail with the log if the process ends or is too slow.

        Raises:
            RuntimeError: The condition did not become true.
        """
        try:
            async with asyncio.timeout(seconds):
                await until(lambda: look() or not self.running)
        except TimeoutError:
            raise RuntimeError(f"{self.log.name} took too long:\n{self.tail()}") from None
        if not look():
            raise RuntimeError(f"{self.log.name} ended:\n{self.tail()}")

    def end(self, number: int = signal.SIGTERM, seconds: float = 10) -> None:
        """Stop it and its group: gracefully first, unless the signal is SIGKILL."""
        for each in (number, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, each)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def parents(pid: int) -> list[int]:
    """Return a process and its ancestors, nearest first."""
    found: list[int] = []
    while pid > 1:
        found.append(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(pid: int) -> None:
    """Send SIGKILL, and wait until the process is gone.

    Raises:
        RuntimeError: The process is still running.
    """
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + BOUND
    # A zombie has no command line.
    while command_line(pid):
        if time.monotonic() > end:
            raise RuntimeError(f"process {pid} does not end")
        time.sleep(AGAIN)
