"""Run a program and wait for the processes that it orphans: `python -m scripts.reaper COMMAND…`.

The CPU time that the kernel reports for a process includes only the children that it waited for.
The JVMs of Spark and Kafka are children of shells that end first. This process adopts them, so that
its parent gets the CPU time of all. Works on Linux; on other systems, it does not count them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_CHILD_SUBREAPER = 36

GRACE = 2.0
"""Maximum seconds to wait for adopted processes after the command has ended. A JVM ends later."""

INTERVAL = 0.01
"""Seconds between checks."""


def adopt_orphans() -> None:
    """Make this process adopt descendants whose parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: Sequence[str]) -> int:
    """Run a command until it ends, and wait for the processes that it leaves behind.

    Returns:
        The command's exit code, or 128 plus the number of the signal that ended it.
    """
    adopt_orphans()
    process = subprocess.Popen(command)

    def forward(number: int, _: object) -> None:
        # `Popen.send_signal` would reap the exit code that the loop below waits for.
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    while process.returncode is None:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
    deadline = time.monotonic() + GRACE
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < deadline:
            time.sleep(INTERVAL)
    code = process.returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
