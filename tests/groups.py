"""Which tests have to run in the same process, and how long they take."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).parent

DURATIONS: Final = ROOT / "durations.json"
"""Seconds of each test that takes one or more; `make durations` writes it."""

PRESSING: Final = 5.0
"""Seconds from which on the tests of a file are groups of their own."""

COSTLY: Final = (("tests/conformance", r"\bpeers: "),)
"""Folders with fixtures that take seconds, and how a file shows that it uses them."""


def group_of(test: pytest.Item) -> str:
    """What a test shares with others of the same process: a fixture, a file, or nothing."""
    return _group_of_file(test.nodeid.partition("::")[0], test.path) or test.nodeid


@cache
def durations() -> dict[str, float]:
    """Seconds of the slow tests, by node id."""
    found: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return found


@cache
def _group_of_file(file: str, path: Path) -> str | None:
    text = path.read_text(encoding="utf-8")
    for folder, use in COSTLY:
        if file.startswith(f"{folder}/") and re.search(use, text):
            return folder
    seconds = sum(took for name, took in durations().items() if name.startswith(f"{file}::"))
    return None if seconds >= PRESSING and 'scope="module"' not in text else file
