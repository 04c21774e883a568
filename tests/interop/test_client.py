"""The requirements of HIP-56 for clients: the SDK against the real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

from hanzoai.pubsub import (
    InsecureUrl,
    InvalidTopic,
    Message,
    PayloadTooLarge,
    PermissionDenied,
    PresenceChange,
    PubSubClient,
    RetryOptions,
    StateChange,
    TokenContext,
)
from tests.interop.peer import PATIENCE
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.interop.conftest import Start
    from tests.interop.peer import Node

TOPIC = "system.announcements"


@pytest.mark.statement("H-064")
async def test_a_client_whose_websocket_is_blocked_reads_and_publishes_over_http(
    node: Node,
) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(
            f"ws://127.0.0.1:{free_port()}/ws",
            node.iam.service(),
            rest_url=node.http,
            retry=RetryOptions(base=0.01, cap=0.02),
        ) as ps,
        ps.subscribe(TOPIC) as sub,
    ):
        published = await ps.publish(TOPIC, {"type": "token", "data": {"text": "a\u2028b\r\nc"}})
        message = await anext(sub)
    assert (message.id, message.data) == (published.id, {"text": "a\u2028b\r\nc"})


async def test_a_message_may_have_any_id_over_http(node: Node) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.service(), rest_url=node.http, transport="sse") as ps,
    ):
        for id in ("é", "日本", "a b", " a", "a\nb"):
            for duplicate in (False, True):
                done = await ps.publish(TOPIC, {"type": "token", "data": 1}, id=id)
                assert (done.id, done.duplicate) == (id, duplicate)


@pytest.mark.statement("H-009", "H-018")
@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_disconnected_client_gets_missed_messages_in_order(
    node: Node, transport: Literal["websocket", "sse"]
) -> None:
    seen: list[int] = []
    async with (
        asyncio.timeout(3 * PATIENCE),
        PubSubClient(
            node.ws,
            node.iam.token(),
            rest_url=node.http,
            transport=transport,
            retry=RetryOptions(base=0.01, cap=0.02),
        ) as ps,
        ps.subscribe(TOPIC) as sub,
    ):
        for n in range(30):
            await node.publish(TOPIC, {"n": n})
            if n % 10 == 5:
                node.cut()
        async for message in sub:
            seen.append(message.data["n"])
            if len(seen) == 30:
                break
    assert seen == list(range(30))


@pytest.mark.statement("H-152", "H-153")
async def test_a_client_renews_its_token_when_the_server_says_that_it_expires(
    start: Start,
) -> None:
    node = await start(expiring_notice=1_900, publish_rate_service=1e6)
    asked: asyncio.Queue[TokenContext] = asyncio.Queue()
    given = 0

    async def get_token(context: TokenContext) -> str:
        nonlocal given
        given += 1
        asked.put_nowait(context)
        return node.iam.token(ttl=2 if given < 3 else 3600)

    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, get_token=get_token, rest_url=node.http) as ps,
        ps.subscribe(TOPIC) as sub,
    ):
        client_id = ps.client_id
        reasons = [(await asked.get()).reason for _ in range(3)]
        await node.publish(TOPIC, {"n": 1})
        message = await anext(sub)
        assert ps.client_id == client_id
    assert isinstance(message, Message)
    assert reasons == ["connect", "expiring", "expiring"]


@pytest.mark.statement("H-146", "H-155")
async def test_a_payload_over_256_kb_is_refused_with_the_advice_to_publish_a_reference(
    node: Node,
) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.service(), rest_url=node.http) as ps,
    ):
        with pytest.raises(PayloadTooLarge) as refused:
            await ps.publish(TOPIC, {"type": "token", "data": {"text": "x" * 262_144}})
    assert refused.value.size == 262_144 + len('{"text":""}'), "measured before it is sent"
    assert "reference" in refused.value.remedy


@pytest.mark.statement("H-143")
def test_a_token_is_not_sent_in_plaintext_to_another_machine() -> None:
    with pytest.raises(InsecureUrl):
        PubSubClient("ws://pubsub.example.org:8057/ws", "Bearer t")


@pytest.mark.statement("H-149")
async def test_an_invalid_name_is_rejected_before_it_is_sent(node: Node) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.service(), rest_url=node.http) as ps,
    ):
        with pytest.raises(InvalidTopic):
            await ps.publish("chat.session.*", {"type": "token", "data": {}})
        with pytest.raises(InvalidTopic):
            await ps.subscribe("chat session")


@pytest.mark.statement("H-050", "H-142")
async def test_a_denial_by_the_access_rules_raises_in_the_call(node: Node) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.token("alice"), rest_url=node.http) as ps,
    ):
        with pytest.raises(PermissionDenied):
            await ps.subscribe("user.bob.alerts")
        with pytest.raises(PermissionDenied):
            await ps.publish(TOPIC, {"type": "token", "data": {}})


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_client_finds_itself_among_the_members_by_its_id(
    node: Node, transport: Literal["websocket", "sse"]
) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.token(), rest_url=node.http, transport=transport) as ps,
        ps.subscribe(TOPIC, presence=True),
    ):
        members = await ps.presence(TOPIC)
        assert [member.client_id for member in members] == [ps.client_id]


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_presence_shows_a_client_by_the_id_that_it_has_when_it_is_connected(
    node: Node, transport: Literal["websocket", "sse"]
) -> None:
    ids: list[str | None] = []
    members: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    def note(change: StateChange) -> None:
        if change.to == "connected":
            ids.append(ps.client_id)

    def show(change: PresenceChange) -> None:
        if change.members and not members.done():
            members.set_result([member.client_id for member in change.members])

    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(
            node.ws, node.iam.token(), rest_url=node.http, transport=transport, on_state=note
        ) as ps,
        ps.subscribe(TOPIC, on_presence=show),
    ):
        assert await members == [ps.client_id]
    assert ids == [ps.client_id]
