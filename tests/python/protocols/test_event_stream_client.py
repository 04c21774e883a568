"""The client of the event stream with a broker that does not use the product's code."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from typing import TYPE_CHECKING, Any, cast

import pytest
import trustme

from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    OperationTimeout,
    PayloadTooLarge,
    ProtocolError,
)
from hanzoai.pubsub.eventstream import Event, EventStreamClient, EventSubscription, blocking
from tests.ports import free_port
from tests.python.protocols.literal_peers import Broker, SlowTls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(params=[False, True], ids=["whole", "byte by byte"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    async with Broker(chop=request.param) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[EventStreamClient]:
    url = f"events://127.0.0.1:{broker.port}"
    async with EventStreamClient(url, reconnect_min=0.01) as client:
        yield client


async def receive(subscription: EventSubscription, count: int) -> list[Event]:
    return [await subscription.recv(timeout=10) for _ in range(count)]


async def publish_until_refused(client: EventStreamClient) -> None:
    """The first events may go to a connection that is already dead."""
    while True:
        await client.publish("status", "nobody is there")
        await asyncio.sleep(0)


async def answer_as_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the first bytes, as a server of HTTP does for a malformed request."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()
    writer.close()


async def test_a_publish_raises_after_the_server_has_answered_in_another_protocol() -> None:
    async with (
        asyncio.timeout(60),
        await asyncio.start_server(answer_as_http, "127.0.0.1") as server,
    ):
        port = server.sockets[0].getsockname()[1]
        client = EventStreamClient(f"events://127.0.0.1:{port}")
        with pytest.raises(ProtocolError, match="does not use the event stream") as caught:
            await publish_until_refused(client)
        assert "Check the URL" in caught.value.remedy
        await client.close()


@pytest.mark.statement("P-02", "P-03", "P-05", "P-06", "P-15")
async def test_events_reach_the_subscribers_of_their_topic_in_order(
    client: EventStreamClient, broker: Broker
) -> None:
    async with client.subscribe("status") as status, client.subscribe("metrics") as metrics:
        await broker.until(2)
        assert await client.publish("status", "online") == 6
        assert await client.publish("metrics", b'{"cpu":42}') == 10
        for n in range(50):
            await client.publish("status", str(n))
        assert await metrics.recv(timeout=10) == Event("metrics", b'{"cpu":42}')
        assert [event.text for event in await receive(status, 51)] == [
            "online",
            *map(str, range(50)),
        ]


@pytest.mark.statement("P-11", "P-12", "P-20", "P-21")
async def test_the_star_receives_every_topic_and_is_not_a_pattern(
    client: EventStreamClient, broker: Broker
) -> None:
    async with client.subscribe("*") as all_, client.subscribe("events.*") as literal:
        await broker.until(2)
        for topic in ("events.a", "log.error", "", "events.*", "grüße", "*"):
            await client.publish(topic, "x")
        await client.publish(b"\xff", b"\xff")
        got = await receive(all_, 7)
        assert [event.topic for event in got] == [
            "events.a",
            "log.error",
            "",
            "events.*",
            "grüße",
            "*",
            "\udcff",
        ]
        assert got[-1].text == "�"
        assert await literal.recv(timeout=10) == Event("events.*", b"x")


async def test_publishing_to_the_star_does_not_receive_every_topic() -> None:
    async with (
        Broker() as broker,
        EventStreamClient(f"events://127.0.0.1:{broker.port}") as client,
        client.subscribe("*") as events,
    ):
        await broker.until(1)
        await client.publish("*", "x")
        assert await events.recv(timeout=10) == Event("*", b"x")
        assert sorted(broker.topics.values()) == [b"*", b"**"]


@pytest.mark.statement("P-07", "P-14", "P-16")
async def test_a_lost_connection_is_a_fresh_subscription(
    client: EventStreamClient, broker: Broker
) -> None:
    async with client.subscribe("status") as events:
        await broker.until(1)
        await client.publish("status", "1")
        assert (await events.recv(timeout=10)).data == b"1"
        receiving = asyncio.create_task(events.recv())
        await broker.stop()
        with pytest.raises(ConnectionFailed):
            await publish_until_refused(client)
        await broker.start()
        await broker.until(3)  # this subscription, publishing, and this subscription again
        await client.publish("status", "3")
        assert (await receiving).data == b"3"
        assert events.reconnects == 1


@pytest.mark.statement("P-17", "P-18")
async def test_limits_are_checked_before_anything_is_sent(client: EventStreamClient) -> None:
    with pytest.raises(InvalidTopic):
        await client.publish("t" * 1025, "x")
    with pytest.raises(InvalidTopic):
        client.subscribe("ü" * 513)
    with pytest.raises(PayloadTooLarge) as caught:
        await client.publish("t", bytes(16 * 1024 * 1024 + 1))
    assert caught.value.limit == 16 * 1024 * 1024
    with pytest.raises(InvalidPayload):
        await client.publish("t", {"cpu": 42})  # type: ignore[arg-type]


@pytest.mark.statement("P-17", "P-18")
async def test_the_longest_topic_and_the_largest_payload_come_whole() -> None:
    async with (
        Broker() as broker,
        EventStreamClient(f"events://127.0.0.1:{broker.port}") as client,
        client.subscribe("t" * 1024) as events,
    ):
        await broker.until(1)
        data = bytes(range(256)) * (16 * 1024 * 4)
        await client.publish("t" * 1024, data)
        assert (await events.recv(timeout=20)).data == data


async def test_a_subscription_ends_when_it_or_its_client_is_closed(
    client: EventStreamClient, broker: Broker
) -> None:
    events = client.subscribe("status")
    reading = asyncio.create_task(anext(aiter(events), None))
    await broker.until(1)
    await client.close()
    assert await reading is None
    with pytest.raises(ClosedError):
        await events.recv()
    with pytest.raises(ClosedError):
        client.subscribe("x")
    with pytest.raises(ClosedError):
        await client.publish("x", "y")


async def test_a_client_keeps_no_subscription_that_has_ended(client: EventStreamClient) -> None:
    async with client.subscribe("status") as events:
        ended = weakref.ref(events)
    del events
    gc.collect()
    assert ended() is None


async def test_closing_a_subscription_ends_its_wait_for_the_next_attempt() -> None:
    async with Broker() as broker:
        url = f"events://127.0.0.1:{broker.port}"
        async with EventStreamClient(url, reconnect_min=600, reconnect_max=1200) as client:
            events = client.subscribe("status")
            await events.open()
            receiving = asyncio.create_task(events.recv())
            await broker.until(1)
            await broker.stop()
            while events._backoff._wait == 600:  # noqa: ASYNC110 - it does not tell that it waits
                await asyncio.sleep(0)
            await events.close()
            async with asyncio.timeout(30):
                with pytest.raises(ClosedError):
                    await receiving


@pytest.mark.parametrize("act", ["publish", "subscribe"])
async def test_closing_a_client_while_it_connects_leaves_no_connection(act: str) -> None:
    async with SlowTls() as server:
        url = f"events+tls://localhost:{server.port}"
        client = EventStreamClient(url, ssl=server.trust)
        call = client.publish("a", "x") if act == "publish" else client.subscribe("a").open()
        calling = asyncio.ensure_future(call)
        await server.reached()
        await client.close()
        assert await server.rest() == b""
        with pytest.raises(ClosedError):
            await calling


async def test_many_connections_to_a_server_that_stalls_are_closed_at_the_same_time() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    # A writer that is no longer referenced closes its connection.
    stalled: list[asyncio.StreamWriter] = []

    def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast("asyncio.Transport", writer.transport).pause_reading()
        stalled.append(writer)

    async with await asyncio.start_server(stall, "127.0.0.1", 0, ssl=context) as server:
        url = f"events+tls://localhost:{server.sockets[0].getsockname()[1]}"
        client = EventStreamClient(url, ssl=trust)
        for n in range(40):
            await client.subscribe(str(n)).open()
        # One close waits for up to a second.
        async with asyncio.timeout(20):
            await client.close()
        for writer in stalled:
            writer.transport.abort()


async def test_waiting_may_time_out(client: EventStreamClient) -> None:
    async with client.subscribe("status") as events:
        with pytest.raises(OperationTimeout, match=r"within 0\.01 s"):
            await events.recv(timeout=0.01)


async def test_the_first_connection_has_to_succeed() -> None:
    port = free_port()
    async with EventStreamClient(f"events://127.0.0.1:{port}") as client:
        with pytest.raises(
            ConnectionFailed, match=f"127.0.0.1:{port} refused the connection: no program"
        ):
            await client.subscribe("x").open()


async def test_half_an_event_before_a_cut_spoils_no_later_one() -> None:
    halves = [bytes.fromhex("000173000000ff61"), bytes.fromhex("0001730000000162")]

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(7)
        writer.write(halves.pop(0) if halves else b"")
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        url = f"events://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with EventStreamClient(url, reconnect_min=0.01) as client:
            assert await client.subscribe("s").recv(timeout=10) == Event("s", b"b")


async def test_an_answer_that_is_not_an_event_stream_is_reported() -> None:
    async def wrong(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(wrong, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with EventStreamClient(f"events://127.0.0.1:{port}") as client:
            with pytest.raises(ProtocolError, match="does not use the event stream"):
                await client.subscribe("x").recv(timeout=10)


async def test_a_connection_may_be_encrypted() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    async with Broker(tls=context) as broker:
        url = f"events+tls://localhost:{broker.port}"
        async with (
            EventStreamClient(url, ssl=trust) as client,
            client.subscribe("status") as events,
        ):
            await broker.until(1)
            await client.publish("status", "online")
            assert (await events.recv(timeout=10)).text == "online"
        async with EventStreamClient(url) as stranger:
            with pytest.raises(ConnectionFailed):
                await stranger.publish("status", "x")


@pytest.mark.statement("P-24")
def test_self_is_the_node_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANZO_PUBSUB_EVENT_STREAM", raising=False)
    assert EventStreamClient("events://self").target == "127.0.0.1:1002"
    for address, target in (
        ("4002", "127.0.0.1:4002"),
        ("192.0.2.1:4002", "192.0.2.1:4002"),
        ("unix:/run/events", "/run/events"),
    ):
        monkeypatch.setenv("HANZO_PUBSUB_EVENT_STREAM", address)
        assert EventStreamClient().target == target
    for address in ("abc", "0", "unix:"):
        monkeypatch.setenv("HANZO_PUBSUB_EVENT_STREAM", address)
        with pytest.raises(InvalidOption, match=f"HANZO_PUBSUB_EVENT_STREAM is '{address}'"):
            EventStreamClient()


@pytest.mark.parametrize(
    "url",
    [
        "ws://a:1",
        "events:",
        "events://",
        "events+unix:",
        "events://a:b",
        "events://a..b:1",
        f"events://{64 * 'a'}.b:1",
        "events://a:0",
        b"events://a:1",
        None,
    ],
)
def test_a_wrong_url_is_refused(url: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        EventStreamClient(url)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"connect_timeout": "5"}, "connect_timeout"),
        ({"connect_timeout": 0}, "connect_timeout"),
        ({"connect_timeout": None}, "connect_timeout"),
        ({"reconnect_min": 0}, "reconnect_min"),
        ({"reconnect_min": float("nan")}, "reconnect_min"),
        ({"reconnect_min": 2, "reconnect_max": 1}, "reconnect_max"),
    ],
)
def test_an_impossible_option_is_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        EventStreamClient("events://127.0.0.1:1", **options)
    assert caught.value.field == field


async def test_a_program_without_asyncio_has_the_same_client(broker: Broker) -> None:
    def program() -> list[str]:
        with (
            blocking.EventStreamClient(f"events://127.0.0.1:{broker.port}") as client,
            client.subscribe("status") as events,
        ):
            asyncio.run_coroutine_threadsafe(broker.until(1), loop).result(10)
            for n in range(3):
                client.publish("status", str(n))
            got = [events.recv(timeout=10).text for _ in range(3)]
            assert (events.topic, events.reconnects) == ("status", 0)
            events.close()
            assert list(events) == []
            client.close()
        with pytest.raises(ClosedError):
            client.publish("status", "x")
        return got

    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(program) == ["0", "1", "2"]
