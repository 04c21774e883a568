"""Writes a line for each finished test into the file that `scripts/run_tests.py` reads."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

FILE = "HANZO_PUBSUB_TEST_REPORT"


class Reporter:
    """Hears of all tests: in the one process, or in the one that deals out the tests."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write({"collected": len(session.items)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] += report.duration
        if report.failed:
            self._failed.add(name)
        if report.when == "teardown":
            outcome = "failed" if name in self._failed else "passed"
            self._write({"test": name, "seconds": self._seconds.pop(name), "outcome": outcome})

    def _write(self, line: dict[str, object]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Report where a file is named."""
    if path := os.environ.get(FILE):
        config.pluginmanager.register(Reporter(Path(path)), "reporter")
