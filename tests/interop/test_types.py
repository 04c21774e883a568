"""HIP-56's ten standard types and unknown types, over every input and output."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PresenceChange, PubSubClient
from tests.interop.peer import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.peer import EventStream, Json, Node

TOPIC = "chat.session.a"
STANDARD = (
    "token",
    "message.complete",
    "message.edit",
    "tool.call",
    "tool.result",
    "agent.status",
    "notification",
)
"""Types of applications; the service sends the three presence types."""
UNKNOWN = ("acme.custom-type_1", "auth.ok", "Größe/2")
DATA = {"content": "Hello", "index": 42, "nested": [{"type": "token"}, None, 1.5]}

Reports = list[tuple[str, Any]]


@pytest.mark.statement("H-033")
@pytest.mark.parametrize("kind", [*STANDARD, *UNKNOWN])
async def test_application_types_pass_every_input_and_output_unchanged(
    open_node: Node, kind: str
) -> None:
    node = open_node
    token, service = node.iam.token(), node.iam.service()
    message: Json = {"type": kind, "data": DATA}
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        enter = stack.enter_async_context
        socket = await enter(node.socket(token))
        stream = await enter(node.events(token, topics=TOPIC))
        await socket.subscribe(TOPIC)
        await stream.event("subscribed")
        over_socket = await enter(PubSubClient(node.ws, service, rest_url=node.http))
        over_stream = await enter(
            PubSubClient(node.ws, service, rest_url=node.http, transport="sse")
        )
        readers = [await enter(ps.subscribe(TOPIC)) for ps in (over_socket, over_stream)]
        # Every input: flat and nested frames, POST, a batch, and the SDK over both transports.
        flat = {"type": "publish", "topic": TOPIC, "message_type": kind, "data": DATA}
        await socket.send(flat)
        await socket.send({"type": "publish", "message": {"topic": TOPIC, **message}})
        await socket.send({"type": "publish", "messages": [{"topic": TOPIC, **message}]})
        async with node.rest(service) as rest:
            await rest.post(f"/v1/topics/{TOPIC}/messages", json=message)
            await rest.post("/v1/messages:batch", json={"messages": [{"topic": TOPIC, **message}]})
        await over_socket.publish(TOPIC, message)
        await over_stream.publish(TOPIC, message)
        count = 7
        # Every output: live, replayed, and a page of history, to peers and to the SDK.
        out: dict[str, Reports] = {
            "socket": [_pair(await socket.message()) for _ in range(count)],
            "stream": [_pair((await stream.event("message")).json) for _ in range(count)],
        }
        for name, reader in zip(("socket of the SDK", "stream of the SDK"), readers, strict=True):
            found = [await anext(reader) for _ in range(count)]
            out[name] = [(each.type, each.data) for each in found]
        late = await enter(node.socket(token))
        replayed = await late.subscribe(TOPIC, since=1)
        out["replay on a socket"] = [_pair(each) for each in replayed["history"]]
        late_stream = await enter(node.events(token, topics=TOPIC, since=1))
        replayed = (await late_stream.event("subscribed")).json
        out["replay on a stream"] = [_pair(each) for each in replayed["history"]]
        async with node.rest(token) as rest:
            page = (await rest.get(f"/v1/topics/{TOPIC}/history")).json()
        out["page of history"] = [_pair(each) for each in page["messages"]]
        found = [each async for each in over_socket.history(TOPIC)]
        out["history of the SDK"] = [(each.type, each.data) for each in found]
    assert out == dict.fromkeys(out, [(kind, DATA)] * count)


def _pair(envelope: Json) -> tuple[str, Any]:
    return envelope["type"], envelope["data"]


@pytest.mark.statement("H-033")
async def test_the_types_of_presence_reach_sockets_streams_and_the_sdk(open_node: Node) -> None:
    node = open_node
    changes: asyncio.Queue[PresenceChange] = asyncio.Queue()
    async with (
        asyncio.timeout(PATIENCE),
        node.socket(node.iam.token("alice")) as alice,
        node.events(node.iam.token("carol"), topics=TOPIC) as stream,
        PubSubClient(node.ws, node.iam.token("dave"), rest_url=node.http) as ps,
    ):
        await alice.subscribe(TOPIC)
        await stream.event("subscribed")
        await ps.subscribe(TOPIC, on_presence=changes.put_nowait)
        await _until(changes, lambda change: len(change.members) == 2)
        async with node.socket(node.iam.token("bob")) as bob:
            await alice.fence()
            await bob.subscribe(TOPIC)
            await bob.send({"type": "presence.update", "data": {"status": "typing"}})
            await bob.send({"type": "unsubscribe", "topics": [TOPIC]})
            messages = [(await alice.until("message"))["message"] for _ in range(3)]
        received = [await changes.get() for _ in range(3)]
        statuses = await _statuses_of_bob(stream)
    kinds = [message["type"] for message in messages]
    assert kinds == ["presence.join", "presence.update", "presence.leave"]
    assert [message["data"]["user_id"] for message in messages] == ["bob"] * 3
    assert messages[1]["data"]["status"] == "typing"
    assert [change.change for change in received] == ["join", "update", "leave"]
    assert [change.member and change.member.user_id for change in received] == ["bob"] * 3
    assert statuses == [None, "typing", "gone"]


async def _until(
    changes: asyncio.Queue[PresenceChange], holds: Callable[[PresenceChange], bool]
) -> None:
    while not holds(await changes.get()):
        pass


async def _statuses_of_bob(stream: EventStream) -> list[str | None]:
    """The entries about him in the member lists, from join to leave."""
    found: list[str | None] = []
    while "gone" not in found:
        members = (await stream.event("presence")).json["members"]
        bob = [member for member in members if member["user_id"] == "bob"]
        if bob or found:
            found.append(bob[0].get("status") if bob else "gone")
    return found
