from __future__ import annotations

import logging

import httpx
import pytest

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    SubscribeFrame,
)
from tests.python.sse.rig import TOKEN, Answer, Client, Peer, event, message, problem


async def test_auth_asks_for_the_session_with_the_token_in_the_header(
    client: Client, peer: Peer
) -> None:
    frame = await client.authenticate("Bearer abc")
    assert (frame.client_id, frame.user_id, frame.version) == ("cl_1", "alice", 1)
    assert frame.limits is not None
    assert frame.limits.publish_rate == 10
    (request,) = peer.requests
    assert request.headers["Authorization"] == "Bearer abc"
    assert "abc" not in str(request.url)


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(404), httpx.Response(405), httpx.Response(200, text="<html>")],
    ids=["404", "405", "a page"],
)
async def test_a_peer_without_sessions_is_a_plain_one(
    client: Client, peer: Peer, answer: httpx.Response
) -> None:
    peer.answer("/v1/session", answer)
    assert (await client.authenticate()).version is None


@pytest.mark.parametrize("status", [404, 405, 501, 200])
async def test_a_server_without_sessions_and_streams_is_not_a_peer(
    client: Client, peer: Peer, status: int
) -> None:
    peer.plain, peer.bare_stream = True, status
    client.send(AuthFrame(token=TOKEN, version=1))
    end = await client.closed()
    assert client.came == []
    assert end.code is None
    assert f"127.0.0.1:8056 answered GET /v1/subscribe with HTTP {status}" in end.reason
    assert "check `rest_url`" in end.reason


@pytest.mark.parametrize(
    ("answer", "code", "wait"),
    [
        (problem(401, "token_expired"), "token_expired", None),
        (httpx.Response(401), "unauthenticated", None),
        (problem(403, "forbidden"), "forbidden", None),
        (problem(429, "connection_limit", retry_after_ms=500), "connection_limit", 500),
    ],
)
async def test_a_refused_session_is_an_auth_error(
    client: Client, peer: Peer, answer: httpx.Response, code: str, wait: int | None
) -> None:
    peer.answer("/v1/session", answer)
    client.send(AuthFrame(token=TOKEN, ref="9"))
    (frame,) = await client.next()
    assert isinstance(frame, AuthErrorFrame)
    assert (frame.code, frame.retry_after_ms, frame.ref) == (code, wait, "9")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(503, headers={"Retry-After": "3"}),
        httpx.Response(500),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
    ],
)
async def test_a_server_that_fails_ends_the_transport(
    client: Client, peer: Peer, answer: Answer
) -> None:
    peer.answer("/v1/session", answer)
    client.send(AuthFrame(token=TOKEN))
    closed = await client.closed()
    assert closed.code is None
    assert closed.reason
    if isinstance(answer, httpx.Response) and answer.status_code == 503:
        assert closed.retry_after == 3
    assert len(peer.requests) == 1


async def test_no_url_and_no_log_holds_a_token_or_a_payload(
    client: Client, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(event("message", {"data": "the-payload"}), message(1, data="the-payload"))
    await client.next()
    assert "/v1/session" in caplog.text
    assert TOKEN not in caplog.text
    assert "the-payload" not in caplog.text
    assert all(TOKEN not in str(request.url) for request in peer.requests)
    assert TOKEN not in repr(client.transport)
