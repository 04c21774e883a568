"""The memory that the server may use, by the files of the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pubsub_server.shared.memory_limit import memory_limit

if TYPE_CHECKING:
    from pathlib import Path

UNLIMITED = str((1 << 63) - 4096)
"""What the first version of the control groups says without a limit."""


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/", {"memory.max": "1048576"}, 1 << 20),
        ("0::/", {"memory.max": "max"}, None),
        ("0::/a.slice/b.service", {"a.slice/b.service/memory.max": "1048576"}, 1 << 20),
        # The limit of a group applies to those in it.
        (
            "0::/a.slice/b.service",
            {"a.slice/b.service/memory.max": "max", "a.slice/memory.max": "1048576"},
            1 << 20,
        ),
        # A container has only its own group, at the place of the first one.
        ("0::/docker/1234", {"memory.max": "1048576"}, 1 << 20),
        ("0::/../..", {"memory.max": "1048576"}, 1 << 20),
        ("5:cpu:/\n4:hugetlb,memory:/", {"memory/memory.limit_in_bytes": "1048576"}, 1 << 20),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": UNLIMITED}, None),
        ("1:name=systemd:/", {"memory.max": "1048576"}, None),
    ],
)
def test_the_limit_is_the_lowest_one_of_the_groups_and_the_machine(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    machine = memory_limit(tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{groups}\n")
    for name, limit in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    assert memory_limit(tmp_path) == (expected or machine)


def test_a_system_without_sysconf_has_no_known_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert memory_limit(tmp_path) is None
