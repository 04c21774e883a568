from __future__ import annotations

import gc
import logging
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

from tests.slow_tests import MISSING, durations, missing

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from tests.dealing import GroupScheduling

# The time to draw a value depends on the load of the machine.
settings.register_profile("shared", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("shared")

ROOT = Path(__file__).parent

# No test connects to a public server, and reading the machine's authorities takes 25 ms for each
# HTTP client and each started program.
os.environ["SSL_CERT_FILE"] = str(ROOT / "authority.pem")

# Only tests of picows and msgspec use them; all others use the libraries of every installation.
os.environ.setdefault("HANZO_PUBSUB_SPEED", "off")

PRESSING = 5.0
"""The tests of a file that takes at least this number of seconds are distributed one by one."""

USUAL = 0.05
"""Seconds assumed for a test that is not among the slow ones, because it is fast or new."""

COSTLY = (("tests/conformance", r"\bpeers: "),)
"""Folders with slow fixtures, and the text by which a file shows that it uses them."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end programs in a process of `-n`, too.

    A pytest that a test starts also omits these plugins, because loading them takes a second.
    """
    words: list[str] = config.getini("addopts")
    left_out = [word for word in words if word.startswith("no:")]
    os.environ["PYTEST_ADDOPTS"] = " ".join(f"-p {word}" for word in left_out)
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Distribute groups: the marks of `--dist loadgroup` have no effect on pytest 9.2."""
    from tests.dealing import GroupScheduling

    return GroupScheduling(config, log, group_of)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests; in a process of `-n`, put the slowest groups first."""
    # An argument with `::` collects only a part of a file.
    whole = not any("::" in argument for argument in config.args)
    names = [item.nodeid for item in items]
    config.stash[MISSING] = missing(durations(), names) if whole else []
    for item in items:
        if item.nodeid in durations():
            item.add_marker(pytest.mark.slow)
    if not hasattr(config, "workerinput"):
        return
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item.nodeid)].append(item)

    def seconds(group: list[pytest.Item]) -> float:
        return sum(durations().get(item.nodeid, USUAL) for item in group)

    ordered = sorted(groups.values(), key=seconds, reverse=True)
    items[:] = [item for group in ordered for item in group]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Disable garbage collection meanwhile: it would take a fifth of the time and free nothing."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude permanent objects from later garbage collections.

    Most objects are modules and collected tests, and many tests call `gc.collect()`.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo this before the interpreter exits: C modules may crash if objects outlive them."""
    gc.unfreeze()


_FAILED: list[str] = []
"""Failed tests whose frames are still referenced, with servers and sockets they did not close."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Record a failure."""
    outcome = yield
    report = outcome.get_result()
    _fail_if_skipped(report)
    if report.failed:
        _FAILED.append(item.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    """Fail a file that skips itself."""
    outcome = yield
    _fail_if_skipped(outcome.get_result())


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail what is skipped on Linux, where every test runs; other systems lack some features."""
    if sys.platform == "linux" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nOn Linux, no test may be skipped: provide what it lacks."


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Collect the leftovers of a failed test, so that their warnings do not fail a later test.

    A server that an earlier test ran as a program has set the level and the stream of the log of
    this process. Undo that: a test that looks for a secret in an empty log finds none.

    With the same seed, each test draws the same random values, in any order of the tests.
    """
    if _FAILED:
        _FAILED.clear()
        _collect()
    log = logging.getLogger("pubsub_server")
    if not log.propagate:
        log.handlers.clear()
        log.setLevel(logging.NOTSET)
        log.propagate = True
    if seed := os.environ.get("HANZO_PUBSUB_TEST_SEED"):
        random.seed(f"{seed} {item.nodeid}")


def _collect() -> None:
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        # pytest stores the failure here for a debugger.
        if hasattr(sys, name):
            delattr(sys, name)
    reporting = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = reporting


def group_of(nodeid: str) -> str:
    """Return what a test shares with others of its process: a fixture, a file, or nothing."""
    file = nodeid.partition("::")[0]
    return _group_of_file(file) or nodeid


@cache
def _group_of_file(file: str) -> str | None:
    text = (ROOT.parent / file).read_text(encoding="utf-8")
    for folder, use in COSTLY:
        if file.startswith(f"{folder}/") and re.search(use, text):
            return folder
    seconds = sum(took for name, took in durations().items() if name.startswith(f"{file}::"))
    return None if seconds >= PRESSING and 'scope="module"' not in text else file
