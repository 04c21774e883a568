"""The client of the hub protocol with a hub that does not use the product's code."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidTopic,
    OperationTimeout,
    ProtocolError,
)
from hanzoai.pubsub.hub import HubClient, HubMessage, HubSubscription, blocking
from hanzoai.pubsub.links.connections import Backoff
from tests.python.protocols.literal_peers import Hub, SlowTls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(params=[False, True], ids=["whole", "byte by byte"])
async def hub(request: pytest.FixtureRequest) -> AsyncIterator[Hub]:
    async with Hub(chop=request.param) as hub:
        yield hub


@pytest.fixture
async def client(hub: Hub) -> AsyncIterator[HubClient]:
    async with HubClient(f"hub://127.0.0.1:{hub.port}", reconnect_min=0.01) as client:
        yield client


async def receive(subscription: HubSubscription, count: int) -> list[HubMessage]:
    return [await subscription.recv(timeout=10) for _ in range(count)]


@pytest.mark.statement("Z-01", "Z-02", "Z-05")
async def test_each_topic_of_a_message_brings_it_once_and_in_order(client: HubClient) -> None:
    async with client.subscribe("topic_1", "topic_2") as both, client.subscribe("topic_2") as one:
        assert (both.id, one.id) == (1, 2)
        assert await client.publish(["topic_1", "topic_2"], b"hello") == 3
        assert await client.publish("topic_1", "again") == 1
        assert await client.publish("topic_3", b"") == 0
        assert await receive(both, 3) == [
            HubMessage("topic_1", b"hello"),
            HubMessage("topic_2", b"hello"),
            HubMessage("topic_1", b"again"),
        ]
        assert await one.recv(timeout=10) == HubMessage("topic_2", b"hello")


@pytest.mark.statement("Z-05")
async def test_many_publishes_are_on_their_way_at_one_time(client: HubClient) -> None:
    async with client.subscribe("t") as messages:
        counts = await asyncio.gather(*(client.publish("t", str(n)) for n in range(200)))
        assert counts == [1] * 200
        assert [m.data for m in await receive(messages, 200)] == [b"%d" % n for n in range(200)]


async def test_topics_come_and_go_while_messages_are_awaited(client: HubClient) -> None:
    async with client.subscribe("a") as messages:
        receiving = asyncio.create_task(messages.recv())
        await asyncio.sleep(0)
        assert await messages.add("b", "c") == 2
        assert await messages.add("b") == 0
        assert messages.topics == ("a", "b", "c")
        assert await client.publish(["b"], "x") == 1
        assert (await receiving).topic == "b"
        assert await messages.remove("b", "never") == 1
        assert await client.publish(["b", "c"], "y") == 1
        assert await messages.recv(timeout=10) == HubMessage("c", b"y")


async def test_a_lost_connection_is_opened_again_with_all_topics(
    client: HubClient, hub: Hub
) -> None:
    async with client.subscribe("a") as messages:
        await messages.add("b")
        assert await client.publish("b", "1") == 1
        receiving = asyncio.create_task(receive(messages, 2))
        await hub.stop()
        with pytest.raises(ConnectionFailed):
            await client.publish("b", "nobody is there")
        await hub.start()
        await hub.until(2)
        assert await client.publish("b", "2") == 1
        assert [m.data for m in await receiving] == [b"1", b"2"]
        assert messages.id == 2
        assert messages.reconnects == 1


async def test_a_change_on_a_lost_connection_leaves_no_unread_error(
    client: HubClient, hub: Hub
) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with client.subscribe("a") as messages:
        for writer in hub.writers:
            # Reset the connection, so that the client cannot write.
            one = writer.get_extra_info("socket")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await hub.stop()
        while messages._link is None or not messages._link.ended:  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(ConnectionFailed):
            await messages.add("b")
        await hub.start()
        receiving = asyncio.create_task(messages.recv())
        await hub.until(2)
        assert await client.publish("b", "x") == 1
        assert (await receiving).data == b"x"
    gc.collect()
    assert not [each for each in errors if "never retrieved" in each["message"]]


@pytest.mark.statement("Z-23", "Z-25")
async def test_limits_are_checked_before_anything_is_sent(client: HubClient) -> None:
    for topics in ("t" * 256, ["t"] * 256):
        with pytest.raises(InvalidTopic):
            await client.publish(topics, "x")
        with pytest.raises(InvalidTopic):
            client.subscribe(*([topics] if isinstance(topics, str) else topics))


@pytest.mark.parametrize(
    "topic", [["a", "b"], 1, None, "\ud800"], ids=["list", "number", "None", "surrogate"]
)
async def test_what_is_no_topic_is_named(client: HubClient, topic: Any) -> None:
    with pytest.raises(InvalidTopic, match=r"is text or bytes|cannot be encoded") as raised:
        client.subscribe(topic)
    assert raised.value.field == "topic"
    if not isinstance(topic, list):
        with pytest.raises(InvalidTopic):
            await client.publish(topic, "x")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\2", ProtocolError),
        (b"\x08\0\0\0\1", ProtocolError),
        (b"\3\0\0\0\1\3\0\0\0\1", ProtocolError),
        (b"", ConnectionFailed),
    ],
)
async def test_a_hub_that_breaks_the_protocol_ends_the_call(
    answer: bytes, error: type[Exception]
) -> None:
    async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(wrong, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HubClient(f"hub://127.0.0.1:{port}") as client:
            with pytest.raises(error):
                await client.subscribe("x").recv(timeout=10)
            if answer[:1] != b"\3":
                with pytest.raises(error) as caught:
                    await client.publish("x", "y")
                unknown = "may have published" in str(caught.value)
                assert unknown is (error is ConnectionFailed)


async def test_a_client_keeps_no_subscription_that_has_ended(client: HubClient) -> None:
    async with client.subscribe("a") as messages:
        ended = weakref.ref(messages)
    del messages
    gc.collect()
    assert ended() is None


@pytest.mark.parametrize("act", ["publish", "subscribe"])
async def test_closing_a_client_while_it_connects_leaves_no_connection(act: str) -> None:
    async with SlowTls() as server:
        client = HubClient(f"hub+tls://localhost:{server.port}", ssl=server.trust)
        call = client.publish("a", "x") if act == "publish" else client.subscribe("a").open()
        calling = asyncio.ensure_future(call)
        await server.reached()
        await client.close()
        await server.rest(b"\5" + bytes(12))
        with pytest.raises(ClosedError):
            await calling


async def test_waiting_may_time_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HubClient(f"hub://127.0.0.1:{port}", connect_timeout=0.05) as client:
            with pytest.raises(OperationTimeout) as caught:
                await client.publish("x", "y", timeout=0.05)
            assert caught.value.outcome_unknown
            with pytest.raises(OperationTimeout):
                await client.subscribe("x").open()


async def test_a_closed_client_refuses_everything(client: HubClient) -> None:
    messages = client.subscribe("a")
    await messages.open()
    await client.close()
    with pytest.raises(ClosedError):
        await messages.recv()
    with pytest.raises(ClosedError):
        await client.publish("a", "x")
    with pytest.raises(ClosedError):
        client.subscribe("a")
    assert [m async for m in messages] == []


async def test_a_program_without_asyncio_has_the_same_client(hub: Hub) -> None:
    def program() -> list[bytes]:
        with (
            blocking.HubClient(f"hub://127.0.0.1:{hub.port}") as client,
            client.subscribe("a") as messages,
        ):
            assert messages.add("b") == 1
            assert (messages.id, messages.topics) == (1, ("a", "b"))
            assert client.publish(["a", "b"], "x") == 2
            got = [messages.recv(timeout=10).data for _ in range(2)]
            assert messages.remove("a") == 1
            return got

    assert await asyncio.to_thread(program) == [b"x", b"x"]


async def test_a_subscription_that_is_closed_before_its_answer_ends() -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        asked.set()
        await gate.wait()
        writer.write(b"\5\0\0\0\0\0\0\0\1\0\0\0\1")
        writer.close()

    async with await asyncio.start_server(slow, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HubClient(f"hub://127.0.0.1:{port}") as client:
            subscription = client.subscribe("x")
            opening = asyncio.create_task(subscription.open())
            await asked.wait()
            await subscription.close()
            gate.set()
            with pytest.raises(ClosedError):
                await opening


async def test_half_a_message_before_a_cut_spoils_no_later_one() -> None:
    granted = b"\5\0\0\0\0\0\0\0\1\0\0\0\1"
    push = b"\6\0\0\0\1x\0\0\0\1y"
    answers = iter([granted + push[:7], granted + push])

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(next(answers, b""))
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HubClient(f"hub://127.0.0.1:{port}", reconnect_min=0.01) as client:
            assert (await client.subscribe("x").recv(timeout=10)).data == b"y"


async def test_a_subscription_has_at_most_as_many_topics_as_a_request(client: HubClient) -> None:
    async with client.subscribe(*(f"t.{n}" for n in range(200))) as messages:
        with pytest.raises(InvalidTopic, match="at most 255"):
            await messages.add(*(f"u.{n}" for n in range(56)))
        assert await messages.remove("t.0") == 1
        assert "t.0" not in messages.topics
        assert len(messages.topics) == 199


def test_waits_double_up_to_the_longest_and_start_again() -> None:
    backoff = Backoff(1, 3)
    for low, high in ((0.5, 1), (1, 2), (1.5, 3), (1.5, 3)):
        assert low <= backoff.next() <= high
    backoff.reset()
    assert backoff.next() <= 1


async def test_a_granted_subscription_makes_the_next_wait_short_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets = list[int]()

    def reset(_: Backoff) -> None:
        resets.append(1)

    monkeypatch.setattr(Backoff, "reset", reset)
    async with HubClient(f"hub://127.0.0.1:{hub.port}") as client, client.subscribe("x"):
        assert resets == [1]
