"""The clients of the byte protocols accept a timedelta instead of seconds."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import InvalidOption, OperationTimeout
from hanzoai.pubsub.eventstream import EventStreamClient
from hanzoai.pubsub.eventstream import blocking as blocking_events
from hanzoai.pubsub.hub import HubClient
from hanzoai.pubsub.hub import blocking as blocking_hub
from hanzoai.pubsub.sp import PubSocket, SubSocket
from hanzoai.pubsub.sp import blocking as blocking_sp
from tests.python.protocols.literal_peers import Broker, Hub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SHORT = timedelta(milliseconds=20)
LONG = timedelta(seconds=30)


@pytest.mark.parametrize("client", [HubClient, EventStreamClient])
async def test_a_client_of_a_byte_protocol_shows_its_address(client: Any) -> None:
    scheme = "hub" if client is HubClient else "events"
    async with client(f"{scheme}://127.0.0.1:9") as open_:
        assert repr(open_) == f"<{client.__name__} 127.0.0.1:9>"
    assert repr(open_) == f"<{client.__name__} 127.0.0.1:9 closed>"


@pytest.mark.parametrize("client", [HubClient, EventStreamClient])
def test_a_tls_context_has_its_type_and_a_url_with_tls(client: Any) -> None:
    wrong: Any = True
    scheme = "hub" if client is HubClient else "events"
    with pytest.raises(InvalidOption, match=r"ssl is bool, not an ssl\.SSLContext") as caught:
        client(f"{scheme}+tls://127.0.0.1:9", ssl=wrong)
    assert caught.value.field == "ssl"
    context = ssl.create_default_context()
    for url in (f"{scheme}://127.0.0.1:9", f"{scheme}+unix:/run/feed.sock"):
        with pytest.raises(InvalidOption, match="The URL does not use TLS"):
            client(url, ssl=context)


def test_seconds_of_a_duration() -> None:
    assert seconds_of(timedelta(minutes=1, milliseconds=500)) == 60.5
    assert seconds_of(0.25) == 0.25
    assert seconds_of(None) is None


async def test_something_else_is_refused_by_its_name() -> None:
    wrong: Any = "5"
    with pytest.raises(InvalidOption, match="ttl is NaN, not a duration"):
        seconds_of(float("nan"), "ttl")
    with pytest.raises(InvalidOption, match="timeout is bool, not a duration"):
        seconds_of(True)
    events, hub = EventStreamClient("events://127.0.0.1:1"), HubClient("hub://127.0.0.1:1")
    async with SubSocket() as sub:
        for call in (
            events.publish("a", "x", timeout=wrong),
            hub.publish("a", "x", timeout=wrong),
            events.subscribe("a").recv(wrong),
            sub.recv(wrong),
            sub.wait_for_peers(timeout=wrong),
        ):
            with pytest.raises(InvalidOption, match="timeout is str, not a duration"):
                await call
        with pytest.raises(InvalidOption, match="linger is str"):
            await sub.close(linger=wrong)
        assert not sub.closed
    with blocking_sp.SubSocket() as blocking:
        with pytest.raises(InvalidOption, match="timeout is str"):
            blocking.recv(wrong)
        with pytest.raises(InvalidOption, match="linger is str"):
            blocking.close(linger=wrong)
        assert not blocking.closed


async def expires(wait: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(OperationTimeout, match=r"within 0\.02 s"):
        await wait()


async def test_the_event_stream_takes_timedeltas() -> None:
    async with (
        Broker() as broker,
        EventStreamClient(
            f"events://127.0.0.1:{broker.port}",
            connect_timeout=LONG,
            reconnect_min=SHORT,
            reconnect_max=LONG,
        ) as client,
        client.subscribe("a") as events,
    ):
        await client.publish("b", "x", timeout=LONG)
        await expires(lambda: events.recv(SHORT))


async def test_the_hub_protocol_takes_timedeltas() -> None:
    async with (
        Hub() as hub,
        HubClient(
            f"hub://127.0.0.1:{hub.port}",
            connect_timeout=LONG,
            reconnect_min=SHORT,
            reconnect_max=LONG,
        ) as client,
        client.subscribe("a") as messages,
    ):
        await client.publish("b", "x", timeout=LONG)
        await expires(lambda: messages.recv(SHORT))


async def test_sockets_take_timedeltas() -> None:
    async with (
        PubSocket(hello_timeout=LONG, reconnect_min=SHORT, reconnect_max=LONG) as pub,
        SubSocket(hello_timeout=LONG, reconnect_min=SHORT, reconnect_max=LONG) as sub,
    ):
        await sub.dial(await pub.listen("tcp://127.0.0.1:0"))
        await pub.wait_for_peers(timeout=LONG)
        await expires(lambda: pub.wait_for_peers(2, timeout=SHORT))
        await expires(lambda: sub.recv(SHORT))
        await pub.close(linger=SHORT)


async def test_the_blocking_clients_take_timedeltas() -> None:
    def read(broker: int, hub: int) -> None:
        with (
            blocking_events.EventStreamClient(
                f"events://127.0.0.1:{broker}", connect_timeout=LONG
            ) as events,
            blocking_hub.HubClient(f"hub://127.0.0.1:{hub}", connect_timeout=LONG) as client,
            blocking_sp.SubSocket(hello_timeout=LONG, reconnect_min=SHORT) as sub,
        ):
            events.publish("b", "x", timeout=LONG)
            client.publish("b", "x", timeout=LONG)
            for recv in (events.subscribe("a").recv, client.subscribe("a").recv, sub.recv):
                with pytest.raises(OperationTimeout, match=r"within 0\.02 s"):
                    recv(SHORT)
            sub.close(linger=SHORT)

    async with Broker() as broker, Hub() as hub:
        await asyncio.to_thread(read, broker.port, hub.port)
