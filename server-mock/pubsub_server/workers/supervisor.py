"""The supervisor: starts workers, replaces dead or stuck ones, forwards signals, ends with them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from pubsub_server.access.setup import StartError
from pubsub_server.tasks import Tasks
from pubsub_server.workers import bus, pool, shutdown_barrier
from pubsub_server.workers.exit_codes import exit_reason
from pubsub_server.workers.folder import shared_folder
from pubsub_server.workers.ports import refused_port, reserve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import TextIO

    from pubsub_server.settings.config import Settings

ASKED_PER_LIMIT: Final = 6
"""Questions to a worker per `worker_timeout`."""
AGAIN_AFTER: Final = 0.1
AGAIN_AT_MOST: Final = 30.0
STABLE: Final = 10.0
"""Seconds of running after which the restart pause of a worker is reset."""
OVERTIME: Final = 5.0
"""Seconds after the end of the drain time at which a worker is killed."""
ASKED_AGAIN: Final = 1.0
"""Seconds for a second answer: without the first, this process may have been suspended itself."""

_LOG: Final = logging.getLogger("pubsub_server.workers")


class Supervisor:
    """Runs the workers of one server.

    Args:
        settings: Settings of each worker; `workers` is their number.
        argv: Arguments of `serve`, passed to each worker.
        out: Output for the ready line.
    """

    def __init__(self, settings: Settings, argv: Sequence[str], out: TextIO | None = None) -> None:
        self._settings = settings
        self._argv = argv
        self._out = out or sys.stdout
        self._command: list[str] = []
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._starting: set[int] = set()
        self._bus: bus.Bus | None = None
        self._end = asyncio.Event()
        self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "supervisor")

    async def run(self) -> None:
        """Run them until SIGTERM or SIGINT.

        Raises:
            StartError: A port is in use, nothing connects the workers, or the first worker does not
                start; it has printed the reason.
        """
        settings = self._settings
        bus.check(settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask)
        loop.add_signal_handler(signal.SIGHUP, self._reopen)
        with ExitStack() as stack:
            folder = stack.enter_context(shared_folder())
            flags: list[str] = []
            for name in ("http_port", "ws_port"):
                flag = "--" + name.replace("_", "-")
                try:
                    reserved = stack.enter_context(reserve(settings.host, getattr(settings, name)))
                except OSError as error:
                    raise refused_port(error, name, settings) from None
                flags += (flag, str(reserved.getsockname()[1]))
            if settings.needs_bus:
                self._bus = bus.Bus(folder, settings.history_max_bytes)
                flags += ("--redis-url", self._bus.url)
                if settings.drain_spread is None:
                    # All end together: there are no other workers for the clients.
                    flags += ("--drain-spread", "0")
            self._command = [sys.executable, "-m", "pubsub_server", "serve", *self._argv, *flags]
            self._command += ("--worker", str(folder))
            if self._bus is None:
                await self._work(folder)
                return
            await self._bus.start()
            try:
                await self._work(folder)
            finally:
                await self._bus.end()

    async def _work(self, folder: Path) -> None:
        """Run the workers; with a bus they stop together, because their logs are lost."""
        # A problem at the start concerns all workers: only the first one reports it.
        ready = await self._start(0)
        if ready is None:
            if self._end.is_set():
                return
            raise StartError("")
        self._keep_worker(0, folder)
        try:
            others = range(1, self._settings.workers)
            await asyncio.gather(*(self._start(number) for number in others))
            for number in others:
                self._keep_worker(number, folder)
            if not self._end.is_set():
                line = {**ready, "pid": os.getpid(), "workers": self._settings.workers}
                print(json.dumps(line), file=self._out, flush=True)
            await self._end.wait()
        finally:
            self._end.set()
            self._tasks.begin_end()
            if self._bus is not None:
                shutdown_barrier.mark(folder).touch()
            self._signal(signal.SIGTERM)
            if self._bus is not None:
                # A worker that is not ready has neither subscribers nor publishers.
                present = [self._running[n] for n in self._running.keys() - self._starting]
                self._tasks.spawn(shutdown_barrier.release(present))
            await self._tasks.wait(self._patience + OVERTIME)
            await self._tasks.stop()
            for process in self._running.values():
                self._kill(process)

    async def _start(self, number: int) -> dict[str, object] | None:
        """Start a worker and wait until it is ready; None if it ended before."""
        process = self._running[number] = await asyncio.create_subprocess_exec(
            *self._command,
            str(number),
            # It ends with this process in every case, but not by a Ctrl-C, which this process
            # handles.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._starting.add(number)
        if self._end.is_set():
            self._signal(signal.SIGTERM, self._starting)
        assert process.stdout is not None
        line = await process.stdout.readline()
        self._starting.discard(number)
        if not line:
            return None
        ready: dict[str, object] = json.loads(line)
        return ready

    def _keep_worker(self, number: int, folder: Path) -> None:
        self._tasks.keep(partial(self._keep, number))
        if self._settings.worker_timeout:
            self._tasks.keep(partial(self._watch, number, folder))

    async def _watch(self, number: int, folder: Path) -> None:
        """Kill a worker that has not answered for `worker_timeout`; `_keep` replaces it."""
        limit = self._settings.worker_timeout / 1000
        while not self._end.is_set():
            process = self._running.get(number)
            if process is None or number in self._starting:
                pass
            elif not (
                await pool.answers(folder, number, limit)
                or await pool.answers(folder, number, ASKED_AGAIN)
                or self._end.is_set()
            ):
                _LOG.error(
                    "worker %d (process %d) has not answered for %g s; killing it",
                    *(number, process.pid, limit),
                )
                if process.returncode is None:
                    process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit / ASKED_PER_LIMIT):
                    await self._end.wait()

    async def _keep(self, number: int) -> None:
        """Restart a worker each time it ends, until shutdown."""
        loop = asyncio.get_running_loop()
        pause = AGAIN_AFTER
        while True:
            began = loop.time()
            if number not in self._running:
                # Its last start failed.
                await self._start(number)
            process = self._running[number]
            code = await self._ended(process)
            del self._running[number]
            if self._end.is_set():
                return
            pause = AGAIN_AFTER if loop.time() - began > STABLE else min(AGAIN_AT_MOST, pause * 2)
            _LOG.error(
                "worker %d ended with %s; restarting in %.1f s", number, exit_reason(code), pause
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._end.wait()
                return

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        waiting = self._tasks.spawn(process.wait())
        ending = self._tasks.spawn(self._end.wait())
        await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
        await self._tasks.end(ending)
        if not waiting.done():
            await asyncio.wait({waiting}, timeout=self._patience)
            self._kill(process)
        return await waiting

    @property
    def _patience(self) -> float:
        """Seconds for the shutdown of a worker."""
        return (self._settings.drain_notice + self._settings.drain_timeout) / 1000 + OVERTIME

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            _LOG.error("worker %d does not stop; killing it", process.pid)
            process.kill()

    def _ask(self) -> None:
        # The others get the signal when all have started or ended.
        self._signal(signal.SIGTERM, self._running if self._end.is_set() else self._starting)
        self._end.set()

    def _reopen(self) -> None:
        # A worker that is not ready may not handle it yet, and opens its files anyway.
        self._signal(signal.SIGHUP, self._running.keys() - self._starting)

    def _signal(self, number: int, workers: Iterable[int] | None = None) -> None:
        for each in self._running if workers is None else workers:
            process = self._running[each]
            if process.returncode is None:
                # `send_signal` of the process may reap it without the event loop's knowledge.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
