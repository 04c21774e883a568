from __future__ import annotations

import json
import os
import random
import signal
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
DURATIONS = ROOT / "durations.json"
"""Seconds of each test that takes one or more; `make durations` writes it."""

COSTLY = {
    "tests/spark": ("server", "spark", "lab"),
    "tests/spark/cluster": ("cluster", "drivers"),
    "tests/conformance": ("built", "peers"),
}
"""Fixtures of a folder that a process makes once, because they take seconds."""

PRESSING = 5.0
"""Seconds from which on a file is dealt out test by test."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end programs in a process of `-n`, too."""
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests; with `-n`, deal out the slowest first and keep together what shares."""
    durations: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    files: defaultdict[str, float] = defaultdict(float)
    for item in items:
        seconds = durations.get(item.nodeid, 0.0)
        files[_file(item)] += seconds
        if seconds:
            item.add_marker(pytest.mark.slow)
    if config.getoption("dist", "no") == "no" and not hasattr(config, "workerinput"):
        return
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = _shared(item) or (item.nodeid if files[_file(item)] >= PRESSING else _file(item))
        groups.setdefault(group, []).append(item)

    def weight(group: list[pytest.Item]) -> float:
        return sum(durations.get(item.nodeid, 0.0) for item in group)

    items.clear()
    for number, together in enumerate(sorted(groups.values(), key=weight, reverse=True)):
        for item in together:
            item.add_marker(pytest.mark.xdist_group(str(number)))
            items.append(item)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _shared(item: pytest.Item) -> str | None:
    """What a test shares with others that must run in the same process."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    manager = item.session._fixturemanager
    modules = False
    for name in fixtures:
        for definition in manager.getfixturedefs(name, item) or ():
            if name in COSTLY.get(definition.baseid, ()):
                return definition.baseid
            modules |= definition.scope == "module" and definition.baseid.startswith("tests")
    return _file(item) if modules else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the same random values whenever the seed is the same, in whatever order tests run."""
    if seed := os.environ.get("HANZO_PUBSUB_TEST_SEED"):
        random.seed(f"{seed} {item.nodeid}")
