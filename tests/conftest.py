from __future__ import annotations

import signal
from pathlib import Path

import pytest

TOGETHER = frozenset({"cluster", "conformance", "spark"})
"""Folders whose tests stay in one process: they share a Spark session or the programs of both SDKs,
or start servers on ports that they have found to be free."""


def pytest_configure(config: pytest.Config) -> None:
    """In a process of `-n`, too, Ctrl-C ends programs."""
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, the tests of a file stay together, or those of a folder."""
    root = Path(__file__).parent
    for item in items:
        folder, *_ = path = item.path.relative_to(root).parts
        item.add_marker(pytest.mark.xdist_group(folder if folder in TOGETHER else "/".join(path)))
