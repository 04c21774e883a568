"""The tests that take a second or more, from `tests/durations.json`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds of each test that takes one or more; `make durations` writes it."""

MISSING: pytest.StashKey[list[str]] = pytest.StashKey()
"""Names in `DURATIONS` that a run did not find in the files that it collected."""


@cache
def durations() -> Mapping[str, float]:
    """Return the seconds of each slow test by its node id."""
    found: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return found


def missing(names: Iterable[str], collected: Iterable[str]) -> list[str]:
    """Return the names that are not collected, of files of which other tests are."""
    known = set(collected)
    files = {name.partition("::")[0] for name in known}
    return [name for name in names if name not in known and name.partition("::")[0] in files]
