from __future__ import annotations

import gc
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.groups import durations

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

# How long it takes to draw a value depends on what else the machine does.
settings.register_profile("shared", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("shared")

ROOT = Path(__file__).parent

# No test reaches a public server. To read the authorities of the machine takes 25 ms for each HTTP
# client, and for each program that is started.
os.environ["SSL_CERT_FILE"] = str(ROOT / "authority.pem")

# Tests that are about picows and msgspec say so; all others use what every installation has.
os.environ.setdefault("HANZO_PUBSUB_SPEED", "off")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out the same plugins in a pytest that a test starts: to load them takes a second."""
    words: list[str] = config.getini("addopts")
    left_out = [word for word in words if word.startswith("no:")]
    os.environ["PYTEST_ADDOPTS"] = " ".join(f"-p {word}" for word in left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests."""
    for item in items:
        if item.nodeid in durations():
            item.add_marker(pytest.mark.slow)


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
