"""What the server keeps occupies about as much memory as it counts."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import orjson
import pytest

from pubsub_server.backplanes.history import MemoryStore
from pubsub_server.backplanes.ids import IdMemory
from pubsub_server.backplanes.retention import Keep, Retention
from pubsub_server.hub.shared_attendance import shown_bytes
from pubsub_server.interfaces import Member
from pubsub_server.observe.audit_streams import StreamSink
from pubsub_server.observe.webhooks import WebhookSender
from pubsub_server.settings.sources import load
from pubsub_server.shared.exact_copy import exact_copy
from pubsub_server.shared.publications import encode_payload
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COUNT = 500
ENTRY = 250
"""Generous bytes of overhead for each item: its object, and its place in a queue."""


def growth(act: Callable[[], object]) -> int:
    """Bytes that an action has allocated, and that its result still occupies."""
    act()
    tracemalloc.start()
    try:
        result = act()
        grown, _ = tracemalloc.get_traced_memory()
        assert result is not None
    finally:
        tracemalloc.stop()
    return grown


@pytest.mark.parametrize("length", [0, 1, 147, 1_000, 100_000])
def test_a_copy_has_the_same_bytes_in_memory_of_their_size(length: int) -> None:
    data = orjson.dumps("x" * length)
    copy = exact_copy(data)
    assert copy == data
    assert copy is not data
    assert growth(lambda: exact_copy(data)) < length + ENTRY


def test_retained_messages_occupy_what_history_max_bytes_counts() -> None:
    draft = Draft("chat.room", "message", b'{"text":"hello"}', None, None, None)

    def fill() -> MemoryStore:
        retention = Retention(Keep(COUNT, 3_600_000))
        store = MemoryStore(retention, IdMemory(10, 1_000), max_bytes=10**9, max_topics=10)
        for number in range(COUNT):
            store.append(draft, ("user", "u1"), 1_700_000_000_000 + number)
        return store

    counted = fill().size
    assert counted / 2 < growth(fill) < counted * 1.5


def payloads() -> list[bytes]:
    return [encode_payload({"text": "hello"}, "data", 1_000) for _ in range(COUNT)]


def members() -> list[bytes]:
    member = Member("cl_1", "u1", "Ada", None, None, None, 1_700_000_000_000, 1_700_000_000_000)
    return [shown_bytes(member, 0) for _ in range(COUNT)]


def webhooks() -> WebhookSender:
    entry = {"url": "http://127.0.0.1:1/", "secret": "whsec_" + "A" * 32}
    sender = WebhookSender(load({"webhooks": [entry], "webhook_queue": COUNT}))
    for _ in range(COUNT):
        sender.notify("publish", "chat.room", b'{"id":"m1","data":{"x":1}}')
    assert sender.waiting == COUNT
    return sender


@pytest.mark.parametrize("keep", [payloads, members, webhooks])
def test_a_waiting_item_occupies_its_size(keep: Callable[[], Sequence[bytes]]) -> None:
    assert growth(keep) < COUNT * (250 + ENTRY)


class Carrier:
    name = "a sink"
    patience = 1.0

    async def send(self, records: Sequence[bytes]) -> None:
        """Never called: the test does not yield to the loop."""

    def explain(self, error: Exception) -> str:
        """The reason of a failure."""
        return str(error)

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_waiting_audit_record_occupies_its_size() -> None:
    sink = StreamSink(Carrier(), capacity=2 * COUNT)

    def put() -> StreamSink:
        for number in range(COUNT):
            sink.put({"event": "publish", "n": number})
        return sink

    assert growth(put) < COUNT * ENTRY
    await sink.close(0)
