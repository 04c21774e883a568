"""Faults that can be planted in the product, to prove that the tests detect them.

`faults.yaml` contains them. A fault replaces a text that occurs once in a file of the product. It
names the statements of HIP-56 that it breaks, and the tests that must fail. A test counts for a
statement only if there is such a fault; `prove` plants each of them. Two more files cover features
outside of HIP-56: `protocol_faults.yaml` signed topics and the mesh, `loss_faults.yaml` the losses
that must not happen when a node, a store or a client breaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec._generate import yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("python/hanzoai", "server-mock/pubsub_server")
"""Folders in which faults can be planted."""


@dataclass(frozen=True)
class Fault:
    """One change of the product.

    Attributes:
        breaks: The wrong behaviour that it causes.
        statements: Numbers of the statements that it breaks.
        tests: Names of the tests that must fail.
        file: The file to change, relative to the repository.
        text: The text to replace.
        becomes: The replacement.
        files: Files of the tests that no statement of HIP-56 names, by test name.
    """

    breaks: str
    statements: tuple[str, ...]
    tests: tuple[str, ...]
    file: str
    text: str
    becomes: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def problem(self) -> str | None:
        """Return the reason for which it cannot be planted; None if it can."""
        if not self.file.startswith(PACKAGES):
            return f"{self.file} is not a file of the product"
        path = ROOT / self.file
        found = path.read_text(encoding="utf-8").count(self.text) if path.exists() else 0
        return None if found == 1 else f"{self.file} has the text {found} times, not once"

    def planted(self, source: str) -> str:
        """Return the source with the fault."""
        return source.replace(self.text, self.becomes)


@cache
def faults() -> Sequence[Fault]:
    """Return the faults of HIP-56, from `faults.yaml`."""
    return [
        Fault(
            row["breaks"],
            tuple(row["statements"]),
            tuple(row["tests"]),
            row["file"],
            row["text"],
            row["becomes"],
        )
        for row in _rows("faults.yaml")
    ]


@cache
def beyond() -> Sequence[Fault]:
    """Return the faults without statements, from `protocol_faults.yaml` and `loss_faults.yaml`."""
    found: list[Fault] = []
    for row in (*_rows("protocol_faults.yaml"), *_rows("loss_faults.yaml")):
        files = {name: file for file, name in (test.split("::") for test in row["tests"])}
        change = (row["file"], row["text"], row["becomes"])
        found.append(Fault(row["breaks"], (), tuple(files), *change, files))
    return found


def every_fault() -> Sequence[Fault]:
    """Return all faults."""
    return [*faults(), *beyond()]


def _rows(name: str) -> Sequence[Mapping[str, Any]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    rows: Sequence[Mapping[str, Any]] = yaml_text.parse(text)
    return rows


def shown() -> set[tuple[str, str]]:
    """Return pairs of a test name and a statement whose fault the test detects."""
    return {
        (test, number) for fault in faults() for test in fault.tests for number in fault.statements
    }
