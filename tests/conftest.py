from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from tests.dealing import GroupScheduling

# How long it takes to draw a value depends on what else the machine does.
settings.register_profile("shared", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("shared")

ROOT = Path(__file__).parent

# No test reaches a public server. To read the authorities of the machine takes 25 ms for each HTTP
# client, and for each program that is started.
os.environ["SSL_CERT_FILE"] = str(ROOT / "authority.pem")

# Tests that are about picows and msgspec say so; all others use what every installation has.
os.environ.setdefault("HANZO_PUBSUB_SPEED", "off")

DURATIONS = ROOT / "durations.json"
"""Seconds of each test that takes one or more; `make durations` writes it."""

PRESSING = 5.0
"""Seconds from which on a file is dealt out test by test."""

COSTLY = (("tests/conformance", r"\bpeers: "),)
"""Folders with fixtures that take seconds, and how a file shows that it uses them."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end programs in a process of `-n`, too.

    A pytest that a test starts leaves out the same plugins: to load them takes a second.
    """
    words: list[str] = config.getini("addopts")
    left_out = [word for word in words if word.startswith("no:")]
    os.environ["PYTEST_ADDOPTS"] = " ".join(f"-p {word}" for word in left_out)
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Deal out groups: the marks of `--dist loadgroup` have no effect on pytest 9.2."""
    from tests.dealing import GroupScheduling

    return GroupScheduling(config, log, group_of)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests; in a process of `-n`, put the groups that take longest first."""
    for item in items:
        if item.nodeid in _durations():
            item.add_marker(pytest.mark.slow)
    if not hasattr(config, "workerinput"):
        return
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item.nodeid)].append(item)

    def seconds(group: list[pytest.Item]) -> float:
        return sum(_durations().get(item.nodeid, 0.0) for item in group)

    ordered = sorted(groups.values(), key=seconds, reverse=True)
    items[:] = [item for group in ordered for item in group]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collect no garbage meanwhile: a fifth of the time would go to objects that all stay."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave out of every later collection of garbage what lives as long as the process.

    Modules and collected tests are most of the objects, and many tests call `gc.collect()`.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter end as it would; modules in C may crash when objects outlive them."""
    gc.unfreeze()


_FAILED: list[str] = []
"""Tests whose frames are still held: servers and sockets that they did not get to close."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Note a failure."""
    outcome = yield
    if outcome.get_result().failed:
        _FAILED.append(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Collect what a failed test leaves, so that its warnings do not fail a later test.

    Draw the same random values whenever the seed is the same, in whatever order tests run.
    """
    if _FAILED:
        _FAILED.clear()
        _collect()
    if seed := os.environ.get("HANZO_PUBSUB_TEST_SEED"):
        random.seed(f"{seed} {item.nodeid}")


def _collect() -> None:
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        # pytest keeps the failure here for a debugger.
        if hasattr(sys, name):
            delattr(sys, name)
    reporting = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = reporting


def group_of(nodeid: str) -> str:
    """What a test shares with others of the same process: a fixture, a file, or nothing."""
    file = nodeid.partition("::")[0]
    return _group_of_file(file) or nodeid


@cache
def _durations() -> dict[str, float]:
    found: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return found


@cache
def _group_of_file(file: str) -> str | None:
    text = (ROOT.parent / file).read_text(encoding="utf-8")
    for folder, use in COSTLY:
        if file.startswith(f"{folder}/") and re.search(use, text):
            return folder
    seconds = sum(took for name, took in _durations().items() if name.startswith(f"{file}::"))
    return None if seconds >= PRESSING and 'scope="module"' not in text else file
