"""Finds the processes of a server with workers, on Linux."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> set[int]:
    """Return the ids of its workers, without the bus."""
    return {each for each in descendants(pid) if b"--worker" in command(each)}


def bus_of(pid: int) -> set[int]:
    """Return the id of its bus, whose command line contains the address."""
    return {each for each in descendants(pid) if b"unixsocket:" in command(each)}


def descendants(pid: int) -> set[int]:
    """Return the running processes that it has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return set(map(int, listed.split()))


def command(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def alive(pid: int) -> bool:
    """Whether a process is running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
