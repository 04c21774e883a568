"""The inputs of the tests, read once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec._generate import yaml_text

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "spec"
SCHEMA: dict[str, Any] = json.loads((SPEC / "pubsub.schema.json").read_text(encoding="utf-8"))
DEFINITIONS: dict[str, Any] = SCHEMA["$defs"]
TOPICS: dict[str, Any] = json.loads((SPEC / "topics.json").read_text(encoding="utf-8"))


def read_yaml(name: str) -> Any:
    return yaml_text.parse((SPEC / name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Example:
    """One file under spec/examples: a valid or an invalid value of a type."""

    kind: str
    valid: bool
    text: str
    name: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)


def _example(path: Path) -> Example:
    folder = path.relative_to(SPEC / "examples").parts
    return Example(
        kind=path.parent.name,
        valid=folder[0] != "invalid",
        text=path.read_text(encoding="utf-8"),
        name="/".join(folder).removesuffix(".json"),
    )


EXAMPLES = [_example(path) for path in sorted((SPEC / "examples").rglob("*.json"))]
