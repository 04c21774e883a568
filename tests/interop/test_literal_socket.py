"""HIP-56's WebSocket, frame by frame, with a client that does not use the SDK."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.interop.peer import PATIENCE

if TYPE_CHECKING:
    from tests.interop.peer import Json, Node, Socket


@pytest.mark.statement("H-001", "H-040", "H-041", "H-042", "H-044", "H-045", "H-046", "H-048")
async def test_the_steps_of_the_connection_lifecycle_diagram_work(open_node: Node) -> None:
    token = open_node.iam.token()
    async with open_node.open() as socket:
        await socket.send({"type": "auth", "token": f"Bearer {token}"})
        ok = await socket.next()
        assert ok["type"] == "auth.ok"
        assert ok["client_id"]
        await socket.send({"type": "subscribe", "topics": ["chat.session.*"]})
        subscribed = await socket.next()
        assert subscribed["type"] == "subscribed"
        assert subscribed["topics"] == ["chat.session.*"]
        await socket.send({"type": "publish", "topic": "chat.session.a", "data": {"n": 1}})
        message = await socket.message()
        assert (message["topic"], message["data"]) == ("chat.session.a", {"n": 1})
        await socket.send({"type": "unsubscribe", "topics": ["chat.session.*"]})
        await socket.send({"type": "publish", "topic": "chat.session.a", "data": {"n": 2}})
        assert await socket.messages() == []
        await socket.send({"type": "ping"})
        assert (await socket.next())["type"] == "pong"


@pytest.mark.statement("H-041")
async def test_a_bad_token_gets_auth_error_with_code_and_message(node: Node) -> None:
    async with node.open() as socket:
        answer = await socket.auth("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJtYWxsb3J5In0.")
        assert answer["type"] == "auth.error"
        assert isinstance(answer["code"], str)
        assert answer["message"]
        assert await socket.closed() == 4401


@pytest.mark.statement("H-041")
async def test_every_form_of_a_websocket_frame_is_accepted(node: Node) -> None:
    """Fragments, binary frames that contain UTF-8 JSON, and the three lengths of RFC 6455."""
    async with node.open() as socket:
        text = json.dumps({"type": "auth", "token": node.iam.token()})
        await socket.connection.send([text[:9], text[9:30], text[30:]])
        assert (await socket.next())["type"] == "auth.ok"
        await socket.connection.send(b'{"type":"ping"}')
        assert (await socket.next())["type"] == "pong"
        for size in (20, 200, 70_000):
            await socket.connection.send(json.dumps({"type": "ping", "padding": "x" * size}))
            assert (await socket.next())["type"] == "pong"


@pytest.mark.statement("H-042")
async def test_subscribe_without_since_replays_nothing(node: Node) -> None:
    await node.publish("system.announcements", {"n": 1})
    async with node.socket(node.iam.token()) as socket:
        subscribed = await socket.subscribe("system.announcements")
    assert subscribed.get("history", []) == []


@pytest.mark.statement("H-006", "H-043", "H-103")
async def test_subscribe_with_since_replays_newer_messages_oldest_first(node: Node) -> None:
    for n in range(5):
        await node.publish("system.announcements", {"n": n})
    async with node.socket(node.iam.token()) as socket:
        subscribed = await socket.subscribe("system.announcements", since=1)
    assert [message["data"]["n"] for message in subscribed["history"]] == [0, 1, 2, 3, 4]
    assert {"id", "topic", "type", "data", "timestamp"} <= set(subscribed["history"][0])


@pytest.mark.statement("H-030", "H-031", "H-032", "H-044")
async def test_a_message_frame_carries_the_whole_envelope_with_its_types(node: Node) -> None:
    async with node.socket(node.iam.token()) as socket:
        await socket.subscribe("system.announcements")
        answers = [await node.publish("system.announcements", {"n": n}, ttl=60) for n in range(3)]
        messages = [await socket.message() for _ in range(3)]
    for message, answer in zip(messages, answers, strict=True):
        assert isinstance(message["id"], str)
        assert message["topic"] == "system.announcements"
        assert message["type"] == "token"
        assert isinstance(message["data"], dict)
        assert message["sender"] == {"type": "service", "id": "llm-gateway-01"}
        assert 1_600_000_000_000 < message["timestamp"] < 10_000_000_000_000
        assert message["ttl"] == 60
        assert (answer["id"], answer["timestamp"]) == (message["id"], message["timestamp"])
        assert re.fullmatch(r"msg_[0-7][0-9A-HJKMNP-TV-Z]{25}", message["id"])
    ids = [message["id"] for message in messages]
    assert ids == sorted(set(ids))


@pytest.mark.statement("H-034")
@pytest.mark.parametrize("kind", ["presence.join", "presence.leave"])
async def test_only_the_service_sends_presence_join_and_leave(open_node: Node, kind: str) -> None:
    async with open_node.socket(open_node.iam.service()) as socket:
        await socket.subscribe("chat.session.a")
        publish = {"type": "publish", "topic": "chat.session.a", "data": {}, "message_type": kind}
        await socket.send(publish)
        assert (await socket.until("error"))["code"] == "forbidden"
    async with open_node.rest(open_node.iam.service()) as rest:
        answer = await rest.post(
            "/v1/topics/chat.session.a/messages", json={"type": kind, "data": {}}
        )
    assert answer.status_code == 403


@pytest.mark.statement("H-045")
@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"topic": "chat.session.a", "data": {"n": 1}}, "message"),
        ({"topic": "chat.session.a", "message_type": "token", "data": {"n": 1}}, "token"),
        ({"message": {"topic": "chat.session.a", "type": "token", "data": {"n": 1}}}, "token"),
    ],
    ids=["as in the diagram", "flat with its type", "nested"],
)
async def test_every_form_of_a_publish_frame_is_delivered(
    open_node: Node, frame: Json, kind: str
) -> None:
    async with open_node.socket(open_node.iam.token()) as socket:
        await socket.subscribe("chat.session.a")
        await socket.send({"type": "publish", **frame})
        message = await socket.message()
    assert (message["type"], message["data"]) == (kind, {"n": 1})


@pytest.mark.statement("H-030")
async def test_the_server_sets_the_sender_and_ignores_the_value_of_the_client(
    open_node: Node,
) -> None:
    async with open_node.socket(open_node.iam.token("alice")) as socket:
        await socket.subscribe("chat.session.a")
        forged = {"type": "service", "id": "llm-gateway-01"}
        publish = {"type": "publish", "topic": "chat.session.a", "data": {}, "sender": forged}
        await socket.send(publish)
        assert (await socket.message())["sender"] == {"type": "user", "id": "alice"}


@pytest.mark.statement("H-016")
async def test_a_publish_is_not_acknowledged_and_delivery_removes_nothing(open_node: Node) -> None:
    async with open_node.socket(open_node.iam.token()) as socket:
        await socket.subscribe("chat.session.a")
        await socket.send({"type": "publish", "topic": "chat.session.a", "data": {"n": 1}})
        frames = await socket.fence()
        assert "published" not in {frame["type"] for frame in frames}
        subscribed = await socket.subscribe("chat.session.a", since=1)
    assert [message["data"] for message in subscribed["history"]] == [{"n": 1}]


@pytest.mark.statement("H-046")
async def test_unsubscribe_ends_only_the_named_pattern(node: Node) -> None:
    async with node.socket(node.iam.token()) as socket:
        await socket.subscribe("system.a", "system.b")
        await socket.send({"type": "unsubscribe", "topics": ["system.a"]})
        assert all(frame["type"] != "error" for frame in await socket.fence())
        await node.publish("system.a", {"n": 1})
        await node.publish("system.b", {"n": 2})
        assert [message["data"]["n"] for message in await socket.messages()] == [2]


@pytest.mark.statement("H-050")
async def test_an_unknown_frame_type_gets_an_error_and_the_connection_stays_open(
    node: Node,
) -> None:
    async with node.socket(node.iam.token()) as socket:
        await socket.send({"type": "teleport"})
        error = await socket.until("error")
        assert error["code"] == "unsupported"
        assert error["message"]
        await socket.send({"type": "ping"})
        assert (await socket.next())["type"] == "pong"


@pytest.mark.statement("H-009")
async def test_messages_missed_by_a_client_are_replayed_by_since(node: Node) -> None:
    async with node.socket(node.iam.token()) as socket:
        await socket.subscribe("system.announcements")
        await node.publish("system.announcements", {"n": 0})
        last = await socket.message()
        socket.cut()
    for n in (1, 2, 3):
        await node.publish("system.announcements", {"n": n})
    async with node.socket(node.iam.token()) as socket:
        subscribed = await socket.subscribe("system.announcements", since=last["timestamp"] - 1)
        seen = {message["id"]: message["data"]["n"] for message in subscribed["history"]}
        await node.publish("system.announcements", {"n": 4})
        live = await socket.message()
    seen.pop(last["id"])
    assert [*seen.values(), live["data"]["n"]] == [1, 2, 3, 4]


@pytest.mark.statement("H-011", "H-018")
async def test_the_two_thousand_tokens_of_a_response_arrive_in_order(node: Node) -> None:
    reader_token = node.iam.token("alice", sessions_owned=["abc"])
    async with (
        node.socket(reader_token) as reader,
        node.socket(node.iam.service()) as gateway,
    ):
        await reader.subscribe("chat.session.abc")
        for index in range(2000):
            data = {"content": f"word{index} ", "index": index}
            frame = {"topic": "chat.session.abc", "message_type": "token", "data": data}
            await gateway.send({"type": "publish", **frame})
        indices = [(await reader.message())["data"]["index"] for _ in range(2000)]
    assert indices == list(range(2000))


@pytest.mark.statement("H-007", "H-015")
async def test_each_of_five_hundred_clients_of_a_session_gets_every_message(node: Node) -> None:
    tokens = [node.iam.token(f"user{n}", sessions_shared=["abc"], orgs=["acme"]) for n in range(10)]
    async with AsyncExitStack() as stack:
        sockets: list[Socket] = []
        for n in range(500):
            socket = await stack.enter_async_context(node.socket(tokens[n % 10]))
            await socket.send(
                {"type": "subscribe", "topics": ["chat.session.abc"], "presence": False}
            )
            await socket.until("subscribed")
            sockets.append(socket)
        for n in range(3):
            await node.publish("chat.session.abc", {"n": n})
        received = [[(await s.message())["data"]["n"] for _ in range(3)] for s in sockets]
        for socket in sockets:
            socket.cut()
    assert received == [[0, 1, 2]] * 500


@pytest.mark.statement("H-004", "H-119", "H-015")
async def test_dashboard_monitoring_and_billing_all_get_a_tool_call(node: Node) -> None:
    async with AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(node.socket(node.iam.token(name, agents=["bot1"])))
            for name in ("dashboard", "monitoring", "billing")
        ]
        for consumer in consumers:
            await consumer.subscribe("agent.bot1.events")
        call = {"tool": "search", "arguments": {"q": "x"}}
        bot = node.iam.service("bot1")
        await node.publish("agent.bot1.events", call, "tool.call", token=bot)
        received = [await consumer.message("tool.call") for consumer in consumers]
    assert [message["data"] for message in received] == [call] * 3
    assert len({message["id"] for message in received}) == 1


@pytest.mark.statement("H-008", "H-118")
async def test_tokens_that_the_gateway_posts_reach_every_browser_of_the_session(node: Node) -> None:
    async with (
        node.socket(node.iam.token("alice", sessions_owned=["abc"])) as owner,
        node.socket(node.iam.token("bob", sessions_shared=["abc"])) as guest,
    ):
        await owner.subscribe("chat.session.abc")
        await guest.subscribe("chat.session.abc")
        for index, word in enumerate(("Hello", ",", " world")):
            await node.publish("chat.session.abc", {"content": word, "index": index})
        texts = [
            "".join([(await browser.message("token"))["data"]["content"] for _ in range(3)])
            for browser in (owner, guest)
        ]
    assert texts == ["Hello, world"] * 2


@pytest.mark.statement("H-013")
async def test_a_client_with_the_grant_reaches_another_client(open_node: Node) -> None:
    async with (
        open_node.socket(open_node.iam.token("alice")) as alice,
        open_node.socket(open_node.iam.token("bob")) as bob,
    ):
        await bob.subscribe("room.lobby")
        await alice.send({"type": "publish", "topic": "room.lobby", "data": {"text": "hi bob"}})
        message = await bob.message()
    assert (message["data"], message["sender"]["id"]) == ({"text": "hi bob"}, "alice")


@pytest.mark.statement("H-041", "H-048")
async def test_raw_masked_frames_are_answered_with_unmasked_frames(node: Node) -> None:
    address = urlsplit(node.ws)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(
                f"GET {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
                "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                "Sec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 101 " in head.splitlines()[0]
            assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
            writer.write(_masked(json.dumps({"type": "auth", "token": node.iam.token()}).encode()))
            assert (await _unmasked(reader))["type"] == "auth.ok"
            # {"type":"ping"} with the mask 37fa213d
            writer.write(bytes.fromhex("818f37fa213d4cd85544479f0307158a485350d85c"))
            assert (await _unmasked(reader))["type"] == "pong"
        finally:
            writer.close()
            await writer.wait_closed()


def _masked(payload: bytes) -> bytes:
    mask = bytes.fromhex("37fa213d")
    head = b"\x81\xfe" + len(payload).to_bytes(2, "big")
    return head + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))


async def _unmasked(reader: asyncio.StreamReader) -> Json:
    first, size = await reader.readexactly(2)
    assert first == 0x81
    assert size < 127, "neither masked nor longer than 64 KiB"
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    frame: Json = json.loads(await reader.readexactly(size))
    return frame
