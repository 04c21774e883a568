from __future__ import annotations

import asyncio

import httpx
import pytest

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    ErrorFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    SubscribedFrame,
    SubscribeFrame,
)
from hanzoai.pubsub.settings.session import SessionOptions
from tests.python.sse.rig import TOKEN, Client, Peer, envelope, event, message, numbers, problem
from tests.traces.effects import Acked, Send, Settle
from tests.traces.events import Connect, Opened, Publish, Received, Token
from tests.traces.recorder import LoggedSession


async def test_one_answer_of_a_plain_peer_is_shared_by_the_subscriptions(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(
        SubscribeFrame(topics=["a.*"], since=10),
        SubscribeFrame(topics=["a.b", "c"], since=20),
        SubscribeFrame(topics=["**"]),
    )
    assert dict(stream.request.url.params) == {"topics": "a.*,a.b,c,**", "since": "10"}
    history = [envelope(11, "a.b"), envelope(20, "a.b"), envelope(21, "c"), envelope(0, "a.x")]
    stream.write(event("subscribed", {"topics": ["a.*", "a.b", "**"], "history": history}))
    stream.write(message(30))
    frames = await client.next(4)
    answers = [frame for frame in frames if isinstance(frame, SubscribedFrame)]
    assert [answer.topics for answer in answers] == [["a.*"], ["a.b"], ["**"]]
    assert [[m.timestamp for m in answer.history or []] for answer in answers] == [
        [11, 20, 0],
        [21],
        [],
    ]
    assert numbers(frames) == [30]


async def test_a_plain_peer_gets_no_unnecessary_request_for_history(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a"]))
    assert dict(stream.request.url.params) == {"topics": "a"}


async def test_requests_that_are_overtaken_still_get_an_answer(client: Client, plain: Peer) -> None:
    await client.authenticate()
    first = await client.subscribe(SubscribeFrame(topics=["a"]))
    plain.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a"], since=5))
    assert await client.next() == [SubscribedFrame(topics=["a"])]
    first.write(event("subscribed", {"topics": ["a"], "history": [envelope(1, "a")]}))
    first.write(message(4, "a"))
    assert numbers(await client.next()) == [4]
    plain.gate.set()
    second = await plain.streams.get()
    second.write(event("subscribed", {"topics": ["a"], "history": [envelope(6, "a")]}))
    (answer,) = await client.next()
    assert isinstance(answer, SubscribedFrame)
    assert [m.timestamp for m in answer.history or []] == [6]


async def test_a_plain_peer_reports_a_bad_token_when_the_stream_opens(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/subscribe", httpx.Response(401, json={"error": "token_expired"}))
    client.send(SubscribeFrame(topics=["a"]))
    (frame,) = await client.next()
    assert isinstance(frame, AuthErrorFrame)
    assert frame.code == "token_expired"


async def test_an_error_does_not_quote_the_token_that_a_gateway_echoes(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/subscribe", problem(403, "forbidden", detail=f"Bearer {TOKEN} may not"))
    client.send(SubscribeFrame(topics=["a"]))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert frame.message == "Bearer [token] may not"


async def test_a_forbidden_topic_is_reported_and_the_transport_stays_open(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/subscribe", httpx.Response(403), problem(403, "forbidden", detail="no"))
    client.send(SubscribeFrame(topics=["a", "b"]))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.topic) == ("forbidden", "a")
    client.send(SubscribeFrame(topics=["c"], ref="s7"))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)
    assert [(d.topic, d.code, d.message) for d in frame.denied or []] == [("c", "forbidden", "no")]
    stream = await client.subscribe(SubscribeFrame(topics=["d"]))
    stream.write(message(1))
    assert numbers(await client.next()) == [1]


@pytest.mark.parametrize(
    ("session", "stream", "expected"),
    [
        (302, httpx.Response(302, headers={"Location": "/login"}), "HTTP 302 and a redirect"),
        (200, httpx.Response(200, html="<html>Log in</html>"), "HTTP 200 and an HTML page"),
        (404, httpx.Response(404), "HTTP 404 and an empty body"),
        (404, httpx.Response(400, html="<html>Bad request</html>"), "HTTP 400 and an HTML page"),
        (404, httpx.Response(502), "HTTP 502 and an empty body"),
    ],
)
async def test_a_server_without_event_streams_is_not_treated_as_a_plain_peer(
    client: Client, plain: Peer, session: int, stream: httpx.Response, expected: str
) -> None:
    plain.answer("/v1/session", httpx.Response(session, html="<html></html>"))
    plain.bare_stream = stream
    client.send(AuthFrame(token="t", version=1))
    closed = await client.closed()
    assert not client.came
    assert f"127.0.0.1:8056 answered GET /v1/subscribe with {expected}" in closed.reason


async def test_a_publish_beside_the_stream_of_a_plain_peer_is_settled_by_the_answer_to_its_request(
    plain: Peer,
) -> None:
    session = LoggedSession(SessionOptions(client_name="test"), lambda: 0.5)
    session.handle(Connect())
    session.handle(Token(fetch=1, value="t"))
    session.handle(Opened(incremental=False))
    session.handle(Received(AuthOkFrame(client_id=""), 1))
    event = Publish(1, (Publication(topic="a.b", data=1, id="m1"),), 1, "error")
    effects = session.handle(event)
    assert not [effect for effect in effects if isinstance(effect, Settle)]
    (sent,) = [effect.frame for effect in effects if isinstance(effect, Send)]
    assert isinstance(sent, PublishFrame)
    settled = session.handle(Received(PublishedFrame(id="m1", timestamp=5, ref=sent.ref), 2))
    (settle,) = [effect for effect in settled if isinstance(effect, Settle)]
    assert isinstance(settle.outcome, Acked)


async def test_a_publish_that_a_web_site_answers_is_refused_with_what_answered(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/topics/a.b/messages", httpx.Response(200, html="<html>Welcome</html>"))
    client.send(PublishFrame(message=Publication(topic="a.b", data=1, id="m1"), ref="p1"))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.ref) == ("invalid_frame", "p1")
    assert "HTTP 200 and an HTML page" in frame.message
