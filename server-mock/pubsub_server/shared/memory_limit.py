"""Finds how much memory this process may use, by its control groups and the machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMITS: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}
"""Files with the limit, by version of the control groups."""


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes of memory that the kernel grants this process; None if they cannot be found.

    Above them, it ends the process with SIGKILL.

    Args:
        root: The folder with `proc` and `sys`.
    """
    return min(_limits(root), default=None)


def _limits(root: Path) -> Iterator[int]:
    try:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except (AttributeError, OSError, ValueError):  # not Linux; Windows has no `sysconf`
        return
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers == "":
            base, name = root / "sys/fs/cgroup", _LIMITS[2]
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", _LIMITS[1]
        else:
            continue
        # In a container, the path may be that of the machine, and only the base is there.
        place = base / path.strip("/")
        for folder in (place, *place.parents):
            # Without a limit, there is no file, or no number in it.
            with contextlib.suppress(OSError, ValueError):
                yield int((folder / name).read_text())
            if folder == base:
                break
