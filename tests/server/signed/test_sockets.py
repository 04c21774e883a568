"""WebSockets of signed topics, where this node is the broker."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.errors import InvalidPayload, InvalidTopic
from hanzoai.pubsub.soc import keccak256, to_data
from pubsub_server.listeners.signed import socket_session
from pubsub_server.testing import running_server
from tests.http_client import http_client
from tests.server.protocols.peers import BOUND, until
from tests.server.signed.peers import EMPTY, FORGED, HELLO, ID, NAME, OWNER, TOPIC, stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer

ADMIN = {"signed": {"user": "bus", "kind": "admin"}}
OWNER_HEX, ID_HEX, TOPIC_HEX = OWNER.hex(), ID.hex(), TOPIC.hex()
WRITES = f"?gsoc-eth-address={OWNER_HEX}&gsoc-topic={ID_HEX}"


@asynccontextmanager
async def node(**settings: Any) -> AsyncGenerator[RunningServer]:
    given = {"signed": True, "listener_identities": ADMIN, **settings}
    async with running_server(**given) as server:
        yield server


def socket(server: RunningServer, rest: str = TOPIC_HEX, **more: Any) -> connect:
    return connect(server.server.others["signed"] + rest, compression=None, **more)


def publisher(server: RunningServer) -> connect:
    return socket(server, TOPIC_HEX + WRITES)


async def next_of(ws: ClientConnection) -> Any:
    async with asyncio.timeout(BOUND):
        return await ws.recv()


async def end_of(ws: ClientConnection) -> tuple[int | None, str]:
    async with asyncio.timeout(BOUND):
        await ws.wait_closed()
    return ws.close_code, ws.close_reason or ""


async def subscribed(server: RunningServer, count: int) -> None:
    await until(lambda: server.stats.subscriptions == count)


@pytest.mark.statement("B-03", "B-08", "B-09", "B-18", "B-19")
async def test_a_frame_reaches_every_socket_of_the_topic_byte_for_byte() -> None:
    async with node() as server, publisher(server) as one, socket(server) as two:
        await subscribed(server, 2)
        for frame in (HELLO, EMPTY):
            await one.send(frame)
            assert await next_of(one) == await next_of(two) == frame


@pytest.mark.statement("B-24", "B-25")
@pytest.mark.parametrize(
    ("query", "headers"),
    [
        (WRITES, {}),
        (
            f"?swarm-pubsub-gsoc-eth-address={OWNER_HEX}&swarm-pubsub-gsoc-topic={ID_HEX}",
            {},
        ),
        (
            "",
            {
                "Swarm-Pubsub-Gsoc-Eth-Address": OWNER_HEX,
                "Swarm-Pubsub-Gsoc-Topic": ID_HEX.upper(),
            },
        ),
    ],
    ids=["query", "long query", "headers"],
)
@pytest.mark.parametrize("prefix", ["/pubsub/", "/v1/pubsub/"])
async def test_the_parameters_of_a_publisher_are_read_in_every_spelling(
    query: str, headers: dict[str, str], prefix: str
) -> None:
    async with node() as server:
        url = server.ws.removesuffix("/ws") + prefix + TOPIC_HEX + query
        async with connect(url, additional_headers=headers) as one:
            await subscribed(server, 1)
            await one.send(HELLO)
            assert await next_of(one) == HELLO


@pytest.mark.parametrize(
    ("rest", "status", "expected"),
    [
        (TOPIC_HEX + f"?gsoc-eth-address={OWNER_HEX}", 400, "missing gsoc-topic"),
        (TOPIC_HEX + f"?gsoc-topic={ID_HEX}", 400, "missing gsoc-eth-address"),
        (TOPIC_HEX + f"?gsoc-eth-address=0x{OWNER_HEX}&gsoc-topic={ID_HEX}", 400, "without 0x"),
        (TOPIC_HEX + f"?gsoc-eth-address={OWNER_HEX}&gsoc-topic=zz", 400, "invalid gsoc-topic"),
        (TOPIC_HEX + f"?gsoc-eth-address={'00' * 20}&gsoc-topic={ID_HEX}", 400, "do not belong"),
        (TOPIC_HEX + f"?gsoc-eth-address={OWNER_HEX}&gsoc-topic={'00' * 32}", 400, "not belong"),
        ("a-text" + WRITES, 400, "do not belong"),
        (TOPIC_HEX + "?peer=127.0.0.1:1", 400, "/ip4/HOST/tcp/PORT"),
        (TOPIC_HEX + "?peer=/ip4/127.0.0.1/tcp/0", 400, "/ip4/HOST/tcp/PORT"),
        (TOPIC_HEX + "?peer=/dns/a..b/tcp/1634", 400, "/ip4/HOST/tcp/PORT"),
        (TOPIC_HEX + "?peer=/ip4/192.0.2.1/tcp/1634", 403, "signed_peers"),
        ("", 400, "1 to 1024"),
    ],
)
async def test_wrong_parameters_are_refused_before_the_upgrade(
    rest: str, status: int, expected: str
) -> None:
    async with node() as server, publisher(server):
        with pytest.raises(InvalidStatus) as caught:
            async with socket(server, rest):
                pass
        response = caught.value.response
        assert response.status_code == status
        body = json.loads(response.body or b"")
        assert body["code"] == status
        assert expected in body["message"]
        reason = "forbidden" if status == 403 else "bad_request"
        assert server.stats.broken == {f"signed.{reason}": 1}


async def test_a_topic_that_is_a_text_is_its_hash() -> None:
    async with node() as server, socket(server, "my-topic"), http_client() as http:
        await subscribed(server, 1)
        url = server.server.others["signed"].replace("ws://", "http://")
        (listed,) = (await http.get(url)).json()["topics"]
        assert listed["topicAddress"] == keccak256(b"my-topic").hex()


async def test_data_from_a_subscriber_is_ignored_while_a_publisher_publishes() -> None:
    async with node() as server, socket(server) as quiet, publisher(server) as one:
        await subscribed(server, 2)
        await quiet.send(HELLO)
        await quiet.send("text")
        await one.send(EMPTY)
        assert await next_of(quiet) == await next_of(one) == EMPTY
        assert server.stats.published == 1


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (FORGED, "bad_signature"),
        (HELLO[:-1], "half_a_frame"),
        (HELLO + b"!", "half_a_frame"),
        (b"", "half_a_frame"),
        ("hello", "half_a_frame"),
        (HELLO[:65] + (5000).to_bytes(8, "little") + bytes(4096), "bad_span"),
    ],
    ids=["forged", "truncated", "a byte more", "nothing", "text", "a span of 5,000"],
)
async def test_a_bad_message_ends_the_socket_of_its_publisher_and_no_other(
    message: bytes | str, reason: str
) -> None:
    async with (
        node() as server,
        publisher(server) as bad,
        publisher(server) as good,
        socket(server) as one,
    ):
        await subscribed(server, 3)
        await bad.send(message)
        assert await end_of(bad) == (4400, "invalid_frame")
        await good.send(HELLO)
        assert await next_of(one) == await next_of(good) == HELLO
        assert server.stats.broken == {f"signed.{reason}": 1}


async def test_two_frames_in_one_message_are_two_and_half_a_frame_spoils_nothing() -> None:
    async with node() as server, socket(server) as one:
        async with publisher(server) as both:
            await subscribed(server, 2)
            await both.send([HELLO[:30], HELLO[30:] + EMPTY])
            assert [await next_of(one), await next_of(one)] == [HELLO, EMPTY]
            await both.send(HELLO + EMPTY[:50])
            assert (await end_of(both))[0] == 4400
        async with publisher(server) as again:
            await again.send(EMPTY)
            assert await next_of(one) == EMPTY


async def test_a_topic_opens_again_at_once_after_its_last_socket_left() -> None:
    async with node() as server:
        for _ in range(5):
            async with publisher(server) as one:
                await subscribed(server, 1)
                await one.send(HELLO)
                assert await next_of(one) == HELLO
            await subscribed(server, 0)


@pytest.mark.statement("B-23")
@pytest.mark.parametrize("prefix", ["/pubsub/", "/v1/pubsub/"])
async def test_active_topics_are_listed_with_role_and_connections(prefix: str) -> None:
    async with node(signed_listen="0") as server, http_client() as http:
        url = server.ws.replace("ws://", "http://").removesuffix("/ws") + prefix
        assert (await http.get(url)).json() == {"topics": []}
        async with socket(server), stream(server.server.others["signed_stream"]):
            await subscribed(server, 1)
            (listed,) = (await http.get(url)).json()["topics"]
            assert (listed["topicAddress"], listed["mode"]) == (TOPIC_HEX, 1)
            assert (listed["role"], len(listed["connections"])) == ("broker", 1)
        await subscribed(server, 0)
        await until(lambda: not server.server._signed.sessions)  # type: ignore[union-attr]
        assert (await http.get(url)).json() == {"topics": []}
        answer = await http.get(url + TOPIC_HEX)
        assert (answer.status_code, answer.headers["Upgrade"]) == (426, "websocket")


async def test_topics_that_may_not_be_read_are_not_listed() -> None:
    async with node() as server, socket(server), http_client() as http:
        await subscribed(server, 1)
        url = server.server.others["signed"].replace("ws://", "http://")
        assert len((await http.get(url)).json()["topics"]) == 1
        # Streams use the identity of their certificate, which may have more permissions.
        endpoint = server.server._signed
        assert endpoint is not None
        endpoint.identity = replace(endpoint.identity, kind="user", anonymous=True)
        assert (await http.get(url)).json() == {"topics": []}


@pytest.mark.statement("B-26")
async def test_a_node_that_is_no_broker_asks_for_a_peer() -> None:
    async with node(pubsub_broker_mode=False) as server:
        with pytest.raises(InvalidStatus) as caught:
            async with socket(server):
                pass
        assert b"missing peer query param" in (caught.value.response.body or b"")


async def test_the_access_rules_decide_by_the_identity_of_signed_sockets() -> None:
    async with node(listener_identities={}) as server:
        for rest in (TOPIC_HEX, TOPIC_HEX + WRITES):
            with pytest.raises(InvalidStatus) as caught:
                async with socket(server, rest):
                    pass
            assert caught.value.response.status_code == 403
            assert NAME.encode() in (caught.value.response.body or b"")


async def test_without_the_setting_there_is_nothing_at_these_paths() -> None:
    async with running_server() as server:
        url = server.ws.removesuffix("/ws") + "/pubsub/" + TOPIC_HEX
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url):
                pass
        assert caught.value.response.status_code == 404


async def test_a_page_of_another_origin_is_refused() -> None:
    async with node(cors_origins=["https://app.example.com"]) as server:
        with pytest.raises(InvalidStatus) as caught:
            async with socket(server, origin="https://evil.example.com"):
                pass
        assert caught.value.response.status_code == 403


@pytest.mark.parametrize("origins", [["*"], ["https://app.example.com"]])
async def test_a_server_warns_if_every_page_can_use_sockets_without_a_token(
    origins: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys: []")
    production = {"dev": False, "api_keys_file": keys, "behind_tls_proxy": True}
    with caplog.at_level(logging.WARNING):
        async with node(cors_origins=origins, **production):
            pass
    assert ("list the origins of your pages in cors_origins" in caplog.text) is ("*" in origins)


async def test_a_publisher_above_its_rate_is_slowed_down_and_loses_nothing() -> None:
    async with node(publish_rate_service=50, publish_burst=100) as server, publisher(server) as one:
        await subscribed(server, 1)
        for _ in range(20):
            await one.send(HELLO)
        for _ in range(20):
            assert await next_of(one) == HELLO


async def test_a_publisher_above_its_rate_is_not_read_after_its_slow_subscription_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with node(publish_rate_service=5) as server:
        backplane = server.hub.core.backplane
        replay = backplane.replay
        found = asyncio.Event()

        async def slow(*args: Any, **more: Any) -> Any:
            await found.wait()
            return replay(*args, **more)

        monkeypatch.setattr(backplane, "replay", slow)
        async with socket(server, TOPIC_HEX + WRITES, close_timeout=0.1) as one:
            await one.send(HELLO * 1_000)
            signed: Any = server.server._signed
            (session,) = signed.sessions[TOPIC]
            await until(lambda: session._working)
            found.set()
            await until(lambda: not session.connection.busy)
            await one.send(HELLO)
            await until(lambda: not session._sink._transport.is_reading())


async def send_and_close(ws: ClientConnection, *messages: bytes) -> None:
    """Send messages and the close in one segment."""
    for message in messages:
        ws.protocol.send_binary(message)
    ws.protocol.send_close(1000)
    ws.send_data()
    await ws.wait_closed()


async def test_what_a_publisher_sends_before_it_closes_is_published() -> None:
    async with node() as server, socket(server) as reader:
        await subscribed(server, 1)
        await send_and_close(await publisher(server), HELLO, EMPTY)
        assert [await next_of(reader) for _ in range(2)] == [HELLO, EMPTY]
        await until(lambda: server.stats.connections["signed"] == 1)


async def test_a_publisher_that_closes_above_its_rate_is_waited_for() -> None:
    async with (
        node(publish_rate_service=20, publish_burst=100) as server,
        socket(server) as reader,
    ):
        await subscribed(server, 1)
        await send_and_close(await publisher(server), HELLO * 3, HELLO, EMPTY)
        assert [await next_of(reader) for _ in range(5)] == [HELLO] * 4 + [EMPTY]
        await until(lambda: server.stats.connections["signed"] == 1)


@pytest.mark.parametrize("closes", [False, True])
async def test_a_publisher_is_not_silent_while_the_server_reads_nothing_from_it(
    closes: bool,
) -> None:
    async with (
        node(
            publish_rate_service=5,
            server_ping_interval=50,
            presence_timeout=500,
        ) as server,
        socket(server) as reader,
    ):
        await subscribed(server, 1)
        async with publisher(server) as one:
            if closes:
                await send_and_close(one, HELLO * 15)
            else:
                await one.send(HELLO * 15)
            for _ in range(15):
                assert await next_of(reader) == HELLO


async def test_a_publisher_that_closed_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_session, "FINISH_SECONDS", 0.0)
    async with node(publish_rate_service=5) as server:
        await send_and_close(await publisher(server), HELLO * 1_000)
        await until(lambda: server.stats.connections["signed"] == 0)
        assert server.stats.broken == {"signed.unfinished": 1}


async def test_a_message_that_the_server_fails_on_ends_its_socket(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(publish_rate_service=5) as server, publisher(server) as one:
        await subscribed(server, 1)

        async def fail(*args: object, **more: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(server.hub, "publish", fail)
        await one.send(HELLO * 10)
        assert (await end_of(one))[0] == 1011
        assert server.stats.broken == {"signed.internal": 1}
    assert "a defect" in caplog.text


async def test_sockets_close_when_the_server_ends() -> None:
    async with node() as server:
        one = await socket(server)
        await subscribed(server, 1)
    assert (await end_of(one))[0] == 1001


# ---------------------------------------------------------------- other listeners


def client(server: RunningServer) -> PubSubClient:
    token = server.admin_token()
    return PubSubClient(server.ws, token, rest_url=server.http, allow_insecure=True)


GOOD = to_data(HELLO, ID, OWNER)


@pytest.mark.parametrize("via", ["socket", "rest"])
async def test_a_signed_message_of_hip_56_reaches_signed_sockets_as_its_frame(via: Any) -> None:
    async with node() as server, socket(server) as one, client(server) as ps:
        await subscribed(server, 1)
        await ps.publish(NAME, {"type": "message", "data": GOOD}, via=via)
        assert await next_of(one) == HELLO


@pytest.mark.parametrize("via", ["socket", "rest"])
@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({**GOOD, "payload": "hello!"}, "data.signature"),
        ({**GOOD, "id": "00" * 32}, "data.signature"),
        ({**GOOD, "owner": "00" * 20}, "data.owner"),
        ({**GOOD, "signature": "zz"}, "data.signature"),
        ({"payload": "hello"}, "data.owner"),
        ("hello", "data"),
        ({**GOOD, "payload": "x" * 4097}, "data.payload"),
    ],
)
async def test_a_forged_message_is_refused_before_any_subscriber_receives_it(
    via: Any, data: Any, field: str
) -> None:
    async with node() as server, socket(server) as one, client(server) as ps:
        await subscribed(server, 1)
        sub = ps.subscribe(NAME)
        await sub
        with pytest.raises(InvalidPayload) as caught:
            await ps.publish(NAME, {"type": "message", "data": data}, via=via)
        if via == "rest":
            assert caught.value.field == field
        await ps.publish(NAME, {"type": "message", "data": GOOD}, via=via)
        assert await next_of(one) == HELLO
        async with asyncio.timeout(BOUND):
            assert (await anext(aiter(sub))).data == GOOD
        assert server.stats.published == 1


@pytest.mark.parametrize("topic", ["signed.chat", "signed." + TOPIC_HEX.upper(), "signed.a.b"])
async def test_a_signed_topic_is_named_by_its_address(topic: str) -> None:
    async with node() as server, client(server) as ps:
        with pytest.raises(InvalidTopic, match="64 lower-case hex digits"):
            await ps.publish(topic, {"type": "message", "data": GOOD})
        await ps.publish("signed", {"type": "message", "data": "no signed topic"})


async def test_without_the_setting_signed_topics_are_like_any_other() -> None:
    async with running_server() as server, client(server) as ps:
        await ps.publish(NAME, {"type": "message", "data": "anything"})
