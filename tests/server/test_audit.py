"""The audit log."""

from __future__ import annotations

import json
import os
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import websockets

from pubsub_server.auth.identity import Identity
from pubsub_server.interfaces import Caller
from pubsub_server.observe.audit import AuditLog, FileSink
from pubsub_server.testing import RunningServer, running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

ALICE = Identity("alice", key_id="t1")


class Records:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def put(self, record: dict[str, object]) -> None:
        self.records.append(record)


def log(*patterns: str) -> tuple[AuditLog, list[dict[str, Any]]]:
    sink = Records()
    return AuditLog(patterns, sink, clock=lambda: 1000.5), sink.records


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_an_audit_record_contains_identity_operation_time_and_address() -> None:
    audited, records = log("org.**")
    audited.record("publish", ALICE, "org.acme.x", client_id="c1", message_id="m1")
    audited.record("subscribe", ALICE, "org.acme.x", client_id=None, refused="forbidden")
    assert records == [
        {
            "time": 1_000_500,
            "event": "publish",
            "outcome": "ok",
            "user_id": "alice",
            "kind": "user",
            "key_id": "t1",
            "topic": "org.acme.x",
            "client_id": "c1",
            "id": "m1",
        },
        {
            "time": 1_000_500,
            "event": "subscribe",
            "outcome": "denied",
            "code": "forbidden",
            "user_id": "alice",
            "kind": "user",
            "key_id": "t1",
            "topic": "org.acme.x",
        },
    ]


def test_only_the_configured_topics_are_audited() -> None:
    audited, records = log("org.*.billing", "secret")
    for topic in ("org.acme.x", "org.acme", "elsewhere", "secret.more"):
        audited.record("publish", ALICE, topic, client_id=None)
    assert records == []
    for topic in ("org.acme.billing", "secret"):
        audited.record("publish", ALICE, topic, client_id=None)
    assert len(records) == 2


def test_a_subscription_to_a_pattern_is_audited_where_it_could_take_an_audited_topic() -> None:
    audited, records = log("org.*.billing")
    for pattern in ("org.**", "**", "org.acme.*", "*.*.billing"):
        audited.record("subscribe", ALICE, pattern, client_id=None)
    for pattern in ("org.*", "user.**", "*"):
        audited.record("subscribe", ALICE, pattern, client_id=None)
    assert [record["topic"] for record in records] == ["org.**", "**", "org.acme.*", "*.*.billing"]


def test_tokens_taken_and_refused_are_audited_without_the_token() -> None:
    audited, records = log()
    audited.auth(ALICE, None, client_id=None)
    audited.auth(None, Caller("192.0.2.1", "req_1"), client_id="cl_1", refused="token_expired")
    assert [(r["event"], r["outcome"], r.get("user_id"), r.get("code")) for r in records] == [
        ("auth", "ok", "alice", None),
        ("auth", "denied", None, "token_expired"),
    ]
    assert records[1] == {
        "time": 1_000_500,
        "event": "auth",
        "outcome": "denied",
        "code": "token_expired",
        "client_id": "cl_1",
        "address": "192.0.2.1",
        "request_id": "req_1",
    }


def test_a_cut_is_audited_for_any_topics() -> None:
    audited, records = log()
    audited.cut(ALICE, Caller("192.0.2.1", "req_1"), client_id="cl_1")
    audited.cut(ALICE, None, client_id="cl_2", refused="not_found")
    first, second = records
    assert (first["event"], first["outcome"], first["user_id"]) == ("cut", "ok", "alice")
    assert (first["client_id"], first["address"], first["request_id"]) == (
        *("cl_1", "192.0.2.1", "req_1"),
    )
    assert (second["outcome"], second["code"]) == ("denied", "not_found")


@asynccontextmanager
async def audited_server(file: Path, **settings: object) -> AsyncGenerator[RunningServer]:
    """A server that audits tokens."""
    async with running_server(audit_topics=["org.**"], audit_file=file, **settings) as server:
        yield server


async def test_a_rejected_http_client_is_recorded_with_address_and_request_id(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.jsonl"
    async with audited_server(file) as server, http_client(base_url=server.http) as http:
        bad = {"Authorization": "Bearer bad", "X-Forwarded-For": "192.0.2.1"}
        for path in ("/v1/session", "/v1/subscribe?topics=demo.a"):
            answer = await http.get(path, headers=bad)
            assert answer.status_code == 401
        session = {"Authorization": f"Bearer {server.token('alice')}", "X-Request-Id": "mine"}
        assert (await http.get("/v1/session", headers=session)).status_code == 200
    first, second, third = lines(file)
    for refused in (first, second):
        assert refused["address"] == "127.0.0.1"
        assert "user_id" not in refused
    assert second["request_id"] == answer.json()["instance"]
    assert (third["user_id"], third["address"], third["request_id"]) == (
        *("alice", "127.0.0.1", "mine"),
    )


async def test_a_connection_is_named_by_its_id_and_by_what_a_trusted_proxy_says(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.jsonl"
    forwarded = {"X-Forwarded-For": "203.0.113.9, 192.0.2.1"}
    async with audited_server(file, trusted_proxies="127.0.0.0/8") as server:
        for token in ("bad", server.token("alice")):
            async with websockets.connect(server.ws, additional_headers=forwarded) as socket:
                auth = {"type": "auth", "token": token, "version": 1, "client_id": "cl_old"}
                await socket.send(json.dumps(auth))
                answer = json.loads(await socket.recv())
        headers = {**forwarded, "Authorization": f"Bearer {server.token('bob')}"}
        url = f"{server.http}/v1/subscribe?topics=demo.a"
        async with http_client() as http, http.stream("GET", url, headers=headers) as stream:
            assert stream.status_code == 200
            client_id = stream.headers["Client-Id"]
    denied, taken, asked, streaming = lines(file)
    assert {each["address"] for each in (denied, taken, asked, streaming)} == {"192.0.2.1"}
    assert (denied["outcome"], denied["client_id"]) == ("denied", "cl_old")
    assert (taken["outcome"], taken["client_id"]) == ("ok", answer["client_id"])
    assert "client_id" not in asked
    assert streaming["client_id"] == client_id
    assert streaming["request_id"] == asked["request_id"]


async def test_a_token_that_has_too_many_connections_is_named_with_its_user(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.jsonl"
    async with audited_server(file, connections_per_user=1) as server:
        auth = json.dumps({"type": "auth", "token": server.token("alice"), "version": 1})
        async with websockets.connect(server.ws) as one, websockets.connect(server.ws) as two:
            for socket in (one, two):
                await socket.send(auth)
                await socket.recv()
    taken, denied = lines(file)
    assert (taken["outcome"], taken["user_id"]) == ("ok", "alice")
    assert (denied["code"], denied["user_id"]) == ("connection_limit", "alice")


def test_records_are_lines_of_json_in_order(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    sink = FileSink(file)
    for number in range(2500):
        sink.put({"n": number})
    sink.close()
    assert [line["n"] for line in lines(file)] == list(range(2500))
    assert file.stat().st_mode & 0o777 == 0o600
    assert sink.dropped == 0


def test_a_file_that_is_there_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"n":0}\n', encoding="utf-8")
    sink = FileSink(file)
    sink.put({"n": 1})
    sink.close()
    sink.close()
    assert [line["n"] for line in lines(file)] == [0, 1]


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("reported", [False, True])
def test_after_a_rotation_the_new_file_is_written(
    tmp_path: Path, reported: bool, replaced: bool
) -> None:
    file, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    sink = FileSink(file)
    sink.put({"n": 0})
    sink.close()
    sink = FileSink(file)
    file.rename(old)
    if replaced:
        file.write_text("", encoding="utf-8")
    if reported:
        sink.reopen()
    sink.put({"n": 1})
    sink.close()
    assert [line["n"] for line in lines(old)] == [0]
    assert [line["n"] for line in lines(file)] == [1]


def test_a_slow_disk_drops_and_counts_records_without_delaying_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, goes_on = threading.Event(), threading.Event()
    write = os.write

    def slow(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name != "audit":
            return write(descriptor, data)
        written.set()
        assert goes_on.wait(10)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", slow)
    file = tmp_path / "audit.jsonl"
    sink = FileSink(file, capacity=5)
    sink.put({"n": -1})
    assert written.wait(10)
    for number in range(9):
        sink.put({"n": number})
    assert sink.dropped == 4
    goes_on.set()
    sink.close()
    assert [line["n"] for line in lines(file)] == [-1, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("count", "unwritten"), [(4, 5), (8, 6)])
def test_a_disk_that_hangs_is_logged_with_its_remedy_and_at_shutdown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    count: int,
    unwritten: int,
) -> None:
    hanging, goes_on = threading.Event(), threading.Event()

    def hang(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name == "audit":
            hanging.set()
            goes_on.wait(10)
        return write(descriptor, data)

    write = os.write
    monkeypatch.setattr(os, "write", hang)
    file = tmp_path / "audit.jsonl"
    sink = FileSink(file, capacity=5)
    sink.put({"n": -1})
    assert hanging.wait(10)
    for number in range(count):
        sink.put({"n": number})
    sink.close(0)
    goes_on.set()
    sink.close()  # end the thread
    too_slow = (
        f"the disk of audit_file {file} is too slow, records are lost: use a faster disk, or record"
        " fewer topics (audit_topics)"
    )
    lost = f"audit_file {file}: {unwritten} records were not written before shutdown"
    assert caplog.messages == [*([too_slow] if sink.dropped else []), lost]


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_batch_of_a_disk_that_hangs_at_shutdown_is_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    count: int,
) -> None:
    begun, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def hang(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name == "audit":
            begun.release()
            goes_on.acquire(timeout=10)
        return write(descriptor, data)

    def begin_last_batch(timeout: float) -> None:
        goes_on.release()
        assert begun.acquire(timeout=10)

    write = os.write
    monkeypatch.setattr(os, "write", hang)
    file = tmp_path / "audit.jsonl"
    sink: Any = FileSink(file)
    sink.put({"n": -1})
    assert begun.acquire(timeout=10)
    for number in range(count):
        sink.put({"n": number})
    with monkeypatch.context() as patch:
        # The thread takes the end marker with the last records.
        patch.setattr(sink._thread, "join", begin_last_batch)
        sink.close()
    goes_on.release()
    sink._thread.join(10)
    assert caplog.messages == [
        f"audit_file {file}: {count} records were not written before shutdown"
    ]


def test_records_that_cannot_be_written_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name != "audit":
            return write(descriptor, data)
        raise OSError(28, "No space left on device")

    write = os.write
    monkeypatch.setattr(os, "write", full)
    sink = FileSink(tmp_path / "audit.jsonl")
    sink.put({"n": 0})
    sink.close()
    assert sink.dropped == 1


def test_a_full_disk_truncates_at_most_one_record_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = [0]

    def short(descriptor: int, data: bytes) -> int:
        if descriptor != sink._descriptor:
            return write(descriptor, data)
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = write(descriptor, data[: room[0]])
        room[0] -= taken
        return taken

    caplog.set_level("INFO")
    write = os.write
    monkeypatch.setattr(os, "write", short)
    file = tmp_path / "audit.jsonl"
    sink = FileSink(file)

    def put(number: int, bytes_left: int) -> None:
        room[0] = bytes_left
        sink._write([b'{"n":%d}\n' % number])

    put(0, 8)
    put(1, 3)
    put(2, 0)
    put(3, 100)
    sink.close()
    assert file.read_text(encoding="utf-8").splitlines() == ['{"n":0}', '{"n', '{"n":3}']
    assert sink.dropped == 2
    reported = [each.getMessage() for each in caplog.records]
    assert reported == [
        f"cannot write audit_file {file}, records are lost: No space left on device",
        f"audit_file {file} is writable again",
    ]


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        FileSink(tmp_path / "none" / "audit.jsonl")
