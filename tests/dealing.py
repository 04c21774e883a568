"""Runs tests in several processes: `pytest -p tests.dealing --processes N`.

pytest collects all tests once and then forks. It takes ten seconds of a core to collect them, and
pytest-xdist does so in each process. A process takes the next group of tests when it has nothing
left to do, so a slow test never waits behind another one.
"""

from __future__ import annotations

import atexit
import os
import random
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from _pytest.tmpdir import TempPathFactory

from tests.groups import durations, group_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from _pytest.nodes import Node

NUMBER = 4
"""Bytes of the number of a group."""

PATIENCE = 20.0
"""Seconds for the processes to end after Ctrl-C."""

USUAL = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""How a process ends that has run its tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    text = "run groups of tests in this many processes; 0 runs all tests in this one"
    parser.addoption("--processes", type=int, default=0, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Deal out the tests if the option says so."""
    if count := config.getoption("processes"):
        config.pluginmanager.register(Dealer(config, count), "dealer")


def in_groups(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests by their groups, those first that take longest."""
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item)].append(item)

    def seconds(group: Sequence[pytest.Item]) -> float:
        return sum(durations().get(item.nodeid, 0.0) for item in group)

    return sorted(groups.values(), key=seconds, reverse=True)


@dataclass
class Process:
    """A forked process, as its parent knows it.

    Attributes:
        pid: Its id.
        reports: Where its reports come from.
        group: The tests that it runs, one after the other.
        begun: How many of them it has begun.
        ended: How many of them it has ended.
    """

    pid: int
    reports: Connection
    group: Sequence[pytest.Item] = ()
    begun: int = 0
    ended: int = 0


class Dealer:
    """Takes the place of pytest's loop over the tests.

    Args:
        config: Of pytest.
        count: How many processes to fork.
    """

    def __init__(self, config: pytest.Config, count: int) -> None:
        self._config = config
        self._count = count
        self._groups: list[Sequence[pytest.Item]] = []
        self._processes: list[Process] = []
        self._left: list[int] = []
        self._forked = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in forked processes, and report what these report."""
        if session.testsfailed or self._config.option.collectonly or not session.items:
            return None
        self._groups += in_groups(session.items)
        read, write = os.pipe()
        try:
            for _ in range(min(self._count, len(self._groups))):
                if self._is_child(session, read, write):
                    return True
            # An idle process reads the next number.
            with os.fdopen(write, "wb") as numbers:
                for number in range(len(self._groups)):
                    numbers.write(number.to_bytes(NUMBER, "big"))
            while self._processes:
                for process in self._ready():
                    if self._listen(process) and self._is_child(session, read):
                        return True
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            self._end()
        return True

    def _is_child(self, session: pytest.Session, read: int, write: int = -1) -> bool:
        """Fork. In the new process, run tests until none are left, and return True.

        Args:
            session: Of pytest.
            read: Where the numbers of groups come from.
            write: Where they are written, if that is open.
        """
        self._forked += 1
        receiving, sending = Pipe(duplex=False)
        # All processes share the folder above their own.
        folder = _temporary(self._config).getbasetemp() / f"process{self._forked}"
        sys.stdout.flush()
        sys.stderr.flush()
        if pid := os.fork():
            sending.close()
            self._processes.append(Process(pid, receiving))
            self._left.clear()
            return False
        for connection in (receiving, *(each.reports for each in self._processes)):
            connection.close()
        self._processes.clear()
        if write >= 0:
            os.close(write)
        self._config.option.basetemp = str(folder)
        Worker(self._config, sending, self._forked).run(session, self._groups, self._numbers(read))
        return True

    def _numbers(self, read: int) -> Iterator[int]:
        """Of the groups to run: what a process has left that ended, then what is dealt out."""
        if self._left:
            yield self._left.pop()
        while number := os.read(read, NUMBER):
            yield int.from_bytes(number, "big")

    # ------------------------------------------------------------ what the processes say

    def _ready(self) -> list[Process]:
        """Those that say something, or have ended."""
        ready = wait([process.reports for process in self._processes])
        return [process for process in self._processes if process.reports in ready]

    def _listen(self, process: Process) -> bool:
        """Take one message; whether another process has to take over."""
        try:
            kind, value = process.reports.recv()
        except EOFError:
            return self._bury(process)
        if kind == "group":
            process.group, process.begun, process.ended = self._groups[value], 0, 0
        elif kind == "begun":
            process.begun += 1
        elif kind == "ended":
            process.ended += 1
        else:
            self._report(value)
        return False

    def _report(self, data: dict[str, Any]) -> None:
        hook = self._config.hook
        report = hook.pytest_report_from_serializable(config=self._config, data=data)
        hook.pytest_runtest_logreport(report=report)

    def _bury(self, process: Process) -> bool:
        """Note how a process has ended; whether it has left tests.

        Raises:
            RuntimeError: It has run its tests, and failed after that.
        """
        self._processes.remove(process)
        process.reports.close()
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if process.begun == process.ended == len(process.group):
            if code not in USUAL:
                raise RuntimeError(f"a process of tests ended with {code} after its last test")
            return False
        if process.begun > process.ended:
            item = process.group[process.ended]
            text = f"The process ended with {code} while it ran this test."
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "teardown")
            item.ihook.pytest_runtest_logreport(report=report)
        self._left.append(len(self._groups))
        self._groups.append(process.group[process.begun :])
        return True

    def _end(self) -> None:
        """End what still runs, as Ctrl-C does; after a while, for good."""
        until = time.monotonic() + PATIENCE
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        for process in self._processes:
            # Nobody reads what it says: without its pipe it ends.
            process.reports.close()
            while not os.waitpid(process.pid, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    os.kill(process.pid, signal.SIGKILL)
                time.sleep(0.01)
        self._processes.clear()


class Boundary:
    """Stands for the test that follows a group: only fixtures of the session outlive the group."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[Node]:
        """What a test shares with the one before."""
        return [self._session]


class Worker:
    """A forked process, as it knows itself.

    Args:
        config: Of pytest.
        reports: Where it reports.
        number: Which one it is, from 1.
    """

    def __init__(self, config: pytest.Config, reports: Connection, number: int) -> None:
        self._config = config
        self._reports = reports
        # Plugins look at this attribute, and leave to the parent what is done once.
        cast("Any", config).workerinput = {"workerid": f"p{number}"}
        # Ctrl-C on a terminal reaches the parent alone, which passes it on.
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        random.seed()
        cast("Any", config)._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)
        plugins = config.pluginmanager
        for name in ("dealer", "reporter"):
            if plugins.has_plugin(name):
                plugins.unregister(name=name)
        terminal = cast("Any", plugins.unregister(name="terminalreporter"))
        # What has no other way to say something asks the configuration for a writer.
        plugins.register(SimpleNamespace(_tw=terminal._tw), "terminalreporter")
        # The files that hold the output of tests were the parent's, and are shared.
        capture = cast("Any", plugins.get_plugin("capturemanager"))
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        plugins.register(self, "worker")
        self._status = int(pytest.ExitCode.INTERNAL_ERROR)
        atexit.register(self._leave)

    def run(
        self,
        session: pytest.Session,
        groups: Sequence[Sequence[pytest.Item]],
        numbers: Iterable[int],
    ) -> None:
        """Run groups of tests as long as there are numbers of them."""
        boundary = cast("pytest.Item", Boundary(session))
        for number in numbers:
            self._say("group", number)
            group = groups[number]
            for item, following in zip(group, [*group[1:], boundary], strict=True):
                self._say("begun")
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self._say("ended")
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass a report on."""
        hook = self._config.hook
        self._say("report", hook.pytest_report_to_serializable(config=self._config, report=report))

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None]:
        """Note how it ends, if the fixtures of the session end well."""
        yield
        self._status = int(exitstatus)

    def _leave(self) -> None:
        """End without a word to the modules in C: some crash when objects outlive them."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self._status)

    def _say(self, kind: str, value: object = None) -> None:
        self._reports.send((kind, value))


def _temporary(config: pytest.Config) -> TempPathFactory:
    return cast("TempPathFactory", cast("Any", config)._tmp_path_factory)
