"""What the doctor concludes from answers over HTTP. Without sockets."""

from __future__ import annotations

import ssl
import time
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.cli.doctor import web
from hanzoai.pubsub.cli.doctor.findings import Finding, Status
from hanzoai.pubsub.cli.doctor.web import PUBLIC_TOPIC, Web

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    import respx

BASE = "https://pubsub.example"
HEALTHY = {"status": "ok"}
HTML = {"Content-Type": "text/html; charset=utf-8"}
STREAM = {"Content-Type": "text/event-stream"}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@asynccontextmanager
async def looking(token: str | None = "Bearer abc") -> AsyncGenerator[Web]:
    async with Web(BASE, token, ssl.create_default_context(), 30) as found:
        yield found


def reported(finding: Finding) -> tuple[Status, str]:
    return finding.status, finding.code


# ------------------------------------------------------------------------ health


@pytest.mark.parametrize(
    ("status", "headers", "body", "code", "expected_text"),
    [
        (426, {}, b"", "wrong_port_websocket", "is a WebSocket port"),
        (400, {}, b"Missing Upgrade header", "wrong_port_websocket", "is a WebSocket port"),
        (400, {}, b"no", "wrong_port_other", "answers 400: this is not a Hanzo PubSub server"),
        (200, HTML, b"", "wrong_port_other", "answers 200 with a web page: this is not"),
        (200, {}, b"", "wrong_port_other", "answers 200 with an empty body: this is not"),
        (302, {"Location": "/sign-in"}, b"", "http_redirect", "redirects elsewhere"),
        (502, {}, b"", "server_unavailable", "answers 502"),
        (503, {}, b"", "server_unavailable", "answers 503"),
        (504, HTML, b"", "server_unavailable", "answers 504"),
        (401, {}, b"", "http_gateway", "answers 401: a gateway"),
        (403, HTML, b"", "http_gateway", "answers 403: a gateway"),
        (407, {}, b"", "http_gateway", "answers 407: a gateway"),
    ],
)
async def test_an_answer_that_is_not_of_a_running_server_says_whose_it_is(
    respx_mock: respx.MockRouter,
    status: int,
    headers: dict[str, str],
    body: bytes,
    code: str,
    expected_text: str,
) -> None:
    respx_mock.get(f"{BASE}/healthz").respond(status, headers=headers, content=body)
    async with looking() as found:
        finding = (await found.check_health()).finding
    assert reported(finding) == (Status.FAILED, code)
    assert expected_text in finding.message
    assert finding.remedy


async def test_the_clock_of_the_server_is_read_from_its_answer(
    respx_mock: respx.MockRouter,
) -> None:
    ahead = formatdate(time.time() + 600, usegmt=True)
    respx_mock.get(f"{BASE}/healthz").respond(200, headers={"Date": ahead}, json=HEALTHY)
    async with looking() as found:
        health = await found.check_health()
    assert reported(health.finding)[0] is Status.OK
    assert health.offset is not None
    assert 500 < health.offset < 700


@pytest.mark.parametrize("headers", [{}, {"Date": "yesterday"}], ids=["no date", "not a date"])
async def test_the_clock_of_the_server_is_unknown_without_a_date(
    respx_mock: respx.MockRouter, headers: dict[str, str]
) -> None:
    respx_mock.get(f"{BASE}/healthz").respond(200, headers=headers, json=HEALTHY)
    async with looking() as found:
        health = await found.check_health()
    assert reported(health.finding)[0] is Status.OK
    assert health.offset is None


async def test_a_server_that_does_not_answer_is_reported_with_the_timeout(
    respx_mock: respx.MockRouter,
) -> None:
    respx_mock.get(f"{BASE}/healthz").mock(side_effect=httpx.ReadTimeout)
    async with looking() as found:
        finding = (await found.check_health()).finding
    assert reported(finding) == (Status.FAILED, "http_silent")
    assert "pubsub.example:443 accepts connections" in finding.message
    assert "30 s" in finding.message


async def test_a_port_without_http_is_reported(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(f"{BASE}/healthz").mock(side_effect=httpx.RemoteProtocolError)
    async with looking() as found:
        finding = (await found.check_health()).finding
    assert reported(finding) == (Status.FAILED, "http_failed")
    assert "RemoteProtocolError" in finding.message


# ------------------------------------------------------------------------ event stream


class Chunks(httpx.AsyncByteStream):
    """A body that arrives in parts, and may fail."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part


async def test_a_stream_without_topic_asks_for_the_public_one_with_the_token(
    respx_mock: respx.MockRouter,
) -> None:
    route = respx_mock.get(f"{BASE}/v1/subscribe", params={"topics": PUBLIC_TOPIC})
    route.respond(200, headers=STREAM, stream=Chunks(b": hello\n\n"))
    async with looking(" Bearer abc ") as found:
        finding = await found.check_stream(None, wait_keepalive=False)
    assert reported(finding)[0] is Status.OK
    assert route.calls.last.request.headers["Authorization"] == "Bearer abc"


async def test_nothing_is_sent_as_a_token_if_there_is_none(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.get(f"{BASE}/v1/subscribe").respond(401)
    async with looking(None) as found:
        finding = await found.check_stream("demo.a", wait_keepalive=False)
    assert reported(finding) == (Status.FAILED, "token_invalid")
    assert "Authorization" not in route.calls.last.request.headers


@pytest.mark.parametrize(
    ("parts", "wait", "expected_text"),
    [
        ([], False, "ended before its first event (StopAsyncIteration)"),
        ([httpx.ReadError("cut")], False, "ended before its first event (ReadError)"),
        ([b": hello\n\n"], True, "was cut after"),
        ([b": hello\n\n", httpx.ReadError("cut")], True, "was cut after"),
    ],
)
async def test_a_stream_that_is_cut_is_reported_with_the_time(
    respx_mock: respx.MockRouter, parts: list[bytes | Exception], wait: bool, expected_text: str
) -> None:
    respx_mock.get(f"{BASE}/v1/subscribe").respond(200, headers=STREAM, stream=Chunks(*parts))
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=wait)
    assert reported(finding) == (Status.FAILED, "sse_cut")
    assert expected_text in finding.message


async def test_the_next_comment_is_waited_for_on_request(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.get(f"{BASE}/v1/subscribe")
    presence = b'event: presence\ndata: {"topic":"demo.a","members":[]}\n\n'
    chunks = (b": welcome\n\nevent: subscribed\ndata: {}\n\n", presence, b": keepalive\n\n")
    route.respond(200, headers=STREAM, stream=Chunks(*chunks))
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=True)
    assert reported(finding)[0] is Status.OK
    assert "the next comment after" in finding.message


async def test_events_do_not_replace_the_comment_that_is_waited_for(
    respx_mock: respx.MockRouter,
) -> None:
    route = respx_mock.get(f"{BASE}/v1/subscribe")
    chunks = (b": welcome\n\n", b"event: presence\ndata: {}\n\n", httpx.ReadError("cut"))
    route.respond(200, headers=STREAM, stream=Chunks(*chunks))
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=True)
    assert reported(finding) == (Status.FAILED, "sse_cut")


async def test_a_proxy_that_holds_back_comments_buffers(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.get(f"{BASE}/v1/subscribe")
    route.respond(200, headers=STREAM, stream=Chunks(b": welcome\n\n", TimeoutError()))
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=True)
    assert reported(finding) == (Status.FAILED, "sse_buffered")
    assert "After its first event" in finding.message


async def test_a_stream_that_sends_nothing_is_buffered(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.get(f"{BASE}/v1/subscribe")
    route.respond(200, headers=STREAM, stream=Chunks(TimeoutError()))
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=False)
    assert reported(finding) == (Status.FAILED, "sse_buffered")
    assert "opened, but no event came" in finding.message


async def test_a_stream_of_another_type_is_of_a_gateway(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(f"{BASE}/v1/subscribe").respond(200, headers=HTML)
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=False)
    assert reported(finding) == (Status.FAILED, "sse_wrong_type")
    assert "text/html" in finding.message


@pytest.mark.parametrize(
    ("topic", "expected_text"),
    [
        (None, f"no access to {PUBLIC_TOPIC}; pass --topic"),
        ("chat.session.1", "no access to chat.session.1"),
    ],
)
async def test_a_forbidden_stream_shows_nothing_about_streams(
    respx_mock: respx.MockRouter, topic: str | None, expected_text: str
) -> None:
    respx_mock.get(f"{BASE}/v1/subscribe").respond(403)
    async with looking() as found:
        finding = await found.check_stream(topic, wait_keepalive=False)
    assert reported(finding)[0] is Status.SKIPPED
    assert expected_text in finding.message


@pytest.mark.parametrize(
    ("status", "body", "code", "expected_text"),
    [
        (429, b"not json", "connection_limit", "(429)"),
        (404, b"[1]", "not_found", "(404)"),
        (500, b"", "unavailable", "(500)"),
        (500, b'{"code": "odd", "detail": "It hurts."}', "odd", "It hurts."),
        (500, b'{"code": "odd", "title": "Ouch."}', "odd", "Ouch."),
        (500, b'{"code": "odd"}', "odd", ": odd"),
        (401, b'{"code": "token_expired", "remedy": "Renew."}', "token_expired", "(401)"),
    ],
)
async def test_a_refused_stream_is_reported_with_the_problem_of_the_server(
    respx_mock: respx.MockRouter, status: int, body: bytes, code: str, expected_text: str
) -> None:
    respx_mock.get(f"{BASE}/v1/subscribe").respond(status, content=body)
    async with looking() as found:
        finding = await found.check_stream("demo.a", wait_keepalive=False)
    assert reported(finding) == (Status.FAILED, code)
    assert expected_text in finding.message
    assert ("Renew." in finding.remedy) is (code == "token_expired")


# ------------------------------------------------------------------------ access


@pytest.mark.parametrize(
    ("answer", "expected", "expected_text"),
    [
        ({"subscribe": True, "publish": True}, (Status.OK, ""), "may subscribe and publish"),
        ({"subscribe": True}, (Status.OK, ""), "may subscribe, not publish"),
        (
            {"publish": True, "reason": "rule 2"},
            (Status.WARNING, "subscribe_forbidden"),
            "may publish, not subscribe. rule 2",
        ),
        ({"rule": "rule 3"}, (Status.FAILED, "forbidden"), "publish is allowed. rule 3"),
        ({"subscribe": "yes"}, (Status.FAILED, "forbidden"), "publish is allowed."),
    ],
)
async def test_the_permissions_on_a_topic_are_named(
    respx_mock: respx.MockRouter,
    answer: dict[str, Any],
    expected: tuple[Status, str],
    expected_text: str,
) -> None:
    respx_mock.get(f"{BASE}/v1/access", params={"topic": "demo.a"}).respond(200, json=answer)
    if expected[0] is Status.OK:
        respx_mock.get(f"{BASE}/v1/topics/demo.a/history").respond(200, json={"messages": []})
    async with looking() as found:
        finding = await found.check_access("demo.a")
    assert reported(finding) == expected
    assert finding.message.startswith("demo.a: ")
    assert finding.message.endswith(expected_text)


@pytest.mark.parametrize(
    ("answer", "code", "expected_text"),
    [
        (
            httpx.Response(503, json={"code": "unavailable", "detail": "The store is away."}),
            "unavailable",
            "the history cannot be read: The store is away.",
        ),
        (
            httpx.Response(503, html="<h1>Service Unavailable</h1>"),
            "unavailable",
            "the history cannot be read: a gateway in front of the server answers 503.",
        ),
        (
            httpx.Response(502),
            "unavailable",
            "the history cannot be read: a gateway in front of the server answers 502.",
        ),
        (
            httpx.Response(504, html="<h1>Gateway Time-out</h1>"),
            "unavailable",
            "the history cannot be read: a gateway in front of the server answers 504.",
        ),
        (httpx.ReadTimeout("late"), "unavailable", "the server did not answer in 30 s"),
        (TimeoutError(), "unavailable", "the server did not answer in 30 s"),
        (httpx.Response(404), "", "may subscribe and publish"),
        (httpx.ConnectError("cut"), "", "may subscribe and publish"),
    ],
)
async def test_a_server_that_cannot_read_its_store_is_not_called_healthy(
    respx_mock: respx.MockRouter, answer: httpx.Response | Exception, code: str, expected_text: str
) -> None:
    rights = {"subscribe": True, "publish": True}
    respx_mock.get(f"{BASE}/v1/access").respond(200, json=rights)
    respx_mock.get(f"{BASE}/v1/topics/demo.a/history").mock(side_effect=[answer])
    async with looking() as found:
        finding = await found.check_access("demo.a")
    assert reported(finding) == (Status.FAILED if code else Status.OK, code)
    assert expected_text in finding.message
    assert not finding.message.endswith("..")
    assert ("store" in (finding.remedy or "")) == (bool(code) and "gateway" not in expected_text)


async def test_a_refused_question_about_access_is_reported(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(f"{BASE}/v1/access").respond(401, json={"detail": "It has expired."})
    async with looking() as found:
        finding = await found.check_access("demo.a")
    assert reported(finding) == (Status.FAILED, "token_invalid")
    assert finding.message == "demo.a: It has expired."


@pytest.mark.parametrize("error", [httpx.ConnectError("no"), TimeoutError()])
async def test_a_question_about_access_without_answer_is_reported(
    respx_mock: respx.MockRouter, error: Exception
) -> None:
    respx_mock.get(f"{BASE}/v1/access").mock(side_effect=error)
    async with looking() as found:
        finding = await found.check_access("demo.a")
    assert reported(finding) == (Status.FAILED, "access_unanswered")
    assert type(error).__name__ in finding.message


@pytest.mark.parametrize("missing", [404, 405, 501])
@pytest.mark.parametrize(
    ("history", "status", "expected_text"),
    [
        (200, Status.OK, "may subscribe; this server does not report publish permissions"),
        (404, Status.OK, "may subscribe; this server does not report publish permissions"),
        (403, Status.FAILED, "subscribe is not allowed."),
        (None, Status.SKIPPED, "this server does not report access"),
    ],
)
async def test_the_history_shows_the_access_where_the_server_knows_hip_56_alone(
    respx_mock: respx.MockRouter,
    missing: int,
    history: int | None,
    status: Status,
    expected_text: str,
) -> None:
    respx_mock.get(f"{BASE}/v1/access").respond(missing)
    route = respx_mock.get(f"{BASE}/v1/topics/demo.a/history", params={"limit": 1})
    if history is None:
        route.mock(side_effect=httpx.ConnectError("no"))
    else:
        route.respond(history)
    async with looking() as found:
        finding = await found.check_access("demo.a")
    assert finding.status is status
    assert finding.message == f"demo.a: {expected_text}"


async def test_a_pattern_has_no_history(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(f"{BASE}/v1/access").respond(404)
    async with looking() as found:
        finding = await found.check_access("demo.*")
    assert finding.status is Status.SKIPPED
    assert "does not report access to patterns" in finding.message


async def test_a_port_with_tls_is_recognized_behind_an_unencrypted_url(
    respx_mock: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def speaks_tls(*_: object) -> bool:
        return True

    monkeypatch.setattr(web, "speaks_tls", speaks_tls)
    respx_mock.get("http://pubsub.example/healthz").mock(side_effect=httpx.RemoteProtocolError)
    async with Web("http://pubsub.example", None, ssl.create_default_context(), 30) as found:
        finding = (await found.check_health()).finding
    assert reported(finding) == (Status.FAILED, "tls_required")
    assert "wss://" in finding.remedy
