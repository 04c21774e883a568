"""Every example program runs with a real server and prints the documented output."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PubSubClient
from pubsub_server.auth.dev_tokens import mint
from pubsub_server.testing import RunningServer, running_server
from tests import programs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 100


@pytest.fixture
async def server() -> AsyncGenerator[RunningServer]:
    async with running_server() as running:
        yield running


def variables(server: RunningServer, token: str | None = None) -> dict[str, str]:
    return {
        **os.environ,
        "HANZO_PUBSUB_URL": server.ws,
        "HANZO_PUBSUB_REST_URL": server.http,
        "HANZO_PUBSUB_TOKEN": token or server.service_token(),
    }


def started(
    name: str, *arguments: str, env: dict[str, str]
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    command = (sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / name), *arguments)
    return programs.started(*command, within=LIMIT, env=env)


async def output(process: asyncio.subprocess.Process) -> list[str]:
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert b"ResourceWarning" not in err, err.decode()
    return out.decode().splitlines()


async def run(name: str, *arguments: str, env: dict[str, str]) -> list[str]:
    async with started(name, *arguments, env=env) as process:
        return await output(process)


async def test_stream_tokens_prints_the_answer(server: RunningServer) -> None:
    lines = await run("stream_tokens.py", env=variables(server))
    assert [line.strip() for line in lines] == [
        "A topic is a name that many may listen to and few may speak on."
    ]


async def test_watch_agents_sees_agents_that_appear_later(server: RunningServer) -> None:
    env = variables(server, server.token(agents=["bot1", "bot2"]))
    async with (
        started("watch_agents.py", "2", env=env) as process,
        PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps,
    ):
        assert process.stderr is not None
        # Before that line, asyncio's debug mode may report the first use and the first answer: they
        # import modules and build types, which takes long on a busy machine.
        while (line := await process.stderr.readline()) != b"watching\n":
            assert line.startswith(b"Executing <"), line
        for bot in ("bot1", "bot2"):
            await ps.publish(f"agent.{bot}.events", {"type": "agent.status", "data": {"ok": 1}})
        assert await output(process) == [
            "agent.bot1.events agent.status {'ok': 1}",
            "agent.bot2.events agent.status {'ok': 1}",
        ]


async def test_shared_session_shows_who_joins_types_and_leaves(server: RunningServer) -> None:
    second = server.service_token(user="second")
    lines = await run("shared_session.py", env={**variables(server), "SECOND_TOKEN": second})
    assert "join: 2 present, here, here" in lines
    assert "update: 2 present, here, typing" in lines
    assert lines[-1] == "leave: 1 present, here"
    lines = await run("shared_session.py", env=variables(server))
    assert "connect: 2 present, here, here" in lines
    assert lines[-1] == "disconnect: 1 present, here"


async def test_resume_after_restart_neither_skips_nor_repeats(
    server: RunningServer, tmp_path: Path
) -> None:
    env, file = variables(server), str(tmp_path / "positions.json")
    async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps:
        for number in range(9):
            await ps.publish("demo.resume", {"type": "order", "data": {"number": number}})
    first = await run("resume_after_restart.py", file, "5", env=env)
    second = await run("resume_after_restart.py", file, "4", env=env)
    assert first + second == [str(number) for number in range(9)]


@pytest.mark.parametrize("name", ["resume_after_restart.py", "token_rotation.py"])
async def test_a_program_that_takes_arguments_prints_its_usage_without_them(
    server: RunningServer, name: str
) -> None:
    async with started(name, env=variables(server)) as process:
        _, err = await process.communicate()
    assert process.returncode == 1
    assert err.startswith(f"usage: python {name} ".encode())


async def test_batch_publish_prints_one_result_per_message(server: RunningServer) -> None:
    lines = await run("batch_publish.py", env=variables(server))
    assert [line.split()[0] for line in lines] == ["published"] * 3 + ["and"]


async def test_request_reply_prints_a_reply_and_the_error_of_the_responder(
    server: RunningServer,
) -> None:
    assert await run("request_reply.py", env=variables(server)) == [
        "an apple costs 120",
        "unknown_product: There is no moon.",
    ]


async def test_blocking_client_reads_its_jobs_in_order(server: RunningServer) -> None:
    assert await run("blocking_client.py", env=variables(server)) == ["job 0", "job 1", "job 2"]


async def test_token_rotation_stays_connected() -> None:
    # A busy machine needs time for the next token after each notice.
    async with running_server(expiring_notice=3_000) as server:
        key = server.server.dev_key
        assert key is not None

        async def issue(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(mint(key, "alice", ttl=6).encode())
            writer.close()

        async with await asyncio.start_server(issue, "127.0.0.1", 0) as issuer:
            port = issuer.sockets[0].getsockname()[1]
            command = ("bash", "-c", f"cat </dev/tcp/127.0.0.1/{port}")
            lines = await run("token_rotation.py", *command, env=variables(server))
    assert lines == [
        "another token, because: connect",
        "another token, because: expiring",
        "another token, because: expiring",
        "connected after 2 rotations",
    ]


async def test_gap_handling_prints_what_was_missed() -> None:
    async with running_server(history_max_messages=5) as server:
        lines = await run("gap_handling.py", env=variables(server))
    assert lines[0].startswith("missed 14 (")
    assert lines[1:] == [f"counter is {value}" for value in range(16, 21)]


async def test_history_then_live_has_no_hole_and_no_repetition(server: RunningServer) -> None:
    lines = await run("history_then_live.py", env=variables(server))
    assert lines == ["one", "two", "three", "four", "five", "the newest: four five"]


async def test_with_server_is_a_test_that_passes() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        str(EXAMPLES / "test_with_server.py"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()
    assert b"1 passed" in out


def test_every_example_has_a_test_and_fits_on_a_page() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for example in sorted(EXAMPLES.glob("*.py")):
        if example.name == "__init__.py":
            continue
        assert f'"{example.name}"' in here, example.name
        code = [line for line in example.read_text(encoding="utf-8").splitlines() if line.strip()]
        assert len(code) <= 45, f"{example.name} has {len(code)} lines"
