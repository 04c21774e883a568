"""Replays to several subscribers at the same time, where the log moves on between their reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.cluster.fleet import BOUND, nodes, peer
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from pubsub_server.backplanes.redis.backplane import RedisBackplane
    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store
    from tests.interop.peer import Socket

TOPIC = "demo.x"


class SlowRead:
    """Delays the first replay, before it reads the logs or when it has read them."""

    def __init__(self, node: RunningServer, patch: pytest.MonkeyPatch) -> None:
        backplane: Any = cast("RedisBackplane", node.hub.core.backplane)
        self._replay = backplane._reader.replay
        self._delayed = False
        self.asked, self.may_read = asyncio.Event(), asyncio.Event()
        self.read, self.may_end = asyncio.Event(), asyncio.Event()
        patch.setattr(backplane._reader, "replay", self._first)

    async def _first(self, *given: Any) -> Any:
        if self._delayed:
            return await self._replay(*given)
        self._delayed = True
        self.asked.set()
        await self.may_read.wait()
        found = await self._replay(*given)
        self.read.set()
        await self.may_end.wait()
        return found


async def publish(publisher: Socket, data: int) -> int:
    """Publish, and give the position."""
    message = {"topic": TOPIC, "type": "token", "data": data}
    await publisher.send({"type": "publish", "message": message, "ref": "p"})
    seq: int = (await publisher.until("published"))["seq"]
    return seq


async def test_a_subscriber_whose_log_was_read_before_that_of_another_lacks_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as early,
        peer(node, node.token("bob")) as late,
        peer(other, other.token("carol")) as publisher,
    ):
        first = await publish(publisher, 1)
        slow = SlowRead(node, monkeypatch)
        slow.may_read.set()
        await early.send({"type": "subscribe", "topics": [TOPIC], "after": {TOPIC: first - 1}})
        await slow.read.wait()
        second = await publish(publisher, 2)
        answer = await late.subscribe(TOPIC, history=10)
        assert [each["seq"] for each in answer["history"]] == [first, second]
        slow.may_end.set()
        answer = await early.until("subscribed")
        heard = [each["seq"] for each in answer["history"]]
        heard += [each["seq"] for each in await early.messages()]
        assert heard == [first, second]
        assert answer["positions"] == {TOPIC: second}
        assert "truncated" not in answer
        assert "reset" not in answer


@pytest.mark.parametrize("known", [False, True])
async def test_what_comes_while_a_topic_is_opened_by_name_reaches_those_who_match_it_by_pattern(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (node, other),
        peer(node, node.token("alice")) as named,
        peer(node, node.token("bob")) as matching,
        peer(other, other.token("carol")) as publisher,
    ):
        before = [await publish(publisher, 1)] if known else []
        await matching.subscribe("demo.*")
        slow = SlowRead(node, monkeypatch)
        await named.send({"type": "subscribe", "topics": [TOPIC], "history": 10})
        await slow.asked.wait()
        seq = await publish(publisher, 2)
        # The node has it, and delivers it when it has read the log.
        tracks = cast("RedisBackplane", node.hub.core.backplane)._tracks  # pyright: ignore[reportPrivateUsage]
        await until(lambda: tracks.waiting)
        slow.may_read.set()
        slow.may_end.set()
        answer = await named.until("subscribed")
        heard = [each["seq"] for each in answer["history"]]
        heard += [each["seq"] for each in await named.messages()]
        assert heard == [*before, seq]
        assert [each["seq"] for each in await matching.messages()] == [seq]
