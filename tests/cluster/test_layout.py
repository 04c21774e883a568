"""The settings that the nodes on one Redis must share, and the errors if they differ."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.access.setup import StartError
from pubsub_server.backplanes.redis.layout import Layout, Packer, split
from pubsub_server.backplanes.retention import Keep, Retention
from pubsub_server.shared import wall_clock
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.requests import Draft
from pubsub_server.testing import running_server
from tests.cluster.fleet import nodes, peer
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from tests.cluster.store import Store

BOUND = 60
KEY = "hanzo-pubsub:{0}:layout"
TOPIC = "demo.clock"


def set_clock(monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    """Let the clock of this machine be ahead by this many seconds."""
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + off * 10**9)
    monkeypatch.setattr(wall_clock, "time", clock)


@pytest.mark.parametrize("ttl", [None, 5])
@pytest.mark.parametrize("meta", [None, b'{"a":1}'])
@pytest.mark.parametrize("text", ["plain", 'quoted","data":0,', "\u00fc\\"])
def test_the_parts_of_an_envelope_around_its_numbers_are_those_of_the_encoded_message(
    text: str, meta: bytes | None, ttl: int | None
) -> None:
    sender = ("user", text)
    draft = Draft("demo.x", text, b'{"data":0,"x":"y"}', ttl, None, meta)
    head, middle, tail = split(draft, text, sender)
    for number in (None, 12):
        position = b"" if number is None else b',"seq":%d' % number
        joined = head + b"77" + middle + position + tail
        assert joined == envelope(draft, text, 77, number, sender)
    item = Packer(Layout("test", 1), Retention(Keep(10, 1000))).pack(draft, sender, 0)
    assert item.size == len(envelope(draft, item.id, 0, None, sender)) - 1


async def test_a_node_with_another_number_of_shards_does_not_start(store: Store) -> None:
    async with asyncio.timeout(BOUND):
        async with running_server(redis_url=store.url):
            with pytest.raises(StartError) as caught:
                async with running_server(redis_url=store.url, redis_shards=32):
                    pass
            assert str(caught.value) == (
                "redis_shards: this Redis was set up with 64 shards under prefix hanzo-pubsub,"
                " not with 32; set redis_shards to 64, or set another redis_prefix"
            )
            async with running_server(redis_url=store.url, redis_shards=32, redis_prefix="other"):
                pass
        with pytest.raises(StartError, match="set up with 64 shards"):
            async with running_server(redis_url=store.url, redis_shards=65):
                pass


async def test_a_node_does_not_start_on_the_layout_of_another_release(store: Store) -> None:
    async with asyncio.timeout(BOUND):
        await store.command("SET", KEY, "9 64")
        remedy = "set up by another release .* stop all its nodes and then set another redis_prefix"
        with pytest.raises(StartError, match=remedy):
            async with running_server(redis_url=store.url):
                pass


async def test_a_returning_node_writes_the_layout_of_a_flushed_store(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url, node_heartbeat=50),
    ):
        await store.command("FLUSHALL")
        await until(lambda: store.command("GET", KEY), b"4 64")
        # If another node was first, with different settings, the error says so.
        await store.command("SET", KEY, "4 32")
        await store.command("DEL", "hanzo-pubsub:{0}:nodes")
        await until(
            lambda: any(
                record.levelno == logging.ERROR
                and "has set up this Redis with version" in record.getMessage()
                for record in caplog.records
            )
        )


async def test_nodes_with_different_timeouts_are_reported(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def expected() -> list[str]:
        return [each.getMessage() for each in caplog.records if "node_timeout" in each.getMessage()]

    async with asyncio.timeout(BOUND), running_server(redis_url=store.url):
        async with running_server(redis_url=store.url):
            assert expected() == []
        async with running_server(redis_url=store.url, node_timeout=9_000):
            (line,) = expected()
        assert line.startswith("node_timeout is 9000 ms on this node and 8000 ms on the previous")


@pytest.mark.parametrize(
    ("off", "expected"), [(90, "s ahead of the clock of"), (-90, "s behind the clock of")]
)
async def test_a_node_whose_clock_differs_from_redis_warns_once(
    store: Store,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    off: int,
    expected: str,
) -> None:
    def reported() -> list[str]:
        return [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]

    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url, node_heartbeat=20) as node,
    ):
        core: Any = node.hub.core
        lease = core.backplane._lease
        await until(lambda: lease.last_heartbeat > 0)
        assert reported() == []
        set_clock(monkeypatch, off)
        await until(lambda: len(reported()), 1)
        beat = lease.last_heartbeat
        await until(lambda: lease.last_heartbeat > beat)
        assert expected in "".join(reported())
        set_clock(monkeypatch, 0)
        await until(lambda: len(reported()), 2)
    assert reported()[1:] == ["the clocks of this machine and of Redis agree again"]


async def test_members_have_the_time_of_redis_if_the_clock_of_their_node_is_wrong(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, 600)
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (node,),
        peer(node, node.token("ann")) as ann,
    ):
        begun = await ann.subscribe(TOPIC)
        (member,) = (await ann.until("presence.snapshot"))["members"]
    assert abs(member["joined_at"] - begun["timestamp"]) < 300_000
    assert abs(member["last_seen"] - begun["timestamp"]) < 300_000


async def test_a_node_that_is_stopped_during_its_first_announcement_ends(store: Store) -> None:
    async with asyncio.timeout(BOUND):
        for _ in range(10):
            async with running_server(redis_url=store.url):
                pass
