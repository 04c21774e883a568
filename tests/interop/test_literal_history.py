"""HIP-56's history: bounded by count, age and ttl, and replayed by time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pubsub_server.settings.config import Settings
from tests.interop.peer import Node, eventually

if TYPE_CHECKING:
    from tests.interop.conftest import Start

TOPIC = "system.announcements"


async def numbers(node: Node, topic: str = TOPIC) -> list[int]:
    async with node.rest(node.iam.token()) as rest:
        answer = await rest.get(f"/v1/topics/{topic}/history", params={"limit": 500})
    return [message["data"]["n"] for message in answer.json()["messages"]]


async def retained(node: Node, expected: list[int]) -> None:
    """Wait until exactly these messages are retained."""

    async def holds() -> bool:
        return await numbers(node) == expected

    await eventually(holds)


@pytest.mark.statement("H-014", "H-100", "H-101")
def test_a_hundred_messages_for_an_hour_are_retained_by_default() -> None:
    settings = Settings()
    assert (settings.history_max_messages, settings.history_max_age) == (100, 3600)


@pytest.mark.statement("H-014", "H-100", "H-103")
async def test_the_newest_hundred_messages_are_retained_and_replayed(node: Node) -> None:
    for n in range(105):
        await node.publish(TOPIC, {"n": n})
    assert await numbers(node) == list(range(5, 105))
    async with node.socket(node.iam.token()) as socket:
        subscribed = await socket.subscribe(TOPIC, since=1)
    assert [m["data"]["n"] for m in subscribed["history"]] == list(range(5, 105))


@pytest.mark.statement("H-014", "H-101")
async def test_a_message_is_removed_when_it_is_older_than_the_configured_age(start: Start) -> None:
    # On a busy machine, the first answer may need more than a second.
    node = await start(history_max_age=3)
    await node.publish(TOPIC, {"n": 1})
    assert await numbers(node) == [1]
    await retained(node, [])


@pytest.mark.statement("H-017", "H-104", "H-032")
async def test_a_message_is_replayable_until_its_ttl_in_seconds_has_passed(node: Node) -> None:
    await node.publish(TOPIC, {"n": 1}, ttl=3)
    await node.publish(TOPIC, {"n": 2}, ttl=60)
    assert await numbers(node) == [1, 2]
    await retained(node, [2])
    async with node.socket(node.iam.token()) as socket:
        subscribed = await socket.subscribe(TOPIC, since=1)
    assert [m["data"]["n"] for m in subscribed["history"]] == [2]


@pytest.mark.statement("H-014")
async def test_the_number_of_retained_messages_is_configurable(start: Start) -> None:
    node = await start(history_max_messages=3)
    for n in range(5):
        await node.publish(TOPIC, {"n": n})
    assert await numbers(node) == [2, 3, 4]


@pytest.mark.statement("H-043", "H-103")
async def test_since_is_a_strict_lower_bound(node: Node) -> None:
    answer = await node.publish(TOPIC, {"n": 1})
    async with node.socket(node.iam.token()) as socket:
        at = await socket.subscribe(TOPIC, since=answer["timestamp"])
        before = await socket.subscribe(TOPIC, since=answer["timestamp"] - 1)
    assert at.get("history", []) == []
    assert [m["data"]["n"] for m in before["history"]] == [1]


@pytest.mark.statement("H-103")
async def test_a_replay_over_a_wildcard_merges_topics_in_the_order_of_time(node: Node) -> None:
    for n, topic in enumerate(("system.a", "system.b", "system.a")):
        await node.publish(topic, {"n": n})
    async with node.socket(node.iam.token()) as socket:
        history = (await socket.subscribe("system.**", since=1))["history"]
    stamps = [m["timestamp"] for m in history]
    assert stamps == sorted(stamps)
    assert sorted(m["data"]["n"] for m in history) == [0, 1, 2]


@pytest.mark.statement("H-103", "H-018")
async def test_no_message_is_lost_or_repeated_between_replay_and_live(node: Node) -> None:
    async with node.socket(node.iam.token()) as socket, node.rest(node.iam.service()) as rest:

        async def publish() -> None:
            for n in range(80):
                body = {"type": "token", "data": {"n": n}}
                answer = await rest.post(f"/v1/topics/{TOPIC}/messages", json=body)
                assert answer.is_success

        publishing = asyncio.create_task(publish())

        async def some() -> bool:
            return len(await numbers(node)) >= 20

        await eventually(some)
        subscribed = await socket.subscribe(TOPIC, since=1)
        await publishing
        replayed = [m["data"]["n"] for m in subscribed["history"]]
        live = [m["data"]["n"] for m in await socket.messages()]
    assert replayed + live == list(range(80))
