"""`js/sizes.mjs` says how to install what it measures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("option", [["--peers"], ["--write", "sizes.md"]])
def test_missing_clients_of_other_services_are_reported_with_the_command_that_installs_them(
    tmp_path: Path, option: list[str]
) -> None:
    (tmp_path / "js").mkdir()
    shutil.copy(ROOT / "js" / "sizes.mjs", tmp_path / "js")
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    (tmp_path / "sizes.md").write_text("unchanged")
    ran = subprocess.run(
        ["node", "js/sizes.mjs", *option],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr == (
        "The other clients are not installed. "
        "Run: npm ci --ignore-scripts --prefix tests/bench/node\n"
    )
    assert (tmp_path / "sizes.md").read_text() == "unchanged"
