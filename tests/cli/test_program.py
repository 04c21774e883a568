"""The program as a process: its commands, signals, pipes and imports."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PresenceChange, PubSubClient
from hanzoai.pubsub.cli import stdio
from hanzoai.pubsub.cli.exits import MEANINGS, Exit
from hanzoai.pubsub.cli.main import COMMANDS, SERVER_COMMANDS, main
from hanzoai.pubsub.cli.process import run
from hanzoai.pubsub.cli.publish import FIELDS
from hanzoai.pubsub.streams import Delta, stream_reader
from pubsub_server.testing import RunningServer, running_server
from tests import programs
from tests.cli.processes import LIMIT, hold_answers, started, until_subscribed, variables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hanzoai.pubsub.streams import StreamReader

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
async def server() -> AsyncGenerator[RunningServer]:
    async with running_server(history_max_messages=10_000) as running:
        yield running


@pytest.mark.parametrize("argv", [["--help"], ["help"], ["help", "--help"]])
def test_help_lists_every_command_and_every_exit_code(
    argv: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == Exit.OK
    reported = capsys.readouterr().out
    documented = DOCS.read_text(encoding="utf-8")
    for command in (*COMMANDS, *SERVER_COMMANDS):
        assert f"  {command} " in reported
        assert f"`{command}" in documented
    for code, meaning in MEANINGS.items():
        assert f"{code.value:>3}  {meaning}" in reported
        assert str(code.value) in documented


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == Exit.OK
    reported = capsys.readouterr().out
    assert "exit codes:" in reported
    assert ("HANZO_PUBSUB_URL" in reported) is (command != "completion")


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("publish", "0 1 2 3 4 5 6 129 130 143"),
        ("subscribe", "0 1 2 3 4 5 6 7 129 130 143"),
        ("doctor", "0 1 2 129 130 143"),
    ],
)
def test_help_of_a_command_lists_only_the_exit_codes_that_it_can_return(
    command: str, codes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == Exit.OK
    listed = capsys.readouterr().out.partition("exit codes:\n")[2]
    assert " ".join(line.split()[0] for line in listed.splitlines()) == codes
    assert ("--count" in listed) is (command == "subscribe")


@pytest.mark.parametrize("command", ["", *COMMANDS, *SERVER_COMMANDS])
def test_help_fits_into_a_terminal_of_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"] if command else ["--help"]) == Exit.OK
    printed = capsys.readouterr().out.splitlines()
    assert printed
    assert not [line for line in printed if len(line) > 80]


def test_help_of_publish_names_every_field_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "--help"]) == Exit.OK
    told = capsys.readouterr().out
    assert all(f'"{field}"' in told for field in FIELDS)
    assert "if standard input" in told


def test_help_of_a_command_is_the_help_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed: list[str] = []
    for argv in (["help", "publish"], ["publish", "--help"]):
        assert main(argv) == Exit.OK
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "--on-error" in printed[0]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "usage"),
        (["subscrbe"], "subscribe"),
        (["sub"], "`subscribe`"),
        ([""], "See `hanzo-pubsub --help`"),
        (["help", "subscrbe"], "subscribe"),
        (["--url", "ws://x"], "Options follow the command"),
        (["publish"], "TOPIC"),
        (["publish", "a.b", "--data", "{"], "JSON"),
        (["publish", "a.b", "--dat", "1"], "Did you mean `--data`?"),
        (["request", "a.b", "--data", "1"], "Write DATA without `--data`"),
        (["publish", "a.b", "--json=yes"], "argument --json: takes no value"),
        (["history", "a.b", "--nothing-like-it"], "See `hanzo-pubsub history --help`"),
        (["publish", "a.b", "--data", "9" * 4301], "an integer of more than 4,300 digits"),
        (["publish", "a.b", "--data", "@/no/such/file"], "the path of a file that you can read"),
        (["publish", "a.b", "--data", "@/dev/zero"], "has more than 16,777,216 bytes"),
        (["publish", "a.b", "--data", "@/x\0"], "its name is not valid"),
        (["publish", "a.b", "--data", "@"], "--data names no file"),
        (["publish", "a.b", "--data", "@", "--via", "events://self"], "--data names no file"),
        (["request", "a.b", "@"], "DATA names no file"),
        (["publish", "a.b", "--data", "-", "--id", "x"], "--id"),
        (["publish", "a.b", "--data", "1", "--id", ""], "--id: give 1 to 128 characters, not 0"),
        (["publish", "a.b", "--data", "-", "--type", ""], "--type: give 1 to 128 characters"),
        (["request", "a.b", "1", "--id", "x" * 200], "--id: give 1 to 128 characters, not 200"),
        (["respond", "a.b", "--reply", "1", "--type", ""], "--type: give 1 to 128 characters"),
        (["history", "a.b"], "HANZO_PUBSUB_URL"),
        (["subscribe", "a.b", "a.*.c", "--after", "a.d=5"], "a.d, which is not subscribed to"),
        (["subscribe", "a.b", "a.*.c", "--after", "a.d.c=5"], "HANZO_PUBSUB_URL"),
        (["subscribe", "a.*", "--after", "a.*=5"], "--after names a.*, a pattern"),
        (["subscribe", "a..b", "--after", "a=5"], "'a..b' has an empty segment"),
        (["history", "a.b", "--limit", "0"], "--limit"),
        (["history", "a.b", "--before", ""], "--before is empty"),
        (["history", "a.b", "--before-seq", "m5"], "'m5' is not a whole number from 0 to 9,007"),
        (["history", "a.b", "--after", str(2**53)], "from 0 to 9,007,199,254,740,991"),
        (["history", "a.b", "--before", "m", "--after", "4"], "--after: not allowed with argument"),
        (["history", "a.b", "--before", "m", "--before-seq", "4"], "not allowed with argument"),
        (["stream", "a.b", "--id", ""], "--id is empty"),
        (["stream", "a.b", "--write", "--id", ""], "--id is empty"),
        (["doctor", "--url", "ftp://x"], "url"),
        (["history", "a", "--url", "ws://x", "--token", "x", "--token-file", "y"], "used together"),
    ],
)
def test_wrong_arguments_are_2_with_a_remedy(
    argv: Sequence[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HANZO_PUBSUB_URL", raising=False)
    assert main(argv) == Exit.USAGE
    captured = capsys.readouterr()
    assert says in captured.out + captured.err


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (["publish", "a..b", "--data", "1"], "topic"),
        (["publish", "a.*", "--data", "-"], "topic"),
        (["request", "a..b", "1"], "topic"),
        (["request", "a.*", "-"], "topic"),
        (["request", "a", "1", "--reply-to", "b.*"], "topic"),
        (["respond", "a..b", "--reply", "1"], "topic"),
        (["stream", "a.*"], "topic"),
        (["stream", "a.*", "--write"], "topic"),
        (["stream", "a", "--write", "--id", "latest"], "id"),
        (["presence", "a.*", "--watch"], "topic"),
        (["history", "a.*"], "topic"),
        (["subscribe", "a..b"], "topic"),
        (["doctor", "--topic", "a..b"], "topic"),
    ],
)
def test_invalid_arguments_are_reported_before_the_connection(
    argv: Sequence[str],
    field: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing listens there, so a connection would fail.
    monkeypatch.setenv("HANZO_PUBSUB_URL", "ws://127.0.0.1:9/ws")
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "some-token")
    assert main([*argv, "--timeout", "100ms"]) == Exit.USAGE
    error = json.loads(capsys.readouterr().err)
    assert (error["code"] == "invalid_topic") is (field == "topic")
    assert error.get("field", "topic") == field
    assert error["remedy"]


def test_serve_names_the_package_to_install_where_the_server_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "entry_points", _no_entry_points)
    assert main(["serve", "--dev"]) == Exit.USAGE
    assert "hanzoai.pubsub[server]" in capsys.readouterr().err


def test_a_distribution_adds_a_command_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "entry_points", _one_entry_point)
    assert main(["extra", "--flag"]) == 42
    main(["--help"])
    assert "extra       does more" in capsys.readouterr().out


def _no_entry_points(*, group: str) -> tuple[EntryPoint, ...]:
    assert group == "hanzo_pubsub.commands"
    return ()


def _one_entry_point(*, group: str) -> tuple[EntryPoint, ...]:
    return (_Loaded("extra", "somewhere:extra", group),)


class _Loaded(EntryPoint):
    def load(self) -> _Extra:
        return _Extra()


class _Extra:
    help = "does more"

    def __call__(self, argv: Sequence[str]) -> int:
        assert argv == ["--flag"]
        return 42


@pytest.mark.parametrize("stdin", ["</dev/null", "--data - </dev/null", "<&-", "--data - <&-"])
async def test_publish_ends_where_standard_input_has_nothing(
    server: RunningServer, stdin: str
) -> None:
    line = f'exec "$0" -W error -m hanzoai.pubsub.cli publish demo.x {stdin}'
    command = ("sh", "-c", line, sys.executable)
    async with programs.started(*command, within=LIMIT, env=variables(server)) as process:
        out, err = await process.communicate()
    assert (process.returncode, err) == (Exit.OK, b"")
    assert json.loads(out) == {"published": 0, "duplicates": 0, "failed": 0, "unknown": 0}


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", Exit.INTERRUPTED), ("SIGTERM", Exit.TERMINATED)]
)
async def test_publish_counts_lines_as_unknown_whose_answers_a_signal_cuts_off(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, name: str, code: Exit
) -> None:
    hold_answers(server, monkeypatch)
    client = PubSubClient(server.ws, server.token(), rest_url=server.http)
    lines = ("publish", "demo.a", "--data", "-", "--type", "n")
    async with (
        client as ps,
        ps.subscribe("demo.a") as messages,
        started(*lines, env=variables(server), stdin=asyncio.subprocess.PIPE) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"1\nnot json\n2\n3\n")
        assert [(await anext(messages)).data for _ in range(3)] == [1, 2, 3]
        process.send_signal(getattr(signal, name))
        out, _ = await process.communicate()
    assert process.returncode == code
    assert json.loads(out) == {"published": 0, "duplicates": 0, "failed": 1, "unknown": 3}


async def test_publish_counts_only_lines_as_unknown_that_a_signal_finds_sent(
    server: RunningServer,
) -> None:
    # A user may publish so few messages per second that most lines wait in the client.
    env = variables(server, HANZO_PUBSUB_TOKEN=server.token("bob"))
    client = PubSubClient(server.ws, server.token("alice"), rest_url=server.http)
    lines = ("publish", "demo.a", "--data", "-", "--type", "n")
    async with (
        client as ps,
        ps.subscribe("demo.a") as messages,
        started(*lines, env=env, stdin=asyncio.subprocess.PIPE) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"1\n" * 1000)
        await anext(messages)
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
        retained = len([message async for message in ps.history("demo.a")])
    assert process.returncode == Exit.INTERRUPTED
    counts = json.loads(out)
    assert counts["failed"] > 0
    assert counts["published"] <= retained <= counts["published"] + counts["unknown"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SIGINT", Exit.INTERRUPTED),
        ("SIGTERM", Exit.TERMINATED),
        ("SIGHUP", Exit.HUNG_UP),
    ],
)
async def test_a_signal_ends_it_in_order_and_the_array_is_closed(
    server: RunningServer, name: str, code: Exit
) -> None:
    env = variables(server)
    async with started("subscribe", "demo.a", "--count", "9", env=env) as process:
        await until_subscribed(process)
        process.send_signal(getattr(signal, name))
        out, err = await process.communicate()
    assert process.returncode == code
    assert out == b"[]\n"
    assert err == b""


def test_ctrl_c_at_the_start_ends_it_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stdio, "prepare", interrupted)
    assert main() == Exit.INTERRUPTED


INTERRUPTED_IMPORT = """
import os, signal, sys

left = int(sys.argv.pop(1))

def count(event, arguments):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(count)
from hanzo_pubsub_program import main
sys.exit(main())
"""
"""Runs the program, and sends Ctrl-C at the import with this number."""


@pytest.mark.parametrize("number", [2, 3, 5, 8, 13, 20, 30, 45, 60, 80, 110, 150, 200])
def test_ctrl_c_at_an_import_ends_it_without_a_traceback(number: int) -> None:
    ended = subprocess.run(
        (sys.executable, "-c", INTERRUPTED_IMPORT, str(number), "history", "demo.a"),
        env={**os.environ, "HANZO_PUBSUB_URL": "ws://127.0.0.1:9/ws", "HANZO_PUBSUB_TOKEN": "x"},
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (Exit.INTERRUPTED, b"")


INTERRUPTED_LOOP = """
import os, selectors, signal, sys

close = selectors.DefaultSelector.close

def interrupted(selector):
    os.kill(os.getpid(), signal.SIGINT)
    close(selector)

selectors.DefaultSelector.close = interrupted
from hanzo_pubsub_program import main
sys.exit(main())
"""
"""Runs the program, and sends Ctrl-C when it closes its event loop."""


def test_ctrl_c_while_the_event_loop_closes_leaves_no_traceback() -> None:
    ended = subprocess.run(
        (sys.executable, "-c", INTERRUPTED_LOOP, "presence", "demo.a"),
        env={**os.environ, "HANZO_PUBSUB_URL": "ws://127.0.0.1:9/ws", "HANZO_PUBSUB_TOKEN": ""},
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert json.loads(ended.stderr)["code"] == "unauthenticated"
    assert ended.returncode == Exit.AUTH


def test_ctrl_c_leaves_no_output_that_cannot_be_written_to_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: Sequence[str]) -> int:
        print("a result")
        raise KeyboardInterrupt

    read, write = os.pipe()
    os.close(read)
    output = io.TextIOWrapper(io.BufferedWriter(stdio.Results(write)))
    monkeypatch.setattr(sys, "stdout", output)
    assert run([], interrupted, streams=False) == Exit.OK
    output.close()
    os.close(write)


@asynccontextmanager
async def half_written(
    server: RunningServer,
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, StreamReader]]:
    """A command that writes a stream while its input is open, and a reader of the first part."""
    async with (
        PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps,
        stream_reader(ps, "demo.answer", id="r1") as reader,
        started(
            *("stream", "demo.answer", "--write", "--id", "r1"),
            env=variables(server),
            stdin=asyncio.subprocess.PIPE,
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"half")
        async for event in reader:
            if isinstance(event, Delta):
                break
        yield process, reader


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", Exit.INTERRUPTED), ("SIGTERM", Exit.TERMINATED)]
)
async def test_a_signal_ends_a_written_stream_though_standard_input_stays_open(
    server: RunningServer, name: str, code: Exit
) -> None:
    async with half_written(server) as (process, reader):
        process.send_signal(getattr(signal, name))
        # `communicate` would close standard input.
        assert await process.wait() == code
        final = await reader.final()
    assert (final.reason, final.text) == ("interrupted", "half")


async def test_a_written_stream_that_a_reader_cancels_ends_though_standard_input_stays_open(
    server: RunningServer,
) -> None:
    async with half_written(server) as (process, reader):
        await reader.cancel("enough")
        assert await process.wait() == Exit.FAILED


async def test_signals_that_it_is_started_to_ignore_do_not_end_it(server: RunningServer) -> None:
    line = (
        """trap '' HUP INT; exec "$0" -W error -m hanzoai.pubsub.cli subscribe demo.a --count 1"""
    )
    command = ("sh", "-c", line, sys.executable)
    async with (
        PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps,
        programs.started(*command, within=LIMIT, env=variables(server)) as process,
    ):
        await until_subscribed(process)
        for number in (signal.SIGHUP, signal.SIGINT):
            process.send_signal(number)
        await ps.publish("demo.a", {"type": "n", "data": 1})
        out, _ = await process.communicate()
    assert process.returncode == Exit.OK
    assert [message["data"] for message in json.loads(out)] == [1]


async def test_lines_come_out_one_by_one_while_it_runs(server: RunningServer) -> None:
    async with (
        PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps,
        started("subscribe", "demo.a", env=variables(server)) as process,
    ):
        assert process.stdout is not None
        await until_subscribed(process)
        for n in range(3):
            await ps.publish("demo.a", {"type": "n", "data": n})
            assert json.loads(await process.stdout.readline())["data"] == n


async def test_it_ends_when_the_reader_of_the_pipe_is_gone_though_nothing_comes(
    server: RunningServer,
) -> None:
    read, write = os.pipe()
    async with started("subscribe", "demo.a", env=variables(server), out=write) as process:
        os.close(write)
        await until_subscribed(process)
        os.close(read)
        _, err = await process.communicate()
    assert process.returncode == Exit.OK
    assert err == b""


@pytest.fixture
async def impatient() -> AsyncGenerator[RunningServer]:
    """A server that disconnects clients that are silent for 1.5 seconds."""
    async with running_server(
        presence_timeout=1_500, server_ping_interval=300, presence_grace=100
    ) as running:
        yield running


async def test_the_connection_stays_open_while_the_pipe_is_not_read(
    impatient: RunningServer,
) -> None:
    read, write = os.pipe()
    as_reader = variables(impatient, HANZO_PUBSUB_TOKEN=impatient.token("reader"))
    client = PubSubClient(impatient.ws, impatient.service_token(), rest_url=impatient.http)
    try:
        async with (
            started("subscribe", "demo.a", env=as_reader, out=write) as reader,
            started("subscribe", "demo.a", env=variables(impatient)) as first,
            started("subscribe", "demo.a", env=variables(impatient)) as second,
            client as ps,
            ps.subscribe("demo.a", presence=True) as watching,
        ):
            os.close(write)
            for process in (reader, first, second):
                await until_subscribed(process)
            await ps.publish("demo.a", {"type": "n", "data": "x" * 200_000})
            # The first lines are written, and the pipe is full.
            assert await asyncio.to_thread(os.read, read, 1) == b"{"
            events, present = watching.events(), {"reader"}
            for stopped in (first, second):
                # A silent client is disconnected after 1.5 seconds; the reader is not.
                stopped.send_signal(signal.SIGSTOP)
                async for event in events:
                    if isinstance(event, PresenceChange):
                        present = {member.user_id for member in event.members}
                        if event.change in {"leave", "disconnect"}:
                            break
            assert "reader" in present
            reader.send_signal(signal.SIGINT)
            await reader.wait()
        assert reader.returncode == Exit.INTERRUPTED
    finally:
        os.close(read)


async def test_a_terminal_gets_readable_lines(server: RunningServer) -> None:
    async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps:
        await ps.publish("demo.a", {"type": "greet", "data": "hello \x1b[2J"})
    ours, theirs = pty.openpty()
    env = variables(server, TERM="xterm-256color", NO_COLOR="1")
    try:
        async with started("history", "demo.a", env=env, out=theirs) as process:
            os.close(theirs)
            await process.wait()
            line = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
    assert "demo.a greet hello \\x1b[2J" in line
    assert "{" not in line


async def test_the_program_starts_without_the_libraries_of_its_commands() -> None:
    check = (
        "import sys; before = set(sys.modules); from hanzoai.pubsub.cli.main import main;"
        "loaded = (set(sys.modules) - before) & {'importlib.metadata', 'difflib'};"
        "main(['--version']);"
        "heavy = {'pydantic', 'httpx', 'websockets', 'rich', 'asyncio', 'argparse'};"
        "loaded |= heavy & set(sys.modules);"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", check, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == 0, err
