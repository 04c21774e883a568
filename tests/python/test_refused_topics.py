"""Every error about a denied topic names the topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PermissionDenied, PubSubClient
from hanzoai.pubsub.testing import MemoryServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

RULES = """
rules:
  - pattern: "open.**"
    require: {authenticated: true}
    publish: true
"""

SECRET = "secret.place"


async def read_history(ps: PubSubClient) -> None:
    async for _ in ps.history(SECRET):
        pytest.fail("it may be read")


async def subscribe(ps: PubSubClient) -> None:
    await ps.subscribe(SECRET)


CALLS: dict[str, Callable[[PubSubClient], Awaitable[Any]]] = {
    "publish": lambda ps: ps.publish(SECRET, {"data": 1}),
    "publish by REST": lambda ps: ps.publish(SECRET, {"data": 1}, via="rest"),
    "subscribe": subscribe,
    "history": read_history,
    "presence": lambda ps: ps.presence(SECRET),
    "positions": lambda ps: ps.positions(SECRET),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_refusal_names_its_topic_in_its_text(
    tmp_path: Path, name: str, transport: str
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    async with (
        asyncio.timeout(60),
        MemoryServer(rules=str(rules)) as server,
        server.client(server.token("alice"), transport=transport) as ps,
    ):
        with pytest.raises(PermissionDenied) as refused:
            await CALLS[name](ps)
    assert SECRET in str(refused.value)
    assert SECRET in refused.value.message
    assert refused.value.topic == SECRET


@pytest.mark.parametrize("via", ["socket", "rest"])
async def test_a_refused_message_of_several_names_its_topic(tmp_path: Path, via: Any) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    async with (
        asyncio.timeout(60),
        MemoryServer(rules=str(rules)) as server,
        server.client(server.token("alice")) as ps,
    ):
        await ps.connect()
        results = await ps.publish_many([("open.a", {"data": 1}), (SECRET, {"data": 2})], via=via)
    assert not isinstance(results[0], Exception)
    assert isinstance(results[1], PermissionDenied)
    assert SECRET in str(results[1])
