"""`request` and `respond` against a real server."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import Message, PubSubClient, ReplyError, RequestTimeout
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.main import main
from pubsub_server.testing import RunningServer, running_server
from tests import programs
from tests.cli.processes import LIMIT, started, until_subscribed, variables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

PROGRAM = (sys.executable, "-W", "error", "-m", "hanzoai.pubsub.cli")


@pytest.fixture
async def server() -> AsyncGenerator[RunningServer]:
    async with running_server() as running:
        yield running


@pytest.fixture
async def ps(server: RunningServer) -> AsyncGenerator[PubSubClient]:
    async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as client:
        yield client


async def finished(server: RunningServer, *argv: str) -> tuple[int | None, str, list[Any]]:
    """Run a command; return exit code, standard output, and the lines of standard error."""
    async with started(*argv, env=variables(server)) as process:
        out, err = await process.communicate()
    return process.returncode, out.decode(), [json.loads(line) for line in err.splitlines()]


def price(request: Message) -> int:
    if request.data != "apple":
        raise ReplyError("There is no such product.", code="unknown_product")
    return 120


async def test_request_prints_the_reply(server: RunningServer, ps: PubSubClient) -> None:
    async with ps.respond("demo.prices", price):
        whole = await finished(server, "request", "demo.prices", '"apple"', "--id", "msg_1")
        raw = await finished(server, "request", "demo.prices", '"apple"', "--raw")
    assert (whole[0], raw) == (Exit.OK, (Exit.OK, "120\n", []))
    reply = json.loads(whole[1])
    assert (reply["data"], reply["meta"]) == (120, {"in_reply_to": "msg_1"})


async def test_request_without_a_responder_exits_with_5(server: RunningServer) -> None:
    # The timeout also limits the connection, which takes longer on a busy machine.
    code, out, notes = await finished(server, "request", "demo.prices", "1", "--timeout", "3s")
    assert (code, out) == (Exit.TIMEOUT, "")
    assert [note["code"] for note in notes] == ["request_timeout"]


async def test_an_error_of_the_responder_exits_with_1_and_names_its_code(
    server: RunningServer, ps: PubSubClient
) -> None:
    async with ps.respond("demo.prices", price):
        code, out, notes = await finished(server, "request", "demo.prices", '"moon"')
    assert (code, out) == (Exit.FAILED, "")
    assert [note["code"] for note in notes] == ["unknown_product"]


async def test_request_prints_the_replies_to_lines_in_their_order(
    server: RunningServer, ps: PubSubClient
) -> None:
    slow = asyncio.Event()

    async def answer(request: Message) -> Any:
        if request.data == 0:
            await slow.wait()  # the reply to the first line arrives last
        elif request.data == 3:
            slow.set()
            raise ReplyError("Not this one.", code="no")
        return request.data

    command = ("sh", "-c", 'printf "0\\n1\\n\\nnot JSON\\n2\\n3\\n" | exec "$@"', "sh", *PROGRAM)
    async with (
        ps.respond("demo.n", answer),
        programs.started(
            *command, "request", "demo.n", "-", "--raw", within=LIMIT, env=variables(server)
        ) as process,
    ):
        out, err = await process.communicate()
    assert (process.returncode, out) == (Exit.FAILED, b"0\n1\n2\n")
    notes = [json.loads(line) for line in err.splitlines()]
    assert [(note["line"], note["code"]) for note in notes] == [(4, "invalid_payload"), (6, "no")]


async def test_respond_answers_with_the_same_data_and_prints_each_request(
    server: RunningServer, ps: PubSubClient
) -> None:
    argv = ("respond", "demo.prices", "--reply", '{"price": 1}', "--count", "2")
    async with started(*argv, env=variables(server)) as process:
        await until_subscribed(process)
        replies = [await ps.request("demo.prices", n, id=f"msg_{n}") for n in range(2)]
        out, _ = await process.communicate()
    assert process.returncode == Exit.OK
    assert [reply.data for reply in replies] == [{"price": 1}] * 2
    records = [json.loads(line) for line in out.splitlines()]
    assert [(r["id"], r["topic"], r["request"], r["reply"]) for r in records] == [
        (f"msg_{n}", "demo.prices", n, {"price": 1}) for n in range(2)
    ]


async def test_respond_leaves_requests_beyond_its_count_to_others(
    server: RunningServer, ps: PubSubClient
) -> None:
    argv = ("respond", "demo.run", "--exec", "cat", "--count", "1")
    async with started(*argv, env=variables(server)) as process:
        await until_subscribed(process)
        requests = (ps.request("demo.run", n, timeout=2) for n in range(2))
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        out, _ = await process.communicate()
    assert sum(isinstance(outcome, RequestTimeout) for outcome in outcomes) == 1
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("cat", {"n": 1}),
        ("echo two words", "two words"),
        ("true", None),
        ("sh -c 'printf %s \"$HANZO_PUBSUB_REQUEST_TOPIC\"'", "demo.run"),
    ],
)
async def test_the_output_of_a_command_is_the_reply(
    server: RunningServer, ps: PubSubClient, command: str, reply: Any
) -> None:
    argv = ("respond", "demo.*", "--exec", command, "--count", "1")
    async with started(*argv, env=variables(server)) as process:
        await until_subscribed(process)
        assert (await ps.request("demo.run", {"n": 1})).data == reply
        await process.wait()
    assert process.returncode == Exit.OK


@pytest.mark.parametrize(
    ("command", "code", "data"),
    [
        ("sh -c 'exit 3'", "command_failed", {"exit": 3}),
        ("head -c 2000000 /dev/zero", "command_failed", None),
    ],
)
async def test_a_command_that_fails_is_an_error_of_the_reply(
    server: RunningServer, ps: PubSubClient, command: str, code: str, data: Any
) -> None:
    argv = ("respond", "demo.run", "--exec", command, "--count", "1")
    async with started(*argv, env=variables(server)) as process:
        await until_subscribed(process)
        with pytest.raises(ReplyError) as caught:
            await ps.request("demo.run", None)
        out, _ = await process.communicate()
    assert (caught.value.code, caught.value.data) == (code, data)
    assert json.loads(out)["error"]["code"] == code


async def test_a_command_that_was_removed_meanwhile_is_an_error_of_the_reply(
    server: RunningServer, ps: PubSubClient, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    argv = ("respond", "demo.run", "--exec", shlex.quote(str(program)), "--count", "1")
    async with started(*argv, env=variables(server)) as process:
        await until_subscribed(process)
        program.unlink()
        with pytest.raises(ReplyError, match="cannot be started") as caught:
            await ps.request("demo.run", None)
        await process.communicate()
    assert caught.value.code == "command_failed"


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "."])
def test_respond_names_a_program_that_it_cannot_run_before_it_connects(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("respond", "demo.run", "--exec", f"{name} --fast")) == Exit.USAGE
    error = json.loads(capsys.readouterr().err)
    assert error["message"].startswith(f"--exec names {name!r}, which is not a program")
    assert "path" in error["remedy"]


async def test_a_command_is_stopped_when_no_one_waits_for_it(
    server: RunningServer, ps: PubSubClient
) -> None:
    argv = ("respond", "demo.run", "--exec", "sh -c 'sleep 60; cat'", "--count", "1")
    message = {
        "type": "request",
        "data": None,
        "id": "msg_1",
        "ttl": 1,
        "meta": {"reply_to": "demo.run.replies.x"},
    }
    async with (
        started(*argv, env=variables(server)) as process,
        ps.subscribe("demo.run.replies.*") as replies,
    ):
        await until_subscribed(process)
        await ps.publish("demo.run", message)
        reply = await anext(replies)
        await process.wait()
    assert (process.returncode, reply.data["code"]) == (Exit.OK, "command_timeout")


async def test_respond_exits_with_5_if_too_few_requests_come(server: RunningServer) -> None:
    code, out, notes = await finished(
        server, "respond", "demo.a", "--reply", "1", "--count", "1", "--timeout", "3s"
    )
    assert (code, out) == (Exit.TIMEOUT, "")
    assert notes[-1]["event"] == "timeout"
    assert "0 of 1" in notes[-1]["message"]


async def test_respond_exits_with_4_where_it_may_not_subscribe(server: RunningServer) -> None:
    env = variables(server, HANZO_PUBSUB_TOKEN=server.token("alice"))
    async with started("respond", "chat.session.q", "--reply", "1", env=env) as process:
        _, err = await process.communicate()
    assert process.returncode == Exit.FORBIDDEN
    assert json.loads(err)["code"] == "forbidden"


@pytest.mark.parametrize(
    "argv",
    [
        ("request", "a.b", "{"),
        ("request", "a.b", "-", "--id", "x"),
        ("respond", "a.b"),
        ("respond", "a.b", "--reply", "1", "--exec", "true"),
        ("respond", "a.b", "--exec", "'"),
        ("respond", "a.b", "--exec", " "),
        ("respond", "a.b", "--reply", "nope"),
    ],
)
def test_wrong_arguments_of_requests_are_2_with_a_remedy(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == Exit.USAGE
    assert json.loads(capsys.readouterr().err)["remedy"]
