"""The rows that a task reads from a server with prepared answers."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    AuthError,
    ClosedError,
    ConnectionFailed,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    ProtocolError,
    RateLimited,
)
from hanzoai.pubsub.spark import PubSubConfig
from hanzoai.pubsub.spark.fetch import Fetcher, Page
from hanzoai.pubsub.spark.losses import DataLossError, Loss
from hanzoai.pubsub.spark.planning import UNKNOWN, Range, Standing
from hanzoai.pubsub.spark.reading import read_ranges
from hanzoai.pubsub.spark.rows import SOURCE_SCHEMA
from hanzoai.pubsub.spark.source_config import SourceConfig

if TYPE_CHECKING:
    from concurrent.futures import Future

URL = "http://127.0.0.1:8056"


def message(topic: str, seq: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"{topic}-{seq}",
        "topic": topic,
        "type": "even" if seq % 2 == 0 else "odd",
        "data": {"n": seq},
        "sender": {"type": "service", "id": "s"},
        "timestamp": 1_740_307_200_000 + seq,
        "seq": seq,
        **changes,
    }


@dataclass
class Peer:
    """Serves logs by topic; each of `answers` replaces one answer first."""

    logs: dict[str, list[int]] = field(default_factory=dict)
    """Retained positions."""
    last: dict[str, int] = field(default_factory=dict)
    answers: list[httpx.Response | Exception] = field(default_factory=list)
    largest: int = 500
    """Messages at which a page ends early."""
    requests: list[httpx.Request] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            self.requests.append(request)
            if self.answers:
                answer = self.answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
            if request.url.path == "/v1/positions":
                asked = json.loads(request.content)["topics"]
                return httpx.Response(200, json={"positions": [self.stand(t) for t in asked]})
            topic = request.url.path.split("/")[3]
            after, limit = (int(request.url.params[name]) for name in ("after", "limit"))
            newer = [seq for seq in self.logs.get(topic, []) if seq > after]
            page = [message(topic, seq) for seq in newer[: min(limit, self.largest)]]
            body = {"messages": page, "has_more": len(page) < len(newer)}
            return httpx.Response(200, json=body)

    def stand(self, topic: str) -> dict[str, Any]:
        retained = self.logs.get(topic, [])
        last = self.last.get(topic, max(retained, default=0))
        return {"topic": topic, "first": min(retained, default=last + 1), "last": last}

    def fetcher(self, **changes: Any) -> Fetcher:
        return Fetcher(
            config(**changes),
            transport=httpx.MockTransport(self.handle),
            sleep=lambda stop, seconds: self.slept.append(seconds),
        )

    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]


def config(**changes: Any) -> PubSubConfig:
    return PubSubConfig(URL, **changes)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", "s3cret")


def read(peer: Peer, *ranges: Range, **changes: Any) -> list[tuple[str, int]]:
    settings = SourceConfig(config(), ("**",), **changes)
    rows: list[tuple[str, int]] = []
    for batch in read_ranges(peer.fetcher(), settings, ranges):
        rows += [(row["topic"], row["seq"]) for row in batch.to_pylist()]
    return rows


def test_ranges_are_read_in_order_page_by_page() -> None:
    peer = Peer({"a": list(range(1, 31)), "b": list(range(1, 4))})
    found = read(peer, Range("a", 4, 25), Range("b", 0, 2), page_size=5)
    assert found == [("a", seq) for seq in range(5, 26)] + [("b", 1), ("b", 2)]
    assert "/v1/positions" not in peer.paths()[:1]


def test_a_log_that_is_gone_is_lost_without_a_request_for_each_page() -> None:
    peer = Peer({})
    assert read(peer, Range("a", 4, 10_000), page_size=5, fail_on_data_loss=False) == []
    assert len(peer.requests) < 10


def test_positions_between_two_logs_are_lost_without_a_request_for_each_page() -> None:
    first = 10**12
    peer = Peer({"a": [first, first + 1]})
    found = read(peer, Range("a", 4, first + 1), page_size=5, fail_on_data_loss=False)
    assert found == [("a", first), ("a", first + 1)]
    assert len(peer.requests) < 10


def test_the_rest_of_a_page_that_ends_early_is_read_before_later_pages() -> None:
    retained = [seq for seq in range(1, 31) if seq % 7]
    peer = Peer({"a": retained}, last={"a": 30}, largest=3)
    found = read(peer, Range("a", 4, 28), Range("a", 28, 30), page_size=10)
    assert found == [("a", seq) for seq in retained if seq > 4]


def test_rows_that_are_lost_behind_a_page_that_ends_early_fail_the_task() -> None:
    peer = Peer({"a": list(range(1, 11))}, largest=3)
    handle = peer.handle

    def trim(request: httpx.Request) -> httpx.Response:
        answer = handle(request)
        peer.logs["a"] = [9, 10]
        return answer

    peer.handle = trim  # type: ignore[method-assign]
    with pytest.raises(DataLossError, match="positions 4 to 8"):
        read(peer, Range("a", 0, 10))


def test_a_row_has_all_columns_in_the_types_of_spark() -> None:
    peer = Peer({"a": [7]})
    (batch,) = read_ranges(peer.fetcher(), SourceConfig(config(), ("a",)), [Range("a", 6, 7)])
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() == 1_740_307_200.007
    assert row == {
        "topic": "a",
        "id": "a-7",
        "type": "odd",
        "data": '{"n":7}',
        "sender": '{"type":"service","id":"s"}',
        "ttl": None,
        "seq": 7,
    }
    assert [name.split()[0] for name in SOURCE_SCHEMA.split(", ")] == batch.schema.names


def test_other_types_are_left_out_and_are_no_loss() -> None:
    peer = Peer({"a": list(range(1, 7))})
    assert read(peer, Range("a", 0, 6), types=frozenset({"even"})) == [("a", 2), ("a", 4), ("a", 6)]
    assert "/v1/positions" not in peer.paths()


def test_a_message_whose_ttl_passed_between_others_is_no_loss() -> None:
    peer = Peer({"a": [1, 2, 4, 7]})
    assert read(peer, Range("a", 0, 7)) == [("a", 1), ("a", 2), ("a", 4), ("a", 7)]


def test_rows_that_were_trimmed_since_the_plan_fail_the_task() -> None:
    peer = Peer({"a": [8, 9, 10]})
    with pytest.raises(DataLossError, match="positions 3 to 7") as caught:
        read(peer, Range("a", 2, 10))
    assert (caught.value.topic, caught.value.first, caught.value.last) == ("a", 3, 7)
    assert "failOnDataLoss=false" in str(caught.value)


def test_rows_that_were_trimmed_are_logged_and_the_others_read_where_losses_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer({"a": list(range(95, 101))})
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub.spark"):
        found = read(peer, Range("a", 0, 100), fail_on_data_loss=False, page_size=10)
    assert found == [("a", seq) for seq in range(95, 101)]
    assert caplog.messages == ["94 rows of 'a' are lost, between positions 1 and 94"]
    # A task does not request positions that it knows to be lost.
    assert len(peer.requests) < 10


def test_a_log_that_was_lost_since_the_plan_fails_the_task() -> None:
    for peer in (Peer(), Peer({"a": [9_001]}), Peer({"a": [1, 2]})):
        with pytest.raises(DataLossError) as caught:
            read(peer, Range("a", 2, 10))
        assert (caught.value.first, caught.value.last) == (3, 10)


def test_a_range_with_an_unknown_start_starts_at_the_first_retained_row() -> None:
    peer = Peer({"a": [9_000, 9_001, 9_002]})
    assert read(peer, Range("a", UNKNOWN, 9_001)) == [("a", 9_000), ("a", 9_001)]


def test_a_reader_that_stops_leaves_no_request_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer({"a": list(range(1, 1_001))})
    fetcher = peer.fetcher()
    stops: set[threading.Event] = set()
    submit = fetcher.submit

    def noted(topic: str, after: int, limit: int, stop: threading.Event) -> Future[Page]:
        stops.add(stop)
        return submit(topic, after, limit, stop)

    monkeypatch.setattr(fetcher, "submit", noted)
    settings = SourceConfig(config(), ("a",), page_size=1)
    rows = read_ranges(fetcher, settings, [Range("a", 0, 1_000)])
    next(rows)
    assert not any(stop.is_set() for stop in stops)
    rows.close()  # type: ignore[attr-defined]
    assert [stop.is_set() for stop in stops] == [True]
    assert len(peer.requests) < 20


# ---------------------------------------------------------------- requests


def test_positions_are_read_and_news_is_waited_for() -> None:
    peer = Peer({"a": [3, 4]})
    fetcher = peer.fetcher()
    assert fetcher.positions(("a", "b"), after={"a": 4}, wait=0.5) == {
        "a": Standing(3, 4),
        "b": Standing(1, 0),
    }
    assert json.loads(peer.requests[0].content) == {
        "topics": ["a", "b"],
        "after": {"a": 4},
        "wait_ms": 500,
    }


def test_a_request_is_repeated_until_the_server_answers() -> None:
    peer = Peer(
        {"a": [1]},
        answers=[
            httpx.ConnectError("no"),
            httpx.Response(503),
            httpx.Response(429, headers={"Retry-After": "7"}),
        ],
    )
    assert len(peer.fetcher().page("a", 0, 10).messages) == 1
    assert len(peer.slept) == 3
    assert peer.slept[2] == 7


def test_a_server_that_asks_to_wait_is_given_more_time_than_one_that_fails() -> None:
    busy = [httpx.Response(429, headers={"Retry-After": "1"}) for _ in range(15)]
    peer = Peer({"a": [1]}, answers=[*busy])
    assert len(peer.fetcher(max_retries=2).page("a", 0, 10).messages) == 1


def test_a_token_that_is_refused_is_read_again(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    peer = Peer({"a": [1]})
    fetcher = peer.fetcher(token_file=str(file))
    fetcher.page("a", 0, 1)
    peer.answers.append(httpx.Response(401))
    file.write_text("two")
    fetcher.page("a", 0, 1)
    shown = [request.headers["authorization"] for request in peer.requests]
    assert shown == ["Bearer one", "Bearer one", "Bearer two"]
    assert not peer.slept


def test_a_token_that_lacks_a_permission_is_read_again_by_the_next_query(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    peer = Peer({"a": [1]}, answers=[httpx.Response(403)])
    fetcher = peer.fetcher(token_file=str(file))
    with pytest.raises(PermissionDenied):
        fetcher.page("a", 0, 1)
    file.write_text("two")
    fetcher.page("a", 0, 1)
    assert peer.requests[-1].headers["authorization"] == "Bearer two"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(401), AuthError),
        (httpx.Response(403), PermissionDenied),
        (httpx.Response(404), NotFound),
        (httpx.Response(501, text="<html>"), NotFound),
        (httpx.Response(429), RateLimited),
        (httpx.ConnectError("no"), ConnectionFailed),
        (httpx.Response(200, text="<html>"), ProtocolError),
        (httpx.Response(200, json={}), ProtocolError),
    ],
)
def test_a_permanent_error_does_not_contain_the_token(
    answer: httpx.Response | Exception, error: type[Exception]
) -> None:
    peer = Peer(answers=[answer] * 100)
    with pytest.raises(error) as caught:
        peer.fetcher(max_retries=2).page("a", 0, 1)
    assert "s3cret" not in str(caught.value)


def test_an_error_does_not_quote_the_token_that_a_gateway_echoes(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("a-very-secret-token")
    body = {"message": "'Bearer a-very-secret-token' is not valid"}
    peer = Peer(answers=[httpx.Response(403, json=body)])
    with pytest.raises(PermissionDenied, match=r"'Bearer \[token\]' is not valid"):
        peer.fetcher(token_file=str(file)).page("a", 0, 1)


def test_what_is_forbidden_names_the_topic() -> None:
    body = {"code": "forbidden", "detail": "the rules say no", "topic": "org.other.a"}
    peer = Peer(answers=[httpx.Response(403, json=body)])
    with pytest.raises(PermissionDenied, match=r"the rules say no \(topic org\.other\.a\)"):
        peer.fetcher().positions(("dev.*", "org.other.a"))


def test_invalid_positions_are_refused() -> None:
    strange = [{}, {"positions": [{"topic": "a"}]}, {"positions": None}]
    for body in strange:
        with pytest.raises(ProtocolError):
            Peer(answers=[httpx.Response(200, json=body)]).fetcher().positions(("a",))


def test_more_topics_than_the_server_lists_are_refused() -> None:
    peer = Peer(answers=[httpx.Response(200, json={"positions": [], "has_more": True})])
    with pytest.raises(LimitExceeded, match="narrower patterns"):
        peer.fetcher().positions(("**",))


def test_invalid_messages_are_refused_without_their_content() -> None:
    broken = message("a", 1, timestamp="s3cret")
    peer = Peer(answers=[httpx.Response(200, json={"messages": [broken]})])
    with pytest.raises(ProtocolError) as caught:
        read(peer, Range("a", 0, 1))
    assert "s3cret" not in str(caught.value)


def test_a_task_that_has_ended_asks_no_more() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ClosedError):
        Peer().fetcher().page("a", 0, 1, stop)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (Loss("a.x", 11, 49), "Retain more"),
        (Loss("a.x", 11, 49, restarted=True), "Keep the history in Redis"),
        (Loss("a.x", 11, 5), "Keep the history in Redis"),
    ],
)
def test_the_remedy_of_a_loss_depends_on_its_cause(loss: Loss, expected: str) -> None:
    error = DataLossError(loss)
    assert error.remedy.startswith(expected)
    assert "failOnDataLoss=false" in error.remedy
    assert str(error).endswith("docs/spark/#guarantees-for-readers")
