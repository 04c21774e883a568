"""Audit records in a Redis stream, during outages of the store; queues and their shutdown."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PermissionDenied, PubSubClient
from pubsub_server.observe.audit_kafka import KafkaCarrier
from pubsub_server.observe.audit_redis import RedisCarrier
from pubsub_server.observe.audit_streams import StreamSink
from pubsub_server.testing import running_server
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.store import Store

BOUND = 60
STREAM = "hanzo-pubsub:audit"


async def kept(store: Store, stream: str = STREAM) -> list[dict[str, Any]]:
    async with store.client() as redis:
        return [json.loads(fields[b"record"]) for _, fields in await redis.xrange(stream)]


async def test_records_of_every_node_are_in_one_stream(store: Store) -> None:
    settings: dict[str, Any] = {
        "redis_url": store.url,
        "audit_redis": True,
        "audit_topics": ["demo.**", "org.**"],
    }
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings) as a,
        running_server(**settings) as b,
        PubSubClient(a.ws, token=a.service_token("bot")) as here,
        PubSubClient(b.ws, token=b.token("eve")) as there,
    ):
        published = await here.publish("demo.x", {"data": "a payload"})
        with pytest.raises(PermissionDenied):
            await there.publish("org.acme.x", {"data": "a payload"})
        await until(lambda: _publishes(store), [("bot", "ok"), ("eve", "denied")])
        records = await kept(store)
        (record,) = [r for r in records if r.get("id") == published.id]
        assert (record["event"], record["topic"]) == ("publish", "demo.x")
        assert "payload" not in json.dumps(records)


async def _publishes(store: Store) -> list[tuple[str, str]]:
    found = [r for r in await kept(store) if r["event"] == "publish"]
    return sorted((r["user_id"], r["outcome"]) for r in found)


async def test_while_the_store_is_away_records_wait_and_none_is_lost(store: Store) -> None:
    async with asyncio.timeout(BOUND):
        carrier = RedisCarrier(store.url, cluster=False, stream="s", length=10_000)
        sink = StreamSink(carrier, capacity=1_000)
        await store.end()
        for number in range(700):
            sink.put({"n": number})
        assert sink.waiting == 700
        await store.start()
        await until(lambda: sink.waiting, 0)
        assert [r["n"] for r in await kept(store, "s")] == list(range(700))
        await sink.close()
        assert sink.dropped == 0


async def test_the_stream_keeps_about_its_configured_length(store: Store) -> None:
    async with asyncio.timeout(BOUND):
        carrier = RedisCarrier(store.url, cluster=False, stream="s", length=100)
        sink = StreamSink(carrier, capacity=10_000)
        for number in range(3_000):
            sink.put({"n": number})
        await sink.close()
        numbers = [r["n"] for r in await kept(store, "s")]
        assert 100 <= len(numbers) < 500
        assert numbers[-1] == 2_999


class Stuck:
    name = "a sink"
    patience = 10.0

    def __init__(self) -> None:
        self.closed = False

    async def send(self, records: Sequence[bytes]) -> None:
        raise OSError

    def explain(self, error: Exception) -> str:
        return type(error).__name__

    async def close(self) -> None:
        self.closed = True


async def test_what_finds_the_queue_full_or_waits_at_the_end_is_counted() -> None:
    carrier = Stuck()
    sink = StreamSink(carrier, capacity=5)
    for number in range(9):
        sink.put({"n": number})
    assert (sink.waiting, sink.dropped) == (5, 4)
    await sink.close(seconds=0)
    assert (sink.waiting, sink.dropped, carrier.closed) == (0, 9, True)


class Producer:
    """Fails once, then accepts all records."""

    def __init__(self, log: list[bytes], *, fails: bool) -> None:
        self._log = log
        self._fails = fails
        self.stopped = False

    async def start(self) -> None:
        pass

    async def send(self, topic: str, value: bytes, key: bytes) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._fails:
            done.set_exception(OSError())
        else:
            self._log.append(topic.encode() + b" " + value)
            done.set_result(None)
        return done

    async def stop(self) -> None:
        self.stopped = True


async def test_a_kafka_producer_that_failed_is_replaced_and_the_batch_sent_again() -> None:
    log: list[bytes] = []
    producers = [Producer(log, fails=True), Producer(log, fails=False)]
    carrier = KafkaCarrier(["127.0.0.1:1"], "audit")
    left = iter(producers)
    carrier._make = lambda: next(left)
    sink = StreamSink(carrier, capacity=10)
    async with asyncio.timeout(BOUND):
        sink.put({"n": 1})
        await until(lambda: sink.waiting, 0)
        await sink.close()
    assert log == [b'audit {"n":1}']
    assert [each.stopped for each in producers] == [True, True]


async def test_an_unreachable_kafka_delays_neither_records_nor_the_end() -> None:
    async with asyncio.timeout(BOUND):
        sink = StreamSink(KafkaCarrier(["127.0.0.1:1"], "audit"), capacity=10)
        sink.put({"n": 1})
        await sink.close(seconds=0.2)
        assert sink.dropped == 1
