"""The reports about a job, and its waits for a slot. Without Spark."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from hanzoai.pubsub.spark import PubSubConfig
from hanzoai.pubsub.spark.outlet import AT_ONCE, Outlet, ProgressStats, Waiting
from hanzoai.pubsub.spark.reports import (
    STAGES_SHOWN,
    QueryStanding,
    Report,
    StageStanding,
    backlog,
    job_report,
)
from hanzoai.pubsub.spark.sender import Sender

PROGRESS: dict[str, Any] = {
    "id": "q1",
    "runId": "r1",
    "name": "alerts",
    "batchId": 4,
    "batchDuration": 210,
    "numInputRows": 30,
    "inputRowsPerSecond": float("nan"),
    "processedRowsPerSecond": 142.8571428,
    "stateOperators": [{"numRowsTotal": 7}, {"numRowsTotal": 5}],
    "sources": [
        {
            "description": "Kafka[password=s3cret]",
            "endOffset": {"chat.a": 10, "chat.b": 4},
            "latestOffset": '{"chat.a": 12, "chat.b": 4, "chat.new": 9}',
        }
    ],
    "sink": {"description": "s3://bucket/s3cret", "numOutputRows": -1},
}


@pytest.mark.parametrize(
    ("end", "latest", "behind"),
    [
        ({"a": 3}, {"a": 10}, 7),
        ('{"a": 3, "b": 1}', '{"a": 3, "b": 2}', 1),
        ({"t": {"0": 5, "1": 5}}, {"t": {"0": 6, "1": 9}}, 5),
        (3, 10, 7),
        ({"a": 10}, {"a": 3}, 0),
        ({"a": 3, "@from": {"a": 0}}, {"a": 4, "@from": {"a": 2}}, 1),
        ({"a": 3}, {"a": 3, "new": 100}, 0),
        ({"a": "x"}, {"a": "y"}, None),
        (None, {"a": 1}, None),
        ("not json", "not json", None),
    ],
)
def test_a_backlog_is_the_sum_of_what_offsets_differ_by(
    end: object, latest: object, behind: int | None
) -> None:
    assert backlog(end, latest) == behind


def test_a_query_is_reported_with_its_figures_and_without_secrets() -> None:
    standing = QueryStanding("q1", "r1")
    standing.progressed(PROGRESS)
    report = standing.progressed(PROGRESS)
    assert report.type == "spark.query.progress"
    assert report.data == {
        "query": {"id": "q1", "run": "r1", "name": "alerts"},
        "state": "running",
        "batch": 4,
        "rows": 30,
        "rows_total": 60,
        "rows_written": None,
        "input_per_second": None,
        "processed_per_second": 142.857,
        "batch_ms": 210,
        "backlog": 2,
        "state_rows": 12,
    }
    assert "s3cret" not in json.dumps(report.data)


def test_the_newest_report_of_a_query_is_enough_to_draw_it() -> None:
    standing = QueryStanding("q1", "r1")
    standing.progressed(PROGRESS)
    assert standing.idle().data["batch"] == 4
    end = standing.terminated("DATA_LOSS", failed=True)
    assert (end.data["state"], end.data["error"], end.data["rows_total"]) == (
        "failed",
        "DATA_LOSS",
        30,
    )
    assert end.last


def test_a_backlog_that_one_source_does_not_report_is_left_out() -> None:
    sources = [*PROGRESS["sources"], {"endOffset": None, "latestOffset": None}]
    report = QueryStanding("q1", "r1").progressed({**PROGRESS, "sources": sources})
    assert report.data["backlog"] is None


def test_a_job_of_many_stages_lists_the_newest_and_counts_all() -> None:
    stages = [StageStanding(n, f"stage {n}", 4, 4 if n < 29 else 1, 2, 0) for n in range(30)]
    report = job_report(7, "running", stages, first=True)
    assert (report.data["tasks"], report.data["done"]) == (120, 117)
    assert report.data["stage_count"] == 30
    listed: Any = report.data["stages"]
    assert [stage["id"] for stage in listed] == list(range(30 - STAGES_SHOWN, 30))
    assert job_report(7, "failed", stages, first=False).data["active"] == 0


def report(subject: str, number: int = 0, *, last: bool = False) -> Report:
    return Report(subject, "spark.job.progress", {"number": number}, last)


def test_a_newer_report_replaces_one_that_waits() -> None:
    stats = ProgressStats()
    waiting = Waiting(stats)
    waiting.put(report("a", 1))
    waiting.put(report("b", 1))
    waiting.put(report("a", 2))
    assert waiting.take(9) == [report("a", 2), report("b", 1)]
    assert (stats.replaced, waiting.take(9)) == (1, [])


def test_too_many_subjects_push_out_what_has_ended_then_what_is_oldest() -> None:
    stats = ProgressStats()
    waiting = Waiting(stats, most=2)
    waiting.put(report("old"))
    waiting.put(report("ended", last=True))
    waiting.put(report("new"))
    waiting.put(report("newest"))
    assert [each.subject for each in waiting.take(9)] == ["new", "newest"]
    assert stats.dropped == 2


class Server:
    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.items: list[dict[str, Any]] = []
        self.requests = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        status = self.statuses.pop(0) if self.statuses else 200
        items = json.loads(request.content)["messages"]
        if status == 200:
            self.items += items
            return httpx.Response(200, json={"results": [{"id": each["id"]} for each in items]})
        return httpx.Response(status, json={"error": {"code": "forbidden", "message": "No."}})


def outlet(server: Server, monkeypatch: pytest.MonkeyPatch) -> Outlet:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "t0ken")
    config = PubSubConfig("http://127.0.0.1:8056")
    sender = Sender(
        config, transport=httpx.MockTransport(server), sleep=lambda _stop, _seconds: None
    )
    return Outlet("jobs.nightly", config, "run1", sender)


def test_few_reports_go_at_once_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    server, stop = Server(), threading.Event()
    out = outlet(server, monkeypatch)
    for number in range(AT_ONCE + 2):
        out.put(report(f"job {number}", number))
    assert [out.turn(stop), out.turn(stop), out.turn(stop)] == [AT_ONCE, 2, 0]
    assert server.requests == 2
    assert [each["data"]["number"] for each in server.items] == list(range(AT_ONCE + 2))
    assert server.items[0]["id"] == "run1:1"
    assert server.items[0]["topic"] == "jobs.nightly"
    assert server.items[0]["data"]["run"] == "run1"
    assert out.stats.published == AT_ONCE + 2


def test_the_last_reports_are_sent_without_a_pause_and_counted_if_they_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, stop = Server(403, 200, 403), threading.Event()
    out = outlet(server, monkeypatch)
    out.put(report("a"))
    out.turn(stop)
    out.put(report("a", 1))
    assert (out.turn(stop), out.unsent) == (0, 1)
    out.finish(stop)
    assert (out.stats.published, out.stats.failed, out.unsent) == (1, 1, 0)

    for number in range(AT_ONCE + 2):
        out.put(report(f"job {number}"))
    out.finish(stop)
    assert (out.stats.failed, out.unsent) == (1 + AT_ONCE, 2)


def test_a_denied_publish_is_reported_once_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server, stop, now = Server(*[403] * 5), threading.Event(), [0.0]
    out = outlet(server, monkeypatch)
    for number in range(80):
        now[0] = number / 2
        out.put(report("a", number))
        out.turn(stop, clock=lambda: now[0])
        if now[0] == 20:
            assert server.requests == 5
    assert out.stats.failed == 5
    assert [each["data"]["number"] for each in server.items][-1] == 79
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warned) == 1
    assert "t0ken" not in warned[0]
