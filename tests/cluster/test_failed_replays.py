"""Replays and pages that fail: event streams end, so that their readers reconnect."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pubsub_server.backplanes.redis import backplane as redis_backplane
from pubsub_server.backplanes.redis import logs as redis_logs
from pubsub_server.errors import ServiceError
from pubsub_server.testing import running_server
from tests.cluster.fleet import BOUND, nodes, peer
from tests.interop.peer import Event, EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

TOPIC = "demo.x"


@asynccontextmanager
async def resumed(
    node: RunningServer, mark: str | None = None, *topics: str
) -> AsyncGenerator[EventStream]:
    """Open an event stream that resumes after a mark."""
    headers = {"Authorization": f"Bearer {node.token()}"}
    if mark is not None:
        headers["Last-Event-ID"] = mark
    query = {"topics": ",".join(topics or (TOPIC,))}
    async with (
        httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND) as rest,
        rest.stream("GET", "/v1/subscribe", params=query) as response,
    ):
        assert response.status_code == 200, await response.aread()
        yield EventStream(response)


async def publish(node: RunningServer, *numbers: int, topic: str = TOPIC) -> None:
    headers = {"Authorization": f"Bearer {node.service_token()}"}
    async with httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND) as rest:
        for n in numbers:
            answer = await rest.post(f"/v1/topics/{topic}/messages", json={"data": n})
            assert answer.status_code == 201, answer.text


async def rest_of(stream: EventStream) -> list[Event]:
    """Return all events until the end of the stream."""
    events: list[Event] = []
    with suppress(EOFError):
        while True:
            item = await stream.item()
            if isinstance(item, Event):
                events.append(item)
    return events


def replayed(event: Event) -> list[object]:
    return [message["data"] for message in event.json["history"]]


async def test_a_stream_that_cannot_be_replayed_ends_and_is_replayed_when_it_comes_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as (a, b):
        async with resumed(a) as stream:
            mark = (await stream.event("subscribed")).id
        await publish(b, 1, 2, 3)
        with monkeypatch.context() as patch:
            patch.setattr(redis_backplane, "PATIENCE", 0.1)
            store.stall()
            async with resumed(a, mark) as stream:
                (error,) = await rest_of(stream)
            store.go_on()
        assert (error.name, error.json["code"], error.id) == ("error", "unavailable", None)
        async with resumed(a, mark) as stream:
            assert replayed(await stream.event("subscribed")) == [1, 2, 3]


async def test_what_comes_while_a_replay_fails_does_not_move_the_mark_of_its_reader(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, fail = asyncio.Event(), asyncio.Event()

    async def away(*_: Any) -> Any:
        reading.set()
        await fail.wait()
        raise ConnectionResetError

    async with asyncio.timeout(BOUND), nodes(store) as (a, b), resumed(a) as first:
        mark = (await first.event("subscribed")).id
        await publish(b, 1)
        assert (await first.event("message")).json["data"] == 1
        backplane: Any = a.hub.core.backplane
        with monkeypatch.context() as patch:
            patch.setattr(backplane._reader, "replay", away)
            async with resumed(a, mark) as second:
                await reading.wait()
                await publish(b, 2)
                # At this point, this node has received it and holds it for the other stream.
                assert (await first.event("message")).json["data"] == 2
                fail.set()
                assert [event.name for event in await rest_of(second)] == ["error"]
        async with resumed(a, mark) as third:
            assert replayed(await third.event("subscribed")) == [1, 2]


async def test_a_socket_whose_replay_fails_stays_open_and_may_ask_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1) as (a,), peer(a, a.token()) as socket:
        with monkeypatch.context() as patch:
            patch.setattr(redis_backplane, "PATIENCE", 0.1)
            store.stall()
            await socket.send({"type": "subscribe", "topics": [TOPIC], "since": 1, "ref": "1"})
            error = await socket.until("error")
            store.go_on()
        assert (error["code"], error["ref"]) == ("unavailable", "1")
        assert (await socket.subscribe(TOPIC, since=1, ref="2"))["ref"] == "2"


async def test_a_failed_subscription_gets_nothing_until_it_is_requested_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (a,),
        peer(a, a.token()) as socket,
        peer(a, a.token("ben")) as other,
    ):
        await socket.subscribe("demo.y", presence=False)
        await other.subscribe(TOPIC, presence=False)

        async def away(*_: Any) -> Any:
            raise ConnectionResetError

        backplane: Any = a.hub.core.backplane
        with monkeypatch.context() as patch:
            patch.setattr(backplane._reader, "replay", away)
            for topic in (TOPIC, "demo.y"):
                frame = {"type": "subscribe", "topics": [topic], "presence": False, "ref": topic}
                await socket.send(frame)
                assert (await socket.until("error"))["ref"] == topic
        await publish(a, 1)
        await publish(a, 2, topic="demo.y")
        # A subscription that existed before its repetition failed continues.
        message = (await socket.until("message"))["message"]
        assert (message["topic"], message["data"]) == ("demo.y", 2)
        answer = await socket.subscribe(TOPIC, presence=False, history=10)
        assert [each["data"] for each in answer["history"]] == [1]


async def test_a_page_and_a_list_of_topics_wait_for_redis_a_limited_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        logs: Any = node.hub.core.backplane.logs
        monkeypatch.setattr(redis_logs, "PATIENCE", 0.05)
        for name in ("page", "reports"):
            monkeypatch.setattr(logs._reader, name, silent)
        for call in (
            logs.page(TOPIC, since=None, before=None, after=None, limit=1),
            logs.reports("", 1),
        ):
            with pytest.raises(ServiceError) as caught:
                await call
            assert caught.value.code == "unavailable"
