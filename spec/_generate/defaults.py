"""Reads defaults.yaml; the comment on a line documents its constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec._generate import yaml_text
from spec._generate.lifecycle import SpecError

if TYPE_CHECKING:
    from pathlib import Path

_GROUPS = {
    "client": ("ClientDefaults", "Defaults of the SDKs; times in milliseconds, sizes in bytes"),
    "limits": (
        "ServiceLimits",
        "Default limits of the service; times in milliseconds, sizes in bytes",
    ),
}


@dataclass(frozen=True)
class Constant:
    """One default."""

    name: str
    value: int
    doc: str


@dataclass(frozen=True)
class Group:
    """The defaults under a key of the file."""

    name: str
    title: str
    doc: str
    constants: tuple[Constant, ...]


def load(path: Path) -> tuple[Group, ...]:
    """Read and check a file of defaults."""
    text = path.read_text(encoding="utf-8")
    comments: dict[tuple[str, str], str] = {}
    group = ""
    for line in text.splitlines():
        code, _, comment = line.partition("#")
        name = code.partition(":")[0]
        if name and not name.startswith(" "):
            group = name
        elif name.strip():
            doc = comment.strip()
            comments[group, name.strip()] = doc[:1].upper() + doc[1:]
    spec: dict[str, dict[str, int]] = yaml_text.parse(text)
    if spec.keys() != _GROUPS.keys():
        raise SpecError(f"defaults.yaml: groups {sorted(spec)}, expected {sorted(_GROUPS)}")
    for constants in spec.values():
        for name, value in constants.items():
            if type(value) is not int:
                raise SpecError(f"defaults.yaml: {name} is not an integer: {value!r}")
    return tuple(
        Group(
            name,
            *_GROUPS[name],
            tuple(Constant(key, value, comments[name, key]) for key, value in constants.items()),
        )
        for name, constants in spec.items()
    )
