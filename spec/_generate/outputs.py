"""Lists the generated files with their inputs and formatters."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from spec._generate import (
    defaults,
    emit_docs,
    emit_openapi,
    emit_python,
    emit_typescript,
    emit_wire_page,
    errors,
    lifecycle,
    lifecycle_typescript,
    timelines,
    wire_python,
    wire_typescript,
)
from spec._generate.lifecycle import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def outputs(root: Path) -> Iterator[tuple[Path, str]]:
    """All generated files of the repository with their text."""
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
    for name, text in {
        "wire": wire_typescript.frames(schema),
        "http": wire_typescript.http(schema),
        "lifecycle": lifecycle_typescript.lifecycle(machine),
        "connected": lifecycle_typescript.connected(machine),
        "errors": emit_typescript.errors(table.of_sdk("typescript")),
        "defaults": emit_typescript.defaults(groups),
        "limits": emit_typescript.limits(groups),
    }.items():
        path = root / f"js/src/generated/{name}.ts"
        yield path, biome(root, path, text)
    server = root / "server-mock/pubsub_server/generated"
    yield server / "openapi.json", emit_openapi.bundle(spec / "openapi.yaml", schema)
    yield root / "docs/errors.md", emit_docs.errors(table)
    yield root / "docs/wire.md", emit_wire_page.wire(schema, spec / "examples")
    prose = (spec / "lifecycle.md").read_text(encoding="utf-8")
    yield root / "docs/lifecycle.md", emit_docs.lifecycle(machine, groups, prose)
    for name, text in timelines.pictures(spec / "traces" / "streams").items():
        yield root / "docs/assets" / name, text


def ruff(root: Path, path: Path, text: str) -> str:
    """Python text with the import order and format of the repository."""
    ruff_ = [sys.executable, "-m", "ruff"]
    named = ["--stdin-filename", str(path), "-"]
    sort = ["check", "--fix-only", "--quiet", "--select", "I"]
    return _filter([*ruff_, "format", *named], root, _filter([*ruff_, *sort, *named], root, text))


def biome(root: Path, path: Path, text: str) -> str:
    """TypeScript text in the format of the repository."""
    program = root / "node_modules/.bin/biome"
    if not program.exists():
        raise SpecError("node_modules/.bin/biome is missing: run `make setup`")
    return _filter([str(program), "format", f"--stdin-file-path={path}"], root / "js", text)


def _filter(command: list[str], folder: Path, text: str) -> str:
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise SpecError(f"{' '.join(command[:3])} failed:\n{done.stderr}")
    return done.stdout
