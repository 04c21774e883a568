from __future__ import annotations

import asyncio

import pytest

from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthExpiringFrame,
    ErrorFrame,
    SubscribedFrame,
    SubscribeFrame,
)
from tests.python.sse.rig import Client, Peer, envelope, event, message, numbers, until


async def test_a_new_token_reopens_the_stream_at_the_position_of_each_topic(
    client: Client, peer: Peer
) -> None:
    await client.authenticate("one")
    first = await client.subscribe(
        SubscribeFrame(topics=["a.*"], ref="s1"), SubscribeFrame(topics=["c"], since=9, ref="s2")
    )
    first.write(
        event(
            "subscribed", {"topics": ["a.*"], "ref": "s1", "timestamp": 50, "positions": {"a.x": 4}}
        ),
        event("subscribed", {"topics": ["c"], "ref": "s2", "timestamp": 51}),
        message(60, "a.b", seq=7),
        message(61, "c", seq=3),
        event("auth.expiring", {"expires_in": 60_000}),
    )
    frames = await client.next(5)
    assert isinstance(frames[-1], AuthExpiringFrame)
    await client.authenticate("two")
    second = await peer.streams.get()
    assert second.token == "two"
    assert second.body["subscriptions"] == [
        {"topics": ["a.*"], "since": 50, "after": {"a.x": 4, "a.b": 7}, "ref": "s1"},
        {"topics": ["c"], "since": 9, "after": {"c": 3}, "ref": "s2"},
    ]
    missed = [envelope(62, "a.b", seq=8), envelope(63, "a.n", seq=1)]
    denied = [{"topic": "c", "code": "forbidden"}]
    second.write(
        event("subscribed", {"topics": ["a.*"], "ref": "s1", "history": missed}),
        event("subscribed", {"topics": [], "ref": "s2", "denied": denied}),
        message(64, "a.b", seq=9),
    )
    frames = await client.next(4)
    assert numbers(frames) == [62, 63, 64]
    assert isinstance(frames[2], ErrorFrame)
    assert frames[2].topic == "c"


async def test_a_new_token_before_the_answer_changes_nothing_of_the_request(
    client: Client, peer: Peer
) -> None:
    await client.authenticate("one")
    first = await client.subscribe(SubscribeFrame(topics=["a"], history=5, ref="s1"))
    first.write(b": hello\n\n")
    await client.authenticate("two")
    second = await peer.streams.get()
    assert second.body["subscriptions"] == [{"topics": ["a"], "history": 5, "ref": "s1"}]
    second.write(event("subscribed", {"topics": ["a"], "ref": "s1", "history": [envelope(1)]}))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)


async def test_a_plain_peer_replays_an_overlap_after_a_new_token(
    client: Client, plain: Peer
) -> None:
    await client.authenticate("one")
    first = await client.subscribe(SubscribeFrame(topics=["a.b"]))
    first.write(event("subscribed", {"topics": ["a.b"], "history": []}), message(90_000))
    await client.next(2)
    await client.authenticate("two")
    second = await plain.streams.get()
    assert dict(second.request.url.params) == {"topics": "a.b", "since": "85000"}
    history = [envelope(90_000), envelope(90_001)]
    second.write(event("subscribed", {"topics": ["a.b"], "history": history}))
    assert numbers(await client.next(2)) == [90_000, 90_001]


async def test_a_new_token_without_subscriptions_opens_nothing(client: Client, peer: Peer) -> None:
    await client.authenticate("one")
    await client.authenticate("two")
    assert [request.url.path for request in peer.requests] == ["/v1/session"] * 2


@pytest.mark.parametrize("code", ["token_expired", "token_invalid"])
async def test_a_stream_that_ends_with_its_token_rejects_the_token(
    client: Client, peer: Peer, code: str
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(message(1), event("error", {"code": code, "message": "too old"}))
    stream.end()
    _, frame = await client.next(2)
    assert frame == AuthErrorFrame(code=code, message="too old")


async def test_the_token_of_a_stream_that_is_being_replaced_rejects_nothing(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    first = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    first.write(message(1))
    await client.next()
    peer.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a.b"], ref="s1"), SubscribeFrame(topics=["c"], ref="s2"))
    await until(lambda: len(peer.requests) >= 3)
    first.write(event("error", {"code": "token_expired", "message": "too old"}))
    first.end()
    await first.closed.wait()
    peer.gate.set()
    second = await peer.streams.get()
    second.write(message(2))
    assert numbers(await client.next()) == [2]
