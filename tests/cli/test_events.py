"""`publish` and `subscribe` with `--via`, with a broker that does not use the product's code."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.main import main
from hanzoai.pubsub.eventstream import EventStreamClient
from tests.python.protocols.literal_peers import Broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        yield broker


class Program:
    """Run the program in a thread; return the JSON lines of its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def run(self, *argv: str) -> tuple[int, list[Any]]:
        async with asyncio.timeout(60):
            code = await asyncio.to_thread(main, argv)
        out = self._capsys.readouterr().out
        return code, [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


async def say(broker: Broker, *events: tuple[str, bytes], after: int = 1) -> None:
    """Publish once there is a subscriber."""
    await broker.until(after)
    async with EventStreamClient(f"events://127.0.0.1:{broker.port}") as client:
        for topic, data in events:
            await client.publish(topic, data)
        await asyncio.sleep(0)


@pytest.mark.statement("P-08")
async def test_a_count_of_events_is_one_object(broker: Broker, program: Program) -> None:
    via = f"events://127.0.0.1:{broker.port}"
    running = asyncio.create_task(
        program.run("subscribe", "*", "--via", via, "--count", "3", "--timeout", "10s")
    )
    await say(broker, ("status", b"online"), ("metrics", b'{"cpu":42}'), ("raw", b"\xff\0"))
    assert await running == (
        Exit.OK,
        [
            {
                "events": [
                    {"topic": "status", "data": "online", "bytes": 6},
                    {"topic": "metrics", "data": '{"cpu":42}', "bytes": 10},
                    {"topic": "raw", "data": {"$base64": "/wA="}, "bytes": 2},
                ],
                "timeout": False,
            }
        ],
    )


@pytest.mark.statement("P-08")
async def test_a_count_that_is_not_reached_in_time_is_reported(
    broker: Broker, program: Program
) -> None:
    via = f"events://127.0.0.1:{broker.port}"
    arguments = ("subscribe", "status", "--via", via, "--count", "5", "--timeout", "300ms")
    running = asyncio.create_task(program.run(*arguments))
    await say(broker, ("status", b"online"))
    code, records = await running
    assert code == Exit.TIMEOUT
    assert records[0]["timeout"] is True
    assert len(records) == 1


async def test_a_reconnect_is_reported_with_the_next_event(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    via = f"events://127.0.0.1:{broker.port}"
    argv = ("subscribe", "status", "--via", via, "--count", "2", "--timeout", "60s")
    running = asyncio.create_task(asyncio.to_thread(main, argv))
    await say(broker, ("status", b"1"))
    async with asyncio.timeout(60):
        while len(broker.writers) > 1:  # noqa: ASYNC110 - until the broker has passed it on
            await asyncio.sleep(0.001)
    await broker.stop()
    await broker.start()
    await say(broker, ("status", b"2"), after=3)
    assert await running == Exit.OK
    captured = capsys.readouterr()
    assert [each["data"] for each in json.loads(captured.out)["events"]] == ["1", "2"]
    notes = [json.loads(line) for line in captured.err.splitlines()]
    assert [each["event"] for each in notes] == ["subscribed", "state"]


@pytest.mark.statement("P-09", "P-13")
async def test_without_a_count_events_are_lines_until_the_program_is_stopped(
    broker: Broker,
) -> None:
    via = f"events://127.0.0.1:{broker.port}"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hanzoai.pubsub.cli", "subscribe", "status", "--via", via),
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    async with asyncio.timeout(60):
        await say(broker, ("status", b"online"), ("other", b"x"), ("status", b""))
        lines = [json.loads(await program.stdout.readline()) for _ in range(2)]
        program.send_signal(signal.SIGINT)
        assert await program.wait() == Exit.INTERRUPTED
    assert lines == [
        {"topic": "status", "data": "online", "bytes": 6},
        {"topic": "status", "data": "", "bytes": 0},
    ]


async def test_without_a_count_the_end_of_the_time_is_no_failure(
    broker: Broker, program: Program
) -> None:
    via = f"events://127.0.0.1:{broker.port}"
    outcome = await program.run("subscribe", "status", "--via", via, "--timeout", "10ms")
    assert outcome == (Exit.OK, [])


@pytest.mark.statement("P-10", "P-24")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("processing complete", b"processing complete"),
        ('{"cpu":42,"mem":1024}', b'{"cpu":42,"mem":1024}'),
        ("--x", b"--x"),
        ("@FILE", b"\xff from a file"),
        ("-", b"from standard input"),
    ],
)
async def test_publish_prints_target_topic_and_size(
    broker: Broker,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    data: str,
    expected: bytes,
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_EVENT_STREAM", str(broker.port))
    (tmp_path / "data").write_bytes(b"\xff from a file")
    text = data.replace("FILE", str(tmp_path / "data"))
    stdin = io.TextIOWrapper(io.BytesIO(b"from standard input"))
    monkeypatch.setattr(sys, "stdin", stdin)
    async with (
        EventStreamClient() as client,
        client.subscribe("status") as events,
    ):
        await broker.until(1)
        code, records = await program.run(
            "publish", "status", "--via", "events://self", f"--data={text}"
        )
        assert code == Exit.OK
        assert records == [
            {"target": f"127.0.0.1:{broker.port}", "topic": "status", "bytes": len(expected)}
        ]
        assert (await events.recv(timeout=10)).data == expected


async def answer_as_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read to the end of the stream, as a server of HTTP does for an incomplete request line."""
    await reader.read()
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def test_a_publish_to_a_server_of_another_protocol_fails_with_a_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with await asyncio.start_server(answer_as_http, "127.0.0.1") as server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        arguments = ("publish", "status", "--via", f"events://{address}", "--data", "x")
        async with asyncio.timeout(60):
            code = await asyncio.to_thread(main, arguments)
    printed = capsys.readouterr()
    assert (code, printed.out) == (Exit.FAILED, "")
    assert f"{address} does not use the event stream" in printed.err
    assert "Check the URL" in printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("subscribe", "a", "b"),
        ("subscribe", "a", "--since", "5m"),
        ("subscribe", "a", "--fail-on-gap"),
        ("publish", "a", "--data", "x", "--ttl", "5"),
        ("publish", "a", "--data", "@/no/such/file"),
    ],
)
async def test_what_the_event_stream_does_not_have_is_refused(
    program: Program, arguments: tuple[str, ...]
) -> None:
    code, records = await program.run(*arguments, "--via", "events://127.0.0.1:1")
    assert (code, records) == (Exit.USAGE, [])


@pytest.mark.parametrize(
    ("via", "code"), [("events://127.0.0.1:1", Exit.CONNECTION), ("http://a", Exit.USAGE)]
)
async def test_an_address_that_cannot_be_used_has_its_exit_code(
    program: Program, via: str, code: int
) -> None:
    assert await program.run("publish", "a", "--data", "x", "--via", via) == (code, [])
    assert await program.run("subscribe", "a", "--via", via) == (code, [])
