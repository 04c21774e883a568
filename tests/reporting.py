"""Writes a line for each finished test into the file that `scripts/run_tests.py` reads."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "HANZO_PUBSUB_TEST_REPORT"


class Reporter:
    """Receives the reports of all tests, in the only process or in the distributing one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._outcomes: dict[str, str] = {}
        self._collected = False

    # Not every environment has pytest-xdist.
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        if not self._collected:
            self._collected = True
            self._write({"collected": len(ids)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] += report.duration
        if not report.passed and self._outcomes.get(name) != "failed":
            self._outcomes[name] = report.outcome
        if report.when == "teardown":
            outcome = self._outcomes.pop(name, "passed")
            self._write({"test": name, "seconds": self._seconds.pop(name), "outcome": outcome})

    def _write(self, line: dict[str, object]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Report, unless this is a worker process of pytest-xdist."""
    path = os.environ.get(FILE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter(Path(path)))
