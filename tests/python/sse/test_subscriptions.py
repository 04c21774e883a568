from __future__ import annotations

import asyncio

import httpx
import pytest

from hanzoai.pubsub.generated.wire import (
    AuthOkFrame,
    ErrorFrame,
    Limits,
    MessageFrame,
    PresenceSnapshotFrame,
    SubscribedFrame,
    SubscribeFrame,
    UnsubscribedFrame,
    UnsubscribeFrame,
)
from tests.python.sse.rig import (
    INFO,
    Client,
    Peer,
    Stream,
    envelope,
    event,
    message,
    numbers,
    problem,
    until,
)


async def test_the_subscriptions_of_one_turn_go_in_one_request(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(SubscribeFrame(topics=["a.*"], since=5, ref="s1", presence=False))
    stream = await client.subscribe(
        SubscribeFrame(topics=["b"], after={"b": 7}, history=3, ref="s2", presence=True)
    )
    assert stream.request.method == "POST"
    assert stream.request.headers["Accept"] == "text/event-stream"
    assert stream.body == {
        "subscriptions": [
            {"topics": ["a.*"], "since": 5, "ref": "s1"},
            {"topics": ["b"], "after": {"b": 7}, "history": 3, "ref": "s2"},
        ],
        "presence": True,
        "client_id": "cl_1",
    }
    stream.write(event("subscribed", {"topics": ["a.*"], "ref": "s1", "positions": {"a.b": 3}}))
    stream.write(message(4), event("presence", {"topic": "b", "members": []}))
    frames = await client.next(3)
    assert [type(frame) for frame in frames] == [
        SubscribedFrame,
        MessageFrame,
        PresenceSnapshotFrame,
    ]


async def test_the_stream_before_is_read_until_the_next_one_answers(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    first = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    first.write(message(1))
    await client.next()
    peer.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a.b"], after={"a.b": 1}, ref="s2"))
    await until(lambda: len(peer.requests) >= 3)
    first.write(message(2))
    assert numbers(await client.next()) == [2]
    assert not first.closed.is_set()
    peer.gate.set()
    second = await peer.streams.get()
    await first.closed.wait()
    second.write(message(3))
    assert numbers(await client.next()) == [3]


async def test_an_opening_that_is_overtaken_is_given_up(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    await until(lambda: len(peer.requests) >= 2)
    client.send(SubscribeFrame(topics=["a", "b"], ref="s2"))
    await until(lambda: len(peer.requests) >= 3)
    peer.gate.set()
    stream = await peer.streams.get()
    assert [one["ref"] for one in stream.body["subscriptions"]] == ["s2"]
    stream.write(message(1))
    await client.next()
    assert peer.streams.empty()


@pytest.mark.parametrize("left", [False, True])
async def test_a_request_that_reaches_the_server_after_its_successor_is_not_reported(
    client: Client, peer: Peer, left: bool
) -> None:
    await client.authenticate()
    peer.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    await until(lambda: len(peer.requests) >= 2)
    if left:
        client.send(UnsubscribeFrame(topics=["a"]))
        await asyncio.sleep(0)
    client.send(SubscribeFrame(topics=["a", "b"], ref="s2"))
    await until(lambda: len(peer.requests) >= 3)
    peer.gate.set()
    replaced = event("error", {"code": "replaced", "message": "another connection replaced it"})
    for number in (1, 2):
        stream = await peer.streams.get()
        assert [one["ref"] for one in stream.body["subscriptions"]] == ["s2"]
        stream.write(message(number, "a", seq=number), replaced)
        stream.end()
    # The second one is by another client.
    *messages, error = await client.next(3)
    assert numbers(messages) == [1, 2]
    assert isinstance(error, ErrorFrame)
    assert error.code == "replaced"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_request_after_a_rejected_one_reports_that_another_client_replaced_it(
    client: Client, peer: Peer, status: int
) -> None:
    await client.authenticate()
    peer.answer("/v1/subscribe", problem(status, "rejected"))
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    await client.next()
    stream = await client.subscribe(SubscribeFrame(topics=["b"], ref="s2"))
    stream.write(event("error", {"code": "replaced", "message": "another connection replaced it"}))
    (error,) = await client.next()
    assert isinstance(error, ErrorFrame)
    assert error.code == "replaced"


async def test_unsubscribing_from_all_ends_the_stream(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a"], ref="s1"))
    stream.write(message(1))
    await client.next()
    client.send(UnsubscribeFrame(topics=["a"], ref="u1"))
    assert await client.next() == [UnsubscribedFrame(topics=["a"], ref="u1")]
    await stream.closed.wait()
    again = await client.subscribe(SubscribeFrame(topics=["b"], ref="s2"))
    again.write(message(2))
    assert numbers(await client.next()) == [2]


async def test_a_peer_without_post_is_requested_with_get(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/subscribe", httpx.Response(405))
    stream = await client.subscribe(SubscribeFrame(topics=["a", "b.*"], since=5, ref="s1"))
    assert stream.request.method == "GET"
    assert dict(stream.request.url.params) == {"topics": "a,b.*", "since": "5"}
    stream.write(event("subscribed", {"topics": ["a", "b.*"], "history": [envelope(6, "a")]}))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)
    assert frame.ref == "s1"


async def test_the_stream_takes_the_id_that_the_session_named(client: Client, peer: Peer) -> None:
    assert (await client.authenticate()).client_id == "cl_1"
    assert "client_id" not in peer.requests[0].url.params

    def stream(request: httpx.Request) -> httpx.Response:
        opened = Stream(request)
        peer.streams.put_nowait(opened)
        headers = {"Content-Type": "text/event-stream", "Client-Id": "cl_1"}
        return httpx.Response(200, headers=headers, stream=opened)

    peer.answer("/v1/subscribe", stream)
    opened = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    assert opened.body["client_id"] == "cl_1"
    opened.write(event("subscribed", {"topics": ["a.b"], "ref": "s1"}))
    # No correction is needed: the stream has the id of `auth.ok`.
    (answer,) = await client.next()
    assert isinstance(answer, SubscribedFrame)
    await client.authenticate("another token")
    assert peer.requests[-1].url.params["client_id"] == "cl_1"


async def test_a_stream_that_gets_another_id_corrects_who_the_client_is(
    client: Client, peer: Peer
) -> None:
    info = {**INFO, "expires_at": 9_000, "server_time": 1_000}
    peer.answer("/v1/session", httpx.Response(200, json=info))
    assert (await client.authenticate()).client_id == "cl_1"
    client.clock.time += 5

    def stream(request: httpx.Request) -> httpx.Response:
        opened = Stream(request)
        peer.streams.put_nowait(opened)
        headers = {"Content-Type": "text/event-stream", "Client-Id": "cl_2"}
        return httpx.Response(200, headers=headers, stream=opened)

    peer.answer("/v1/subscribe", stream)
    await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    (answer,) = await client.next()
    assert isinstance(answer, AuthOkFrame)
    assert (answer.client_id, answer.limits) == ("cl_2", Limits(publish_rate=10))
    assert (answer.expires_at, answer.server_time) == (9_000, 6_000)
    assert answer.ref is None
