"""Servers and programs in separate processes, forked from one that has done all imports.

They end at the latest with the process that started the first of them, even if that is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BOUND = 60
"""Maximum seconds for the end of the forking process."""

VARIABLE = "HANZO_PUBSUB_TEST_FORKS"
"""Environment variable with the socket of a forking process."""


class ForksGone(ConnectionError):
    """The forking process has ended: it starts nothing, and what it started has been killed."""

    def __init__(self) -> None:
        super().__init__(
            "The process that forks servers and programs (tests/fork_server.py) has ended. "
            "Start the command again."
        )


class Closable(Protocol):
    """A connection or a pipe."""

    def close(self) -> None:
        """Close it."""


class Server:
    """A server in a separate process; it has the members of `asyncio.subprocess.Process`.

    Attributes:
        pid: Process id.
        stdout: Its standard output.
        returncode: Its exit code; None while it runs, negative for a signal.
    """

    def __init__(
        self,
        pid: int,
        stdout: asyncio.StreamReader,
        answers: asyncio.StreamReader,
        open_until_the_end: Sequence[Closable],
    ) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(answers, open_until_the_end))

    async def _end(self, answers: asyncio.StreamReader, transports: Sequence[Closable]) -> int:
        try:
            code = await _answer(answers, "status")
            self.returncode = code
        except ForksGone:
            self.kill()
            raise
        finally:
            for transport in transports:
                transport.close()
        return code

    async def wait(self) -> int:
        """Wait until it has ended; return its exit code.

        Raises:
            ForksGone: The code is lost with the forking process.
        """
        return await asyncio.shield(self._ending)

    def send_signal(self, number: int) -> None:
        """Send a signal to it; does nothing if it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


async def serve(
    *arguments: str, env: Mapping[str, str] | None = None, stderr: IO[bytes] | None = None
) -> Server:
    """Run `python -m pubsub_server serve …`.

    Args:
        *arguments: Arguments after `serve`.
        env: Its whole environment; default: the environment of this process.
        stderr: Destination of its log; default: discarded.

    Raises:
        ForksGone: The forking process has ended.
    """
    request = {
        "argv": ["serve", *arguments],
        "env": dict(os.environ if env is None else env),
        "cwd": os.getcwd(),
    }
    return await _start(request, stderr)


async def command(*words: str, log: IO[bytes]) -> Server:
    """Run another program, such as a Redis server, which then does not outlive the tests.

    Args:
        *words: The program and its arguments.
        log: Destination of its output and errors.

    Raises:
        ForksGone: The forking process has ended.
    """
    request = {"command": words, "env": dict(os.environ), "cwd": os.getcwd()}
    return await _start(request, log, log)


async def run(program: Path, *, env: Mapping[str, str], cwd: Path) -> tuple[int, str]:
    """Run `python -W error FILE` until it ends, or kill it if the caller is cancelled.

    Args:
        program: The file.
        env: Its whole environment.
        cwd: Its folder.

    Returns:
        Its exit code, and its output and errors.
    """
    request = {"program": str(program), "env": dict(env), "cwd": str(cwd)}
    process = await _start(request, subprocess.STDOUT)
    try:
        text = await process.stdout.read()
        return await process.wait(), text.decode()
    finally:
        process.kill()
        await process.wait()


async def _start(
    request: Mapping[str, Any], stderr: IO[bytes] | int | None, stdout: IO[bytes] | None = None
) -> Server:
    """Start it. If the caller is cancelled meanwhile, kill it: its process may run already."""
    starting = asyncio.create_task(_begin(request, stderr, stdout))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        killing = asyncio.create_task(_kill(starting))
        while not killing.done():
            # A caller that is cancelled again must not leave the program running either.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(killing)
        raise


async def _kill(starting: asyncio.Task[Server]) -> None:
    """Kill a program that may still be starting; there is none if its start fails."""
    with contextlib.suppress(OSError):
        server = await starting
        server.kill()
        await server.wait()


async def _begin(
    request: Mapping[str, Any], stderr: IO[bytes] | int | None, stdout: IO[bytes] | None
) -> Server:
    connection, printed = _request(_connected(), request, stderr, stdout)
    answers, writer = await asyncio.open_unix_connection(sock=connection)
    output = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), printed
    )
    try:
        pid = await _answer(answers, "pid")
    except BaseException:
        for each in (writer, transport):
            each.close()
        raise
    return Server(pid, output, answers, (writer, transport))


async def _answer(answers: asyncio.StreamReader, field: str) -> int:
    """Return the next answer of the forking process."""
    line = await answers.readline()
    if not line:
        raise ForksGone
    return int(json.loads(line)[field])


def check() -> None:
    """Return if the forking process runs.

    Raises:
        ForksGone: It has ended.
    """
    _connected().close()


def _connected() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address())
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        raise ForksGone from None
    return connection


def _request(
    connection: socket.socket,
    request: Mapping[str, Any],
    stderr: IO[bytes] | int | None,
    stdout: IO[bytes] | None,
) -> tuple[socket.socket, IO[bytes]]:
    """Return the connection for answers, and the output of the program.

    Args:
        connection: A connection to the forking process.
        request: See `tests/fork_server.py`.
        stderr: Destination of its errors: a file, `subprocess.STDOUT`, or None to discard them.
        stdout: Destination of its output; the returned output is then empty.
    """
    read, write = os.pipe()
    with open(write, "wb") as out, open(os.devnull, "wb") as nothing:
        err = out if isinstance(stderr, int) else nothing if stderr is None else stderr
        line = f"{json.dumps(request)}\n".encode()
        sent = socket.send_fds(connection, [line], [(stdout or out).fileno(), err.fileno()])
        connection.sendall(line[sent:])
    return connection, os.fdopen(read, "rb")


@cache
def address() -> str:
    """Return the socket of the forking process, which starts with the first program.

    A program of a test uses the one in the environment.
    """
    if given := os.environ.get(VARIABLE):
        return given
    folder = tempfile.mkdtemp(prefix="pubsub-fork-")
    path = str(Path(folder, "socket"))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"ready\n"

    def end() -> None:
        process.communicate(timeout=BOUND)
        Path(path).unlink(missing_ok=True)
        Path(folder).rmdir()

    atexit.register(end)
    return path
