"""The folder that a supervisor shares with its workers.

A supervisor that is killed leaves its folder; the next one removes it. The owner of a folder locks
it, so one without a lock is abandoned.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

PREFIX: Final = "hanzo-pubsub-workers-"


@contextmanager
def shared_folder() -> Generator[Path]:
    """A new folder that only this user can access; also removes abandoned ones."""
    _remove_abandoned(Path(gettempdir()))
    with TemporaryDirectory(prefix=PREFIX) as name:
        opened = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(opened)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        # It may belong to another user, or another process may remove it.
        with suppress(OSError):
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(opened)
                is_own = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700
                # The owner of an empty one may be about to lock it.
                if is_own and any(folder.iterdir()):
                    shutil.rmtree(folder)
            finally:
                os.close(opened)
