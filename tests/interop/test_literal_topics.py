"""HIP-56's topics, wildcards and order within a topic."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.peer import Node, Socket


@pytest.mark.statement("H-020")
@pytest.mark.parametrize(
    "topic",
    [
        "chat.session.sess_abc123",
        "agent.bot1.events",
        "org.acme.notifications",
        "user.alice.alerts",
        "system.announcements",
    ],
)
async def test_the_five_shapes_of_topics_carry_messages(node: Node, topic: str) -> None:
    token = node.iam.token("alice", orgs=["acme"], agents=["bot1"], sessions_owned=["sess_abc123"])
    async with node.socket(token) as socket:
        assert (await socket.subscribe(topic))["topics"] == [topic]
        await node.publish(topic, {"n": 1})
        assert (await socket.message())["topic"] == topic


@pytest.mark.statement("H-021", "H-022", "H-023")
@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("chat.session.*", "chat.session.abc", True),
        ("chat.session.*", "chat.session.abc.tokens", False),
        ("chat.session.*", "chat.session", False),
        ("chat.*.abc", "chat.session.abc", True),
        ("agent.**", "agent.bot1.events", True),
        ("agent.**", "agent.bot1.tools.calls", True),
        ("agent.**", "agent", False),
        ("agent.**.events", "agent.bot1.events", True),
        ("agent.**.events", "agent.bot1.tools.events", True),
        ("agent.**.events", "agent.events", False),
        ("agent.**.events", "agent.bot1.tools", False),
        ("**", "anything.at.all", True),
    ],
)
async def test_wildcards_match_as_hip_56_specifies(
    open_node: Node, pattern: str, topic: str, matches: bool
) -> None:
    async with open_node.socket(open_node.iam.token()) as socket:
        await socket.subscribe(pattern)
        await open_node.publish(topic, {"n": 1})
        received = await socket.messages()
    assert [message["topic"] for message in received] == ([topic] if matches else [])


@pytest.mark.statement("H-024")
async def test_a_wildcard_covers_topics_that_exist_and_topics_created_later(
    open_node: Node,
) -> None:
    await open_node.publish("agent.old.events", {"n": 0})
    async with open_node.socket(open_node.iam.token()) as socket:
        subscribed = await socket.subscribe("agent.**", since=1)
        await open_node.publish("agent.new.events", {"n": 1})
        message = await socket.message()
    assert [m["topic"] for m in subscribed["history"]] == ["agent.old.events"]
    assert message["topic"] == "agent.new.events"


async def test_overlapping_patterns_of_one_connection_deliver_one_copy(open_node: Node) -> None:
    async with open_node.socket(open_node.iam.token()) as socket:
        await socket.subscribe("agent.**", "agent.*.events", "agent.bot1.events")
        await open_node.publish("agent.bot1.events", {"n": 1})
        assert len(await socket.messages()) == 1


@pytest.mark.statement("H-018")
async def test_all_subscribers_see_two_publishers_in_the_same_order(open_node: Node) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        first = await enter(open_node.socket(open_node.iam.token("alice")))
        second = await enter(open_node.socket(open_node.iam.token("bob")))
        readers = [await enter(open_node.socket(open_node.iam.token(f"r{n}"))) for n in range(3)]
        for reader in readers:
            await reader.subscribe("room.lobby")

        async def talk(publisher: Socket, name: str) -> None:
            for n in range(100):
                frame = {"topic": "room.lobby", "data": {"who": name, "n": n}}
                await publisher.send({"type": "publish", **frame})

        await asyncio.gather(talk(first, "a"), talk(second, "b"))
        seen = [[(await reader.message())["data"] for _ in range(200)] for reader in readers]
    assert seen[0] == seen[1] == seen[2]
    for name in ("a", "b"):
        assert [d["n"] for d in seen[0] if d["who"] == name] == list(range(100))
