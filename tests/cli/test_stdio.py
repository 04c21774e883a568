"""The standard streams of the program: full, closed, non-blocking, and in every encoding."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.cli import stdio
from hanzoai.pubsub.cli.exits import Exit
from pubsub_server.testing import RunningServer, running_server
from tests import programs
from tests.cli.processes import LIMIT, until_subscribed, variables

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

BARE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale in which Python decodes no byte above 127."""


@pytest.fixture
async def server() -> AsyncGenerator[RunningServer]:
    async with running_server() as running:
        yield running


def shell(
    line: str, env: dict[str, str] | None = None, module: str = "hanzoai.pubsub.cli"
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run the program with the redirections of a shell."""
    program = f'exec "$0" -W error -m {module} {line}'
    return programs.started("sh", "-c", program, sys.executable, within=LIMIT, env=env)


async def ended(
    line: str, env: dict[str, str] | None = None, module: str = "hanzoai.pubsub.cli"
) -> tuple[int | None, Any, Any]:
    """Run it until it ends: its exit code, and the JSON that it printed."""
    async with shell(line, env, module) as process:
        out, err = await process.communicate()
    return process.returncode, json.loads(out or "null"), json.loads(err or "null")


@pytest.mark.parametrize(
    ("to", "why"), [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--version", "publish --help", "token --user alice --ttl 1s"])
async def test_output_that_cannot_be_written_is_one_error_with_its_cause(
    command: str, to: str, why: str, unbuffered: str, tmp_path: Path
) -> None:
    key = {"HANZO_PUBSUB_DEV_KEY_FILE": str(tmp_path / "key")}
    env = {**os.environ, **key, "PYTHONUNBUFFERED": unbuffered}
    code, _, error = await ended(f"{command} >{to}", env)
    assert code == Exit.FAILED
    assert error == {
        "event": "error",
        "message": f"Standard output cannot be written: {why}.",
        "code": "failed",
    }


@pytest.mark.parametrize("to", ["/dev/full", "&-"])
@pytest.mark.parametrize(
    "command", ["publish demo.a --data 1", "history demo.a", "subscribe demo.a --history 1"]
)
async def test_a_command_ends_at_the_first_result_that_it_cannot_write(
    server: RunningServer, command: str, to: str
) -> None:
    async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps:
        await ps.publish("demo.a", {"type": "n", "data": 1})
    async with shell(f"{command} >{to}", variables(server)) as process:
        _, err = await process.communicate()
    assert process.returncode == Exit.FAILED
    assert json.loads(err.splitlines()[-1])["code"] == "failed"
    assert b"Traceback" not in err


async def test_respond_ends_at_the_first_record_that_it_cannot_write(
    server: RunningServer,
) -> None:
    line = "respond demo.a --reply 1 >/dev/full"
    async with (
        PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps,
        shell(line, variables(server)) as process,
    ):
        await until_subscribed(process)
        assert (await ps.request("demo.a", 1)).data == 1
        _, err = await process.communicate()
    assert process.returncode == Exit.FAILED
    assert b"No space left" in err


async def test_the_server_as_a_module_handles_its_output_like_the_program(tmp_path: Path) -> None:
    line = f"token --user alice --dev-key-file {tmp_path / 'key'} >/dev/full"
    code, _, error = await ended(line, module="pubsub_server")
    assert code == Exit.FAILED
    assert error["message"] == "Standard output cannot be written: No space left on device."


@pytest.mark.parametrize("to", ["/dev/full", "&-"])
@pytest.mark.parametrize(
    ("command", "code"), [("publish", Exit.USAGE), ("publish demo.a --data 1", Exit.OK)]
)
async def test_errors_that_cannot_be_written_do_not_change_the_exit_code(
    server: RunningServer, command: str, code: Exit, to: str
) -> None:
    found, published, _ = await ended(f"{command} 2>{to}", variables(server))
    assert found == code
    assert (published is not None) is (code is Exit.OK)


async def test_the_server_runs_without_standard_output(tmp_path: Path) -> None:
    env = {**os.environ, "HANZO_PUBSUB_DEV_KEY_FILE": str(tmp_path / "key")}
    async with shell("serve --dev --http-port 0 --ws-port 0 >&-", env) as process:
        assert process.stderr is not None
        while b"ready" not in await process.stderr.readline():
            assert not process.stderr.at_eof()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == Exit.OK


async def test_arguments_and_files_are_utf_8_in_a_locale_without_it(
    server: RunningServer, tmp_path: Path
) -> None:
    file, env = tmp_path / "grü.json", variables(server, **BARE)
    file.write_text('"gr€en"', encoding="utf-8")
    for data in ("'\"grün 😀\"'", f"@{file}"):
        code, _, error = await ended(f"publish demo.a --data {data}", env)
        assert (code, error) == (Exit.OK, None)
    async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps:
        assert [m.data async for m in ps.history("demo.a")] == ["grün 😀", "gr€en"]


@pytest.mark.parametrize("encoding", [{"PYTHONIOENCODING": "latin-1"}, BARE])
async def test_output_to_a_file_is_utf_8_in_every_encoding(
    server: RunningServer, tmp_path: Path, encoding: dict[str, str]
) -> None:
    async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps:
        await ps.publish("demo.a", {"type": "n", "data": "grün €"})
    file = tmp_path / "out"
    env = variables(server, **encoding)
    assert await ended(f"history demo.a >{file}", env) == (Exit.OK, None, None)
    assert json.loads(file.read_bytes())["data"] == "grün €"


@pytest.mark.parametrize(
    ("encoding", "given", "name"),
    [
        ("latin-1", "grün", "grün"),
        ("ascii", "grün", "gr\udcc3\udcbcn"),
        ("utf-8", "gr\udcfcn", "gr\udcfcn"),
    ],
)
def test_the_name_of_a_file_has_the_encoding_of_the_locale(
    encoding: str, given: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(text: str) -> bytes:
        return text.encode(encoding, "surrogateescape")

    def decode(data: bytes) -> str:
        return data.decode(encoding, "surrogateescape")

    monkeypatch.setattr(os, "fsencode", encode)
    monkeypatch.setattr(os, "fsdecode", decode)
    assert stdio.file_name(given) == name


async def test_data_that_is_not_utf_8_is_a_wrong_argument() -> None:
    code, _, error = await ended('publish demo.a --data "$(printf \'"\\377"\')"')
    assert (code, error["message"]) == (Exit.USAGE, "--data is not UTF-8 text.")


def test_an_encoding_without_a_character_gets_it_as_json_escapes_it() -> None:
    text = "grün € 😀 \ud800"
    for encoding in ("ascii", "latin-1", "utf-8"):
        written = text.encode(encoding, stdio.ESCAPE).decode(encoding)
        assert json.loads(f'"{written}"') == text


def test_a_pipe_that_does_not_block_is_written_completely() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    text = b"x" * 1_000_000

    def send() -> None:
        with stdio.Results(write) as out:
            out.write(text)
        os.close(write)

    sending = threading.Thread(target=send)
    sending.start()
    with open(read, "rb") as source:
        assert source.read() == text
    sending.join()
