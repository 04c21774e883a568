"""Rules for the whole repository: one version, an open namespace, pins without addresses."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).parent.parent.parent
DISTRIBUTIONS = ("pyproject.toml", "server-mock/pyproject.toml")
PINS = ROOT / "requirements" / "constraints.txt"


def project(path: str) -> dict[str, object]:
    tables = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))
    return cast("dict[str, object]", tables["project"])


def requirements(path: str) -> list[str]:
    table = project(path)
    extras = cast("dict[str, list[str]]", table.get("optional-dependencies", {}))
    return cast("list[str]", table["dependencies"]) + [r for rs in extras.values() for r in rs]


def committed_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, timeout=30
    )
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_every_package_carries_the_same_version() -> None:
    package = json.loads((ROOT / "js" / "package.json").read_text(encoding="utf-8"))
    assert {package["version"]} == {project(path)["version"] for path in DISTRIBUTIONS}


def test_the_namespace_is_left_open_to_other_distributions() -> None:
    assert not (ROOT / "python" / "hanzoai" / "__init__.py").exists()


@pytest.mark.parametrize("path", DISTRIBUTIONS)
def test_no_dependency_has_an_upper_bound(path: str) -> None:
    bounded = [r for r in requirements(path) if re.search(r"<|~=|==", r.split(";")[0])]
    assert bounded == []


def test_pins_are_exact_versions_without_addresses() -> None:
    lines = PINS.read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.+!]*", line)] == []


def test_the_npm_lock_holds_no_download_address() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    packages = cast("dict[str, dict[str, object]]", lock["packages"])
    tools = {name: entry for name, entry in packages.items() if name}
    assert [name for name, entry in tools.items() if "resolved" in entry] == []
    assert [name for name, entry in tools.items() if "integrity" not in entry] == []


def test_the_javascript_package_depends_on_nothing() -> None:
    package = json.loads((ROOT / "js" / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package


def test_every_runtime_and_development_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "requirements").glob("*.in")]
    lines = [line for text in files for line in text.splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    wanted += [r for path in DISTRIBUTIONS for r in requirements(path)]
    wanted += json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    names = {re.split(r"[\[<>=; ]", requirement)[0].lower() for requirement in wanted}
    names = {name for name in names if not name.startswith(("types-", "hanzoai"))}
    assert [name for name in sorted(names) if name not in reasons] == []


def test_no_committed_file_names_a_path_of_one_machine() -> None:
    absolute = re.compile(rb"(?<![\w.])/(?:home|root|work|Users)/\w")
    assert [
        path.relative_to(ROOT).as_posix()
        for path in committed_files()
        if path.is_file() and absolute.search(path.read_bytes())
    ] == []
