"""The demonstration: its last line is measured, and any difference makes it fail."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from examples.chat.server import start
from examples.demo import spark_job
from examples.demo.cast import measure, sabotage
from examples.demo.screen import draw, sparkline
from examples.demo.stage import Happening, Stage
from examples.demo.story import load_words
from hanzoai.pubsub.values import Message
from tests import programs
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

DEMO = Path(__file__).parents[2] / "examples" / "demo"
LIMIT = 100
pytestmark = pytest.mark.timeout(LIMIT + 20)


def started(
    *arguments: str, out: int = asyncio.subprocess.PIPE, within: float = LIMIT
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    command = (sys.executable, str(DEMO), *arguments)
    return programs.started(*command, within=within, out=out, env=env)


async def _read_output(process: asyncio.subprocess.Process) -> str:
    """Return its error message after it was stopped."""
    process.terminate()
    _, err = await process.communicate()
    return err.decode()


async def until_alone(process: asyncio.subprocess.Process) -> None:
    """Wait until all processes that it started have ended.

    A child of a bundler that was killed ends a moment later, and init may collect it late.
    """

    def alone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    async with asyncio.timeout(LIMIT):
        await until(alone)


async def test_every_reader_sees_every_word_through_three_cuts_and_two_rotations() -> None:
    async with started("--fast", "--words", "700") as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    lines = out.decode().splitlines()
    assert lines[-1] == (
        "published 700 · received 700 · lost 0 · twice 0 · reconnects 3 · rotations 2"
    )
    for sign in (
        "alice joined",
        "alice is typing",
        "bob left",
        "cut at word",
        "700 words from history",
    ):
        assert sign in out.decode()
    await until_alone(process)


async def test_a_history_that_is_emptied_during_a_cut_loses_no_word() -> None:
    async with started("--fast", "--words", "700", "--lose") as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "the history is emptied while the reader is disconnected" in out.decode()
    assert "published 700 · received 700 · lost 0 · twice 0" in out.decode().splitlines()[-1]
    await until_alone(process)


class Door:
    """A fault interface after which the reader reconnects immediately."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.faults: list[str] = []

    async def fault(self, kind: str, **more: object) -> None:
        self.faults.append(kind)
        self.stage.reader.reconnects += 1
        self.stage.go_on()


async def test_a_reader_that_came_back_late_is_cut_though_the_last_words_wait_for_that() -> None:
    stage = Stage("demo", total=100)
    for number in range(92):
        stage.ledger.write(f"{number} ", 0.0)
    door: Any = Door(stage)
    reader: Any = None
    async with asyncio.timeout(60):
        await sabotage(door, stage, reader, (0.46, 0.8), lose=False)
    assert door.faults == ["drop", "drop"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
async def test_a_demonstration_that_stays_waits_for_a_browser_and_ends_cleanly_on_a_signal(
    name: str,
) -> None:
    async with started("--fast", "--words", "300", "--plain", "--stay") as process:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"chat: http://127.0.0.1:")
        url = (await process.stdout.readline()).decode().removeprefix("in a browser: ").strip()
        assert b"when you open the page" in await process.stdout.readline()
        async with http_client(base_url=url, trust_env=False) as browser:
            page = await browser.get("")
            assert "Hanzo PubSub demonstration" in page.text
            assert (await browser.get("page.js")).status_code == 200
            shown = (await browser.get("show")).json()
            assert shown["total"] == 300
            while not (line := await process.stdout.readline()).startswith(b"published "):
                assert line
            assert line.startswith(b"published 300 "), await _read_output(process)
            assert b"stays" in await process.stdout.readline()
            assert (await browser.get("progress")).json()["done"] is True
        process.send_signal(getattr(signal, name))
        _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    await until_alone(process)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
async def test_an_interrupted_show_leaves_no_server_behind(name: str) -> None:
    async with started("--plain") as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(getattr(signal, name))
        await process.communicate()
    assert process.returncode == 130
    await until_alone(process)


async def test_the_picture_is_drawn_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        async with started("--fast", "--words", "300", out=theirs) as process:
            os.close(theirs)
            drawn = await asyncio.to_thread(_read_all, ours)
            await process.wait()
    finally:
        os.close(ours)
    assert process.returncode == 0, drawn[-2_000:]
    assert "as the reader sees it" in drawn
    assert "received 300 · lost 0" in drawn.splitlines()[-1]


def _read_all(descriptor: int) -> str:
    data = b""
    while True:
        try:
            found = os.read(descriptor, 65536)
        except OSError:
            found = b""
        if not found:
            return data.decode(errors="replace")
        data += found


@pytest.mark.parametrize("arguments", [("--words", "99"), ("--words", "2001")])
async def test_too_few_and_too_many_words_are_refused(arguments: tuple[str, ...]) -> None:
    async with started(*arguments) as process:
        _, err = await process.communicate()
    assert process.returncode == 2
    assert b"100 to 2,000" in err


@pytest.mark.parametrize("lacking", ["java", "pyspark"])
def test_missing_features_of_spark_are_reported_in_one_line(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if lacking == "java":
        monkeypatch.setenv("PATH", "")
    else:
        monkeypatch.setattr(spark_job, "find_spec", {}.get)
    output = spark_job.missing()
    assert output is not None
    assert "install" in output
    assert "\n" not in output


JOB = """
import os
from hanzoai.pubsub.spark import PubSubConfig, publish_partition
reports = [
    ("spark.job.progress", {"job": 0, "state": "running", "done": 3, "tasks": 24}),
    ("spark.job.ended", {"job": 0, "state": "succeeded", "done": 24, "tasks": 24}),
    ("spark.job.ended", {"job": 1, "state": "succeeded", "done": 4, "tasks": 28}),
    ("spark.run.ended", {"state": "ended", "seconds": 7.4}),
]
rows = [{"topic": "demo.jobs.nightly", "type": type, "data": data} for type, data in reports]
publish_partition(rows, PubSubConfig())
"""


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        (
            JOB,
            [
                "  job 0 running: 3/24",
                "  job 0 succeeded: 24/24",
                "  job 1 succeeded: 4/28 tasks, the other results existed",
                "  ended after 7 s",
            ],
        ),
        ("raise SystemExit(3)", ["  Spark could not run the job (exit code 3)"]),
    ],
)
async def test_a_job_on_spark_is_watched_at_the_end(
    job: str,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    program = tmp_path / "job.py"
    program.write_text(job)
    monkeypatch.setattr(spark_job, "JOB", program)
    async with start() as server:
        await spark_job.show(server)
    lines = [line.removesuffix(" tasks") for line in capsys.readouterr().out.splitlines()]
    assert lines == ["a Spark job, watched on demo.jobs.nightly:", *shown]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36), (200, 60)])
def test_a_picture_fills_its_terminal_exactly(width: int, height: int) -> None:
    stage = _played()
    console = Console(width=width, height=height)
    with console.capture() as captured:
        console.print(draw(stage, width, height))
    lines = captured.get().rstrip("\n").split("\n")
    assert len(lines) == height
    assert all(len(line) == width for line in lines)
    for sign in ("✂", "⟳", "┄", "alice", "typing …", "behind", "p99"):
        assert sign in captured.get()


def test_the_sparkline_shows_the_slowest_message_of_each_half_second() -> None:
    bars = sparkline([(0.1, 0.001), (0.2, 1.0), (0.6, 0.001)], now=1.4, width=10)
    assert bars == ["█", "▁", " "]


def test_a_latency_is_the_age_of_a_token_message_on_arrival() -> None:
    stage = Stage("chat.session.demo", 2000)
    published = int(time.time() * 1000) - 3_000
    for kind in ("token", "snapshot"):
        message = Message(id=kind, topic=stage.topic, type=kind, data="w", timestamp=published)
        measure(stage, stage.reader, message)
    [latency] = stage.reader.latencies
    assert latency >= 3
    assert [seconds for _, seconds in stage.lag] == [latency]


def _played() -> Stage:
    stage = Stage("chat.session.demo", 2000)
    stage.began = time.perf_counter() - 20
    for word in load_words(900):
        at = stage.began + word.index / 50
        stage.ledger.write(word.content, at)
        stage.pace.append(at)
        stage.ledger.take(stage.observer, stage.ledger.text)
        stage.show(stage.ledger.take(stage.reader, stage.ledger.text))
        stage.lag.append((at - stage.began, 0.004))
    stage.state = "connected"
    stage.members = [("alice", "typing"), ("reader", "reading")]
    stage.happenings += [
        Happening(5.0, "cut", "cut at word 10"),
        Happening(9.0, "back", "back, 9 words to replay"),
        Happening(12.0, "rotated", "new token at word 600"),
    ]
    return stage
