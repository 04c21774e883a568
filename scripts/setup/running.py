"""Run the steps of a setup concurrently, and show their progress."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

INTERVAL = 4.0
"""Seconds between progress lines."""

BAR = 12

NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|network|dns error|resolve host"
    r"|Temporary failure|Could not connect|Connection refused|Unknown host|UnknownHost",
    re.IGNORECASE,
)

WAITS: Final = "INFO Waiting to acquire"
"""Start of what uv prints while another uv, of any folder, builds or installs the same package."""


class SetupError(Exception):
    """A failed step. The message names the problem and the remedy in one or two sentences."""


class Stopped(Exception):
    """Another step failed, or you pressed Ctrl-C."""


class Step(Protocol):
    """One part of a setup."""

    @property
    def name(self) -> str:
        """Name of the installed part."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the part is already installed."""
        ...

    def missing(self) -> list[str]:
        """Prerequisites that are missing, one line each."""
        ...

    def run(self, tool: Tool) -> None:
        """Install the part. Raises `SetupError` on failure."""

    def progress(self) -> str:
        """Progress in a few words; empty if it is unknown."""
        ...


class Tool:
    """Runs the programs of one step, stores their output, and stops them on request."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")

    def __call__(
        self,
        failure: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        """Run a program until it ends.

        Args:
            failure: Start of the error message: the action that failed.
            command: The program and its arguments.
            env: Variables to add to the environment.
            pass_fds: File descriptors that the program inherits.
        """
        if self._stopped:
            raise Stopped
        with self._log.open("ab") as out:
            out.write(f"$ {' '.join(map(str, command))}\n".encode())
            out.flush()
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                pass_fds=pass_fds,
                start_new_session=True,
            )
        status = self._process.wait()
        if self._stopped:
            raise Stopped
        if status:
            raise SetupError(self._explain(failure, status))

    @property
    def waits(self) -> bool:
        """Whether the running program waits for another uv."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1:] != [] and lines[-1].startswith(WAITS)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop the running program, and start no other one."""
        self._stopped = True
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _explain(self, failure: str, status: int) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        output = text[text.rfind("\n$ ") + 1 :]
        lines = output.splitlines()[1:]
        tail = lines[-12:]
        hint = ""
        if NETWORK.search(output):
            hint = " The network or the package registry is out of reach."
            # pip's next lines wrongly blame the versions.
            tail = [line for line in lines if NETWORK.search(line)][-2:]
        if "ENOSPC" in text or "No space left" in text:
            hint = " The disk is full."
        shown = "".join(f"\n    {line}" for line in tail)
        return f"{failure} (exit {status}).{hint} The whole output is in {self._log}.{shown}"


class Progress:
    """Prints a line every few seconds; on a terminal, updates a single line."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()

    def show(self, parts: Sequence[str]) -> None:
        """Show the current state."""
        text = f"setup: {' · '.join(parts)} · {time.monotonic() - self._began:.0f} s"
        if self._terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            sys.stderr.write(f"\r\x1b[2K{text[:width]}")
            sys.stderr.flush()
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        sys.stderr.write(f"\r\x1b[2K{text}\n" if self._terminal else f"{text}\n")
        sys.stderr.flush()

    @property
    def interval(self) -> float:
        """Seconds between updates."""
        return 0.5 if self._terminal else INTERVAL


def counted(count: int, total: int) -> str:
    """Return a progress bar and two numbers."""
    filled = min(BAR, BAR * count // max(1, total))
    return f"{'█' * filled}{'░' * (BAR - filled)} {count} of {total}"


def run_all(steps: Sequence[Step], logs: Path) -> None:
    """Run the steps concurrently.

    Raises:
        SetupError: The first failure; the other steps are stopped.
        KeyboardInterrupt: You pressed Ctrl-C; all steps are stopped.
    """
    progress = Progress()
    tools = {step.name: Tool(logs / f"{step.name.replace(' ', '-').lower()}.log") for step in steps}
    failures: list[BaseException] = []
    changed = threading.Event()

    def work(step: Step) -> None:
        try:
            step.run(tools[step.name])
        except BaseException as error:
            failures.append(error)
        finally:
            changed.set()

    threads = {step.name: threading.Thread(target=work, args=(step,)) for step in steps}
    for thread in threads.values():
        thread.start()
    try:
        _watch(steps, tools, threads, failures, changed, progress)
    finally:
        _end(list(tools.values()), list(threads.values()))
    for failure in failures:
        if not isinstance(failure, Stopped):
            raise failure


def _watch(
    steps: Sequence[Step],
    tools: Mapping[str, Tool],
    threads: Mapping[str, threading.Thread],
    failures: Sequence[BaseException],
    changed: threading.Event,
    progress: Progress,
) -> None:
    began = time.monotonic()
    left = {step.name: step for step in steps}
    while left and not failures:
        done = {
            name: "waits for another uv" if tools[name].waits else step.progress()
            for name, step in left.items()
        }
        progress.show([f"{name} {text}".rstrip() for name, text in done.items()])
        changed.wait(progress.interval)
        changed.clear()
        for name in [name for name in left if not threads[name].is_alive()]:
            del left[name]
            if not failures:
                progress.say(f"setup: {name} ready after {time.monotonic() - began:.0f} s")


def _end(tools: Iterable[Tool], threads: Iterable[threading.Thread]) -> None:
    """Stop the running programs; a second Ctrl-C kills them."""
    number = signal.SIGTERM
    while alive := [thread for thread in threads if thread.is_alive()]:
        for tool in tools:
            tool.stop(number)
        try:
            for thread in alive:
                thread.join(5)
        except KeyboardInterrupt:
            number = signal.SIGKILL
