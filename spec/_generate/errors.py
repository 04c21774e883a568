"""Reads and checks errors.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spec._generate import yaml_text
from spec._generate.lifecycle import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ACTIONS = ("retry", "reauth", "stop")

_NAME = re.compile(r"\{(\w+)(?:=(\w+))?\}")
"""A name of the SDK in the words of a code, by itself or with a value."""


@dataclass(frozen=True)
class Record:
    """One error code."""

    code: str
    scope: str
    error: str
    action: str
    retryable: bool
    meaning: str
    remedy: str
    status: int | None = None
    close: int | None = None
    sdk: str | None = None

    def spelled(self, spell: Callable[[str, str], str]) -> Record:
        """This error with the names in its texts in the spelling of a language."""

        def put(text: str) -> str:
            return _NAME.sub(lambda name: spell(name[1], name[2] or ""), text)

        return replace(self, meaning=put(self.meaning), remedy=put(self.remedy))


@dataclass(frozen=True)
class Close:
    """Close codes from `first` to `last`."""

    first: int
    last: int
    action: str
    meaning: str


@dataclass(frozen=True)
class Errors:
    """The whole table, and the address of the page that describes the codes."""

    page: str
    codes: tuple[Record, ...]
    closes: tuple[Close, ...]

    @property
    def wire(self) -> tuple[str, ...]:
        """The codes that a server sends."""
        return tuple(record.code for record in self.codes if record.scope == "wire")

    @property
    def client(self) -> tuple[str, ...]:
        """The codes that only the SDK raises."""
        return tuple(record.code for record in self.codes if record.scope == "client")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the exception classes, without duplicates."""
        return tuple(dict.fromkeys(record.error for record in self.codes))

    def spelled(self, spell: Callable[[str, str], str]) -> Errors:
        """This table with the names in its texts in the spelling of a language.

        Args:
            spell: Converts a name in snake case and its value, which may be empty.
        """
        return replace(self, codes=tuple(record.spelled(spell) for record in self.codes))

    def of_sdk(self, sdk: str) -> Errors:
        """This table without the codes that only another SDK raises."""
        return replace(self, codes=tuple(code for code in self.codes if code.sdk in (None, sdk)))

    def of(self, name: str) -> tuple[Record, ...]:
        """The codes of a class: first the one that names it, then in the order of the file."""
        usual = re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()
        codes = (record for record in self.codes if record.error == name)
        return tuple(sorted(codes, key=lambda record: record.code != usual))


def load(path: Path) -> Errors:
    """Read and check an error file."""
    return compile_errors(yaml_text.parse(path.read_text(encoding="utf-8")))


def compile_errors(spec: dict[str, Any]) -> Errors:
    """Check the table. Raises SpecError, which names the invalid code."""
    codes = tuple(Record(code=code, **row) for code, row in spec["codes"].items())
    closes = tuple(
        Close(row["from"], row["to"], row["action"], row["meaning"]) for row in spec["close_codes"]
    )
    expected = 1000
    for close in closes:
        if close.first != expected or close.last < close.first or close.action not in ACTIONS:
            raise SpecError(f"errors.yaml: close codes want {expected} here, found {close}")
        expected = close.last + 1
    if expected != 5000:
        raise SpecError(f"errors.yaml: close codes {expected} to 4999 are missing")
    for record in codes:
        if record.scope not in ("wire", "client") or record.action not in ACTIONS:
            raise SpecError(f"errors.yaml: {record.code}: unknown scope or action")
        if record.scope == "wire" and _NAME.search(record.meaning + record.remedy):
            raise SpecError(f"errors.yaml: {record.code}: names of an SDK are sent to all clients")
        if record.scope == "client" and (record.status or record.close):
            raise SpecError(f"errors.yaml: {record.code}: only wire codes have status or close")
        if record.scope == "wire" and record.sdk:
            raise SpecError(f"errors.yaml: {record.code}: every SDK knows the codes of servers")
        if record.scope == "wire" and not (record.status or record.close):
            raise SpecError(f"errors.yaml: {record.code}: no server could send it")
        if record.retryable and record.action != "retry":
            raise SpecError(f"errors.yaml: {record.code}: retryable, yet its action is not retry")
    return Errors(spec["page"], codes, closes)
