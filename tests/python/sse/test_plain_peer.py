from __future__ import annotations

import asyncio

import httpx

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    ErrorFrame,
    SubscribedFrame,
    SubscribeFrame,
)
from tests.python.sse.rig import Client, Peer, envelope, event, message, numbers, problem


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


async def test_a_plain_peer_is_asked_for_no_history_nobody_wants(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a"]))
    assert dict(stream.request.url.params) == {"topics": "a"}


async def test_requests_that_are_overtaken_get_an_answer_all_the_same(
    client: Client, plain: Peer
) -> None:
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


async def test_a_plain_peer_says_at_the_stream_that_the_token_is_bad(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/subscribe", httpx.Response(401, json={"error": "token_expired"}))
    client.send(SubscribeFrame(topics=["a"]))
    (frame,) = await client.next()
    assert isinstance(frame, AuthErrorFrame)
    assert frame.code == "token_expired"


async def test_a_forbidden_topic_is_told_and_the_transport_lives_on(
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
