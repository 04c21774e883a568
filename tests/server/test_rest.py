"""The REST API of a real server, request by request."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from pubsub_server.errors import ServiceError
from pubsub_server.shared import member_lists
from pubsub_server.testing import RunningServer, running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

TOPIC = "chat.session.abc"
MESSAGES = f"/v1/topics/{TOPIC}/messages"
HISTORY = f"/v1/topics/{TOPIC}/history"


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    limits = {"publish_rate_user": 1e6, "publish_rate_service": 1e6, "linger_timeout": 100}
    async with running_server(**limits) as running:
        yield running


def api(server: RunningServer, token: str | None = None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return http_client(base_url=server.http, headers=headers)


@pytest.fixture
async def rest(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the token of a service that owns the session."""
    async with api(server, server.service_token(sessions_owned=["abc"])) as client:
        yield client


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["instance"] == answer.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    assert body["remedy"]
    return body


async def raw(server: RunningServer, data: bytes, *, wait: float = 10) -> bytes:
    host, port = server.http.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        async with asyncio.timeout(wait):
            return await reader.read()
    finally:
        writer.close()


async def test_a_publish_is_201_and_its_repeat_is_200_with_duplicate(
    rest: httpx.AsyncClient,
) -> None:
    body = {"type": "token", "data": {"n": 1}, "id": "once"}
    first = await rest.post(MESSAGES, json=body)
    again = await rest.post(MESSAGES, json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == {**again.json(), "duplicate": False}
    assert again.json()["duplicate"] is True
    assert len((await rest.get(HISTORY)).json()["messages"]) == 1


async def test_the_idempotency_key_is_the_id(rest: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    answer = await rest.post(MESSAGES, json={"data": 1}, headers=headers)
    assert answer.json()["id"] == "k1"
    again = await rest.post(MESSAGES, json={"data": 1, "id": "k1"}, headers=headers)
    assert again.json()["duplicate"] is True


async def test_the_same_id_with_another_payload_is_a_conflict(rest: httpx.AsyncClient) -> None:
    await rest.post(MESSAGES, json={"data": 1, "id": "k"})
    problem(await rest.post(MESSAGES, json={"data": 2, "id": "k"}), 409, "conflict")


@pytest.mark.parametrize(
    ("key", "body"), [("a", {"data": 1, "id": "b"}), ("x" * 129, {"data": 1}), ("a b", {"data": 1})]
)
async def test_a_key_that_differs_or_is_no_key_is_refused(
    rest: httpx.AsyncClient, key: str, body: dict[str, object]
) -> None:
    answer = await rest.post(MESSAGES, json=body, headers={"Idempotency-Key": key})
    assert problem(answer, 400, "invalid_option")["field"] == "Idempotency-Key"


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"", 400, "invalid_frame", None),
        (b"{", 400, "invalid_frame", None),
        (b"[]", 400, "invalid_frame", None),
        (b"\xff\xfe", 400, "invalid_frame", None),
        (b'{"data": NaN}', 400, "invalid_frame", None),
        (b"[" * 100_000, 400, "invalid_frame", None),
        (b"{}", 400, "invalid_frame", "data"),
        (b'{"type": 7, "data": 1}', 400, "invalid_frame", "type"),
        (b'{"type": "", "data": 1}', 400, "invalid_frame", "type"),
        (b'{"data": 1, "ttl": -1}', 400, "invalid_frame", "ttl"),
        (b'{"data": 1, "ttl": 1.5}', 400, "invalid_frame", "ttl"),
        (b'{"data": 1, "id": ""}', 400, "invalid_frame", "id"),
        (b'{"data": 1, "meta": []}', 400, "invalid_frame", "meta"),
        (b'{"data": 1, "topic": "other"}', 400, "invalid_frame", "topic"),
    ],
)
async def test_a_body_that_is_wrong_is_refused_by_field(
    rest: httpx.AsyncClient, body: bytes, status: int, code: str, field: str | None
) -> None:
    answer = await rest.post(MESSAGES, content=body, headers={"Content-Type": "application/json"})
    assert problem(answer, status, code).get("field") == field


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_body_of_another_type_is_415(rest: httpx.AsyncClient, kind: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = await rest.post(MESSAGES, content=b'{"data":1}', headers=headers)
    output = problem(answer, 415, "unsupported")
    assert output["field"] == "Content-Type"
    assert "bodies of this type" in output["title"]


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/v1/access", "Add it to the address: `?topic="),
        ("/v1/subscribe", "Add it to the address: `?topics="),
        (f"{HISTORY}?limit=x", "Give such a number"),
        (f"{HISTORY}?limit=1&limit=2", "Give `limit` once"),
        ("/v1/topics?prefix=*", "without wildcards"),
    ],
)
async def test_an_invalid_parameter_is_reported_with_a_remedy(
    rest: httpx.AsyncClient, path: str, remedy: str
) -> None:
    assert remedy in problem(await rest.get(path), 400, "invalid_option")["remedy"]


async def test_the_error_of_a_request_without_a_token_names_the_header(
    server: RunningServer,
) -> None:
    async with api(server) as client:
        output = problem(await client.get(HISTORY), 401, "unauthenticated")
    assert output["remedy"] == "Send the header `Authorization: Bearer TOKEN`."


async def test_a_compressed_body_is_415_and_not_unpacked(rest: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = await rest.post(MESSAGES, content=b"\x1f\x8b", headers=headers)
    assert problem(answer, 415, "unsupported")["field"] == "Content-Encoding"


async def test_256_kb_pass_and_one_byte_more_does_not(rest: httpx.AsyncClient) -> None:
    fits = "x" * (262_144 - 2)
    assert (await rest.post(MESSAGES, json={"data": fits})).status_code == 201
    answer = await rest.post(MESSAGES, json={"data": fits + "x"})
    assert problem(answer, 413, "payload_too_large")["field"] == "data"


async def test_a_body_beyond_all_limits_is_refused_unread(server: RunningServer) -> None:
    head = (
        f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: {server.service_token()}\r\nConnection: close\r\n"
    )
    answer = await raw(server, f"{head}Content-Length: 104857600\r\n\r\n".encode())
    assert b" 413 " in answer.split(b"\r\n")[0]
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    answer = await raw(server, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 6)
    assert b" 413 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("topic", "status", "code"),
    [
        ("chat..x", 400, "invalid_topic"),
        ("chat.*", 400, "invalid_topic"),
        ("chat.%C3%BC", 400, "invalid_topic"),
        ("a" * 256, 400, "invalid_topic"),
        ("%00", 400, "invalid_topic"),
        ("a%2Fb", 400, "invalid_topic"),
    ],
)
async def test_an_invalid_topic_is_refused(
    rest: httpx.AsyncClient, topic: str, status: int, code: str
) -> None:
    for method, path, body in (
        ("POST", "messages", {"data": 1}),
        ("GET", "history", None),
        ("GET", "presence", None),
    ):
        answer = await rest.request(method, f"/v1/topics/{topic}/{path}", json=body)
        problem(answer, status, code)


async def test_a_batch_answers_each_item_in_order(rest: httpx.AsyncClient) -> None:
    items = [
        {"topic": TOPIC, "data": 0},
        {"topic": "a.*", "data": 1},
        {"topic": TOPIC, "data": 2, "id": "i"},
        7,
        {"topic": TOPIC, "data": 2, "id": "i"},
        {"topic": TOPIC},
    ]
    answer = await rest.post("/v1/messages:batch", json={"messages": items})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result.get("error", {}).get("code") for result in results] == [
        None,
        "invalid_topic",
        None,
        "invalid_frame",
        None,
        "invalid_frame",
    ]
    assert [result.get("duplicate") for result in results] == [False, None, False, None, True, None]
    assert results[1]["error"]["remedy"]
    history = (await rest.get(HISTORY)).json()["messages"]
    assert [message["data"] for message in history] == [0, 2]


@pytest.mark.parametrize("messages", [None, [], {}, "x", [{"topic": "a", "data": 1}] * 1001])
async def test_a_batch_of_none_or_too_many_is_refused(
    rest: httpx.AsyncClient, messages: object
) -> None:
    answer = await rest.post("/v1/messages:batch", json={"messages": messages})
    assert problem(answer, 400, "invalid_frame")["field"] == "messages"


async def test_beyond_the_rate_there_is_429_with_the_time_to_wait() -> None:
    async with (
        running_server(publish_rate_service=0.01, publish_burst="200s") as server,
        api(server, server.service_token(sessions_owned=["abc"])) as rest,
    ):
        for _ in range(2):
            assert (await rest.post(MESSAGES, json={"data": 1})).status_code == 201
        answer = await rest.post(MESSAGES, json={"data": 1})
        body = problem(answer, 429, "rate_limited")
        assert 0 < body["retry_after_ms"] <= 100_000
        assert answer.headers["retry-after"] == str(math.ceil(body["retry_after_ms"] / 1000))
        batch = {"messages": [{"topic": TOPIC, "data": 1}] * 3}
        results = (await rest.post("/v1/messages:batch", json=batch)).json()["results"]
        assert [r["error"]["code"] for r in results] == ["rate_limited"] * 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=x", "since"),
        ("since=-1", "since"),
        ("since=1.5", "since"),
        ("since=", "since"),
        ("since=99999999999999999999999", "since"),
        ("since=%D9%A1", "since"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=5&limit=6", "limit"),
        ("after=-1", "after"),
        ("before=" + "x" * 129, "before"),
        ("before_seq=x", "before_seq"),
        ("before_seq=-1", "before_seq"),
        ("before_seq=", "before_seq"),
        ("before_seq=9007199254740992", "before_seq"),
    ],
)
async def test_an_absurd_query_is_refused_by_name(
    rest: httpx.AsyncClient, query: str, field: str
) -> None:
    answer = await rest.get(f"{HISTORY}?{query}")
    assert problem(answer, 400, "invalid_option")["field"] == field


async def test_before_and_after_exclude_each_other(rest: httpx.AsyncClient) -> None:
    for before in ("before=x", "before_seq=0"):
        answer = await rest.get(f"{HISTORY}?{before}&after=1")
        assert problem(answer, 400, "invalid_option")["field"] == "after"


async def test_a_position_to_end_before_replaces_the_id(rest: httpx.AsyncClient) -> None:
    for n in range(4):
        await rest.post(MESSAGES, json={"data": n})
    last = (await rest.get(HISTORY)).json()["messages"][-1]
    for before in ("", "&before=unknown", f"&before={last['id']}"):
        page = (await rest.get(f"{HISTORY}?limit=2&before_seq={last['seq'] - 1}{before}")).json()
        assert ([m["data"] for m in page["messages"]], page["has_more"]) == ([0, 1], False)
    assert (await rest.get(f"{HISTORY}?before_seq=0")).json()["messages"] == []


async def test_history_pages_forward_by_position(rest: httpx.AsyncClient) -> None:
    for n in range(5):
        await rest.post(MESSAGES, json={"data": n})
    newest = (await rest.get(HISTORY)).json()
    first = newest["messages"][0]["seq"]
    page = (await rest.get(f"{HISTORY}?after={first}&limit=2")).json()
    assert [m["data"] for m in page["messages"]] == [1, 2]
    assert page["has_more"] is True
    assert page["position"] == newest["messages"][-1]["seq"] == first + 4
    rest_of_it = (await rest.get(f"{HISTORY}?after={page['messages'][-1]['seq']}")).json()
    assert [m["data"] for m in rest_of_it["messages"]] == [3, 4]
    assert rest_of_it["has_more"] is False


async def test_unknown_parameters_and_fields_are_ignored(rest: httpx.AsyncClient) -> None:
    assert (await rest.get(f"{HISTORY}?colour=blue")).status_code == 200
    assert (await rest.post(MESSAGES, json={"data": 1, "colour": "blue"})).status_code == 201


async def test_null_stands_for_absent_and_a_whole_number_may_have_a_point(
    rest: httpx.AsyncClient,
) -> None:
    body = b'{"data": null, "id": null, "meta": null, "ttl": 60.0}'
    answer = await rest.post(MESSAGES, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201
    (message,) = (await rest.get(HISTORY)).json()["messages"]
    assert (message["data"], message["ttl"]) == (None, 60)
    assert "meta" not in message


async def test_the_session_contains_what_auth_ok_contains(server: RunningServer) -> None:
    async with api(server, server.token("alice", ttl=60)) as rest:
        body = (await rest.get("/v1/session")).json()
    assert body["user_id"] == "alice"
    assert body["version"] == 1
    assert "seq" in body["features"]
    # Both are rounded to milliseconds, and a fast machine answers in the same one.
    assert 0 < body["expires_at"] - body["server_time"] <= 60_000 + 1
    assert body["limits"]["max_payload"] == 262_144


async def test_access_reports_which_rule_decides(server: RunningServer) -> None:
    async with api(server, server.token("alice", agents=["bot1"])) as rest:
        allowed = (await rest.get("/v1/access?topic=agent.bot1.events")).json()
        denied = (await rest.get("/v1/access?topic=agent.bot2.events")).json()
        nothing = (await rest.get("/v1/access?topic=nowhere.**")).json()
        assert (allowed["subscribe"], allowed["publish"]) == (True, False)
        assert denied["subscribe"] is False
        assert "agent_access of `bot2`" in denied["reason"]
        assert allowed["rule"] == denied["rule"]
        assert "rule" not in nothing
        problem(await rest.get("/v1/access"), 400, "invalid_option")
        problem(await rest.get("/v1/access?topic=a..b"), 400, "invalid_topic")


async def test_only_admins_list_topics(server: RunningServer, rest: httpx.AsyncClient) -> None:
    for name in ("a.1", "a.2", "b.1"):
        await rest.post(f"/v1/topics/{name}/messages", json={"data": 1})
    problem(await rest.get("/v1/topics"), 403, "forbidden")
    async with api(server, server.admin_token()) as admin:
        body = (await admin.get("/v1/topics?prefix=a.&limit=1")).json()
        assert [topic["topic"] for topic in body["topics"]] == ["a.1"]
        assert body["topics"][0]["messages"] == 1
        assert body["has_more"] is True
        for query in ("prefix=a*", "prefix=" + "a" * 300, "limit=0", "limit=1001"):
            problem(await admin.get(f"/v1/topics?{query}"), 400, "invalid_option")


async def test_a_user_may_not_publish_and_a_stranger_may_not_read(server: RunningServer) -> None:
    async with api(server, server.token("alice", sessions_owned=["abc"])) as alice:
        problem(await alice.post(MESSAGES, json={"data": 1}), 403, "forbidden")
        assert (await alice.get(HISTORY)).status_code == 200
    async with api(server, server.token("mallory")) as mallory:
        problem(await mallory.get(HISTORY), 403, "forbidden")
        problem(await mallory.get(f"/v1/topics/{TOPIC}/presence"), 403, "forbidden")


@pytest.mark.parametrize(
    ("header", "code", "challenge"),
    [
        (None, "unauthenticated", 'Bearer realm="pubsub"'),
        ("", "unauthenticated", 'Bearer realm="pubsub"'),
        ("Basic a b", "unauthenticated", 'Bearer realm="pubsub"'),
        ("Bearer x", "token_invalid", 'Bearer realm="pubsub", error="invalid_token"'),
    ],
)
async def test_without_a_good_token_there_is_401_with_a_challenge(
    server: RunningServer, header: str | None, code: str, challenge: str
) -> None:
    headers = {} if header is None else {"Authorization": header}
    async with api(server) as rest:
        answer = await rest.get("/v1/session", headers=headers)
    problem(answer, 401, code)
    assert answer.headers["www-authenticate"] == challenge


async def test_an_expired_token_is_distinguished(server: RunningServer) -> None:
    async with api(server, server.token(ttl=-1)) as rest:
        problem(await rest.get("/v1/session"), 401, "token_expired")


@pytest.mark.parametrize("name", ["token", "access_token", "api_key"])
async def test_a_token_in_the_address_is_never_read_and_the_answer_says_so(
    server: RunningServer, name: str
) -> None:
    async with api(server) as rest:
        token = server.admin_token()
        for path in ("/v1/session", "/v1/topics", "/v1/subscribe?topics=system.a"):
            answer = await rest.get(path, params={name: token, "topics": "system.a"})
            body = problem(answer, 401, "unauthenticated")
            assert "address" in body["detail"]
            assert token not in answer.text


async def test_the_word_bearer_may_be_left_out(server: RunningServer) -> None:
    async with api(server) as rest:
        answer = await rest.get("/v1/session", headers={"Authorization": server.token()})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", MESSAGES, "OPTIONS, POST"),
        ("GET", MESSAGES, "OPTIONS, POST"),
        ("POST", HISTORY, "GET, HEAD, OPTIONS"),
        ("HEAD", "/v1/subscribe", "GET, OPTIONS, POST"),
        ("PUT", "/healthz", "GET, HEAD, OPTIONS"),
        ("TRACE", "/", "GET, HEAD, OPTIONS"),
    ],
)
async def test_another_method_is_405_and_lists_the_allowed_ones(
    rest: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await rest.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    if method != "HEAD":
        assert "method" in problem(answer, 405, "unsupported")["title"]
    options = await rest.options(path)
    assert (options.status_code, options.headers["allow"]) == (204, allowed)


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/topics/a/b/history", "/v1/topics/", "/v2/topics"]
)
async def test_another_address_is_404(rest: httpx.AsyncClient, path: str) -> None:
    problem(await rest.get(path), 404, "not_found")
    problem(await rest.options(path), 404, "not_found")


async def test_head_answers_as_get_without_a_body(rest: httpx.AsyncClient) -> None:
    get, head = await rest.get(HISTORY), await rest.head(HISTORY)
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"]


async def test_pages_of_every_origin_may_call_by_default(
    rest: httpx.AsyncClient,
) -> None:
    preflight = await rest.options(
        MESSAGES,
        headers={"Origin": "https://x.example", "Access-Control-Request-Method": "POST"},
    )
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "Authorization" in preflight.headers["access-control-allow-headers"]
    for path in (HISTORY, "/nothing"):
        answer = await rest.get(path, headers={"Origin": "https://x.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers


async def test_where_origins_are_listed_others_are_not_allowed_and_the_log_names_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        running_server(cors_origins=["https://a.example"]) as server,
        api(server, server.token()) as rest,
    ):
        ours = await rest.get("/v1/session", headers={"Origin": "https://a.example"})
        assert ours.headers["access-control-allow-origin"] == "https://a.example"
        for headers in ({"Origin": "https://b.example"}, {}):
            answer = await rest.get("/v1/session", headers=headers)
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "Origin"
    (line,) = [each for each in caplog.messages if "cors_origins" in each]
    assert "'https://b.example'" in line


async def test_a_listed_origin_with_the_host_of_the_server_and_another_scheme_is_allowed() -> None:
    origin = "http://pubsub.example"
    async with (
        running_server(cors_origins=[origin]) as server,
        api(server, server.token()) as rest,
    ):
        headers = {"Origin": origin, "Host": "pubsub.example"}
        answer = await rest.get("/v1/session", headers=headers)
        assert answer.headers["access-control-allow-origin"] == origin


async def test_the_log_does_not_report_requests_of_a_page_of_the_server_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        running_server(cors_origins=["https://a.example"]) as server,
        api(server, server.token()) as rest,
    ):
        await rest.get("/v1/session", headers={"Origin": server.http})
    assert not [each for each in caplog.messages if "cors_origins" in each]


async def test_a_request_id_is_kept_where_it_is_one(rest: httpx.AsyncClient) -> None:
    answer = await rest.get("/nothing", headers={"X-Request-Id": "my-id.1"})
    assert problem(answer, 404, "not_found")["instance"] == "my-id.1"
    for wrong in ("a b", "x" * 65, "<script>"):
        answer = await rest.get("/nothing", headers={"X-Request-Id": wrong})
        assert answer.headers["x-request-id"] != wrong


async def test_health_readiness_metrics_and_pages_need_no_token(server: RunningServer) -> None:
    async with api(server) as rest:
        assert (await rest.get("/healthz")).json() == {"status": "ok"}
        assert (await rest.get("/readyz")).json() == {"status": "ok"}
        assert "hanzo_pubsub_connections" in (await rest.get("/metrics")).text
        page = await rest.get("/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        description = (await rest.get("/v1/openapi.json")).json()
        assert description["openapi"].startswith("3.1")


async def test_invalid_http_is_rejected_and_the_server_continues(server: RunningServer) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/messages:batch HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ):
        answer = await raw(server, data)
        assert answer.startswith(b"HTTP/1."), data[:40]
        assert b" 400 " in answer.split(b"\r\n")[0], data[:40]
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["code"] == "invalid_frame"
    async with api(server) as rest:
        assert (await rest.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /v1/access?topic=%FF HTTP/1.1",
        b"GET /v1/access?topic=%ED%A0%80 HTTP/1.1",
        b"GET /v1/topics/%ED%A0%80/history HTTP/1.1",
        b"GET /v1/topics/a/history?before=%FF%00 HTTP/1.1",
        b"GET /v1/topics?prefix=%FF HTTP/1.1",
        b"GET /%00 HTTP/1.1",
        b"GET * HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /healthz HTTP/1.1\r\nAuthorization: Bearer \xff\xfe",
        b"GET /v1/session HTTP/1.1\r\nAuthorization: Bearer \xff\xfe",
        b"GET /v1/session HTTP/1.1\r\nAuthorization: \xed\xa0\x80",
        b"GET /v1/session HTTP/1.1\r\nX-Request-Id: \xff",
        b"GET /v1/session HTTP/1.1\r\nOrigin: \xff",
        b"POST /v1/messages:batch HTTP/1.1\r\nContent-Type: \xff",
    ],
)
async def test_odd_bytes_in_a_head_are_no_failure(
    server: RunningServer, request_line: bytes
) -> None:
    token = server.admin_token().encode()
    if b"Authorization" not in request_line:
        request_line += b"\r\nAuthorization: " + token
    answer = await raw(server, request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert 200 <= int(answer.split(b" ")[1]) < 500


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET " + b"/" * 60_000 + b" HTTP/1.1", 404),
        (b"GET /" + b"a/.." * 15_000 + b"?q HTTP/1.1", 404),
        (
            f"POST {MESSAGES} HTTP/1.1\r\nContent-Type: application/json".encode() + b";a" * 15_000,
            201,
        ),
        (f"POST {MESSAGES} HTTP/1.1\r\nContent-Type: multipart/x".encode() + b';a="' * 8_000, 415),
    ],
)
async def test_a_long_head_takes_few_steps(server: RunningServer, head: bytes, status: int) -> None:
    head += b"\r\nAuthorization: " + server.admin_token().encode()
    body = b"\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n" + b'{"data":1}'
    calls = 0

    def count(*event: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        answer = await raw(server, head + body)
    finally:
        sys.setprofile(None)
    assert int(answer.split(b" ")[1]) == status
    assert calls < 20_000


async def test_the_type_of_a_body_may_have_parameters_and_any_case(rest: httpx.AsyncClient) -> None:
    for kind in ("Application/JSON ; charset=utf-8", "application/cloudevents+json"):
        answer = await rest.post(MESSAGES, content=b'{"data":1}', headers={"Content-Type": kind})
        assert answer.status_code == 201


async def test_a_websocket_request_to_the_http_port_names_the_right_address(
    server: RunningServer,
) -> None:
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    answer = await raw(server, b"GET /ws HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n")
    assert b" 404 " in answer.split(b"\r\n")[0]
    assert b"8057" in answer


async def test_a_client_that_sends_its_headers_too_slowly_is_cut() -> None:
    # The second client needs less, on a busy machine, too.
    async with running_server(header_timeout=1_500) as server:
        assert await raw(server, b"GET /healthz HTTP/1.1\r\nX-Slow: ") == b""
        async with api(server) as rest:
            assert (await rest.get("/healthz")).status_code == 200


async def test_a_client_that_sends_the_body_byte_by_byte_is_refused() -> None:
    async with running_server(body_timeout=50, linger_timeout=0) as server:
        head = (
            f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: {server.service_token()}\r\nConnection: close\r\n"
            'Content-Length: 20\r\n\r\n{"dat'
        )
        answer = await raw(server, head.encode())
        assert b"did not arrive within" in answer


async def test_a_truncated_body_affects_no_other_client(server: RunningServer) -> None:
    host, port = server.http.removeprefix("http://").split(":")
    for _ in range(5):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: {server.service_token()}\r\nContent-Length: 20\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    async with api(server) as rest:
        assert (await rest.get("/healthz")).status_code == 200


async def test_a_client_that_does_not_read_the_answer_is_cut() -> None:
    async with (
        # Each body of a publish must arrive within this time, on a busy machine, too.
        running_server(body_timeout=1_000, publish_rate_service=1e6) as server,
        api(server, server.service_token(sessions_owned=["abc"])) as rest,
    ):
        for _ in range(40):
            answer = await rest.post(MESSAGES, json={"data": "x" * 250_000})
            assert answer.status_code == 201
        await rest.aclose()
        host, port = server.http.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        token = server.service_token(sessions_owned=["abc"])
        writer.write(
            f"GET {HISTORY} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        listener = server.server._http_listener
        assert listener is not None
        async with asyncio.timeout(60):
            while listener.connections.open:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        writer.close()


async def test_idle_connections_are_closed() -> None:
    async with running_server(http_idle_timeout=500) as server:
        answer = await raw(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("version", ["0.9", "2.0"])
async def test_a_request_of_another_version_of_http_is_refused_in_http_1_1(
    server: RunningServer, version: str
) -> None:
    answer = await raw(server, f"GET /healthz HTTP/{version}\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert b"Connection: close\r\n" in answer
    assert b'"code":"unsupported"' in answer


async def test_pages_of_other_origins_cannot_read_the_metrics(server: RunningServer) -> None:
    async with http_client(base_url=server.http) as client:
        for method in ("GET", "OPTIONS"):
            headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
            answer = await client.request(method, "/metrics", headers=headers)
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        answer = await client.get("/v1/openapi.json", headers={"Origin": "https://app.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "*"


async def test_connections_beyond_the_limit_are_rejected() -> None:
    async with running_server(max_connections=1) as server:
        host, port = server.http.removeprefix("http://").split(":")
        _, held = await asyncio.open_connection(host, int(port))
        held.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await raw(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        held.close()
        await held.wait_closed()
        async with asyncio.timeout(60):
            while not (  # noqa: ASYNC110
                await raw(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            ).startswith(b"HTTP/1.1 200"):
                await asyncio.sleep(0)


async def test_members_that_clients_could_not_receive_are_listed_without_metadata(
    server: RunningServer, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_lists, "MEMBERS_BYTES", 1_000)
    owner = server.service_token(sessions_owned=["abc"])
    async with PubSubClient(url=server.ws, token=owner) as client, client.subscribe(TOPIC):
        for size in (100, 1_000):
            await client.update_presence(TOPIC, {"text": "x" * size})
            (member,) = (await rest.get(f"/v1/topics/{TOPIC}/presence")).json()["members"]
            assert member["client_id"] == client.client_id
            assert member.get("metadata") == ({"text": "x" * size} if size == 100 else None)


async def test_an_internal_failure_is_500_without_details(
    server: RunningServer,
    rest: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("inner secret")

    monkeypatch.setattr(server.hub, "presence", fail)
    answer = await rest.get(f"/v1/topics/{TOPIC}/presence")
    body = problem(answer, 500, "internal")
    assert "inner secret" not in answer.text
    assert body["instance"] in caplog.text
    assert (await rest.get("/healthz")).status_code == 200


async def test_an_admin_lists_connections_and_cuts_one_whose_client_returns(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    problem(await rest.get("/v1/connections"), 403, "forbidden")
    problem(await rest.delete("/v1/connections/conn_1"), 403, "forbidden")
    async with (
        api(server, server.admin_token()) as admin,
        PubSubClient(url=server.ws, token=server.token("alice"), rest_url=server.http) as client,
        client.subscribe("demo.cut") as messages,
    ):
        await messages
        (listed,) = (await admin.get("/v1/connections?topic=demo.cut")).json()["connections"]
        assert listed["client_id"] == client.client_id
        assert (listed["user_id"], listed["transport"]) == ("alice", "socket")
        assert (listed["address"], listed["patterns"]) == ("127.0.0.1", ["demo.cut"])
        cut = await admin.delete(f"/v1/connections/{client.client_id}")
        assert (cut.status_code, cut.content) == (204, b"")
        await client.publish("demo.cut", {"data": "after the cut"})
        async with asyncio.timeout(30):
            assert (await anext(aiter(messages))).data == "after the cut"
        for query in ("limit=0", "limit=1001"):
            problem(await admin.get(f"/v1/connections?{query}"), 400, "invalid_option")
        problem(await admin.get("/v1/connections?topic=a..b"), 400, "invalid_topic")
        problem(await admin.delete("/v1/connections/conn_gone"), 404, "not_found")
        problem(await admin.delete("/v1/connections/" + "x" * 100), 404, "not_found")


@pytest.mark.parametrize(
    ("head", "detail", "remedy"),
    [
        (b"X: 1\r\n" * 9, "more than 9 header lines", "raise `max_headers`"),
        (b"X: %b\r\n" % (b"a" * 40_000), "a header has more than 32,768 bytes", "cookies"),
        (b"no header\r\n", "not a valid HTTP/1.1 request", "Check the request line"),
    ],
)
async def test_a_request_that_the_parser_rejects_is_answered_with_the_limit_and_a_remedy(
    head: bytes, detail: str, remedy: str
) -> None:
    async with running_server(max_headers=9) as server:
        answer = await raw(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
    first, _, body = answer.partition(b"\r\n\r\n")
    found = json.loads(body)
    assert (found["status"], found["code"]) == (400, "invalid_frame")
    assert detail in found["detail"]
    assert remedy in found["remedy"]
    assert b"\r\nServer: hanzo-pubsub\r\n" in first


async def test_a_request_line_that_is_too_long_names_the_way_to_send_more_topics() -> None:
    async with running_server() as server:
        target = b"/v1/subscribe?topics=" + b"a," * 40_000
        answer = await raw(server, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    found = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert found["status"] == 400
    assert "the request line has more than 65,536 bytes" in found["detail"]
    assert "POST /v1/subscribe" in found["remedy"]


@pytest.mark.parametrize("path", ["/v1/topics/demo.x/messages", "/v1/messages:batch"])
async def test_a_publish_that_waits_for_the_store_keeps_nothing_of_its_body(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def slow(*_: object, **__: object) -> list[ServiceError]:
        begun.set()
        await over.wait()
        return [ServiceError("unavailable", "the store is slow")]

    monkeypatch.setattr(server.hub, "publish", slow)
    body = {"data": 1, "messages": [{"topic": "demo.x", "data": 1}], "other": [[]] * 50_000}
    async with asyncio.timeout(60), api(server, server.service_token()) as rest:
        gc.collect()
        before = len(gc.get_objects())
        waiting = asyncio.create_task(rest.post(path, json=body))
        await begun.wait()
        gc.collect()
        assert len(gc.get_objects()) - before < 10_000
        over.set()
        assert (await waiting).status_code in {200, 503}
