"""The commands with a real server: their output and exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.cli import subscribe
from hanzoai.pubsub.cli.exits import Exit
from hanzoai.pubsub.cli.main import main
from hanzoai.pubsub.cli.output import Output
from hanzoai.pubsub.cli.publish import IN_FLIGHT, in_flight
from hanzoai.pubsub.cli.writer import Writer
from hanzoai.pubsub.streams import stream_writer
from pubsub_server.testing import RunningServer, running_server
from tests.cli import lab
from tests.cli.processes import hold_answers
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from pathlib import Path

    import respx


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines()]

    def note(self, event: str) -> dict[str, Any]:
        return next(note for note in self.notes if note["event"] == event)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[RunningServer]:
    async with running_server(history_max_messages=1000) as running:
        monkeypatch.setenv("HANZO_PUBSUB_URL", running.ws)
        monkeypatch.setenv("HANZO_PUBSUB_REST_URL", running.http)
        monkeypatch.setenv("HANZO_PUBSUB_TOKEN", running.service_token())
        yield running


@pytest.fixture
async def ps(server: RunningServer) -> AsyncGenerator[PubSubClient]:
    client = PubSubClient(server.ws, server.service_token("other"), rest_url=server.http)
    async with client:
        yield client


@contextmanager
def open_input(text: str) -> Generator[io.TextIOWrapper]:
    """Standard input whose writer stays open after the text."""
    reader, writer = os.pipe()
    try:
        assert os.write(writer, text.encode()) == len(text), "the pipe has room for all of it"
        with os.fdopen(reader) as stdin:
            yield stdin
    finally:
        os.close(writer)


@pytest.fixture
def expires_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let `--timeout 1h` of a command expire once the command has done something.

    A timeout of a second would expire too early on a busy machine.
    """
    limits: list[asyncio.Timeout] = []
    begin = asyncio.timeout

    def timeout(delay: float | None) -> asyncio.Timeout:
        limit = begin(delay)
        # Less than an hour: the connection took some time.
        if delay is not None and 3_500 < delay <= 3_600:
            limits.append(limit)
        return limit

    def expire() -> None:
        while limits:
            limits.pop().reschedule(asyncio.get_running_loop().time())

    def expires_after(text: str) -> None:
        """Expire once the command has printed or collected a record that contains the text.

        Or once it has made a note of this event.
        """
        tell = Output.note

        def note(self: Output, event: str, *args: Any, **more: Any) -> None:
            tell(self, event, *args, **more)
            if event == text:
                expire()

        monkeypatch.setattr(Output, "note", note)
        for owner, name in ((Writer, "write"), (subscribe._Reader, "_print")):
            do = getattr(owner, name)

            async def call(self: object, record: object, do: Any = do) -> None:
                await do(self, record)
                if text in str(record):
                    expire()

            monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(asyncio, "timeout", timeout)
    return expires_after


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Outcome]]:
    async def call(*argv: str, stdin: str | io.TextIOWrapper | None = None) -> Outcome:
        if isinstance(stdin, io.TextIOWrapper):
            monkeypatch.setattr(sys, "stdin", stdin)
        elif stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        async with asyncio.timeout(60):
            # Python 3.11 may fail to compile modules in several threads at the same time.
            import_module(f"hanzoai.pubsub.cli.{argv[0]}")
            code = await asyncio.to_thread(main, argv)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


async def test_publish_prints_what_the_server_answered(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    first = await run("publish", "demo.a", "--data", '{"x": 1}', "--id", "msg_1", "--type", "t")
    again = await run("publish", "demo.a", "--data", '{"x": 1}', "--id", "msg_1", "--type", "t")
    assert first.code == again.code == Exit.OK
    assert first.records[0]["id"] == "msg_1"
    assert [outcome.records[0]["duplicate"] for outcome in (first, again)] == [False, True]
    history = await run("history", "demo.a")
    assert [(m["id"], m["type"], m["data"]) for m in history.records] == [("msg_1", "t", {"x": 1})]


async def test_publish_rejects_an_empty_type(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    outcome = await run("publish", "demo.a", "--data", "1", "--type", "")
    assert outcome.code == Exit.USAGE
    assert outcome.note("error")["message"] == "argument --type: give 1 to 128 characters, not 0"


async def test_publish_reads_its_data_from_a_file(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]], tmp_path: Path
) -> None:
    (tmp_path / "data.json").write_text('{"from": "file"}')
    await run("publish", "demo.a", "--data", f"@{tmp_path / 'data.json'}")
    assert (await run("history", "demo.a")).records[0]["data"] == {"from": "file"}


async def test_publish_takes_one_json_per_line_in_order(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    lines = "".join(f"{n}\n" for n in range(80))
    outcome = await run("publish", "demo.a", "--data", "-", "--type", "n", stdin=lines)
    assert outcome.records == [{"published": 80, "duplicates": 0, "failed": 0, "unknown": 0}]
    history = await run("history", "demo.a", "--limit", "500")
    assert [m["data"] for m in history.records] == list(range(80))


async def test_a_bad_line_is_reported_with_its_number_and_the_next_one_is_read(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    lines = '{"data": 1, "id": "a"}\n\nnot json\n{"type": "t"}\n{"data": 2, "extra": 0}\n'
    lines += '{"data": 1, "id": "a"}\n{"data": 3}\n'
    outcome = await run("publish", "demo.a", "--data", "-", stdin=lines)
    assert outcome.code == Exit.FAILED
    assert outcome.records == [{"published": 2, "duplicates": 1, "failed": 3, "unknown": 0}]
    assert [note["line"] for note in outcome.notes] == [3, 4, 5]
    assert all(note["remedy"] for note in outcome.notes)
    assert "not json" not in outcome.err, "the line itself is not repeated"


async def test_publish_stops_at_a_bad_line_when_asked_to(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    with open_input('{"data": 1}\nx\n{"data": 2}\n') as stdin:
        outcome = await run("publish", "demo.a", "--data", "-", "--on-error", "stop", stdin=stdin)
    assert outcome.code == Exit.FAILED
    assert outcome.records == [{"published": 1, "duplicates": 0, "failed": 1, "unknown": 0}]


def test_lines_in_flight_wait_for_a_part_of_their_timeout_at_the_rate_of_the_server() -> None:
    assert in_flight(10, 10.0) == 25
    assert in_flight(1, 1.0) == 1
    assert in_flight(10_000, 60.0) == in_flight(None, 1.0) == IN_FLIGHT


async def test_publish_takes_longer_than_the_timeout_of_a_line_at_the_rate_of_the_server(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", server.token())
    # 10 at once, then 10 per second: the last one is sent after 6.5 s.
    command = ("publish", "demo.a", "--data", "-", "--type", "n", "--timeout", "5s")
    outcome = await run(*command, stdin="1\n" * 75)
    assert outcome.records == [{"published": 75, "duplicates": 0, "failed": 0, "unknown": 0}]
    assert outcome.code == Exit.OK


async def test_publish_ends_at_once_where_every_line_would_be_forbidden(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", server.token())
    with open_input("1\n" * 2000) as stdin:
        outcome = await run("publish", "system.x", "--data", "-", "--type", "n", stdin=stdin)
    assert outcome.code == Exit.FORBIDDEN
    counts = outcome.records[0]
    assert counts["published"] == 0
    assert counts["failed"] >= 1
    # Lines that it has sent without receiving their answers are unknown, the others have failed.
    assert counts["failed"] + counts["unknown"] <= IN_FLIGHT
    assert [note["code"] for note in outcome.notes] == ["forbidden"], "reported once"


async def test_publish_counts_a_line_without_an_answer_in_time_as_unknown(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold_answers(server, monkeypatch)
    command = ("publish", "demo.a", "--data", "-", "--type", "n", "--timeout", "2s")
    outcome = await run(*command, stdin="1\n")
    assert outcome.code == Exit.FAILED
    assert outcome.records == [{"published": 0, "duplicates": 0, "failed": 0, "unknown": 1}]
    assert "may have been published" in outcome.note("error")["message"]


@pytest.mark.parametrize("command", ["history", "doctor"])
async def test_a_variable_that_is_probably_misspelt_is_named_if_there_is_no_token(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.delenv("HANZO_PUBSUB_TOKEN")
    monkeypatch.setenv("HANZO_PUBSUB_TOKN", "secret")
    arguments = ("history", "demo.a") if command == "history" else ("doctor",)
    outcome = await run(*arguments)
    assert "HANZO_PUBSUB_TOKN is set: did you mean HANZO_PUBSUB_TOKEN?" in outcome.out + outcome.err
    assert "secret" not in outcome.out + outcome.err


async def test_subscribe_with_count_prints_one_array(
    ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    for n in range(3):
        await ps.publish("demo.a", {"type": "n", "data": n})
    outcome = await run("subscribe", "demo.*", "--count", "3", "--since", "1h")
    assert outcome.code == Exit.OK
    assert [m["data"] for m in json.loads(outcome.out)] == [0, 1, 2]


async def test_subscribe_prints_what_it_has_when_the_time_is_over(
    ps: PubSubClient,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
) -> None:
    expires_after("only")
    await ps.publish("demo.a", {"type": "n", "data": "only"})
    outcome = await run("subscribe", "demo.a", "--count", "2", "--history", "9", "--timeout", "1h")
    assert outcome.code == Exit.TIMEOUT
    assert [m["data"] for m in json.loads(outcome.out)] == ["only"]
    assert "1 of 2" in outcome.note("timeout")["message"]


async def test_subscribe_without_count_succeeds_when_the_time_is_over(
    ps: PubSubClient,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
) -> None:
    expires_after("demo.a")
    await ps.publish("demo.a", {"type": "n", "data": "x\ny"})
    outcome = await run("subscribe", "demo.a", "--history", "9", "--timeout", "1h")
    assert outcome.code == Exit.OK
    assert [m["data"] for m in outcome.records] == ["x\ny"]


async def test_subscribe_reports_which_of_its_topics_were_granted_and_which_denied(
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
) -> None:
    expires_after("denied")
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", server.token("alice"))
    outcome = await run("subscribe", "demo.x", "chat.session.q", "--timeout", "1h")
    assert outcome.code == Exit.OK
    assert outcome.note("subscribed")["topics"] == ["demo.x"]
    denied = outcome.note("denied")
    assert (denied["topic"], denied["code"]) == ("chat.session.q", "forbidden")


async def test_subscribe_reports_a_server_that_shuts_down_as_information(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
) -> None:
    expires_after("state")
    running = asyncio.ensure_future(run("subscribe", "demo.a", "--timeout", "1h"))
    async with asyncio.timeout(60):
        await until(lambda: server.stats.subscriptions, 1)
        await server.hub.drain(30, 0, asyncio.Event())
    outcome = await running
    assert outcome.code == Exit.OK
    assert outcome.note("state")["state"] == "reconnecting"
    assert outcome.note("info")["code"] == "going_away"
    assert not {"warning", "error"} & {note["event"] for note in outcome.notes}


async def test_subscribe_prints_the_data_alone_with_raw(
    ps: PubSubClient,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
) -> None:
    expires_after('{"k"')
    await ps.publish("demo.a", {"type": "n", "data": "plain"})
    await ps.publish("demo.a", {"type": "n", "data": {"k": [1]}})
    outcome = await run("subscribe", "demo.a", "--history", "9", "--raw", "--timeout", "1h")
    assert outcome.out.splitlines() == ["plain", '{"k":[1]}']


async def test_subscribe_continues_behind_a_position(
    ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    seqs = [(await ps.publish("demo.a", {"type": "n", "data": n})).seq for n in range(4)]
    outcome = await run("subscribe", "demo.a", "--after", f"demo.a={seqs[1]}", "--count", "2")
    assert [m["data"] for m in json.loads(outcome.out)] == [2, 3]


async def test_a_gap_is_reported_on_standard_error_and_fails_only_on_request(
    run: Callable[..., Awaitable[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_server(history_max_messages=3) as server:
        monkeypatch.setenv("HANZO_PUBSUB_URL", server.ws)
        monkeypatch.setenv("HANZO_PUBSUB_REST_URL", server.http)
        monkeypatch.setenv("HANZO_PUBSUB_TOKEN", server.service_token())
        async with PubSubClient(server.ws, server.service_token(), rest_url=server.http) as ps:
            seqs = [(await ps.publish("demo.a", {"type": "n", "data": n})).seq for n in range(9)]
        command = ("subscribe", "demo.a", "--after", f"demo.a={seqs[0]}", "--count", "3")
        outcome = await run(*command)
        strict = await run(*command, "--fail-on-gap")
    assert outcome.code == Exit.OK
    assert strict.code == Exit.GAP
    assert [m["data"] for m in json.loads(outcome.out)] == [6, 7, 8]
    assert outcome.note("gap")["missed"] == 5
    assert outcome.note("end")["gaps"] == 1


async def test_subscribe_prints_presence_on_request(
    ps: PubSubClient,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
) -> None:
    expires_after('"user_id":"other"')
    async with ps.subscribe("demo.a"):
        outcome = await run("subscribe", "demo.a", "--presence", "--timeout", "1h")
    changes = [record for record in outcome.records if record["event"] == "presence"]
    assert any(len(change["members"]) == 2 for change in changes)


async def test_history_pages_back_before_an_id_and_behind_a_position(
    ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    sent = [await ps.publish("demo.a", {"type": "n", "data": n}) for n in range(5)]
    before = await run("history", "demo.a", "--before", sent[3].id, "--limit", "2")
    position = await run("history", "demo.a", "--before-seq", str(sent[3].seq), "--limit", "2")
    assert position == before
    after = await run("history", "demo.a", "--after", str(sent[1].seq))
    assert [m["data"] for m in before.records] == [1, 2]
    assert [m["data"] for m in after.records] == [2, 3, 4]


async def test_history_rejects_an_id_that_no_retained_message_has(
    ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    oldest = await ps.publish("demo.a", {"type": "n", "data": 0})
    assert (await run("history", "demo.a", "--before", oldest.id)).code == Exit.OK
    outcome = await run("history", "demo.a", "--before", "nope")
    error = outcome.note("error")
    assert (outcome.code, outcome.out) == (Exit.USAGE, "")
    assert error["message"].startswith("--before is 'nope', and no message in the history")
    assert "`hanzo-pubsub history demo.a`" in error["remedy"]


async def test_history_knows_an_id_whose_older_messages_the_time_excludes(
    ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    sent = [await ps.publish("demo.a", {"type": "n", "data": n}) for n in range(2)]
    since = str(sent[1].timestamp)
    assert (await run("history", "demo.a", "--before", sent[1].id, "--since", since)).records == []


async def test_a_negative_time_is_rejected_with_what_to_write_instead(
    run: Callable[..., Awaitable[Outcome]],
) -> None:
    outcome = await run("history", "demo.a", "--since", "-1h")
    assert outcome.code == Exit.USAGE
    assert "'-1h' is not a time; write 5m (ago)" in outcome.note("error")["message"]


async def test_history_rejects_an_id_without_reading_the_whole_history(
    server: RunningServer, ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    messages = [{"topic": "demo.a", "type": "n", "data": n} for n in range(250)]
    await ps.publish_many(messages, via="rest")
    assert (await run("history", "demo.a", "--before", "nope")).code == Exit.USAGE
    async with http_client() as client:
        metrics = (await client.get(f"{server.http}/metrics")).text
    (requests,) = re.findall(
        r'^hanzo_pubsub_http_requests_total\{.*/history".* (\S+)$', metrics, re.M
    )
    assert float(requests) == 3


async def test_history_before_the_oldest_message_is_empty_if_the_server_has_no_positions(
    respx_mock: respx.MockRouter,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Awaitable[Outcome]],
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_URL", "ws://127.0.0.1:21057/ws")
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "t0ken")
    history = "http://127.0.0.1:21057/v1/topics/demo.a/history"
    newest = {"id": "m2", "topic": "demo.a", "type": "n", "timestamp": 2, "data": 2}
    respx_mock.get(history, params={"before": "m1"}).respond(json={"messages": []})
    respx_mock.get(history).respond(json={"messages": [newest], "has_more": True})
    outcome = await run("history", "demo.a", "--before", "m1")
    assert (outcome.code, outcome.records) == (Exit.OK, [])


async def test_presence_lists_one_member_per_line(
    ps: PubSubClient, run: Callable[..., Awaitable[Outcome]]
) -> None:
    async with ps.subscribe("demo.a"):
        outcome = await run("presence", "demo.a")
    assert [member["user_id"] for member in outcome.records] == ["other"]


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_presence_watch_prints_who_joins_except_itself(
    ps: PubSubClient,
    run: Callable[..., Awaitable[Outcome]],
    expires_after: Callable[[str], None],
    transport: str,
) -> None:
    expires_after('"join"')
    async with ps.subscribe("demo.a"):
        outcome = await run(
            "presence", "demo.a", "--watch", "--timeout", "1h", "--transport", transport
        )
    assert [(r["change"], r["member"]["user_id"]) for r in outcome.records] == [("join", "other")]


async def test_topics_needs_an_administrator(
    server: RunningServer,
    ps: PubSubClient,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ps.publish("demo.a", {"type": "n", "data": 1})
    assert (await run("topics")).code == Exit.FORBIDDEN
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", server.admin_token())
    outcome = await run("topics", "--prefix", "demo.")
    assert [(info["topic"], info["messages"]) for info in outcome.records] == [("demo.a", 1)]


async def test_a_refused_token_is_3_a_forbidden_topic_4_and_no_server_6(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forbidden = await run("history", "user.bob.x")
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "forged")
    refused = [
        await run("history", "demo.a"),
        await run("subscribe", "demo.a"),
        await run("publish", "demo.a", "--data", "1"),
    ]
    nobody = await run("history", "demo.a", "--url", "ws://127.0.0.1:1/ws", "--timeout", "30s")
    assert forbidden.code == Exit.FORBIDDEN
    assert [outcome.code for outcome in refused] == [Exit.AUTH] * 3
    assert nobody.code == Exit.CONNECTION
    for outcome in (forbidden, *refused, nobody):
        assert outcome.note("error")["remedy"]
        assert "forged" not in outcome.err


async def test_a_token_file_is_read_without_the_space_around_the_token(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("HANZO_PUBSUB_TOKEN")
    file = tmp_path / "token"
    missing = await run("history", "demo.a", "--token-file", str(file))
    file.write_text(f"  {server.service_token()}\n")
    assert (await run("history", "demo.a", "--token-file", str(file))).code == Exit.OK
    assert missing.code == Exit.AUTH
    assert (await run("history", "demo.a")).code == Exit.AUTH, "no token at all"


async def test_a_token_among_the_arguments_works_and_is_warned_about(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    secret = server.service_token()
    outcome = await run("history", "demo.a", "--token", secret)
    assert outcome.code == Exit.OK
    assert "visible" in outcome.note("warning")["message"]
    assert secret not in outcome.err


async def test_doctor_finds_a_real_server_well_and_a_forbidden_topic(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    well = await run("doctor", "--topic", "demo.a")
    assert well.code == Exit.OK, well.out
    assert well.records[0]["cause"] is None
    ill = await run("doctor", "--topic", "demo.a", "--topic", "user.bob.x")
    assert ill.code == Exit.OK, "a service may publish there"
    forbidden = await run("doctor", "--topic", "user.bob.x", "--token", server.token("alice"))
    assert forbidden.code == Exit.FAILED
    assert forbidden.records[0]["cause"]["code"] == "forbidden"
    assert "user.<user_id>" in forbidden.records[0]["cause"]["message"]


@pytest.mark.parametrize(
    ("ttl", "user", "code"), [(-60, "alice", "token_expired"), (60, "", "token_invalid")]
)
async def test_doctor_tells_tokens_apart_that_a_real_server_refuses(
    server: RunningServer,
    run: Callable[..., Awaitable[Outcome]],
    ttl: int,
    user: str,
    code: str,
) -> None:
    token = server.token(user, ttl=ttl) if user else "ey.forged.token"
    outcome = await run("doctor", "--token", token)
    assert outcome.records[0]["cause"]["code"] == code


@pytest.mark.parametrize(
    "command",
    [
        ("subscribe", "demo.a"),
        ("respond", "demo.a", "--reply", "1"),
        ("presence", "demo.a", "--watch"),
    ],
)
async def test_a_timeout_before_the_first_connection_is_6(
    run: Callable[..., Awaitable[Outcome]], command: tuple[str, ...]
) -> None:
    async with lab.listener(lab.swallow) as port:
        where = ("--url", f"ws://127.0.0.1:{port}/ws", "--token", lab.token())
        outcome = await run(*command, *where, "--timeout", "100ms")
    assert outcome.code == Exit.CONNECTION
    assert outcome.note("error")["message"].startswith("Not connected within 0.1 s")


@pytest.mark.parametrize("end", ["", "\n"])
async def test_stream_writes_standard_input_and_prints_it_with_one_line_break_at_the_end(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]], end: str
) -> None:
    text = f"Hello wörld \U0001f468\u200d\U0001f469 漢字\n\x1b[31mred{end}"
    written = await run("stream", "demo.answer", "--write", "--id", "r1", stdin=text)
    assert (written.code, written.out, written.err) == (Exit.OK, "", "")
    raw = await run("stream", "demo.answer", "--raw")
    assert (raw.code, raw.out) == (Exit.OK, f"{text.removesuffix(end)}\n")
    assert raw.note("subscribed")["topics"] == ["demo.answer"]
    events = (await run("stream", "demo.answer", "--id", "r1")).records
    assert [event["event"] for event in events] == ["started", "delta", "done"]
    assert events[-1]["text"] == text


async def test_a_stream_of_a_denied_topic_is_not_reported_as_subscribed(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]]
) -> None:
    outcome = await run("stream", "user.bob.x")
    assert outcome.code == Exit.FORBIDDEN
    assert [note["event"] for note in outcome.notes] == ["error"]


async def test_a_stream_that_is_cancelled_ends_both_commands(
    server: RunningServer, run: Callable[..., Awaitable[Outcome]], ps: PubSubClient
) -> None:
    async with stream_writer(ps, "demo.answer", id="r1") as writer:
        await writer.write("half")
        await writer.abort("enough")
    outcome = await run("stream", "demo.answer", "--raw", "--id", "r1")
    assert (outcome.code, outcome.out) == (Exit.FAILED, "half\n")
    assert outcome.note("aborted")["reason"] == "enough"
