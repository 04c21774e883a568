"""Shows whether a file has changed, without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def stamp(file: Path) -> tuple[int, int, int, int] | None:
    """What changes with a file; None if it cannot be found."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
