"""A Redis whose clock is behind that of the server before it, or was set back."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from pubsub_server.backplanes.redis import link
from tests.cluster.fleet import SHARDS, nodes
from tests.cluster.test_event_ids import mark
from tests.cluster.test_failed_replays import publish, replayed, resumed
from tests.cluster.test_failover import LOSSY, pair, replicated
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BOUND = 60
BEHIND = 20
FIRST, TOPIC = "demo.a", "demo.b"


def replace(monkeypatch: pytest.MonkeyPatch, call: str, other: str) -> None:
    """Let scripts use another expression instead of a call."""
    read = link._text

    def text(path: Path) -> str:
        return read(path).replace(call, other)

    monkeypatch.setattr(link, "_text", text)


def set_back(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Let scripts get an earlier time from the server with this port."""
    time = f"""(function()
      local clock = redis.call('TIME')
      if string.find(redis.call('INFO', 'server'), 'tcp_port:{port}', 1, true) then
        clock[1] = clock[1] - {BEHIND}
      end
      return clock
    end)()"""
    replace(monkeypatch, "redis.call('TIME')", time)


async def test_a_stream_that_resumes_on_a_server_whose_clock_is_behind_gets_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), pair("redis", tmp_path) as (address, primary, replica):
        set_back(monkeypatch, replica.port)
        async with nodes(address, 1, **LOSSY) as (node,):
            backplane: Any = node.hub.core.backplane
            unbroken = backplane._catching_up._unbroken
            async with resumed(node, None, FIRST, TOPIC) as stream:
                begun = await stream.event("subscribed")
                await publish(node, 1, topic=TOPIC)
                await publish(node, 2, topic=FIRST)
                events = [await stream.event("message") for _ in range(2)]
            await replicated(primary, replica)
            await replica.command("REPLICAOF", "NO", "ONE")
            await until(partial(len, unbroken), SHARDS)
            before = [*unbroken.values()]
            await primary.end()
            address.turn(replica)
            await until(lambda: any(each in before for each in unbroken.values()), wanted=False)
            await publish(node, 3, topic=TOPIC)
            async with resumed(node, mark(begun, *events), FIRST, TOPIC) as again:
                answer = await again.event("subscribed")
    assert replayed(answer) == [3]
    assert answer.json["reset"] == [TOPIC]


async def test_a_server_whose_clock_was_set_back_to_before_its_start_takes_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis then reports a negative age of its process."""
    info = "redis.call('INFO', 'server')"
    negative = f"string.gsub({info}, 'uptime_in_seconds:%d+', 'uptime_in_seconds:-{BEHIND}')"
    replace(monkeypatch, info, negative)
    async with (
        asyncio.timeout(BOUND),
        pair("redis", tmp_path) as (address, *_),
        nodes(address, 1) as (node,),
    ):
        await publish(node, 1)
