"""The asyncio client, end to end with the hub in memory."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from hanzoai.pubsub import (
    AuthError,
    Batch,
    ClosedError,
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    Message,
    PayloadTooLarge,
    PermissionDenied,
    Publication,
    Published,
    PubSub,
    PubSubClient,
    PubSubError,
    StateChange,
    UsageError,
)
from hanzoai.pubsub.runtime import inbox
from hanzoai.pubsub.testing import MemoryServer, ThreadedServer, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def clock_of(server: MemoryServer) -> VirtualClock:
    assert isinstance(server.clock, VirtualClock)
    return server.clock


async def test_building_a_client_does_no_io_and_using_it_connects(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    assert (ps.client_id, "initialized" in repr(ps)) == (None, True)
    assert (pubsub_memory.connections, 0) == (0, 0)
    assert isinstance(await ps.publish("a.b", {"data": 1}), Published)
    assert pubsub_memory.connections == 1
    assert ps.client_id is not None
    assert "connected" in repr(ps)


async def test_a_published_message_arrives_with_all_its_fields(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b") as sub:
        given = {"type": "token", "data": {"n": 1}, "meta": {"traceparent": "00-1"}, "ttl": 60}
        published = await ps.publish("a.b", given, id="my-id")
        message = await anext(sub)
    assert published.id == message.id == "my-id"
    assert (message.type, message.data, message.meta) == ("token", {"n": 1}, given["meta"])
    assert (message.seq, message.timestamp) == (published.seq, published.timestamp)


async def test_an_ephemeral_message_is_delivered_and_not_kept(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b") as sub:
        published = await ps.publish("a.b", {"data": 1}, ttl=0)
        assert published.seq is None
        assert (await anext(sub)).data == 1
    assert [message async for message in ps.history("a.b")] == []


async def test_a_publication_may_be_given_instead_of_a_mapping(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    publication = Publication(topic="a.b", type="x", data=None)
    assert (await ps.publish("a.b", publication)).seq is not None
    with pytest.raises(InvalidOption, match="another topic"):
        await ps.publish("c.d", publication)


@pytest.mark.parametrize(
    ("topic", "message", "error", "field"),
    [
        ("a.*", {"data": 1}, InvalidTopic, None),
        ("", {"data": 1}, InvalidTopic, None),
        ("a..b", {"data": 1}, InvalidTopic, None),
        ("a.b", {"type": "x"}, InvalidPayload, "data"),
        ("a.b", {"data": {1, 2}}, InvalidPayload, "data"),
        ("a.b", {"data": {"deep": [float("nan")]}}, InvalidPayload, "data.deep[0]"),
        ("a.b", {"data": "x" * 262_143}, PayloadTooLarge, "data"),
        ("a.b", {"data": 1, "typ": "x"}, InvalidOption, "typ"),
        ("a.b", {"data": 1, "type": ""}, InvalidOption, "type"),
        ("a.b", {"data": 1, "ttl": -1}, InvalidOption, "ttl"),
        ("a.b", {"data": 1, "id": "x" * 129}, InvalidOption, "id"),
        ("a.b", "text", InvalidPayload, "message"),
    ],
)
async def test_an_unpublishable_payload_is_rejected_immediately_and_named(
    topic: str, message: Any, error: type[PubSubError], field: str | None
) -> None:
    async with MemoryServer() as server:
        ps = server.client()
        with pytest.raises(error) as caught:
            await ps.publish(topic, message)
        assert caught.value.field == field
        assert caught.value.remedy
        assert server.connections == 0


async def test_many_are_published_in_order_with_one_result_each(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    items: list[Any] = [("a.b", {"data": n}) for n in range(2_500)]
    items[7] = {"topic": "a.b", "data": 7}
    items[8] = Publication(topic="a.b", data=8)
    async with ps.subscribe("a.b") as sub:
        reading = asyncio.create_task(_take(sub, 2_500))
        results = await ps.publish_many(items)
        assert [message.data for message in await reading] == list(range(2_500))
    seqs = [result.seq for result in results if isinstance(result, Published)]
    assert seqs == sorted(seqs, key=lambda seq: seq or 0)
    assert len(seqs) == 2_500
    frames = [frame for frame in pubsub_memory.received if frame["type"] == "publish"]
    assert [len(frame["messages"]) for frame in frames] == [1_000, 1_000, 500]
    assert await ps.publish_many([]) == []


async def _take(sub: Any, count: int) -> list[Message]:
    return [await anext(sub) for _ in range(count)]


async def test_one_refused_item_of_many_has_an_error_and_the_others_are_published(
    tmp_path: Any,
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {pattern: 'a.**', require: {authenticated: true}, publish: true}")
    async with MemoryServer(rules=str(rules)) as server:
        ps = server.client(server.token("alice"))
        for via in ("socket", "rest"):
            results = await ps.publish_many(
                [("a.b", {"data": 1}), ("c.d", {"data": 2}), ("a.b", {"data": 3})], via=via
            )
            good, bad, last = results
            assert isinstance(good, Published)
            assert isinstance(last, Published)
            assert isinstance(bad, PermissionDenied)
            assert bad.topic == "c.d"
        batch = ps.batch()
        with pytest.raises(PermissionDenied):
            await _publish_to(batch, "a.b", "c.d")
        assert isinstance(batch.results[0], Published)


async def _publish_to(batch: Batch, *topics: str) -> None:
    async with batch:
        for topic in topics:
            batch.publish(topic, {"data": 1})


async def test_a_batch_checks_at_once_sends_at_the_end_and_nothing_after_an_exception(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with ps.batch() as batch:
        ids = [batch.publish("a.b", {"data": n}) for n in range(3)]
        with pytest.raises(InvalidTopic):
            batch.publish("a.*", {"data": 1})
        assert len(batch) == 3
        assert batch.results == []
    assert [result.id for result in batch.results if isinstance(result, Published)] == ids
    with pytest.raises(UsageError):
        batch.publish("a.b", {"data": 1})
    with pytest.raises(InvalidTopic):
        await _publish_to(ps.batch(), "a.b", "a.*")
    data = [message.data async for message in ps.history("a.b")]
    assert data == [0, 1, 2]


async def test_a_batch_that_is_opened_again_has_only_new_messages_and_results(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    batch = ps.batch()
    with pytest.raises(InvalidTopic):
        await _publish_to(batch, "a.b", "a.*")
    for n in (1, 2):
        async with batch:
            batch.publish("a.b", {"data": n})
        assert len(batch) == len(batch.results) == 1
    with pytest.raises(InvalidTopic):
        await _publish_to(batch, "a.b", "a.*")
    assert batch.results == []
    assert [message.data async for message in ps.history("a.b")] == [1, 2]


async def test_a_publish_may_go_over_http_without_a_connection(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    first = await ps.publish("a.b", {"data": 1}, id="one", via="rest")
    again = await ps.publish("a.b", {"data": 1}, id="one", via="rest")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.seq == again.seq
    assert pubsub_memory.connections == 0


async def test_presence_updates_may_be_published_as_hip_56_shows(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("alice", name="Alice"))
    async with ps.subscribe("chat.1", presence=True):
        await ps.publish("chat.1", {"type": "presence.update", "data": {"status": "typing"}})
        await clock_of(pubsub_memory).settle()
        (member,) = await ps.presence("chat.1")
        assert (member.name, member.status) == ("Alice", "typing")
        await ps.update_presence(None, {"status": None, "mood": "fine"})
        await clock_of(pubsub_memory).settle()
        (member,) = await ps.presence("chat.1")
        assert (member.status, member.metadata) == (None, {"mood": "fine"})
    with pytest.raises(InvalidTopic):
        await ps.update_presence("chat.*", {})


async def test_topics_are_for_administrators(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("root", kind="admin"))
    await pubsub_memory.publish("a.1", {"data": 1})
    await pubsub_memory.publish("b.1", {"data": 1})
    assert [info.topic for info in await ps.topics()] == ["a.1", "b.1"]
    assert [info.topic for info in await ps.topics("b.", limit=1)] == ["b.1"]
    user = pubsub_memory.client(pubsub_memory.token("alice"))
    with pytest.raises(PermissionDenied):
        await user.topics()


@pytest.mark.parametrize("since", [1_740_307_205_000, timedelta(seconds=5), timedelta(seconds=-5)])
async def test_since_is_a_time_or_a_span_back_from_now(
    since: int | timedelta, pubsub_memory: MemoryServer
) -> None:
    clock = clock_of(pubsub_memory)
    for number in range(10):
        await pubsub_memory.publish("a.b", {"data": number})
        await clock.advance(1)
    ps = pubsub_memory.client()
    moment = datetime.fromtimestamp(1_740_307_205, UTC)
    for value in (since, moment):
        seen = [message.data async for message in ps.history("a.b", since=value)]
        assert seen in ([5, 6, 7, 8, 9], [6, 7, 8, 9])
    sub = await ps.subscribe("a.b", since=since)
    assert (await anext(sub)).data in (5, 6)
    await sub.unsubscribe()


async def test_echo_off_keeps_back_own_messages_and_no_others(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client(echo=False)
    async with ps.subscribe("a.b") as sub:
        await ps.publish("a.b", {"data": 1})
        await ps.publish("a.b", {"data": 2}, via="rest")
        await ps.publish_many([("a.b", {"data": 3})])
        await pubsub_memory.publish("a.b", {"data": 4})
        assert (await anext(sub)).data == 4


async def test_echo_off_keeps_a_message_with_the_id_of_an_own_one_on_another_topic(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(echo=False)
    async with ps.subscribe("orders.*") as sub:
        await ps.publish("orders.created", {"data": 1}, id="order-7")
        await pubsub_memory.publish("orders.paid", {"data": 2, "id": "order-7"})
        assert (await anext(sub)).data == 2


async def test_echo_off_remembers_the_ids_of_requests_that_are_sent(
    pubsub_server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_OWN_IDS", 140)
    url, token = pubsub_server.ws, pubsub_server.token("s", kind="service")
    ps = PubSubClient(url, token, rest_url=pubsub_server.http, echo=False)
    async with ps, ps.subscribe("demo.b") as sub:
        # Most of them wait for the request before.
        waiting = [ps.publish("demo.b", {"data": n}, via="rest") for n in range(150)]
        await asyncio.gather(*waiting)
        async with PubSubClient(url, token) as other:
            await other.publish("demo.b", {"data": "not own"})
        async with asyncio.timeout(60):
            assert (await anext(sub)).data == "not own"


async def test_a_topic_handle_fills_in_the_topic(pubsub_memory: MemoryServer) -> None:
    topic = pubsub_memory.client().topic("a.b")
    assert pubsub_memory.connections == 0
    async with topic.subscribe(presence=True) as sub:
        first = await topic.publish({"data": 1})
        assert (await anext(sub)).data == 1
        assert [message.id async for message in topic.history()] == [first.id]
        await topic.update_presence({"status": "idle"})
        await clock_of(pubsub_memory).settle()
        assert [member.status for member in await topic.presence()] == ["idle"]
    assert first.seq is not None
    async with topic.subscribe(after=first.seq - 1) as again:
        assert (await anext(again)).data == 1
    assert repr(topic) == "<TopicHandle a.b>"


async def test_a_context_closes_at_its_end_and_at_once_after_an_exception(
    pubsub_memory: MemoryServer,
) -> None:
    url, token = pubsub_memory.url, pubsub_memory.token("s", kind="service")
    async with PubSubClient(url, token) as ps:
        await ps.publish("a.b", {"data": 1})
    assert ps.state == "closed"
    other = PubSubClient(url, token)

    async def fail() -> None:
        async with other:
            await other.connect()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert other.state == "closed"
    assert pubsub_memory.connections == 0


async def test_after_close_every_operation_is_refused(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    await ps.close()
    assert ps.state == "closed"
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        ps.connect,
        lambda: ps.publish("a.b", {"data": 1}),
        lambda: ps.publish_many([("a.b", {"data": 1})]),
        lambda: ps.presence("a.b"),
        lambda: ps.update_presence("a.b", {}),
        ps.topics,
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            await call()
    for ask in (lambda: ps.history("a.b"), lambda: ps.subscribe("a.b"), ps.states, ps.batch):
        with pytest.raises(ClosedError):
            ask()
    await ps.disconnect()


async def test_a_client_that_is_never_closed_warns_and_disconnects(
    pubsub_memory: MemoryServer,
) -> None:
    async def forget() -> None:
        await PubSubClient(pubsub_memory.url, pubsub_memory.token("s", kind="service")).connect()

    with pytest.warns(ResourceWarning, match="without close"):
        await forget()
    await clock_of(pubsub_memory).settle()
    assert pubsub_memory.connections == 0


def test_a_client_that_its_event_loop_leaves_open_warns_and_names_itself() -> None:
    with ThreadedServer() as server:

        async def forget() -> None:
            ps = PubSubClient(token=server.admin_token(), **server.options)
            await ps.subscribe("demo.a", on_message=print)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            asyncio.run(forget())
            gc.collect()
    assert any("<PubSubClient" in str(each.message) for each in caught)


def test_tracing_takes_a_tracing_object() -> None:
    with pytest.raises(InvalidOption, match="`tracing` is bool, not Tracing"):
        PubSubClient("ws://127.0.0.1:1/ws", "t", tracing=cast("Any", True))


async def test_state_changes_can_be_iterated_by_several_and_end_with_the_client(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    streams = [ps.states() for _ in range(2)]
    await ps.connect()
    pubsub_memory.cut()
    await clock_of(pubsub_memory).advance_until(lambda: ps.state == "connected")
    await ps.close()
    for stream in streams:
        seen = [change.to async for change in stream]
        assert seen[:4] == ["connecting", "authenticating", "connected", "reconnecting"]
        assert seen[-1] == "closed"


async def test_the_last_failure_is_known_until_there_is_a_connection_again(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()

    def failure() -> StateChange | None:
        return ps.last_failure

    assert failure() is None
    await ps.connect()
    assert failure() is None
    pubsub_memory.cut()
    await clock_of(pubsub_memory).advance_until(lambda: ps.state == "reconnecting")
    lost = failure()
    assert lost is not None
    assert (lost.to, lost.code) == ("reconnecting", 1006)
    await clock_of(pubsub_memory).advance_until(lambda: ps.state == "connected")
    assert failure() is None
    await ps.close()
    assert failure() is None, "closing is no failure"


def test_a_failed_client_keeps_the_reason() -> None:
    with ThreadedServer() as server, PubSub(server.ws, "nonsense", rest_url=server.http) as ps:
        with pytest.raises(AuthError):
            ps.connect()
        assert ps.last_failure is not None
        assert (ps.last_failure.to, ps.last_failure.code) == ("failed", "token_invalid")


async def test_no_such_server_in_this_process_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="No server of that name"):
        PubSubClient("memory://nowhere", "t")


async def test_the_environment_names_server_and_token(
    pubsub_memory: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANZO_PUBSUB_URL", pubsub_memory.url)
    monkeypatch.setenv("HANZO_PUBSUB_TOKEN", pubsub_memory.token("env", kind="service"))
    async with PubSubClient() as ps:
        await ps.publish("a.b", {"data": 1})
        (message,) = [message async for message in ps.history("a.b")]
        assert message.sender is not None
        assert message.sender.id == "env"


async def test_cancelling_a_publish_takes_it_back_if_it_is_not_sent(
    pubsub_memory: MemoryServer,
) -> None:
    clock = clock_of(pubsub_memory)
    ps = pubsub_memory.client()
    with pubsub_memory.refusing():
        task = asyncio.create_task(ps.publish("a.b", {"data": 1}))
        await clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await clock.advance_until(lambda: ps.state == "connected")
    await clock.settle()
    assert not [frame for frame in pubsub_memory.received if frame["type"] == "publish"]


async def test_a_client_and_a_subscription_cannot_be_copied_or_pickled(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b") as sub:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            for value in (ps, sub):
                with pytest.raises(UsageError, match="cannot be copied or pickled"):
                    duplicate(value)
        await ps.publish("a.b", {"data": 1})
        assert (await anext(sub)).data == 1


async def test_a_call_without_a_loop_has_its_code_after_the_first_use_too(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()

    def call() -> None:
        for use in (
            ps.batch,
            ps.states,
            lambda: ps.history("a.b"),
            lambda: ps.subscribe("a.b", on_message=print),
            lambda: anext(ps.subscribe("a.b")).__await__().send(None),
        ):
            with pytest.raises(UsageError, match="No asyncio event loop") as caught:
                use()
            assert caught.value.code == "wrong_loop"

    await asyncio.to_thread(call)


async def test_a_wait_for_a_message_in_another_loop_raises(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client()
    async with ps.subscribe("a.b") as sub:

        async def wait() -> None:
            async with asyncio.timeout(60):
                for waiting in (anext(sub), anext(sub.events()), sub):
                    with pytest.raises(UsageError, match="another event loop") as caught:
                        await waiting
                    assert caught.value.code == "wrong_loop"

        await asyncio.to_thread(asyncio.run, wait())


async def test_a_close_in_another_loop_raises_and_closes_nothing(
    pubsub_memory: MemoryServer,
) -> None:
    async with pubsub_memory.client() as ps:
        await ps.connect()
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, ps.close())
        assert (await ps.publish("a.b", {"data": 1})).seq is not None


def test_a_client_whose_loop_has_ended_says_so(pubsub_server: ThreadedServer) -> None:
    ps = PubSubClient(token=pubsub_server.admin_token(), **pubsub_server.options)

    async def publish() -> None:
        await ps.publish("demo.1", {"data": 1})

    async def twice() -> None:
        with pytest.raises(UsageError, match="event loop of this client has ended"):
            await publish()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(publish())
    loop.run_until_complete(ps.close())
    loop.close()
    asyncio.run(twice())
