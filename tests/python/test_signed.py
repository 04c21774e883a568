"""`SignedTopic` with the server, on a separate socket and inside a HIP-56 topic."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.protocol import State

from hanzoai.pubsub import Gap, PubSub, PubSubClient, soc
from hanzoai.pubsub.errors import (
    ClosedError,
    ConnectionFailed,
    InvalidOption,
    InvalidPayload,
    UsageError,
)
from hanzoai.pubsub.signed import Forged, SignedMessage, SignedTopic
from hanzoai.pubsub.signed.carriers import WAITING_MAX
from pubsub_server.testing import running_server
from tests.ports import free_port
from tests.server.protocols.peers import BOUND, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from pubsub_server.testing import RunningServer

KEY = b"\1" * 32
OWNER = soc.owner_of(KEY)
ID = soc.keccak256(b"my-topic")
TOPIC = soc.topic_address(ID, OWNER)
NAME = f"signed.{TOPIC.hex()}"


@asynccontextmanager
async def node(**settings: Any) -> AsyncGenerator[RunningServer]:
    who = {"signed": {"user": "bus", "kind": "admin"}}
    async with running_server(signed=True, listener_identities=who, **settings) as server:
        yield server


@asynccontextmanager
async def client(server: RunningServer) -> AsyncGenerator[PubSubClient]:
    token = server.admin_token()
    async with PubSubClient(server.ws, token, rest_url=server.http, allow_insecure=True) as ps:
        yield ps


async def take(topic: SignedTopic, count: int) -> list[SignedMessage]:
    found: list[SignedMessage] = []
    async with asyncio.timeout(BOUND):
        async for message in topic:
            found.append(message)
            if len(found) == count:
                break
    return found


PAYLOADS = [b"hello", b"", b"\xff\0", {"n": 1}, [1, 2], "text", bytes(4096)]


async def test_payloads_arrive_proved_on_a_socket_and_in_a_topic_of_hip_56() -> None:
    async with (
        node() as server,
        client(server) as ps,
        SignedTopic(server.ws, id=ID, topic=TOPIC) as socket,
        SignedTopic(client=ps, topic=NAME) as inside,
        SignedTopic(server.server.others["signed"], id="my-topic", key=KEY) as one,
        SignedTopic(client=ps, id=ID.hex(), key=KEY) as two,
    ):
        await until(lambda: server.stats.subscriptions == 3)
        assert one.address == two.address == TOPIC
        assert (one.name, one.owner, inside.owner) == (NAME, OWNER, None)
        for payload in PAYLOADS:
            assert await one.publish(payload) is None
        # Nothing else orders the messages of two publishers.
        await until(lambda: server.stats.published == len(PAYLOADS))
        published = [await two.publish(payload) for payload in PAYLOADS]
        assert all(each is not None and each.id for each in published)
        for reader in (socket, inside):
            found = await take(reader, 2 * len(PAYLOADS))
            assert {each.owner for each in found} == {OWNER}
            texts = [each.payload for each in found]
            assert texts[:7] == texts[7:]
            assert [each.data for each in found[3:6]] == [{"n": 1}, [1, 2], "text"]


async def test_a_publisher_that_never_read_reads_from_its_first_iteration_on() -> None:
    async def until_after(topic: SignedTopic) -> None:
        async for message in topic:
            if message.payload == b"after":
                return

    async with (
        node() as server,
        client(server) as ps,
        SignedTopic(server.ws, id=ID, key=KEY) as socket,
        SignedTopic(client=ps, id=ID, key=KEY) as inside,
    ):
        for topic in (socket, inside):
            for _ in range(40):
                await topic.publish("before")
            reading = asyncio.ensure_future(until_after(topic))
            async with asyncio.timeout(BOUND):
                while not reading.done():
                    await topic.publish("after")
                    await asyncio.wait([reading], timeout=0.05)
            await reading


async def test_a_signer_of_its_own_signs_the_digest() -> None:
    asked: list[bytes] = []

    async def wallet(digest: bytes) -> bytes:
        asked.append(digest)
        frame = soc.sign(KEY, ID, b"by the wallet")
        return frame[:64] + bytes((frame[64] - 27,))

    async with (
        node() as server,
        SignedTopic(server.ws, id=ID, signer=wallet, owner=OWNER) as topic,
    ):
        await until(lambda: server.stats.subscriptions == 1)
        reader = SignedTopic(server.ws, id=ID, owner=OWNER)
        await reader.connect()
        await until(lambda: server.stats.subscriptions == 2)
        await topic.publish("by the wallet")
        (message,) = await take(reader, 1)
        await reader.close()
        assert message.payload == b"by the wallet"
        assert asked == [soc.digest(ID, b"by the wallet")]
        with pytest.raises(InvalidPayload, match="owner has not signed"):
            await topic.publish("something else")


async def test_messages_go_out_in_the_order_of_the_calls_whichever_signature_comes_first() -> None:
    texts = ["one", "refused", "two", "three"]
    by_digest = {soc.digest(ID, text.encode()): text for text in texts}
    waiting: list[asyncio.Future[bytes]] = []
    sent: list[str] = []

    def wallet(digest: bytes) -> asyncio.Future[bytes]:
        waiting.append(asyncio.get_running_loop().create_future())
        asked.append(by_digest[digest])
        return waiting[-1]

    class Recorder:
        async def publish(self, topic: str, message: dict[str, Any]) -> None:
            sent.append(message["data"]["payload"])

    asked: list[str] = []
    recorder = cast("PubSubClient", Recorder())
    topic = SignedTopic(client=recorder, id=ID, signer=wallet, owner=OWNER)
    calls = [asyncio.ensure_future(topic.publish(text)) for text in texts]
    await until(lambda: asked == texts)
    for text, answer in reversed(list(zip(texts, waiting, strict=True))):
        if text == "refused":
            answer.set_exception(RuntimeError(text))
        else:
            answer.set_result(soc.sign(KEY, ID, text.encode())[:65])
        await asyncio.sleep(0)
    async with asyncio.timeout(BOUND):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, RuntimeError) for each in results] == [False, True, False, False]
    assert sent == ["one", "two", "three"]


async def test_forged_messages_are_shown_and_not_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "rules:\n  - pattern: 'signed.**'\n    require: {authenticated: true}\n    publish: true\n"
    )
    good = soc.to_data(soc.sign(KEY, ID, b"good"), ID, OWNER)
    forged: list[tuple[Any, str]] = [
        ({**good, "payload": "bad"}, "signature"),
        ({**good, "owner": "00" * 20}, "owner"),
        ({**good, "id": "00" * 32}, "owner"),
        ("text", "data"),
    ]
    async with (
        running_server(rules=rules) as server,
        client(server) as ps,
        SignedTopic(client=ps, id=ID, owner=OWNER) as every,
        SignedTopic(client=ps, id=ID, owner=OWNER) as good_ones,
    ):
        for data, _ in forged:
            await ps.publish(NAME, {"type": "message", "data": data})
        await ps.publish(NAME, {"type": "message", "data": good})
        seen = []
        async with asyncio.timeout(BOUND):
            async for event in every.events():
                seen.append(event)
                if isinstance(event, SignedMessage):
                    break
        assert [each.error.field for each in seen if isinstance(each, Forged)] == [
            field for _, field in forged
        ]
        with caplog.at_level(logging.WARNING, "hanzoai.pubsub.signed"):
            (message,) = await take(good_ones, 1)
        assert message.payload == b"good"
        assert every.forged == good_ones.forged == len(forged)
        assert len([each for each in caplog.records if each.name.endswith("signed")]) == 1


async def test_an_iteration_logs_the_first_gap(caplog: pytest.LogCaptureFixture) -> None:
    class Subscription:
        def __await__(self) -> Generator[None, None, Subscription]:
            yield from ()
            return self

        async def events(self) -> AsyncGenerator[Gap]:
            for n in (3, 5):
                yield Gap(NAME, 1, n, n, "history_trimmed")

    class Reader:
        def subscribe(self, topic: str) -> Subscription:
            return Subscription()

    topic = SignedTopic(client=cast("PubSubClient", Reader()), id=ID, owner=OWNER)
    with caplog.at_level(logging.WARNING, "hanzoai.pubsub.signed"):
        assert await take(topic, 1) == []
    (record,) = caplog.records
    assert f"{NAME}: 3 messages" in record.message


async def test_forged_frames_from_a_socket_are_not_trusted() -> None:
    frame = soc.sign(KEY, ID, b"good")

    async def lie(ws: ServerConnection) -> None:
        for each in (frame[:-1] + b"!", frame[:-1], "text", frame):
            await ws.send(each)
        await ws.wait_closed()

    async with serve(lie, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with SignedTopic(f"ws://127.0.0.1:{port}", id=ID, owner=OWNER) as topic:
            assert [each.payload for each in await take(topic, 1)] == [b"good"]
            assert topic.forged == 3


async def test_the_parameters_go_to_a_bee_in_every_spelling() -> None:
    asked: list[Any] = []

    async def note(ws: ServerConnection) -> None:
        asked.append(ws.request)
        await ws.wait_closed()

    async with serve(note, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        url = f"ws://127.0.0.1:{port}/v1/pubsub/?x=1"
        async with SignedTopic(url, id=ID, key=KEY, peer="/ip4/10.0.0.1/tcp/1634"):
            pass
    (request,) = asked
    path, _, query = request.path.partition("?")
    assert path == f"/v1/pubsub/{TOPIC.hex()}"
    for spelling in ("", "swarm-pubsub-"):
        assert f"{spelling}peer=/ip4/10.0.0.1/tcp/1634" in query
        assert f"{spelling}gsoc-eth-address={OWNER.hex()}" in query
        assert f"{spelling}gsoc-topic={ID.hex()}" in query
    assert query.startswith("x=1&")
    assert request.headers["Swarm-Pubsub-Gsoc-Topic"] == ID.hex()


async def test_a_rejected_or_lost_socket_reports_the_reason() -> None:
    async with running_server() as server:
        with pytest.raises(ConnectionFailed, match="HTTP status 404"):
            await SignedTopic(server.ws, id=ID, owner=OWNER).connect()
        url = server.ws
    with pytest.raises(ConnectionFailed, match="cannot be opened"):
        await SignedTopic(url, id=ID, owner=OWNER).connect()
    async with node() as server:
        topic = SignedTopic(server.ws, id=ID, key=KEY)
        await topic.connect()
    with pytest.raises(ConnectionFailed, match="1001 going_away"):
        await take(topic, 1)
    with pytest.raises(ConnectionFailed):
        await topic.publish("too late")
    await topic.close()
    for act in (lambda: take(topic, 1), lambda: topic.publish("closed")):
        with pytest.raises(ClosedError):
            await act()


async def test_a_broker_that_does_not_answer_is_what_the_error_tells_to_check() -> None:
    async with node() as server:
        peer = f"/ip4/127.0.0.1/tcp/{free_port()}"
        with pytest.raises(ConnectionFailed, match="HTTP status 502") as caught:
            await SignedTopic(server.ws, id=ID, owner=OWNER, peer=peer).connect()
    assert caught.value.remedy.startswith("Check `peer`")


async def test_connecting_twice_opens_one_socket_or_subscription() -> None:
    async with (
        node() as server,
        client(server) as ps,
        SignedTopic(server.ws, id=ID, owner=OWNER) as socket,
        SignedTopic(client=ps, id=ID, owner=OWNER) as inside,
    ):
        await asyncio.gather(*(topic.connect() for topic in (socket, inside, socket, inside)))
        assert server.stats.connections["signed"] == 1
        await socket.close()
        await until(lambda: server.stats.connections["signed"] == 0)
        await socket.connect()
        await inside.close()
        await until(lambda: server.stats.subscriptions == 1)


async def test_close_ends_an_opening_that_the_server_does_not_answer() -> None:
    accepted: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.put_nowait(reader)
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    async with asyncio.timeout(BOUND), await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        topic = SignedTopic(url, id=ID, owner=OWNER)
        opening = [asyncio.create_task(topic.connect()) for _ in range(2)]
        reader = await accepted.get()
        await topic.close()
        for each in opening:
            with pytest.raises(ClosedError):
                await each
        while await reader.read(1_000):
            pass
        assert accepted.empty()
        cancelled = asyncio.create_task(topic.connect())
        await accepted.get()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        for writer in writers:
            writer.close()


class Ungranted:
    """A client whose server does not answer a `subscribe`, and its subscription."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.ended = 0

    def subscribe(self, topic: str) -> Ungranted:
        self.asked.put_nowait(topic)
        return self

    def __await__(self) -> Generator[Any, Any, Any]:
        return asyncio.Event().wait().__await__()

    async def unsubscribe(self) -> None:
        self.ended += 1


async def test_close_ends_a_subscription_that_the_server_has_not_granted_yet() -> None:
    ps = Ungranted()
    topic = SignedTopic(client=cast("Any", ps), id=ID, owner=OWNER)
    opening = asyncio.create_task(topic.connect())
    reading = asyncio.create_task(take(topic, 1))
    async with asyncio.timeout(BOUND):
        assert await ps.asked.get() == NAME
        await topic.close()
        for each in (opening, reading):
            with pytest.raises(ClosedError):
                await each
    assert ps.ended == 1
    assert ps.asked.empty()


async def test_a_publisher_with_two_iterations_has_one_subscription() -> None:
    async with node() as server, client(server) as ps:
        topic = SignedTopic(client=ps, id=ID, key=KEY)
        readings = [asyncio.ensure_future(anext(topic.events())) for _ in range(2)]
        await until(lambda: server.stats.subscriptions == 1)
        await topic.publish("one")
        await topic.publish("two")
        async with asyncio.timeout(BOUND):
            events = [cast("SignedMessage", await each) for each in readings]
        assert {event.payload for event in events} == {b"one", b"two"}
        await topic.close()
        await until(lambda: server.stats.subscriptions == 0)


async def test_connect_opens_another_socket_while_messages_of_the_ended_one_are_unread() -> None:
    accepted: list[ServerConnection] = []

    async def flood(ws: ServerConnection) -> None:
        accepted.append(ws)
        for _ in range(WAITING_MAX + 1):
            await ws.send(b"x")

    async with serve(flood, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        topic = SignedTopic(f"ws://127.0.0.1:{port}", id=ID, owner=OWNER)
        await topic.connect()
        await until(lambda: len(accepted) == 1 and accepted[0].state is State.CLOSED)
        await topic.connect()
        await until(lambda: len(accepted) == 2)
        await topic.close()


async def test_a_reader_publishes_nothing() -> None:
    topic = SignedTopic("ws://127.0.0.1:1", id=ID, owner=OWNER)
    with pytest.raises(UsageError, match="read only"):
        await topic.publish("x")


async def test_a_payload_that_is_too_long_or_no_json_is_refused_before_it_is_sent() -> None:
    topic = SignedTopic("ws://127.0.0.1:1", id=ID, key=KEY)
    with pytest.raises(InvalidPayload, match="4,096"):
        await topic.publish("x" * 4097)
    for value in (float("nan"), {1}, {1: 1}, 2**64, "\ud800"):
        with pytest.raises(InvalidPayload) as raised:
            await topic.publish({"n": value})
        assert raised.value.field == "payload.n"


async def _no_signer(_: bytes) -> bytes:
    raise AssertionError


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "url"),
        ({"id": ID}, "topic"),
        ({"id": ID, "key": KEY, "signer": _no_signer}, "signer"),
        ({"id": ID, "signer": _no_signer}, "owner"),
        ({"id": ID, "key": KEY, "owner": bytes(20)}, "owner"),
        ({"id": ID, "key": KEY, "owner": [1]}, "owner"),
        ({"id": ID, "key": KEY, "topic": bytes(32)}, "topic"),
        ({"id": bytes(31), "key": KEY}, "id"),
        ({"id": "\ud800", "key": KEY}, "id"),
        ({"topic": TOPIC}, "id"),
        ({"topic": "my-topic", "id": ID}, "topic"),
        ({"topic": bytes(31), "id": ID}, "topic"),
        ({"topic": 5, "id": ID}, "topic"),
        ({"id": 5, "key": KEY}, "id"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments: dict[str, Any], field: str) -> None:
    url = None if field == "url" else "ws://127.0.0.1:1"
    with pytest.raises(InvalidOption) as caught:
        SignedTopic(url, **arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["owner", "key"])
def test_hex_digits_are_no_bytes(field: str) -> None:
    arguments: dict[str, Any] = {field: "0x" + "11" * 20}
    with pytest.raises(InvalidPayload, match=f"`{field}` is str, not bytes") as caught:
        SignedTopic("ws://127.0.0.1:1", id=ID, **arguments)
    assert (caught.value.field, "bytes.fromhex" in caught.value.remedy) == (field, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1", 5])
def test_a_url_that_is_not_a_websocket_url_is_rejected(url: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        SignedTopic(url, id=ID, owner=OWNER)
    assert caught.value.field == "url"


def test_the_blocking_client_cannot_carry_a_signed_topic() -> None:
    ps = PubSub("ws://127.0.0.1:1/ws", "t")
    for client, kind in ((ps, "PubSub"), ("ws://127.0.0.1:1", "str"), (5, "int")):
        with pytest.raises(InvalidOption, match=f"`client` is {kind}, not PubSubClient"):
            SignedTopic(client=cast("Any", client), id=ID, key=KEY)


def test_an_object_with_the_methods_of_a_client_carries_a_signed_topic() -> None:
    double = MagicMock()
    assert SignedTopic(client=double, id=ID, key=KEY).address
    del double.publish
    with pytest.raises(InvalidOption, match="`client` is MagicMock, not PubSubClient"):
        SignedTopic(client=double, id=ID, key=KEY)
