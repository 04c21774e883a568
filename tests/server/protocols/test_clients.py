"""The SDK's clients of the byte protocols with the server's listeners."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.eventstream import EventStreamClient
from hanzoai.pubsub.hub import HubClient
from hanzoai.pubsub.sp import SubSocket
from pubsub_server.testing import running_server
from tests.server.protocols.peers import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.testing import RunningServer

WHO = {"user": "bus", "kind": "admin"}


@asynccontextmanager
async def all_on(**settings: Any) -> AsyncGenerator[RunningServer]:
    given = {
        "event_stream": "0",
        "hub": "0",
        "sp_pub": "tcp://127.0.0.1:0",
        "listener_identities": dict.fromkeys(("event_stream", "hub", "sp_pub"), WHO),
        **settings,
    }
    async with running_server(**given) as server:
        yield server


async def test_the_clients_of_all_protocols_receive_each_others_messages() -> None:
    async with all_on() as server:
        urls = server.server.others
        async with (
            EventStreamClient(urls["event_stream"]) as stream,
            HubClient(urls["hub"]) as hub,
            stream.subscribe("demo.a") as events,
            hub.subscribe("demo.a") as messages,
            SubSocket() as sub,
        ):
            sub.subscribe(b"demo.a ")
            await sub.dial(urls["sp_pub"])
            await until(lambda: server.stats.subscriptions >= 3)
            assert await hub.publish(["demo.a"], b'{"n":1}') >= 2
            event, message = await anext(aiter(events)), await messages.recv()
            assert (event.topic, event.data) == ("demo.a", b'{"n":1}')
            assert (message.topic, message.data) == ("demo.a", b'{"n":1}')
            assert b'"data":{"n":1}' in await sub.recv()


async def test_a_server_that_starts_again_is_found_again() -> None:
    async with all_on() as server:
        urls = server.server.others
        ports = {
            "event_stream": urls["event_stream"].rpartition(":")[2],
            "hub": urls["hub"].rpartition(":")[2],
            "sp_pub": urls["sp_pub"],
        }
        stream, hub = EventStreamClient(urls["event_stream"]), HubClient(urls["hub"])
        await stream.__aenter__()
        await hub.__aenter__()
    async with stream, hub, all_on(**ports) as server, stream.subscribe("demo.a") as events:
        await until(lambda: server.stats.subscriptions >= 1)
        assert await hub.publish(["demo.a"], b"again") == 1
        assert (await anext(aiter(events))).data == b"again"
