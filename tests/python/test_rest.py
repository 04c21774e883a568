from __future__ import annotations

import asyncio
import itertools
import json
import socket
import ssl
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import respx

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.errors import (
    AuthError,
    ClosedError,
    Conflict,
    ConnectionFailed,
    InvalidOption,
    InvalidPayload,
    NotFound,
    OperationTimeout,
    PayloadTooLarge,
    PermissionDenied,
    ProtocolError,
    PubSubError,
    RateLimited,
    TokenExpired,
    Unavailable,
    Unsupported,
)
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.problems import read_error
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.http.status import close_code_for, retry_after_of, why_unreachable
from hanzoai.pubsub.settings.options import ClientOptions, RetryOptions, read_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BASE = "http://127.0.0.1:8056"
OLD, NEW = "old-token", "new-token"
MESSAGES = f"{BASE}/v1/topics/a.b/messages"
BATCH = f"{BASE}/v1/messages:batch"
ENVELOPE = {"id": "m1", "topic": "a.b", "type": "t", "data": {"x": 1}, "timestamp": 5}


class QuickClock(SystemClock):
    """Sleeps not at all, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Tokens:
    def __init__(self, renewed: str | None = NEW) -> None:
        self.token = OLD
        self.renewed = renewed
        self.rejected: list[str] = []

    async def current(self) -> str:
        return self.token

    async def replace(self, rejected: str) -> str | None:
        self.rejected.append(rejected)
        if self.renewed is not None:
            self.token = self.renewed
        return self.renewed


def make_options(**settings: Any) -> ClientOptions:
    return read_options(BASE, OLD, settings=settings, environ={})


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
async def rest(clock: QuickClock, tokens: Tokens) -> AsyncIterator[Rest]:
    rest = Rest(make_options(), tokens, clock, random=lambda: 0.5)
    yield rest
    await rest.close()


@pytest.fixture
def server() -> Any:
    with respx.mock(assert_all_called=True) as mock:
        yield mock


def one(id: str | None = "msg_1", data: Any = None, topic: str = "a.b") -> Publication:
    return Publication(topic=topic, type="t", data={"x": 1} if data is None else data, id=id)


def sent(route: respx.Route, index: int = -1) -> Any:
    return json.loads(route.calls[index].request.content)


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    body = {"title": "T", "status": status, "code": code, **more}
    headers = {"Content-Type": "application/problem+json"}
    return httpx.Response(status, content=json.dumps(body), headers=headers)


ACCEPTED = httpx.Response(200, json={"id": "msg_1", "timestamp": 9, "seq": 3})


# ---------------------------------------------------------------- publish


async def test_a_publish_carries_its_id_as_idempotency_key(rest: Rest, server: Any) -> None:
    route = server.post(MESSAGES).mock(return_value=ACCEPTED)
    result = await rest.publish(
        Publication(topic="a.b", type="t", data=None, ttl=5, id="msg_1", meta={"k": 1})
    )
    assert (result.id, result.timestamp, result.seq, result.duplicate) == ("msg_1", 9, 3, None)
    request = route.calls[0].request
    assert request.headers["Idempotency-Key"] == "msg_1"
    assert request.headers["Authorization"] == f"Bearer {OLD}"
    assert request.headers["User-Agent"].startswith("hanzoai.pubsub/")
    assert sent(route) == {"type": "t", "data": None, "ttl": 5, "id": "msg_1", "meta": {"k": 1}}


@pytest.mark.parametrize("token", ["abc", "Bearer abc", "bearer  abc"])
async def test_the_word_bearer_is_sent_once(server: Any, token: str) -> None:
    tokens = Tokens()
    tokens.token = token
    route = server.post(MESSAGES).mock(return_value=ACCEPTED)
    rest = Rest(make_options(), tokens, QuickClock())
    await rest.publish(one())
    assert route.calls[0].request.headers["Authorization"] == "Bearer abc"
    await rest.close()


@pytest.mark.parametrize(
    ("answer", "id"),
    [
        (httpx.Response(202, json={}), "msg_1"),
        (httpx.Response(204), "msg_1"),
        (httpx.Response(200, text="ok"), "msg_1"),
        (httpx.Response(200, json=[1]), "msg_1"),
        (httpx.Response(201, json={"id": "server-1", "timestamp": "odd"}), "server-1"),
    ],
)
async def test_a_publish_that_was_taken_is_taken_whatever_the_answer_looks_like(
    rest: Rest, server: Any, answer: httpx.Response, id: str
) -> None:
    server.post(MESSAGES).mock(return_value=answer)
    assert (await rest.publish(one())).id == id


async def test_a_repeat_is_told(rest: Rest, server: Any) -> None:
    body = {"id": "msg_1", "timestamp": 9, "duplicate": True}
    server.post(MESSAGES).mock(return_value=httpx.Response(200, json=body))
    assert (await rest.publish(one())).duplicate is True


async def test_bad_payloads_are_refused_before_anything_is_sent(rest: Rest) -> None:
    with pytest.raises(InvalidPayload):
        await rest.publish(one(data={"x": float("nan")}))
    with pytest.raises(PayloadTooLarge):
        await rest.publish_many([one(data="x" * 300_000)])


# ---------------------------------------------------------------- repeats


async def test_a_refusal_that_asks_to_wait_is_repeated_not_before_its_time(
    rest: Rest, server: Any, clock: QuickClock
) -> None:
    slow = httpx.Response(429, json={}, headers={"Retry-After": "2"})
    route = server.post(MESSAGES).mock(side_effect=[slow, problem(503, "unavailable"), ACCEPTED])
    assert (await rest.publish(one(id=None))).seq == 3
    assert route.call_count == 3
    assert clock.slept == [2.0, 1.0]


async def test_a_wait_beyond_the_time_of_the_call_is_not_begun(
    rest: Rest, server: Any, clock: QuickClock
) -> None:
    slow = httpx.Response(429, json={}, headers={"Retry-After": "60"})
    route = server.post(MESSAGES).mock(return_value=slow)
    with pytest.raises(RateLimited) as caught:
        await rest.publish(one(), timeout=10)
    assert caught.value.retry_after == 60
    assert route.call_count == 1
    assert clock.slept == []


async def test_attempts_are_bounded(rest: Rest, server: Any, clock: QuickClock) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(503, "unavailable"))
    with pytest.raises(Unavailable):
        await rest.publish(one())
    assert route.call_count == 4
    assert clock.slept == [0.5, 1.0, 2.0]


async def test_a_lost_answer_is_asked_for_again_with_the_same_id(rest: Rest, server: Any) -> None:
    route = server.post(MESSAGES).mock(side_effect=[httpx.ReadError("cut"), ACCEPTED])
    await rest.publish(one())
    assert [sent(route, n)["id"] for n in range(2)] == ["msg_1", "msg_1"]


@pytest.mark.parametrize(
    ("id", "features"), [(None, None), ("msg_1", frozenset({"ack"})), ("msg_1", frozenset[str]())]
)
async def test_a_lost_answer_is_not_asked_for_again_where_that_could_publish_twice(
    rest: Rest, server: Any, id: str | None, features: frozenset[str] | None
) -> None:
    rest.features = features
    route = server.post(MESSAGES).mock(side_effect=httpx.ReadTimeout("late"))
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one(id=id))
    assert caught.value.outcome_unknown
    assert caught.value.code == "outcome_unknown"
    assert caught.value.id == id
    assert route.call_count == 1


async def test_a_server_fault_is_repeated_only_where_that_is_safe(rest: Rest, server: Any) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(500, "internal"))
    with pytest.raises(Unavailable):
        await rest.publish(one(id=None))
    assert route.call_count == 1
    with pytest.raises(Unavailable):
        await rest.publish(one())
    assert route.call_count == 5


async def test_a_connection_that_never_came_about_is_always_tried_again(
    rest: Rest, server: Any
) -> None:
    rest.features = frozenset()
    refused = httpx.ConnectError("refused")
    route = server.post(MESSAGES).mock(side_effect=[refused, refused, ACCEPTED])
    await rest.publish(one(id=None))
    assert route.call_count == 3


async def test_an_earlier_attempt_of_unknown_outcome_is_not_forgotten(
    rest: Rest, server: Any
) -> None:
    failures = [httpx.ReadError("cut"), *[httpx.ConnectError("refused")] * 3]
    server.post(MESSAGES).mock(side_effect=failures)
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one())
    assert caught.value.outcome_unknown


async def test_no_connection_at_all_is_connection_failed(rest: Rest, server: Any) -> None:
    server.post(MESSAGES).mock(side_effect=httpx.ConnectError("refused"))
    with pytest.raises(ConnectionFailed) as caught:
        await rest.publish(one())
    assert "127.0.0.1" in caught.value.message
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


async def test_a_silent_server_ends_in_a_timeout_of_unknown_outcome() -> None:
    never = asyncio.Event()

    async def hang(request: httpx.Request) -> httpx.Response:
        await never.wait()
        raise AssertionError

    carried = httpx.MockTransport(hang)
    rest = Rest(make_options(), Tokens(), QuickClock(), transport=carried)
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one(), timeout=0.05)
    assert (caught.value.outcome_unknown, caught.value.id) == (True, "msg_1")
    with pytest.raises(OperationTimeout) as caught:
        await rest.topics(timeout=0.05)
    assert not caught.value.outcome_unknown
    await rest.close()


async def test_no_time_left_sends_nothing(rest: Rest) -> None:
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one(), timeout=0)
    assert not caught.value.outcome_unknown


async def test_jitter_is_full_and_capped() -> None:
    clock = QuickClock()
    options = make_options(retry=RetryOptions(base=1, cap=3), rest_attempts=6, operation_timeout=60)
    randoms = itertools.cycle([0.0, 1.0, 0.5, 1.0, 0.25])
    rest = Rest(options, Tokens(), clock, random=lambda: next(randoms))
    with respx.mock as server:
        server.get(f"{BASE}/v1/topics").mock(return_value=httpx.Response(503))
        with pytest.raises(Unavailable):
            await rest.topics()
    assert clock.slept == [0.0, 2.0, 1.5, 3.0, 0.75]
    await rest.close()


# ---------------------------------------------------------------- tokens


async def test_a_refused_token_is_renewed_once(rest: Rest, server: Any, tokens: Tokens) -> None:
    route = server.post(MESSAGES).mock(side_effect=[problem(401, "token_expired"), ACCEPTED])
    await rest.publish(one())
    assert tokens.rejected == [OLD]
    assert route.calls[1].request.headers["Authorization"] == f"Bearer {NEW}"


async def test_a_token_refused_twice_is_an_error(rest: Rest, server: Any, tokens: Tokens) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(401, "token_invalid", detail="forged"))
    with pytest.raises(AuthError, match="forged"):
        await rest.publish(one())
    assert route.call_count == 2
    assert tokens.rejected == [OLD]


async def test_a_fixed_token_is_not_tried_twice(server: Any) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(401, "token_expired"))
    rest = Rest(make_options(), Tokens(renewed=None), QuickClock())
    with pytest.raises(TokenExpired) as caught:
        await rest.publish(one())
    assert route.call_count == 1
    assert "get_token" in caught.value.remedy
    assert OLD not in str(caught.value)
    await rest.close()


async def test_a_token_callback_that_raises_raises_here(rest: Rest, tokens: Tokens) -> None:
    async def broken() -> str:
        raise AuthError("no login", code="auth_refused")

    tokens.current = broken  # type: ignore[method-assign]
    with pytest.raises(AuthError, match="no login"):
        await rest.publish(one())


# ---------------------------------------------------------------- batches


def results(*ids: str) -> httpx.Response:
    return httpx.Response(200, json={"results": [{"id": id, "timestamp": 1} for id in ids]})


async def test_many_go_in_one_request_with_one_result_each(rest: Rest, server: Any) -> None:
    refused = {"error": {"code": "forbidden", "message": "no", "topic": "c"}}
    answer = {"results": [{"id": "m1", "timestamp": 1, "seq": 1}, refused, {"duplicate": True}]}
    route = server.post(BATCH).mock(return_value=httpx.Response(200, json=answer))
    found = await rest.publish_many([one("m1"), one("m2", topic="c"), one("m3")])
    assert [message["id"] for message in sent(route)["messages"]] == ["m1", "m2", "m3"]
    assert [(result.id, result.seq) for result in found] == [("m1", 1), ("m2", None), ("m3", None)]
    assert found[1].error is not None
    assert found[1].error.code == "forbidden"
    assert found[2].duplicate


async def test_a_batch_is_cut_by_number_and_by_bytes() -> None:
    many = [one(f"m{n}") for n in range(2_500)]
    assert [len(c) for c in rest_calls.chunks(many, [7] * 2_500)] == [1000, 1000, 500]
    assert [len(c) for c in rest_calls.chunks(many[:40], [200_000] * 40)] == [20, 20]
    assert list(rest_calls.chunks([], [])) == []


async def test_many_without_a_batch_operation_go_one_by_one(rest: Rest, server: Any) -> None:
    batch = server.post(BATCH).mock(return_value=httpx.Response(404))
    single = server.post(MESSAGES).mock(
        side_effect=[ACCEPTED, problem(403, "forbidden"), ACCEPTED, ACCEPTED]
    )
    found = await rest.publish_many([one("m1"), one("m2"), one("m3")])
    assert [result.error and result.error.code for result in found] == [None, "forbidden", None]
    assert [sent(single, n)["id"] for n in range(3)] == ["m1", "m2", "m3"]
    await rest.publish_many([one("m4")])
    assert batch.call_count == 1


async def test_a_peer_without_the_feature_is_not_asked_for_a_batch(rest: Rest, server: Any) -> None:
    rest.features = frozenset({"ack"})
    server.post(MESSAGES).mock(return_value=ACCEPTED)
    assert len(await rest.publish_many([one("m1"), one("m2")])) == 2


async def test_what_follows_a_batch_that_failed_is_told_as_not_sent(
    rest: Rest, server: Any
) -> None:
    ids = [f"m{n}" for n in range(1_000)]
    server.post(BATCH).mock(
        side_effect=[results(*ids), *[problem(429, "rate_limited", retry_after_ms=90)] * 4]
    )
    found = await rest.publish_many([one(f"m{n}") for n in range(1_002)])
    assert [result.error for result in found[:1_000]] == [None] * 1_000
    last = found[-1]
    assert last.id == "m1001"
    assert last.error is not None
    assert (last.error.code, last.error.retry_after_ms) == ("rate_limited", 90)


async def test_a_batch_of_which_nothing_went_raises(rest: Rest, server: Any) -> None:
    server.post(BATCH).mock(return_value=problem(403, "forbidden"))
    with pytest.raises(PermissionDenied):
        await rest.publish_many([one()])


@pytest.mark.parametrize("body", [{"results": []}, {"results": 3}, {}, [1]])
async def test_an_answer_that_fits_no_batch_is_a_protocol_error(
    rest: Rest, server: Any, body: Any
) -> None:
    server.post(BATCH).mock(return_value=httpx.Response(200, json=body))
    with pytest.raises(ProtocolError):
        await rest.publish_many([one()])


# ---------------------------------------------------------------- reading


async def test_a_page_of_history_is_asked_for_by_what_is_given(rest: Rest, server: Any) -> None:
    body = {"messages": [ENVELOPE], "has_more": True, "position": 7, "truncated": True}
    route = server.get(f"{BASE}/v1/topics/a.b/history").mock(
        return_value=httpx.Response(200, json=body)
    )
    page = await rest.history("a.b", since=0, before="m 9&x", limit=10)
    assert (page.has_more, page.position, page.truncated) == (True, 7, True)
    assert page.messages[0].wire() == ENVELOPE
    assert dict(route.calls[0].request.url.params) == {
        "since": "0",
        "before": "m 9&x",
        "limit": "10",
    }
    await rest.history("a.b", after=3)
    assert dict(route.calls[1].request.url.params) == {"after": "3"}


async def test_a_page_of_a_plain_peer_is_read_as_far_as_it_can_be(rest: Rest, server: Any) -> None:
    odd = [{"id": "1", "topic": "a", "data": 1, "message_type": "t"}, 5, {"id": "2"}]
    body = {"messages": odd, "has_more": None, "position": "x"}
    server.get(f"{BASE}/v1/topics/a.b/history").mock(return_value=httpx.Response(200, json=body))
    page = await rest.history("a.b")
    assert [(m.id, m.type, m.timestamp) for m in page.messages] == [("1", "t", 0)]
    assert (page.has_more, page.position) == (False, None)


async def test_presence_and_topics_are_read_in_every_form(rest: Rest, server: Any) -> None:
    members = [{"id": "alice", "name": "Alice"}, 3]
    server.get(f"{BASE}/v1/topics/a.b/presence").mock(
        return_value=httpx.Response(200, json={"members": members})
    )
    assert [member.user_id for member in await rest.presence("a.b")] == ["alice"]
    full = {"topic": "a", "subscribers": 2, "messages": 3, "position": 9, "last_message_at": 4}
    route = server.get(f"{BASE}/v1/topics").mock(
        side_effect=[
            httpx.Response(200, json={"topics": [full], "has_more": True}),
            httpx.Response(200, json={"topics": ["x", {"name": "y", "subscribers": -1}, {}, 4.5]}),
        ]
    )
    listed = await rest.topics(prefix="a.", limit=5)
    assert (listed.topics[0].wire(), listed.has_more) == (full, True)
    assert dict(route.calls[0].request.url.params) == {"prefix": "a.", "limit": "5"}
    assert [(t.topic, t.subscribers) for t in (await rest.topics()).topics] == [("x", 0), ("y", 0)]


async def test_positions_are_asked_for_by_topic_and_waited_for_beyond_the_timeout(
    rest: Rest, server: Any
) -> None:
    stand = {"topic": "a.b", "first": 3, "last": 9, "at": 4}
    route = server.post(f"{BASE}/v1/positions").mock(
        side_effect=[
            httpx.Response(200, json={"positions": [stand], "timestamp": 7}),
            httpx.Response(200, json={"positions": [{"topic": "a.*"}], "timestamp": 7}),
            httpx.Response(404),
        ]
    )
    found = await rest.positions(
        ["a.b", "c.*"], after={"a.b": 3}, at=4, wait_ms=30_000, timeout=0.05
    )
    assert found.wire() == {"positions": [stand], "timestamp": 7}
    body = {"topics": ["a.b", "c.*"], "after": {"a.b": 3}, "at": 4, "wait_ms": 30_000}
    assert json.loads(route.calls[0].request.content) == body
    with pytest.raises(ProtocolError, match="positions in a way not understood"):
        await rest.positions(["a.b"])
    with pytest.raises(NotFound):
        await rest.positions(["a.b"])
    assert json.loads(route.calls[1].request.content) == {"topics": ["a.b"]}


async def test_the_session_of_a_plain_peer_is_none(rest: Rest, server: Any) -> None:
    info = {"client_id": "cl", "version": 1, "features": ["ref"], "limits": {"max_batch": 5}}
    server.get(f"{BASE}/v1/session").mock(
        side_effect=[httpx.Response(200, json=info), httpx.Response(404), httpx.Response(405)]
    )
    found = await rest.session()
    assert found is not None
    assert (found.client_id, found.features) == ("cl", ["ref"])
    assert await rest.session() is None
    assert await rest.session() is None


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>Welcome</html>"),
        httpx.Response(200, json={"members": 5}),
        httpx.Response(200, json=[]),
    ],
)
async def test_an_answer_of_something_else_is_a_protocol_error(
    rest: Rest, server: Any, answer: httpx.Response
) -> None:
    server.get(f"{BASE}/v1/topics/a.b/presence").mock(return_value=answer)
    with pytest.raises(ProtocolError):
        await rest.presence("a.b")


async def test_an_answer_over_the_limit_is_not_read_to_its_end(server: Any) -> None:
    rest = Rest(make_options(max_frame=1_024), Tokens(), QuickClock())
    server.get(f"{BASE}/v1/topics").mock(return_value=httpx.Response(200, content=b"x" * 2_000))
    with pytest.raises(ProtocolError, match="more than 1,024 bytes"):
        await rest.topics()
    await rest.close()


async def test_a_redirect_is_not_followed(rest: Rest, server: Any) -> None:
    server.get(f"{BASE}/v1/topics").mock(
        return_value=httpx.Response(302, headers={"Location": "http://evil.example/"})
    )
    with pytest.raises(ProtocolError):
        await rest.topics()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "body", "cls", "code"),
    [
        (400, {"code": "invalid_topic", "detail": "d"}, PubSubError, "invalid_topic"),
        (400, {"detail": [{"loc": ["query"]}]}, InvalidOption, "invalid_option"),
        (401, {"error": "unauthorized"}, AuthError, "unauthenticated"),
        (401, {"error": "token_expired"}, TokenExpired, "token_expired"),
        (403, {"error": {"code": "forbidden", "message": "d"}}, PermissionDenied, "forbidden"),
        (403, "<html>", PermissionDenied, "forbidden"),
        (404, "", NotFound, "not_found"),
        (405, {}, Unsupported, "unsupported"),
        (409, {"code": 409, "message": "d"}, Conflict, "conflict"),
        (413, {"message": "d"}, PayloadTooLarge, "payload_too_large"),
        (415, {}, Unsupported, "unsupported"),
        (418, {}, ProtocolError, "invalid_frame"),
        (422, {"code": "invalid_payload"}, InvalidPayload, "invalid_payload"),
        (429, {"code": "connection_limit"}, PubSubError, "connection_limit"),
        (500, {}, Unavailable, "internal"),
        (502, "Bad gateway", Unavailable, "unavailable"),
        (507, {}, Unavailable, "internal"),
        (400, {"code": "quota", "detail": "d"}, PubSubError, "quota"),
    ],
)
def test_every_error_body_is_understood(
    status: int, body: Any, cls: type[PubSubError], code: str
) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = read_error(status, {}, raw, "a.b")
    assert isinstance(error, cls)
    assert error.code == code
    assert error.topic == "a.b"
    if isinstance(body, dict) and "d" in json.dumps(body).split('"'):
        assert error.message == "d"
    assert error.message


def test_a_problem_document_is_read_whole() -> None:
    body = {
        "title": "T",
        "status": 429,
        "code": "rate_limited",
        "detail": "10 a second",
        "remedy": "Wait.",
        "field": "data",
        "topic": "c",
        "retry_after_ms": 250,
    }
    error = read_error(429, {"retry-after": "1"}, json.dumps(body).encode(), "a.b")
    assert isinstance(error, RateLimited)
    assert (error.message, error.remedy, error.field) == ("10 a second", "Wait.", "data")
    assert (error.topic, error.retry_after) == ("c", 0.25)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        (" 1.5 ", 1.5),
        ("-5", 0.0),
        ("1e9", 3600.0),
        ("nan", None),
        ("soon", None),
        ("", None),
        (format_datetime(datetime.fromtimestamp(1_000, UTC), usegmt=True), 10.0),
        (format_datetime(datetime.fromtimestamp(900, UTC), usegmt=True), 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_of(value, wall=990.0) == seconds


def test_statuses_stand_for_close_codes() -> None:
    assert [close_code_for(s) for s in (401, 403, 429, 503, 404)] == [4401, 4403, 4429, 1013, None]


def test_causes_of_a_failure_are_told_apart() -> None:
    def wrapped(cause: BaseException) -> BaseException:
        error = httpx.ConnectError("x")
        error.__cause__ = cause
        return error

    assert "cannot be resolved" in why_unreachable(wrapped(socket.gaierror(8, "n")), "h")
    assert "nothing listens" in why_unreachable(wrapped(ConnectionRefusedError()), "h")
    assert "reset" in why_unreachable(wrapped(ConnectionResetError()), "h")
    assert "in time" in why_unreachable(wrapped(TimeoutError()), "h")
    assert "TLS" in why_unreachable(wrapped(ssl.SSLError(1, "x")), "h")
    assert "cannot be reached (ValueError)" in why_unreachable(ValueError(), "h")
    both = ExceptionGroup("x", [OSError("y"), ConnectionRefusedError()])
    assert "nothing listens" in why_unreachable(both, "h")


async def test_what_was_never_sent_of_a_batch_has_no_unknown_outcome(
    rest: Rest, server: Any
) -> None:
    rest.features = frozenset({"batch"})  # and no idempotency: one attempt
    ids = [f"m{n}" for n in range(1_000)]
    server.post(BATCH).mock(side_effect=[results(*ids), httpx.ReadError("cut")])
    found = await rest.publish_many([one(f"m{n}") for n in range(2_500)])
    codes = [result.error and result.error.code for result in found]
    assert codes == [None] * 1_000 + ["outcome_unknown"] * 1_000 + ["timeout"] * 500
    assert [result.id for result in found[-2:]] == ["m2498", "m2499"]


async def test_a_first_batch_that_failed_does_not_speak_for_those_behind_it(
    rest: Rest, server: Any
) -> None:
    rest.features = frozenset({"batch"})
    server.post(BATCH).mock(side_effect=httpx.ReadError("cut"))
    found = await rest.publish_many([one(f"m{n}") for n in range(1_001)])
    assert {result.error and result.error.code for result in found[:1_000]} == {"outcome_unknown"}
    assert found[1_000].error is not None
    assert found[1_000].error.code == "timeout"


async def test_a_token_that_does_not_come_leaves_no_outcome_unknown(clock: QuickClock) -> None:
    class Never(Tokens):
        async def current(self) -> str:
            return await asyncio.Future[str]()

    rest = Rest(make_options(), Never(), clock, random=lambda: 0.5)
    with pytest.raises(OperationTimeout, match="get_token gave no token") as told:
        await rest.publish(one(), timeout=0.01)
    assert not told.value.outcome_unknown
    await rest.close()


class Mute(httpx.AsyncBaseTransport):
    """Takes requests and answers when it is told to."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()
        self.go_on = asyncio.Event()
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.taken.set()
        await self.go_on.wait()
        return httpx.Response(200, json={"id": "msg_1", "timestamp": 9, "seq": 3, "members": []})


async def test_close_ends_a_question_at_once_and_waits_for_a_publish(clock: QuickClock) -> None:
    mute = Mute()
    rest = Rest(make_options(), Tokens(), clock, transport=mute)
    async with asyncio.timeout(5):
        question = asyncio.create_task(rest.presence("a.b"))
        publish = asyncio.create_task(rest.publish(one()))
        await mute.taken.wait()
        closing = asyncio.create_task(rest.close(4))
        with pytest.raises(ClosedError):
            await question
        mute.go_on.set()
        assert (await publish).seq == 3
        await closing


async def test_close_without_patience_leaves_no_call_behind(clock: QuickClock) -> None:
    mute = Mute()
    rest = Rest(make_options(), Tokens(), clock, transport=mute)
    async with asyncio.timeout(5):
        publish = asyncio.create_task(rest.publish(one()))
        await mute.taken.wait()
        await rest.close()
        assert publish.done()
        with pytest.raises(OperationTimeout) as told:
            await publish
        assert told.value.outcome_unknown
        with pytest.raises(ClosedError):
            await rest.publish(one())
    assert mute.requests == 1
