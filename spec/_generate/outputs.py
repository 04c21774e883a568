"""Which file comes from which input, and how its text is put in order."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from spec._generate import defaults, emit_python, errors, lifecycle, wire_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def outputs(root: Path) -> Iterator[tuple[Path, str]]:
    """Every generated file of the repository with its text."""
    spec = root / "spec"
    schema = spec / "pubsub.schema.json"
    machine = lifecycle.load(spec / "lifecycle.yaml")
    table = errors.load(spec / "errors.yaml")
    groups = defaults.load(spec / "defaults.yaml")
    python = root / "python/hanzoai/pubsub/generated"
    for name, text in {
        "wire": wire_python.wire(schema),
        "lifecycle": emit_python.lifecycle(machine),
        "errors": emit_python.errors(table),
        "defaults": emit_python.defaults(groups),
    }.items():
        path = python / f"{name}.py"
        yield path, ruff(root, path, text)


def ruff(root: Path, path: Path, text: str) -> str:
    """Python text with imports and format as the repository has them."""
    for command in (["check", "--fix-only", "--quiet", "--select", "I"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            cwd=root,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text
