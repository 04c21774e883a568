"""The engine with a server that sends prepared answers."""

from __future__ import annotations

import itertools
import json
import threading
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    AuthError,
    ClosedError,
    Conflict,
    ConnectionFailed,
    InvalidPayload,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    ProtocolError,
    PubSubError,
    RateLimited,
    Unavailable,
)
from hanzoai.pubsub.spark import PubSubConfig, publish_partition
from hanzoai.pubsub.spark import publish as engine
from hanzoai.pubsub.spark.messages import Messages
from hanzoai.pubsub.spark.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URL = "http://127.0.0.1:8056"
Answer = httpx.Response | Exception


@dataclass
class Peer:
    """Stores every item once by its id; first, each of `answers` replaces one answer."""

    answers: list[Answer | Callable[[list[dict[str, Any]]], Answer]] = field(default_factory=list)
    stored: dict[str, dict[str, Any]] = field(default_factory=dict)
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    now: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            if request.url.path == "/v1/session":
                return httpx.Response(200, json={"limits": {"publish_rate": 50}})
            items = json.loads(request.content)["messages"]
            self.batches.append(items)
            self.tokens.append(request.headers["authorization"])
            if self.answers:
                answer = self.answers.pop(0)
                if callable(answer):
                    answer = answer(items)
                if isinstance(answer, Exception):
                    raise answer
                return answer
            return httpx.Response(200, json={"results": [self.keep(item) for item in items]})

    def keep(self, item: dict[str, Any]) -> dict[str, Any]:
        known = self.stored.setdefault(item["id"], item)
        if known != item:
            return {"error": {"code": "conflict"}}
        return {"id": item["id"], "duplicate": known is not item}

    def sender(self, config: PubSubConfig) -> Sender:
        def sleep(stop: threading.Event, seconds: float) -> None:
            with self.lock:
                self.slept.append(seconds)
                self.now += seconds

        return Sender(
            config,
            transport=httpx.MockTransport(self.handle),
            clock=lambda: self.now,
            sleep=sleep,
        )


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    made = Peer()
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "s3cret")
    monkeypatch.setattr(engine, "sender_of", made.sender)
    return made


def rows(count: int) -> list[dict[str, str]]:
    return [{"topic": "a.b", "data": str(n)} for n in range(count)]


def limited(*, after: int) -> Callable[[list[dict[str, Any]]], Answer]:
    """Accepts this number of items, and asks to wait two seconds for the others."""

    def answer(items: list[dict[str, Any]]) -> Answer:
        wait = {"error": {"code": "rate_limited", "retry_after_ms": 2_000}}
        results = [{"id": item["id"]} if n < after else wait for n, item in enumerate(items)]
        return httpx.Response(200, json={"results": results})

    return answer


def test_every_row_is_acknowledged_in_batches(peer: Peer) -> None:
    stats = publish_partition(rows(1_250), PubSubConfig(URL))
    assert (stats.rows, stats.batches, stats.duplicates) == (1_250, 3, 0)
    assert sorted(len(batch) for batch in peer.batches) == [250, 500, 500]
    assert len(peer.stored) == 1_250


def test_a_batch_is_no_larger_than_its_bytes(peer: Peer) -> None:
    small, large = json.dumps("x" * 400), json.dumps("y" * 3_000)
    some = [{"topic": "a.b", "data": data} for data in [*[small] * 10, large]]
    publish_partition(some, PubSubConfig(URL, max_batch_bytes=1_024))
    assert sorted(len(batch) for batch in peer.batches) == [1, 2, 2, 2, 2, 2]
    assert len(peer.stored) == 11


def test_an_empty_partition_connects_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "sender_of", None)
    assert publish_partition([], PubSubConfig(URL)).rows == 0


def test_what_got_lost_is_sent_again_with_the_same_ids(peer: Peer) -> None:
    def lost(items: list[dict[str, Any]]) -> Answer:
        for item in items:
            peer.keep(item)
        return httpx.ReadError("gone")

    peer.answers = [lost, httpx.ConnectError("down"), httpx.Response(503), httpx.Response(500)]
    stats = publish_partition(rows(3), PubSubConfig(URL))
    assert (stats.rows, stats.duplicates, stats.retries) == (3, 3, 4)
    assert all(batch == peer.batches[0] for batch in peer.batches)


def test_a_server_out_of_reach_fails_the_task_after_its_retries(peer: Peer) -> None:
    peer.answers = [httpx.ConnectError("down")] * 3
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1") as caught:
        publish_partition(rows(3), PubSubConfig(URL, max_retries=2))
    assert "`url` is the address of the HTTP API" in caught.value.remedy
    assert len(peer.batches) == 3


def test_a_server_that_keeps_failing_fails_the_task_after_its_retries(peer: Peer) -> None:
    peer.answers = [httpx.Response(503)] * 3
    with pytest.raises(Unavailable):
        publish_partition(rows(3), PubSubConfig(URL, max_retries=2))


def test_a_refused_token_is_replaced_and_the_same_batch_sent_again(
    peer: Peer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("one")

    def rotate(items: list[dict[str, Any]]) -> Answer:
        file.write_text("two")
        return httpx.Response(401)

    peer.answers = [rotate]
    stats = publish_partition(rows(3), PubSubConfig(URL, token_file=str(file)))
    assert peer.tokens == ["Bearer one", "Bearer two"]
    assert peer.batches[0] == peer.batches[1]
    assert (stats.rows, stats.duplicates, peer.slept) == (3, 0, [])


def test_a_token_that_comes_late_is_waited_for(peer: Peer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")

    def rotate(items: list[dict[str, Any]]) -> Answer:
        file.write_text("two")
        return httpx.Response(401)

    peer.answers = [httpx.Response(401), httpx.Response(401), rotate]
    assert publish_partition(rows(3), PubSubConfig(URL, token_file=str(file))).rows == 3
    assert peer.tokens == ["Bearer one"] * 3 + ["Bearer two"]
    assert len(peer.slept) == 2


def test_a_token_that_is_never_accepted_fails_the_task_and_is_not_shown(peer: Peer) -> None:
    peer.answers = [httpx.Response(401, json={"detail": "no"})] * 4
    with pytest.raises(AuthError) as caught:
        publish_partition(rows(3), PubSubConfig(URL, max_retries=3))
    assert len(peer.batches) == 4
    assert "s3cret" not in str(caught.value)


def test_rows_beyond_the_rate_alone_are_sent_again_and_paced(peer: Peer) -> None:
    peer.answers = [limited(after=100)]
    stats = publish_partition(rows(300), PubSubConfig(URL))
    assert (stats.rows, stats.duplicates) == (300, 0)
    sent = Counter(item["id"] for batch in peer.batches for item in batch)
    assert set(sent.values()) == {1, 2}
    assert sum(count == 2 for count in sent.values()) == 200
    # The server allows 50 a second.
    assert {len(batch) for batch in peer.batches[1:]} == {50}
    assert peer.now >= 2 + 200 / 50 - 1


def test_requests_that_are_limited_together_keep_the_rate_that_the_server_allows(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(4, timeout=60)
    handle, count = peer.handle, itertools.count()

    def limit(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/session" or next(count) >= together.parties:
            return handle(request)
        together.wait()
        return httpx.Response(429, headers={"Retry-After": "1"})

    monkeypatch.setattr(peer, "handle", limit)
    assert publish_partition(rows(2_000), PubSubConfig(URL)).rows == 2_000
    assert {len(batch) for batch in peer.batches} == {50}


def test_the_log_names_the_rate_of_the_token_once(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.answers = [limited(after=100), limited(after=10)]
    publish_partition(rows(300), PubSubConfig(URL))
    assert [record.getMessage() for record in caplog.records] == [
        "the server limits this token: the task sends at most 50 rows per second."
        " If the token has no claim `bulk`, add it for a higher limit"
    ]


def test_a_task_with_a_rate_sends_at_most_the_rows_of_a_second_in_each_request(peer: Peer) -> None:
    stats = publish_partition(rows(490), PubSubConfig(URL, max_rows_per_second=400))
    assert stats.rows == 490
    assert sorted(len(batch) for batch in peer.batches) == [90, 400]


def test_a_request_beyond_the_rate_waits_as_long_as_the_server_says(peer: Peer) -> None:
    peer.answers = [httpx.Response(429, headers={"Retry-After": "7"})]
    assert publish_partition(rows(3), PubSubConfig(URL)).rows == 3
    assert peer.slept[0] == 7


def test_a_server_that_never_takes_a_row_fails_the_task_in_the_end(peer: Peer) -> None:
    peer.answers = [limited(after=0)] * 30
    with pytest.raises(RateLimited):
        publish_partition(rows(3), PubSubConfig(URL, max_retries=1))
    assert len(peer.batches) <= 30


def test_one_item_that_spoils_a_batch_is_found(peer: Peer) -> None:
    def spoilt(items: list[dict[str, Any]]) -> Answer:
        peer.answers.insert(0, spoilt)
        if any(item["data"] == 5 for item in items):
            return httpx.Response(400, json={"code": "invalid_frame", "detail": "no JSON"})
        return httpx.Response(200, json={"results": [peer.keep(item) for item in items]})

    peer.answers = [spoilt]
    config = PubSubConfig(URL, on_error="deadletter:dead")
    stats = publish_partition(rows(16), config)
    assert (stats.rows, stats.dead_letters) == (15, 1)
    kept = [item["data"] for item in peer.stored.values() if item["topic"] == "a.b"]
    assert sorted(kept) == [n for n in range(16) if n != 5]
    (dead,) = [item for item in peer.stored.values() if item["topic"] == "dead"]
    assert dead["data"]["row"]["data"] == "5"


def refused(code: str) -> httpx.Response:
    result: dict[str, Any] = {"error": {"code": code, "field": "topic"}}
    return httpx.Response(200, json={"results": [{"id": "x"}, result, {"id": "y"}]})


def test_an_error_does_not_quote_the_token_that_a_gateway_echoes(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "a-very-secret-token")
    body = {"message": "'Bearer a-very-secret-token' is not valid"}
    peer.answers = [httpx.Response(403, json=body)]
    with pytest.raises(PermissionDenied, match=r"'Bearer \[token\]' is not valid"):
        publish_partition(rows(3), PubSubConfig(URL))


def test_a_row_that_the_server_refuses_fails_the_task_or_becomes_a_letter(peer: Peer) -> None:
    for code, error in (("forbidden", PermissionDenied), ("conflict", Conflict)):
        peer.answers = [refused(code)]
        with pytest.raises(error) as caught:
            publish_partition(rows(3), PubSubConfig(URL))
        assert caught.value.topic == "a.b"
    peer.answers = [refused("forbidden")]
    stats = publish_partition(rows(3), PubSubConfig(URL, on_error="deadletter:dead"))
    assert (stats.rows, stats.dead_letters) == (2, 1)
    (dead,) = peer.stored.values()
    assert dead["data"]["error"] == {
        "code": "forbidden",
        "field": "topic",
        "message": dead["data"]["error"]["message"],
    }


def test_a_row_refused_for_another_reason_the_second_time_has_its_letter_already(
    peer: Peer,
) -> None:
    config = PubSubConfig(URL, on_error="deadletter:dead")
    for code in ("forbidden", "unsupported"):
        peer.answers = [refused(code)]
        assert publish_partition(rows(3), config, namespace="nightly").dead_letters == 1
    (dead,) = peer.stored.values()
    assert dead["data"]["error"]["code"] == "forbidden"


def test_oversized_rows_may_be_left_out(peer: Peer) -> None:
    config = PubSubConfig(URL, max_message_bytes=10, on_oversize="drop")
    stats = publish_partition([*rows(2), {"topic": "a", "data": '"xxxxxxxxxxxxx"'}], config)
    assert (stats.rows, stats.dropped) == (2, 1)


def test_the_error_of_a_bad_row_names_the_row(peer: Peer) -> None:
    bad = {"topic": "a.b", "data": "oops", "id": "r" * 100}
    with pytest.raises(InvalidPayload) as caught:
        publish_partition([*rows(3), bad], PubSubConfig(URL))
    assert f"(topic 'a.b', id '{'r' * 80}')." in str(caught.value)
    assert "oops" not in str(caught.value)
    # Other words and numbers of the error do not hide the row.
    with pytest.raises(PayloadTooLarge, match=r"the limit is 42 \(topic 'data', id '42'\)\."):
        publish_partition(
            [{"topic": "data", "data": f'"{"x" * 42}"', "id": "42"}],
            PubSubConfig(URL, max_message_bytes=42),
        )
    refused = {"error": {"code": "forbidden", "message": "not allowed"}}
    peer.answers = [httpx.Response(200, json={"results": [refused]})]
    with pytest.raises(PermissionDenied, match=r"not allowed \(topic a\.b\) \(id 'r1'\)\."):
        publish_partition([{"topic": "a.b", "data": "1", "id": "r1"}], PubSubConfig(URL))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, '{"results": [{"error": {"code": "forbidden", "message": "%s may not publish"}}]}'),
        (403, '{"error": {"code": "forbidden", "message": "%s may not publish"}}'),
        (400, '{"error": {"code": "bad_request", "message": "%s may not publish"}}'),
    ],
)
def test_no_error_contains_the_token(status: int, body: str, peer: Peer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-secret-of-the-test/1")
    config = PubSubConfig(URL, token_file=str(file), max_retries=0)
    peer.answers = [httpx.Response(status, text=body % r"a-secret-of-the-test\/1")] * 3
    with pytest.raises(PubSubError) as caught:
        publish_partition(rows(1), config)
    assert "a-secret" not in "".join(traceback.format_exception(caught.value))
    assert "[token] may not publish" in str(caught.value)


def test_a_token_that_lacks_a_permission_for_a_row_is_read_again(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    config = PubSubConfig(URL, token_file=str(file))
    # As in a process of Spark, which outlives a failed job.
    sender = peer.sender(config)

    def sender_of(_: PubSubConfig) -> Sender:
        return sender

    monkeypatch.setattr(engine, "sender_of", sender_of)
    peer.answers = [refused("forbidden")]
    with pytest.raises(PermissionDenied):
        publish_partition(rows(3), config)
    file.write_text("two")
    publish_partition(rows(3), config)
    assert peer.tokens == ["Bearer one", "Bearer two"]


def test_a_bad_row_fails_the_task_and_stops_what_is_under_way(peer: Peer) -> None:
    with pytest.raises(InvalidPayload):
        publish_partition([*rows(600), {"topic": "a", "data": "{"}], PubSubConfig(URL))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(200, text="<html>"), ProtocolError),
        (httpx.Response(200, json={"results": []}), ProtocolError),
        (httpx.Response(404), NotFound),
        (httpx.Response(501, text="<html>"), NotFound),
        (httpx.Response(403, json={"code": "forbidden"}), PermissionDenied),
    ],
)
def test_what_is_no_such_server_fails_the_task_at_once(
    peer: Peer, answer: Answer, error: type[Exception]
) -> None:
    peer.answers = [answer]
    with pytest.raises(error):
        publish_partition(rows(3), PubSubConfig(URL))
    assert len(peer.batches) == 1


def test_a_stopped_sender_sends_nothing_more(peer: Peer) -> None:
    stop = threading.Event()
    stop.set()
    sender = peer.sender(PubSubConfig(URL))
    with pytest.raises(ClosedError):
        sender.send(Messages(["a"], ['{"topic":"a","data":1,"id":"x"}'], [30]), stop)
    sender.close()
    assert peer.batches == []
