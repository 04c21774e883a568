"""The folder of a supervisor that was killed goes away at the next start; one in use stays."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from pubsub_server.workers import folder
from pubsub_server.workers.folder import shared_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(parent: Path, mode: int = 0o700) -> Path:
    """A folder with a socket's name, without an owner that has locked it."""
    made = parent / f"{folder.PREFIX}left"
    made.mkdir(mode)
    (made / "bus").touch()
    return made


def test_a_folder_without_an_owner_is_removed_at_the_next_start(parent: Path) -> None:
    abandoned = left(parent)
    with shared_folder() as own:
        assert list(parent.iterdir()) == [own]
        assert not abandoned.exists()
    assert list(parent.iterdir()) == []


def test_a_folder_in_use_stays(parent: Path) -> None:
    with shared_folder() as first:
        (first / "bus").touch()
        with shared_folder() as second:
            assert sorted(parent.iterdir()) == sorted([first, second])
        assert list(parent.iterdir()) == [first]


def test_a_folder_that_its_owner_has_not_locked_yet_stays(parent: Path) -> None:
    starting = parent / f"{folder.PREFIX}starting"
    starting.mkdir(0o700)
    with shared_folder():
        assert starting.exists()


def test_what_no_supervisor_has_made_stays(parent: Path) -> None:
    shared = left(parent, 0o755)
    link = parent / f"{folder.PREFIX}link"
    other = parent / "other"
    other.mkdir()
    (other / "file").touch()
    link.symlink_to(other)
    with shared_folder():
        pass
    assert shared.exists()
    assert (other / "file").exists()
