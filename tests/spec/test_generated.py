"""The generated files are current, and the generator reports outdated ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from spec._generate.outputs import outputs
from tests.spec.files import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATION = ("pyproject.toml", "js/biome.json")


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "spec/generate.py", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=50,
    )


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A separate copy of the inputs, and the files generated there."""
    root = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(ROOT / "spec", root / "spec", ignore=shutil.ignore_patterns("__pycache__"))
    for name in CONFIGURATION:
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "node_modules").symlink_to(ROOT / "node_modules")
    made = generate(root)
    assert made.returncode == 0, made.stderr
    return root


@pytest.fixture
def copy(elsewhere: Path, tmp_path: Path) -> Path:
    """A copy of these files, which the test may change."""
    return shutil.copytree(elsewhere, tmp_path / "copy", symlinks=True)


@pytest.fixture(scope="module")
def written(elsewhere: Path) -> list[Path]:
    """Return the generated files below the root."""
    return [path.relative_to(elsewhere) for path, _ in outputs(elsewhere)]


def test_generating_in_another_place_gives_the_same_bytes(
    elsewhere: Path, written: list[Path]
) -> None:
    assert len(written) >= 11
    for name in written:
        assert (elsewhere / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_check_shows_a_diff_of_what_drifted_or_was_edited_and_writes_nothing(copy: Path) -> None:
    page = copy / "docs/errors.md"
    edited = page.read_text(encoding="utf-8") + "More.\n"
    page.write_text(edited, encoding="utf-8")
    defaults = copy / "spec/defaults.yaml"
    changed = defaults.read_text(encoding="utf-8").replace("overlap: 5000", "overlap: 5001")
    defaults.write_text(changed, encoding="utf-8")
    before = (copy / "js/src/generated/defaults.ts").read_bytes()
    checked = generate(copy, "--check")
    assert checked.returncode == 1
    assert "-    overlap: int = 5000\n+    overlap: int = 5001\n" in checked.stdout
    assert "-  overlap: 5000,\n+  overlap: 5001,\n" in checked.stdout
    assert "-More.\n" in checked.stdout
    assert "run `make generate`" in checked.stderr
    assert page.read_text(encoding="utf-8") == edited
    assert (copy / "js/src/generated/defaults.ts").read_bytes() == before


def test_a_contradiction_in_the_inputs_is_explained(copy: Path) -> None:
    lifecycle = copy / "spec/lifecycle.yaml"
    text = lifecycle.read_text(encoding="utf-8").replace("to: connected,", "to: online,", 1)
    lifecycle.write_text(text, encoding="utf-8")
    failed = generate(copy)
    assert failed.returncode == 2
    assert failed.stderr == "lifecycle.yaml: unknown name 'online'\n"


def test_every_generated_file_is_marked_on_its_first_line(written: list[Path]) -> None:
    for name in written:
        if name.suffix != ".json":
            first, _, _ = (ROOT / name).read_text(encoding="utf-8").partition("\n")
            assert "by `make generate`; do not edit." in first, name
