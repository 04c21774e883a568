"""The SDK's clients of byte protocols against the server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.cli.main import main
from hanzoai.pubsub.errors import PermissionDenied
from hanzoai.pubsub.eventstream import EventStreamClient
from hanzoai.pubsub.hub import HubClient
from hanzoai.pubsub.sp import SubSocket
from pubsub_server.testing import running_server
from tests.server.protocols.peers import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.testing import RunningServer


@asynccontextmanager
async def serving(**settings: Any) -> AsyncGenerator[RunningServer]:
    who = {"user": "bus", "kind": "admin"}
    given = {
        "event_stream": "0",
        "hub": "0",
        "sp_pub": "tcp://127.0.0.1:0",
        "listener_identities": {"event_stream": who, "hub": who, "sp_pub": who},
        **settings,
    }
    async with running_server(**given) as server:
        yield server


def cut_hub_connections(server: RunningServer) -> None:
    for listener in server.server._byte_listeners:
        if listener.connections.name == "hub":
            for session in list(listener.connections.open):
                session.abort()


async def test_one_message_crosses_between_the_clients_of_all_protocols() -> None:
    async with (
        serving() as server,
        EventStreamClient(server.server.others["event_stream"]) as events,
        HubClient(server.server.others["hub"]) as hub,
        SubSocket() as sub,
        PubSubClient(url=server.ws, token=server.service_token()) as ps,
        events.subscribe("demo.a") as read_events,
        hub.subscribe("demo.a", "demo.b") as read_hub,
    ):
        sub.subscribe(b"demo.a ")
        await sub.dial(server.server.others["sp_pub"])
        await until(lambda: server.stats.subscriptions == 4)
        await ps.publish("demo.a", {"data": {"from": "websocket"}})
        assert await hub.publish(["demo.a", "demo.b"], b"\xff from hub") == 5
        await events.publish("demo.a", "from events")
        wanted = [b'{"from":"websocket"}', b"\xff from hub", b"from events"]
        assert [(await read_events.recv(timeout=20)).data for _ in wanted] == wanted
        got = [await read_hub.recv(timeout=20) for _ in range(4)]
        assert [m.data for m in got if m.topic == "demo.a"] == wanted
        assert [m.data for m in got if m.topic == "demo.b"] == [b"\xff from hub"]
        bodies = [await sub.recv(timeout=20) for _ in wanted]
        assert [json.loads(body.removeprefix(b"demo.a "))["data"] for body in bodies] == [
            {"from": "websocket"},
            {"$base64": "/yBmcm9tIGh1Yg=="},
            "from events",
        ]


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (("org.other.a",), "does not grant the topic (topic org.other.a)."),
        (("org.other.a", "not/of/hip-56"), "does not grant any of the 2 topics."),
    ],
)
async def test_a_hub_subscription_to_denied_topics_fails(
    topics: tuple[str, ...], message: str
) -> None:
    async with (
        serving(listener_identities={"hub": {"user": "alice"}}) as server,
        HubClient(server.server.others["hub"]) as hub,
    ):
        with pytest.raises(PermissionDenied) as raised:
            await hub.subscribe(*topics).open()
        assert raised.value.message.endswith(message)
        assert "log of the hub" in raised.value.remedy
        with pytest.raises(PermissionDenied):
            await hub.subscribe(*topics).recv(timeout=20)


async def test_a_hub_subscription_to_partly_denied_topics_warns_and_receives_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving(listener_identities={"hub": {"user": "alice"}}) as server,
        HubClient(server.server.others["hub"], reconnect_min=0.01) as hub,
        hub.subscribe("demo.a", "org.other.a") as messages,
    ):
        cut_hub_connections(server)
        receiving = asyncio.create_task(messages.recv(timeout=20))
        await until(lambda: messages.reconnects == 1)
        assert await hub.publish(["demo.a", "org.other.a"], "x") == 1
        assert (await receiving).topic == "demo.a"
        assert await messages.add("org.other.b", "demo.b") == 1
    warned = [each.getMessage() for each in caplog.records if each.name == "hanzoai.pubsub"]
    assert [each.partition(" ")[2] for each in warned] == [
        "grants only 1 of 2 topics. Look into the log of the hub: it names the first denied topic."
    ]


async def test_a_hub_subscription_without_topics_gets_those_that_are_added() -> None:
    async with (
        serving() as server,
        HubClient(server.server.others["hub"], reconnect_min=0.01) as hub,
        hub.subscribe() as messages,
    ):
        assert await messages.add("demo.a") == 1
        assert await messages.add("demo.b") == 1
        assert await messages.remove("demo.a", "demo.b") == 2
        cut_hub_connections(server)
        receiving = asyncio.create_task(messages.recv(timeout=20))
        await until(lambda: messages.reconnects == 1)
        assert await messages.add("demo.b") == 1
        assert await hub.publish("demo.b", "x") == 1
        assert (await receiving).topic == "demo.b"
        assert await messages.remove("demo.b") == 1


async def test_topics_of_a_hub_subscription_come_and_go() -> None:
    async with (
        serving() as server,
        HubClient(server.server.others["hub"]) as hub,
        hub.subscribe("demo.a") as messages,
    ):
        assert messages.id
        assert await messages.add("demo.b", "not/of/hip-56") == 2
        assert await messages.remove("demo.a") == 1
        assert await hub.publish(["demo.a", "demo.b"], "x") == 1
        assert (await messages.recv(timeout=20)).topic == "demo.b"


async def test_the_command_line_works_with_the_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving() as server:
        via = ("--via", server.server.others["event_stream"])
        reading = asyncio.create_task(
            asyncio.to_thread(main, ("subscribe", "demo.a", *via, "--count", "1"))
        )
        await until(lambda: server.stats.subscriptions == 1)
        assert await asyncio.to_thread(main, ("publish", "demo.a", "--data", "hi", *via)) == 0
        assert await reading == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"events": [{"topic": "demo.a", "data": "hi", "bytes": 2}], "timeout": False} in records
