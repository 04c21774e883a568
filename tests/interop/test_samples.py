"""The unchanged samples of HIP-56, and the arguments of the SDK's callbacks."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import socket
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import trustme

from hanzoai.pubsub import Gap, Message, PresenceChange, PubSubClient
from pubsub_server.auth.authenticators import TokenRouter
from pubsub_server.auth.identity import Identity
from tests.interop.peer import PATIENCE, Json, Node

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.interop.conftest import Start

SAMPLES = Path(__file__).parent / "samples"
TOKEN_OF_THE_SAMPLES = "ey..."


@pytest.fixture
async def hanzo_ai(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    """A server that this process reaches as `pubsub.hanzo.ai:8057`, and that accepts the token."""
    authority = trustme.CA()
    certificate = authority.issue_cert("pubsub.hanzo.ai", "127.0.0.1")
    key, chain, trusted = tmp_path / "key.pem", tmp_path / "chain.pem", tmp_path / "ca.pem"
    certificate.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    node = await start(behind_tls_proxy=False, tls_cert=chain, tls_key=key)
    ports = {8056: _port(node.http), 8057: _port(node.ws)}
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host in {"pubsub.hanzo.ai", b"pubsub.hanzo.ai"}:
            host, port = "127.0.0.1", ports[int(port)]
        return resolve(host, port, *rest, **options)

    check = TokenRouter.authenticate

    async def authenticate(self: TokenRouter, token: str) -> Identity:
        if token.removeprefix("Bearer ") == TOKEN_OF_THE_SAMPLES:
            return Identity("bot1", "service", agents=frozenset({"bot1"}))
        return await check(self, token)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(TokenRouter, "authenticate", authenticate)
    import ssl

    node.ssl = ssl.create_default_context(cafile=str(trusted))
    return node


def _port(url: str) -> int:
    found = re.search(r":(\d+)", url.removeprefix("wss:").removeprefix("https:"))
    assert found is not None
    return int(found[1])


async def run_python_sample(names: dict[str, object]) -> None:
    """Run the sample as a module that allows top-level `await`."""
    path = SAMPLES / "hip56.py"
    source = path.read_text(encoding="utf-8")
    code = compile(source, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert code.co_flags & inspect.CO_COROUTINE
    await cast("Awaitable[None]", types.FunctionType(code, names)())


@pytest.mark.statement("H-023", "H-040", "H-133")
async def test_the_python_sample_publishes_and_reads(hanzo_ai: Node) -> None:
    seen: list[Message] = []

    closing: list[asyncio.Task[None]] = []

    def log_agent_event(message: Message) -> None:
        seen.append(message)
        if len(seen) == 3:  # ends the sample's endless loop
            closing.append(asyncio.create_task(cast("PubSubClient", names["ps"]).close()))

    names: dict[str, object] = {"__name__": "sample", "log_agent_event": log_agent_event}
    async with hanzo_ai.socket(hanzo_ai.iam.token("watcher", agents=["bot1"])) as watcher:
        await watcher.subscribe("agent.bot1.events")
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            sample = group.create_task(run_python_sample(names))
            published = await watcher.message()
            assert published["type"] == "agent.status"
            assert published["data"] == {"status": "thinking", "task": "code_review"}
            n = 0
            while not sample.done():
                await hanzo_ai.publish("agent.bot1.events", {"n": n}, "tool.call")
                n += 1
                await asyncio.sleep(0.02)
    numbers = [message.data["n"] for message in seen[:3]]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert {message.type for message in seen} == {"tool.call"}
    await asyncio.gather(*closing)


@pytest.mark.statement("H-134")
async def test_the_frames_of_the_typescript_sample_work(node: Node) -> None:
    """The frames of `subscribe` with `since`, `publish` of a presence update, and `unsubscribe`."""
    source = (SAMPLES / "hip56.ts").read_text(encoding="utf-8")
    assert "ps.subscribe('chat.session.abc'" in source
    assert "type: 'presence.update'" in source
    topic = "chat.session.abc"
    alice = node.iam.token("alice", sessions_owned=["abc"])
    bob = node.iam.token("bob", sessions_shared=["abc"])
    await node.publish(topic, {"content": "Hello"})
    async with node.socket(bob) as other, node.socket(alice) as socket:
        await other.subscribe(topic)
        minute_ago = int(time.time() * 1000) - 60_000
        subscribed = await socket.subscribe(topic, since=minute_ago)
        assert [(m["type"], m["data"]) for m in subscribed["history"]] == [
            ("token", {"content": "Hello"})
        ]
        members = (await socket.until("presence.snapshot"))["members"]
        assert {member["user_id"] for member in members} == {"alice", "bob"}
        update: Json = {"type": "presence.update", "data": {"status": "typing"}}
        await socket.send({"type": "publish", "message": {"topic": topic, **update}})
        assert (await other.message("presence.update"))["data"]["status"] == "typing"
        await socket.send({"type": "unsubscribe", "topics": [topic]})
        await node.publish(topic, {"content": "not delivered"})
        assert await socket.messages() == []


@pytest.mark.statement("H-131", "H-132")
async def test_callbacks_get_the_applications_envelope_and_the_whole_list_of_members(
    node: Node,
) -> None:
    token = node.iam.token("alice", sessions_owned=["abc"])
    messages: asyncio.Queue[Message] = asyncio.Queue()
    changes: asyncio.Queue[PresenceChange] = asyncio.Queue()
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, token, rest_url=node.http) as ps,
        node.socket(node.iam.token("bob", sessions_shared=["abc"])) as bob,
    ):
        await ps.subscribe(
            "chat.session.abc", on_message=messages.put_nowait, on_presence=changes.put_nowait
        )
        await node.publish("chat.session.abc", {"content": "Hello"})
        message = await messages.get()
        assert (message.type, message.data) == ("token", {"content": "Hello"})
        await bob.subscribe("chat.session.abc")
        while len((change := await changes.get()).members) < 2:
            pass
        assert {member.user_id for member in change.members} == {"alice", "bob"}


@pytest.mark.statement("H-147")
async def test_a_lost_history_is_one_gap_and_breaks_nothing(start: Start) -> None:
    node = await start(history_max_messages=2, publish_rate_service=1e6)
    topic = "system.announcements"
    messages: asyncio.Queue[Message] = asyncio.Queue()
    gaps: asyncio.Queue[Gap] = asyncio.Queue()
    async with (
        asyncio.timeout(PATIENCE),
        PubSubClient(node.ws, node.iam.token(), rest_url=node.http) as ps,
    ):
        first = await node.publish(topic, {"n": 0})
        for n in range(1, 6):
            await node.publish(topic, {"n": n})
        await ps.subscribe(
            topic,
            after={topic: first["seq"]},
            on_message=messages.put_nowait,
            on_gap=gaps.put_nowait,
        )
        gap = await gaps.get()
        assert (gap.topic, gap.missed) == (topic, 3)
        assert [(await messages.get()).data["n"] for _ in range(2)] == [4, 5]
        await node.publish(topic, {"n": 6})
        assert (await messages.get()).data["n"] == 6
    assert gaps.empty()
