"""The supervisor: starts workers, restarts those that die, passes signals on, ends with them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pubsub_server.access.setup import StartError
from pubsub_server.tasks import Tasks
from pubsub_server.workers import bus, shutdown_barrier
from pubsub_server.workers.ports import refused_port, reserve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from pubsub_server.settings.config import Settings

AGAIN_AFTER: Final = 0.1
AGAIN_AT_MOST: Final = 30.0
STABLE: Final = 10.0
"""Seconds that a worker has to live until the next one is started without a longer pause."""
OVERTIME: Final = 5.0
"""Seconds beyond what a drain may take, after which a worker is killed."""

_LOG: Final = logging.getLogger("pubsub_server.workers")


class Supervisor:
    """Runs the workers of one server.

    Args:
        settings: Of each worker; `workers` says how many.
        argv: Arguments of `serve`, given to each worker.
        out: Where the ready line goes.
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
            StartError: A port is in use, nothing joins the workers, or the first of them does not
                start; it has said why.
        """
        settings = self._settings
        bus.check(settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask)
        loop.add_signal_handler(signal.SIGHUP, self._tell, signal.SIGHUP)
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hanzo-pubsub-"))
            flags: list[str] = []
            for name in ("http_port", "ws_port"):
                flag = "--" + name.replace("_", "-")
                try:
                    reserved = stack.enter_context(reserve(settings.host, getattr(settings, name)))
                except OSError as error:
                    raise refused_port(error, name, settings) from None
                flags += (flag, str(reserved.getsockname()[1]))
            if settings.needs_bus:
                self._bus = bus.Bus(Path(folder), settings.history_max_bytes)
                flags += ("--redis-url", self._bus.url)
                if settings.drain_spread is None:
                    # All end together: there is no one to whom clients could go one by one.
                    flags += ("--drain-spread", "0")
            self._command = [sys.executable, "-m", "pubsub_server", "serve", *self._argv, *flags]
            self._command += ("--worker", folder)
            if self._bus is None:
                await self._work()
                return
            await self._bus.start()
            try:
                await self._work(Path(folder))
            finally:
                await self._bus.end()

    async def _work(self, folder: Path | None = None) -> None:
        """Run them; with a folder they end together, for what they have kept ends, too."""
        # What keeps one from starting keeps all: the first alone says it.
        ready = await self._start(0)
        if ready is None and not self._end.is_set():
            raise StartError("")
        self._tasks.keep(partial(self._keep, 0))
        try:
            others = range(1, self._settings.workers)
            await asyncio.gather(*(self._start(number) for number in others))
            for number in others:
                self._tasks.keep(partial(self._keep, number))
            if ready is not None and not self._end.is_set():
                line = {**ready, "pid": os.getpid(), "workers": self._settings.workers}
                print(json.dumps(line), file=self._out, flush=True)
            await self._end.wait()
        finally:
            self._end.set()
            self._tasks.begin_end()
            if folder is not None:
                shutdown_barrier.mark(folder).touch()
            self._tell(signal.SIGTERM)
            if folder is not None:
                # One that is not ready yet has neither listeners nor publishers.
                present = [self._running[n] for n in self._running.keys() - self._starting]
                self._tasks.spawn(shutdown_barrier.release(present))
            await self._tasks.wait(self._patience + OVERTIME)
            await self._tasks.stop()
            for process in self._running.values():
                self._kill(process)

    async def _start(self, number: int) -> dict[str, object] | None:
        """Start a worker and wait until it is ready; None where it has ended before."""
        process = self._running[number] = await asyncio.create_subprocess_exec(
            *self._command,
            str(number),
            # It ends when this ends, however that comes; and not by a Ctrl-C that is for us.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if self._end.is_set():
            self._tell(signal.SIGTERM)
        assert process.stdout is not None
        self._starting.add(number)
        line = await process.stdout.readline()
        self._starting.discard(number)
        if not line:
            return None
        ready: dict[str, object] = json.loads(line)
        return ready

    async def _keep(self, number: int) -> None:
        """Let a worker end, and start it again, until all are to end."""
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
            _LOG.error("worker %d ended with %s; restarting in %.1f s", number, code, pause)
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
        """Seconds that a worker has for its end."""
        return (self._settings.drain_notice + self._settings.drain_timeout) / 1000 + OVERTIME

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            _LOG.error("worker %d does not stop; killing it", process.pid)
            process.kill()

    def _ask(self) -> None:
        if self._end.is_set():
            self._tell(signal.SIGTERM)
        self._end.set()

    def _tell(self, number: int) -> None:
        for process in self._running.values():
            if process.returncode is None:
                # Its own `send_signal` may reap it behind the back of the event loop.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
