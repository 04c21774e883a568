"""HIP-56's event stream, line by line, with plain httpx."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pubsub_server.settings.config import Settings
from tests.interop.peer import PATIENCE

if TYPE_CHECKING:
    from tests.interop.conftest import Start
    from tests.interop.peer import Node

TOPIC = "chat.session.abc"


def reader(node: Node) -> str:
    return node.iam.token("alice", name="Alice", sessions_owned=["abc"])


@pytest.mark.statement("H-001", "H-060", "H-061")
async def test_the_request_of_hip_56_opens_a_stream_that_replays_and_continues(node: Node) -> None:
    await node.publish(TOPIC, {"content": "Hello"})
    async with node.events(reader(node), topics=TOPIC, since=1) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        subscribed = await stream.event()
        assert subscribed.name == "subscribed"
        assert subscribed.json["topics"] == [TOPIC]
        assert [m["data"] for m in subscribed.json["history"]] == [{"content": "Hello"}]
        await node.publish(TOPIC, {"content": " world"})
        message = await stream.event("message")
        assert (message.json["topic"], message.json["type"]) == (TOPIC, "token")
        assert message.json["data"] == {"content": " world"}


@pytest.mark.statement("H-001", "H-061")
async def test_presence_of_the_topics_arrives_as_events(node: Node) -> None:
    async with node.events(reader(node), topics=TOPIC) as stream:
        await stream.event("subscribed")
        bob = node.iam.token("bob", name="Bob", sessions_shared=["abc"])
        async with node.socket(bob) as socket:
            await socket.subscribe(TOPIC)
            presence = await stream.event("presence")
            while not presence.json["members"]:
                presence = await stream.event("presence")
            assert presence.json["topic"] == TOPIC
            assert [m["name"] for m in presence.json["members"]] == ["Bob"]
            await socket.send({"type": "presence.update", "data": {"status": "typing"}})
            presence = await stream.event("presence")
            assert [m["status"] for m in presence.json["members"]] == ["typing"]


@pytest.mark.statement("H-062")
async def test_an_idle_stream_sends_comments(start: Start) -> None:
    node = await start(sse_keepalive=50)
    async with node.events(reader(node), topics=TOPIC) as stream:
        await stream.event("subscribed")
        assert await stream.comment() == "keepalive"


@pytest.mark.statement("H-035")
async def test_both_transports_deliver_the_same_envelope(node: Node) -> None:
    async with (
        node.socket(reader(node)) as socket,
        node.events(reader(node), topics=TOPIC) as stream,
    ):
        await socket.subscribe(TOPIC)
        await stream.event("subscribed")
        await node.publish(TOPIC, {"content": "Grüße\n\u2028\u0000", "index": 42}, ttl=60)
        assert (await stream.event("message")).json == await socket.message()


@pytest.mark.statement("H-060")
async def test_several_topics_and_patterns_fit_into_one_stream(node: Node) -> None:
    token = node.iam.token("alice", sessions_owned=["abc"], agents=["bot1"])
    async with node.events(token, topics="chat.session.*,agent.bot1.events") as stream:
        subscribed = await stream.event("subscribed")
        assert subscribed.json["topics"] == ["chat.session.*", "agent.bot1.events"]
        for topic in (TOPIC, "agent.bot1.events", "agent.bot1.tools"):
            await node.publish(topic, {})
        await node.publish(TOPIC, {}, "end")
        topics = [(await stream.event("message")).json["topic"] for _ in range(3)]
    assert topics == [TOPIC, "agent.bot1.events", TOPIC]


@pytest.mark.statement("H-063")
async def test_a_reader_of_a_stream_publishes_by_rest(start: Start) -> None:
    node = await start()
    service = node.iam.service(sessions_owned=["abc"])
    async with node.events(service, topics=TOPIC) as stream, node.rest(service) as rest:
        await stream.event("subscribed")
        body = {"type": "token", "data": {"content": "x"}}
        answer = await rest.post(f"/v1/topics/{TOPIC}/messages", json=body)
        assert (await stream.event("message")).json["id"] == answer.json()["id"]


@pytest.mark.statement("H-009", "H-060")
async def test_a_stream_resumes_by_since_and_by_the_id_of_its_last_event(node: Node) -> None:
    async with node.events(reader(node), topics=TOPIC) as stream:
        await stream.event("subscribed")
        await node.publish(TOPIC, {"n": 0})
        last = await stream.event("message")
    for n in (1, 2):
        await node.publish(TOPIC, {"n": n})
    since = last.json["timestamp"] - 1
    async with node.events(reader(node), topics=TOPIC, since=since) as stream:
        history = (await stream.event("subscribed")).json["history"]
        missed = [m["data"]["n"] for m in history if m["id"] != last.json["id"]]
        assert missed == [1, 2]
    assert last.id
    async with node.events(reader(node), topics=TOPIC, **{"Last-Event-ID": last.id}) as stream:
        history = (await stream.event("subscribed")).json["history"]
        assert [m["data"]["n"] for m in history] == [1, 2]


@pytest.mark.statement("H-140", "H-142")
async def test_a_stream_needs_a_token_and_access(node: Node) -> None:
    stranger = node.iam.token("mallory")
    for token, status in ((None, 401), ("garbage", 401), (stranger, 403)):
        async with node.rest(token) as rest:
            answer = await rest.get(
                "/v1/subscribe", params={"topics": TOPIC}, headers={"Accept": "text/event-stream"}
            )
        assert answer.status_code == status
        assert answer.json()["code"]


@pytest.mark.statement("H-154")
async def test_a_stream_announces_that_its_token_expires_and_then_ends(start: Start) -> None:
    node = await start(expiring_notice=1_900)
    token = node.iam.token("alice", ttl=2, sessions_owned=["abc"])
    async with asyncio.timeout(PATIENCE), node.events(token, topics=TOPIC) as stream:
        await stream.event("subscribed")
        assert (await stream.event("auth.expiring")).json["expires_at"]
        with pytest.raises(EOFError):
            await stream.event("never")


def test_comments_arrive_every_fifteen_seconds_by_default() -> None:
    assert Settings().sse_keepalive == 15_000
