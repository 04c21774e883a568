from __future__ import annotations

import asyncio
import json

import httpx

from hanzoai.pubsub.generated.wire import (
    ErrorFrame,
    PingFrame,
    PresenceUpdateFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
)
from tests.python.sse.rig import Client, Peer, problem, until


def publish(id: str | None, ref: str | None, topic: str = "a.b") -> PublishFrame:
    return PublishFrame(message=Publication(topic=topic, type="t", data={"n": id}, id=id), ref=ref)


async def test_a_publish_is_answered_by_its_ref(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(publish("m1", "p1"))
    assert await client.next() == [PublishedFrame(id="m1", timestamp=1, seq=7, ref="p1")]
    request = peer.requests[-1]
    assert request.url.path == "/v1/topics/a.b/messages"
    assert request.headers["Idempotency-Key"] == "m1"


async def test_a_payload_may_be_as_large_as_the_server_allows(client: Client, peer: Peer) -> None:
    await client.authenticate()
    large = Publication(topic="a.b", type="t", data="x" * 300_000, id="m1")
    client.send(PublishFrame(message=large, ref="p1"))
    assert await client.next() == [PublishedFrame(id="m1", timestamp=1, seq=7, ref="p1")]
    assert len(peer.requests[-1].content) > 300_000


async def test_waiting_messages_are_sent_in_one_batch_in_order(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(*[publish(f"m{n}", f"p{n}") for n in range(50)])
    frames = await client.next(50)
    assert [frame.ref for frame in frames if isinstance(frame, PublishedFrame)] == [
        f"p{n}" for n in range(50)
    ]
    batches = peer.sent("/v1/messages:batch")
    ids = [one["id"] for batch in batches for one in batch["messages"]]
    assert ids == [f"m{n}" for n in range(50)]
    assert len(peer.requests) < 5


async def test_a_batch_frame_gets_one_answer_with_all_results(client: Client, peer: Peer) -> None:
    await client.authenticate()
    refused = {"error": {"code": "forbidden", "message": "no"}}
    body = {"results": [{"id": "m1", "timestamp": 1}, refused]}
    peer.answer("/v1/messages:batch", httpx.Response(200, json=body))
    pair = [Publication(topic="a", data=1, id="m1"), Publication(topic="b", data=2, id="m2")]
    client.send(PublishFrame(messages=pair, ref="p1"))
    (frame,) = await client.next()
    assert isinstance(frame, PublishedFrame)
    assert [(one.id, one.error and one.error.code) for one in frame.results or []] == [
        ("m1", None),
        ("m2", "forbidden"),
    ]


async def test_a_refused_publish_is_an_error_with_its_ref(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/topics/a.b/messages", problem(403, "forbidden", detail="no"))
    client.send(publish("m1", "p1"))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.topic, frame.ref) == ("forbidden", "a.b", "p1")
    assert frame.message == "no (topic a.b)."
    client.send(publish("m2", "p2"))
    assert isinstance((await client.next())[0], PublishedFrame)


async def test_one_refused_item_of_a_batch_is_an_error_of_its_frame(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    limited = {"error": {"code": "rate_limited", "message": "slow", "retry_after_ms": 90}}
    body = {"results": [limited, {"id": "m2", "timestamp": 1}]}
    peer.answer("/v1/messages:batch", httpx.Response(200, json=body))
    client.send(publish("m1", "p1"), publish("m2", "p2"))
    first, second = await client.next(2)
    assert isinstance(first, ErrorFrame)
    assert (first.code, first.retry_after_ms, first.ref) == ("rate_limited", 90, "p1")
    assert isinstance(second, PublishedFrame)


async def test_a_lost_publish_ends_the_transport_unanswered(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/topics/a.b/messages", *[httpx.ReadError("cut")] * 4)
    client.send(publish("m1", "p1"))
    closed = await client.closed()
    assert closed.code is None
    assert client.came == []


async def test_a_lost_publish_that_is_not_sent_again_is_reported(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/topics/a.b/messages", httpx.ReadError("cut"))
    client.send(publish(None, None))
    await client.closed()
    (frame,) = client.came
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.topic) == ("outcome_unknown", "a.b")


async def test_a_publish_rejected_for_its_token_is_sent_again_with_the_next_one(
    client: Client, peer: Peer
) -> None:
    await client.authenticate("one")

    def expire(request: httpx.Request) -> httpx.Response:
        client.transport._token = "two"
        return problem(401, "token_expired")

    peer.answer("/v1/topics/a.b/messages", expire)
    client.send(publish("m1", "p1"))
    assert isinstance((await client.next())[0], PublishedFrame)
    assert peer.requests[-1].headers["Authorization"] == "Bearer two"


async def test_presence_is_sent_as_a_publish(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(PresenceUpdateFrame(topic="a.b", data={"status": "typing"}, ref="6"))
    await until(lambda: peer.sent("/v1/topics/a.b/messages"))
    assert peer.sent("/v1/topics/a.b/messages") == [
        {"type": "presence.update", "data": {"status": "typing"}}
    ]
    (done,) = await client.next()
    assert isinstance(done, PublishedFrame)
    assert done.ref == "6"
    client.send(PresenceUpdateFrame(data={"status": "idle"}, ref="7"))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.ref) == ("unsupported", "7")


async def test_a_ping_is_not_sent(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(PingFrame())
    client.send(publish("m1", "p1"))
    await client.next()
    assert len(peer.requests) == 2


async def test_the_unanswered_part_of_a_large_run_can_be_sent_again(peer: Peer) -> None:
    async with asyncio.timeout(60):
        client = Client(peer, operation_timeout=5)
        await client.open()
        await client.authenticate()
        count = 30  # of 250 KB each: more than one request can carry

        def first(request: httpx.Request) -> httpx.Response:
            ids = [one["id"] for one in json.loads(request.content)["messages"]]
            return httpx.Response(200, json={"results": [{"id": i, "timestamp": 1} for i in ids]})

        peer.answer("/v1/messages:batch", first, *[httpx.ReadError("cut")] * 8)
        client.send(
            *(
                PublishFrame(
                    message=Publication(topic="a.b", type="t", data="x" * 250_000, id=f"m{n}"),
                    ref=f"p{n}",
                )
                for n in range(count)
            )
        )
        await client.closed()
        assert {type(frame) for frame in client.came} == {PublishedFrame}
        answered = [frame.ref for frame in client.came if isinstance(frame, PublishedFrame)]
        assert answered == [f"p{n}" for n in range(len(answered))]
        assert 0 < len(answered) < count
        await client.transport.close()
