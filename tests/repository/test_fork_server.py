"""Forked test servers end like started ones, and report their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from tests import forked, programs
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

BOUND = 60
FREE = ("--dev", "--http-port", "0", "--ws-port", "0")


async def test_a_server_serves_and_ends_with_its_exit_code() -> None:
    async with asyncio.timeout(BOUND):
        server = await forked.serve(*FREE)
        ready = json.loads(await server.stdout.readline())
        assert ready["pid"] == server.pid != os.getpid()
        async with http_client(trust_env=False) as http:
            assert (await http.get(f"{ready['http']}/healthz")).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert await server.wait() == 0
        # A process that has ended receives no signal.
        server.kill()


async def test_servers_are_told_apart_and_a_signal_is_a_negative_exit_code() -> None:
    async with asyncio.timeout(BOUND):
        killed, wrong = await forked.serve(*FREE), await forked.serve("--http-port", "many")
        assert json.loads(await killed.stdout.readline())["event"] == "ready"
        killed.kill()
        assert await killed.wait() == -signal.SIGKILL
        assert await wrong.wait() == 2
        assert await wrong.stdout.read() == b""


async def test_a_server_has_the_environment_it_is_given() -> None:
    async with asyncio.timeout(BOUND):
        server = await forked.serve(*FREE, env={"HANZO_PUBSUB_PUBLISH_RATE_USER": "no number"})
        assert await server.wait() == 2


async def test_a_program_runs_like_a_file_in_an_interpreter_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    program = tmp_path / "program.py"
    program.write_text(
        "import beside, os, sys\n"
        "if __name__ == '__main__':\n"
        "    print(beside.NAME, sys.argv, os.getcwd(), dict(os.environ), __file__)\n"
    )
    async with asyncio.timeout(BOUND):
        code, text = await forked.run(program, env={"A": "1"}, cwd=tmp_path)
    assert (code, text) == (0, f"beside {[str(program)]} {tmp_path} {{'A': '1'}} {program}\n")


@pytest.mark.parametrize(
    ("body", "code", "expected"),
    [
        ("print('out', flush=True); raise ValueError('why')", 1, "out\nTraceback"),
        ("import warnings; warnings.warn('careful')", 1, "UserWarning: careful"),
        ("raise SystemExit(3)", 3, ""),
    ],
)
async def test_a_program_that_fails_returns_its_exit_code_and_what_it_printed(
    tmp_path: Path, body: str, code: int, expected: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(body)
    async with asyncio.timeout(BOUND):
        found, text = await forked.run(program, env={}, cwd=tmp_path)
    assert found == code
    assert expected in text


async def test_a_program_ends_with_the_test_that_waits_for_it(tmp_path: Path) -> None:
    program, pipe = tmp_path / "program.py", tmp_path / "pipe"
    os.mkfifo(pipe)
    program.write_text(
        "import signal, sys\n"
        f"pipe = open({str(pipe)!r}, 'w')\n"
        "print('x', end='', file=pipe, flush=True)\n"
        "signal.pause()\n"
    )
    running = asyncio.create_task(forked.run(program, env={}, cwd=tmp_path))
    async with asyncio.timeout(BOUND):
        with await asyncio.to_thread(pipe.open) as reading:
            assert await asyncio.to_thread(reading.read, 1) == "x"
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            # The pipe ends with the program.
            assert await asyncio.to_thread(reading.read) == ""


@pytest.fixture
async def forking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[asyncio.Task[forked.Server], asyncio.StreamWriter]]:
    """A start whose caller was cancelled, and the connection of the forking process to it."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await accepted.put(writer)

    path = str(tmp_path / "socket")
    monkeypatch.setattr(forked, "address", lambda: path)
    async with asyncio.timeout(BOUND), await asyncio.start_unix_server(accept, path):
        starting = asyncio.create_task(forked.serve())
        answers = await accepted.get()
        starting.cancel()
        await asyncio.sleep(0)
        yield starting, answers
        answers.close()
        await answers.wait_closed()


async def test_a_start_that_fails_does_not_replace_the_cancellation(
    forking: tuple[asyncio.Task[forked.Server], asyncio.StreamWriter],
) -> None:
    starting, answers = forking
    answers.close()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_a_program_whose_start_is_cancelled_twice_is_killed(
    forking: tuple[asyncio.Task[forked.Server], asyncio.StreamWriter],
) -> None:
    starting, answers = forking
    starting.cancel()
    await asyncio.sleep(0)
    pause = (sys.executable, "-c", "import signal; signal.pause()")
    async with programs.started(*pause, within=BOUND) as process:
        answers.write(b'{"pid": %d}\n' % process.pid)
        status = await process.wait()
    answers.write(b'{"status": %d}\n' % status)
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert status == -signal.SIGKILL


async def test_a_program_is_killed_if_the_forking_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "socket")
    monkeypatch.setattr(forked, "address", lambda: path)
    pause = (sys.executable, "-c", "import signal; signal.pause()")
    async with asyncio.timeout(BOUND), programs.started(*pause, within=BOUND) as process:

        async def start_and_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b'{"pid": %d}\n' % process.pid)
            writer.close()

        async with await asyncio.start_unix_server(start_and_end, path):
            server = await forked.serve()
            with pytest.raises(forked.ForksGone):
                await server.wait()
        assert await process.wait() == -signal.SIGKILL


async def test_a_start_without_the_forking_process_fails_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "socket")
    monkeypatch.setattr(forked, "address", lambda: path)

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with asyncio.timeout(BOUND):
        with pytest.raises(forked.ForksGone, match="Start the command again"):
            await forked.serve()
        async with await asyncio.start_unix_server(end, path):
            with pytest.raises(forked.ForksGone):
                await forked.serve()


async def test_another_program_runs_with_its_arguments_and_its_log(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        with (tmp_path / "log").open("wb") as log:
            one = await forked.command("sh", "-c", "echo $0; echo why >&2; exit 3", "a b", log=log)
        assert await one.wait() == 3
    assert (tmp_path / "log").read_text() == "a b\nwhy\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_outlives_the_tests_that_are_killed(number: signal.Signals) -> None:
    tests = (
        "import asyncio, signal, sys\n"
        "from tests import forked\n"
        "async def main():\n"
        f"    await forked.serve(*{FREE!r}, '--workers', '2', stderr=sys.stderr.buffer)\n"
        "    paused = ('sh', '-c', 'echo runs >&2; exec sleep 1000')\n"
        "    await forked.command(*paused, log=sys.stderr.buffer)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    env = {name: value for name, value in os.environ.items() if name != forked.VARIABLE}
    async with programs.started(sys.executable, "-c", tests, within=BOUND, env=env) as process:
        assert process.stderr is not None
        while await process.stderr.readline() != b"runs\n":
            pass
        process.send_signal(number)
        # The pipe ends with the last process that could write to it.
        await process.stderr.read()


async def test_without_descriptors_the_connection_is_the_output() -> None:
    request = {"argv": ["serve", "--no-such-flag"], "env": {}, "cwd": os.getcwd()}
    async with asyncio.timeout(BOUND):
        reader, writer = await asyncio.open_unix_connection(forked.address())
        writer.write(f"{json.dumps(request)}\n".encode())
        assert b"--no-such-flag" in await reader.read()
        writer.close()


async def test_half_a_request_starts_nothing_and_ends_nothing() -> None:
    async with asyncio.timeout(BOUND):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(forked.address())
            client.sendall(b'{"argv": [')
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        server = await forked.serve("--no-such-flag")
        assert await server.wait() == 2
