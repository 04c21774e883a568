"""The processes of a server with workers, as Linux shows them."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> set[int]:
    """Its workers; a bus is none of them."""
    return {each for each in descendants(pid) if b"--worker" in command(each)}


def bus_of(pid: int) -> set[int]:
    """Its bus, which shows where it listens."""
    return {each for each in descendants(pid) if b"unixsocket:" in command(each)}


def descendants(pid: int) -> set[int]:
    """The processes that it has started and that run."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return set(map(int, listed.split()))


def command(pid: int) -> bytes:
    """The command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except FileNotFoundError:
        return False
