"""The audit log."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.observe.audit import AuditLog, FileSink

if TYPE_CHECKING:
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


def test_a_record_says_who_did_what_when_and_where() -> None:
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
    audited.auth(ALICE, None)
    audited.auth(None, "token_expired")
    assert [(r["event"], r["outcome"], r.get("user_id"), r.get("code")) for r in records] == [
        ("auth", "ok", "alice", None),
        ("auth", "denied", None, "token_expired"),
    ]


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
@pytest.mark.parametrize("told", [False, True])
def test_after_a_rotation_the_new_file_is_written(
    tmp_path: Path, told: bool, replaced: bool
) -> None:
    file, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    sink = FileSink(file)
    sink.put({"n": 0})
    sink.close()
    sink = FileSink(file)
    file.rename(old)
    if replaced:
        file.write_text("", encoding="utf-8")
    if told:
        sink.reopen()
    sink.put({"n": 1})
    sink.close()
    assert [line["n"] for line in lines(old)] == [0]
    assert [line["n"] for line in lines(file)] == [1]


def test_a_slow_disk_drops_records_and_counts_them_but_holds_up_nobody(
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


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        FileSink(tmp_path / "none" / "audit.jsonl")
