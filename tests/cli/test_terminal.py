"""What the commands print on a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.cli import publish, stream
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.main import main
from hanzoai.pubsub.cli.presence import differences
from hanzoai.pubsub.streams import Done, Stalled
from hanzoai.pubsub.values import PresenceMember
from pubsub_server.testing import RunningServer, running_server
from tests.cli.lab import HOST, Fake, token

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path
    from typing import Self

    from hanzoai.pubsub.streams import StreamEvent


class Terminal(io.StringIO):
    """A terminal; it closes when a text appears on it."""

    def __init__(self, closes_at: str | None = None) -> None:
        super().__init__()
        self._closes_at = closes_at

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._closes_at is not None and self._closes_at in self.getvalue():
            raise BrokenPipeError
        return count


class Shell:
    """Runs commands on a terminal without colours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    async def run(self, *argv: str, closes_at: str | None = None) -> tuple[int, str]:
        """Return the exit code, and the text on the screen."""
        screen = Terminal(closes_at)
        self._patch.setattr(sys, "stdout", screen)
        async with asyncio.timeout(60):
            code = await asyncio.to_thread(main, argv)
        return code, screen.getvalue()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("TERM", "dumb")
    return Shell(monkeypatch)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[RunningServer]:
    async with running_server() as running:
        monkeypatch.setenv("HANZO_PUBSUB_URL", running.ws)
        monkeypatch.setenv("HANZO_PUBSUB_REST_URL", running.http)
        monkeypatch.setenv("HANZO_PUBSUB_TOKEN", running.admin_token())
        yield running


@pytest.fixture
async def other(server: RunningServer) -> AsyncGenerator[PubSubClient]:
    client = PubSubClient(server.ws, server.service_token("other"), rest_url=server.http)
    async with client:
        yield client


async def test_topics_are_a_table(shell: Shell, other: PubSubClient) -> None:
    assert await shell.run("topics") == (Exit.OK, "no active topics\n")
    for n in range(3):
        await other.publish("demo.a", {"type": "n", "data": n})
    code, text = await shell.run("topics", "--limit", "1")
    assert code == Exit.OK
    assert [line.split() for line in text.splitlines()] == [
        ["topic", "subscribers", "messages"],
        ["demo.a", "0", "3"],
    ]


async def test_members_are_a_table(shell: Shell, other: PubSubClient) -> None:
    assert await shell.run("presence", "demo.a") == (Exit.OK, "no members\n")
    async with other.subscribe("demo.a"):
        code, text = await shell.run("presence", "demo.a")
    assert code == Exit.OK
    head, row = text.splitlines()
    assert head.split()[0] == "name"
    assert row.split()[0] == "other"


async def test_an_empty_history_says_so(shell: Shell, server: RunningServer) -> None:
    assert await shell.run("history", "demo.a") == (Exit.OK, "no messages\n")


@pytest.mark.parametrize(
    "argv",
    [
        ("history", "demo.a"),
        ("subscribe", "demo.a", "--history", "1"),
        ("subscribe", "demo.a", "--history", "1", "--count", "1"),
    ],
)
async def test_json_on_a_terminal_shows_control_characters_of_messages_as_escapes(
    shell: Shell, other: PubSubClient, argv: tuple[str, ...]
) -> None:
    await other.publish("demo.a", {"data": "a\x9b2Jb"})
    _, text = await shell.run(*argv, "--json", closes_at="}\n")
    assert '"a\\u009b2Jb"' in text


class Stalling:
    """A reader of a stream that ends after a long stall."""

    def __init__(self, *_: object, **__: object) -> None:
        self._events: Iterator[StreamEvent] = iter((Stalled(1280.042), Done("")))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        try:
            return next(self._events)
        except StopIteration:
            raise StopAsyncIteration from None

    async def final(self) -> SimpleNamespace:
        return SimpleNamespace(status="complete")


async def test_a_long_stall_of_a_stream_is_reported_in_whole_seconds(
    shell: Shell, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "StreamReader", Stalling)
    notes = Terminal()
    monkeypatch.setattr(sys, "stderr", notes)
    await shell.run("stream", "demo.answer")
    assert "no tokens for 1280 s" in notes.getvalue()


async def test_watched_members_are_a_line_for_each_change(
    shell: Shell, other: PubSubClient
) -> None:
    async with other.subscribe("demo.a"):
        await other.update_presence("demo.a", {"status": "typing"})
        _, text = await shell.run("presence", "demo.a", "--watch", closes_at="other")
    assert text.splitlines() == ["join    other (typing)"]


def member(client: str, user: str, **more: Any) -> PresenceMember:
    fields: dict[str, Any] = {"joined_at": 1, "last_seen": 1, **more}
    return PresenceMember(client_id=client, user_id=user, name=user, **fields)


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([], [member("1", "ann")], [("join", "1")]),
        ([member("1", "ann")], [], [("leave", "1")]),
        ([member("1", "ann")], [member("1", "ann"), member("2", "ann")], [("connect", "2")]),
        ([member("1", "ann"), member("2", "ann")], [member("2", "ann")], [("disconnect", "1")]),
        (
            [member("1", "ann"), member("2", "ann")],
            [],
            [("disconnect", "1"), ("leave", "2")],
        ),
        ([member("1", "ann")], [member("1", "ann", status="away")], [("update", "1")]),
        ([member("1", "ann")], [member("1", "ann", last_seen=5)], []),
    ],
    ids=["join", "leave", "connect", "disconnect", "both", "update", "seen"],
)
def test_a_user_joins_with_the_first_connection_and_leaves_with_the_last(
    before: list[PresenceMember], after: list[PresenceMember], changes: list[tuple[str, str]]
) -> None:
    found = differences(
        {each.client_id: each for each in before}, {each.client_id: each for each in after}
    )
    assert [(change, each.client_id) for change, each in found] == changes


async def test_the_summary_of_published_lines_is_one_line_of_text(
    shell: Shell, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n")))
    code, text = await shell.run("publish", "demo.a", "--data", "-", "--type", "n")
    assert (code, text) == (Exit.OK, "published 2  duplicates 0  failed 0  unknown 0\n")


async def test_counts_of_a_long_publish_appear_while_it_runs(
    shell: Shell, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(publish, "PROGRESS", 0)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\nx\n2\n")))
    _, text = await shell.run("publish", "demo.a", "--data", "-", "--type", "n")
    shown = screen.getvalue()
    assert "\r\x1b[2Kpublished 0  duplicates 0" in shown
    assert re.search(r"\r\x1b\[2K(\x1b\[[\d;]*m)?invalid_payload \(line 2\)", shown)
    assert shown.endswith("\r\x1b[2K")
    assert text == "published 2  duplicates 0  failed 1  unknown 0\n"


async def test_counts_that_appear_while_a_publish_runs_fit_into_one_row(
    shell: Shell, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(publish, "PROGRESS", 0)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n")))
    await shell.run("publish", "demo.a", "--data", "-", "--type", "n")
    shown = screen.getvalue().split("\r\x1b[2K")
    assert "published 0  duplic" in shown
    assert max(map(len, shown)) < 20


@pytest.mark.parametrize("typed", [True, False])
async def test_counts_do_not_appear_among_typed_lines_or_the_log(
    shell: Shell, server: RunningServer, monkeypatch: pytest.MonkeyPatch, typed: bool
) -> None:
    screen = Terminal()
    given = io.TextIOWrapper(io.BytesIO(b"1\n"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(publish, "PROGRESS", 0)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdin", given)
    monkeypatch.setattr(given, "isatty", lambda: typed)
    extra = () if typed else ("-v",)
    code, _ = await shell.run("publish", "demo.a", "--data", "-", "--type", "n", *extra)
    assert code == Exit.OK
    assert "\x1b[2K" not in screen.getvalue()


async def test_doctor_marks_each_check_and_names_no_cause_for_a_healthy_server(
    shell: Shell, server: RunningServer
) -> None:
    code, text = await shell.run("doctor", "--topic", "demo.a")
    assert code == Exit.OK
    lines = text.splitlines()
    assert lines[0].startswith("✓ dns       ")
    assert "\N{EN DASH} tls" in text
    assert "✓ access" in text
    assert lines[-1] == "No problems found."


async def test_doctor_prints_the_first_cause_and_what_to_do(
    shell: Shell, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", server.token("mallory"))
    code, text = await shell.run("doctor", "--topic", "chat.session.foreign")
    assert code == Exit.FAILED
    lines = text.splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("✗ access")]
    assert lines[at + 1].strip().startswith("→ ")
    assert lines[-2].startswith("First cause: chat.session.foreign: ")
    assert lines[-1].startswith("What to do:  ")


@pytest.mark.parametrize(
    ("topics", "expected"), [(1, "1 warning above."), (2, "2 warnings above.")]
)
async def test_doctor_counts_warnings(
    topics: int, expected: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", token())
    chosen = [word for n in range(topics) for word in ("--topic", f"demo.{n}")]
    async with Fake(access={"subscribe": False, "publish": True}).run() as (http, ws):
        urls = ("--url", f"ws://{HOST}:{ws}/ws", "--rest-url", f"http://{HOST}:{http}")
        code, text = await shell.run("doctor", *urls, *chosen)
    assert code == Exit.OK
    assert text.count("\n! access") == topics
    assert text.splitlines()[-1] == f"No problems found. {expected}"


async def test_doctor_reports_a_token_file_that_it_cannot_read(
    shell: Shell, server: RunningServer, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    code, text = await shell.run("doctor", "--token-file", missing)
    assert code == Exit.FAILED
    assert f"First cause: The token file {missing} cannot be read" in text
    assert "What to do:  Check --token-file." in text


async def test_doctor_refuses_an_address_of_another_protocol(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await shell.run("doctor", "--url", "ftp://pubsub.example/ws")
    assert (code, text) == (Exit.USAGE, "")
    note = json.loads(capsys.readouterr().err)
    assert "`url`" in note["message"]
    assert "ws://" in note["remedy"]
