"""A pytest plugin of `prove`: records the failure of each test while a fault is planted.

It reads two environment variables: `FAULT_OVERLAY` is the folder with the faulty packages, and
`FAULT_REPORT` is the file for the outcomes, one JSON object per line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.exceptions import WebSocketException

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

TESTS = Path(__file__).parent.parent
OVERLAY = Path(os.environ["FAULT_OVERLAY"])
REPORT = Path(os.environ["FAULT_REPORT"])

NOTICED = (AssertionError, TimeoutError, EOFError, pytest.fail.Exception)
"""Errors of a test if the product behaves wrongly."""
REPORTED = (WebSocketException, httpx.HTTPError)
"""Errors of a client of the product in that case."""
BROKEN = (ImportError, SyntaxError, NameError, AttributeError)
"""Errors of a badly planted fault, which prove nothing about the test."""

STARVED = 1.0
"""Seconds of waiting for a processor from which on a timeout proves nothing."""

_failed: set[str] = set()
_delays: dict[str, float] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Do not run the other cases of a test that has failed: one failure is the proof."""
    return True if _name(item) in _failed else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to measure how long this process waits for a processor."""
    _delays[item.nodeid] = _delay()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the outcome of each phase."""
    report = yield
    if report.passed and report.when != "call":
        return report
    reason: str | None = None
    if call.excinfo is not None and report.failed:
        error = call.excinfo.value
        first = next(_leaves(error))
        reason = f"{type(first).__name__}: {str(first).strip().partition(chr(10))[0]}"[:200]
        starved = _delay() - _delays.get(item.nodeid, 0.0)
        if starved > STARVED and _timed_out(error):
            _write(_name(item), "starved", f"waited {starved:.1f} s for a processor")
        elif report.when == "call" and _noticed(error):
            _failed.add(_name(item))
            _write(_name(item), "failed", reason)
        else:
            _write(_name(item), "broken", f"{report.when}: {reason}")
    elif report.passed:
        _write(_name(item), "passed", item.nodeid)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report an error if the tests did not import the faulty packages."""
    for name in ("hanzoai.pubsub", "pubsub_server"):
        module = sys.modules.get(name)
        file = None if module is None else module.__file__
        if file is not None and not Path(file).is_relative_to(OVERLAY):
            _write("", "broken", f"{name} was imported from {file}")


def _name(item: pytest.Item) -> str:
    return item.nodeid.rpartition("::")[2].partition("[")[0]


def _write(test: str, outcome: str, reason: str) -> None:
    with REPORT.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "reason": reason}) + "\n")


def _noticed(error: BaseException) -> bool:
    from hanzoai.pubsub import PubSubError
    from hanzoai.pubsub.links.unparsed import FrameError

    leaves = list(_leaves(error))
    if any(isinstance(each, BROKEN) for each in leaves):
        return False
    known = (*NOTICED, *REPORTED, PubSubError, FrameError)
    return any(isinstance(each, known) or _raised_by_test(each) for each in leaves)


def _timed_out(error: BaseException) -> bool:
    return any(
        isinstance(each, TimeoutError | httpx.TimeoutException)
        or (isinstance(each, pytest.fail.Exception) and str(each).startswith("Timeout"))
        for each in _leaves(error)
    )


def _delay() -> float:
    """Seconds that this process has waited for a processor; 0 if the system does not report it."""
    schedule = Path("/proc/self/schedstat")
    return int(schedule.read_text().split()[1]) / 1e9 if schedule.exists() else 0.0


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _raised_by_test(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(TESTS)
