"""PUB-1 … PUB-6: the outcomes of a publish."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Literal

import pytest

from hanzoai.pubsub import (
    OperationTimeout,
    PermissionDenied,
    Published,
    PubSubClient,
    QueueFull,
    SendQueue,
    Superseded,
)
from hanzoai.pubsub.testing import MemoryServer
from pubsub_server.testing import running_server

from .help import TOPIC, clock_of, connected, numbers, read, say, soon, waiting

if TYPE_CHECKING:
    from hanzoai.pubsub.testing import VirtualClock


def published_by_clients(server: MemoryServer) -> list[int]:
    """Return the numbers of the messages that arrived in `publish` frames, in order."""
    frames = [frame for frame in server.received if frame["type"] == "publish"]
    return [frame["message"]["data"]["n"] for frame in frames]


# ---------------------------------------------------------------- PUB-1


async def test_pub_1_where_the_answer_is_lost_the_retry_is_delivered_once(
    server: MemoryServer, clock: VirtualClock
) -> None:
    reader, ps = server.client(), server.client()
    sub = await soon(reader.subscribe(TOPIC))
    await soon(ps.connect())
    server.lose_next("published")
    publish = asyncio.create_task(ps.publish(TOPIC, say(1)))
    await clock.settle()
    server.cut()
    await connected(server, ps)
    await connected(server, reader)
    published = await soon(publish)
    assert published.duplicate
    assert published.seq is not None
    await clock.settle()
    assert numbers(waiting(sub)) == [1]
    sent = [frame for frame in server.received if frame["type"] == "publish"]
    assert len(sent) == 2
    assert {frame["message"]["id"] for frame in sent} == {published.id}
    await sub.unsubscribe()


async def test_pub_1_a_publish_settles_in_its_time_as_acked_rejected_or_unknown(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    assert (await soon(ps.publish(TOPIC, say(1)))).seq is not None
    server.lose_next("published")
    unknown = asyncio.create_task(ps.publish(TOPIC, say(2), timeout=3))
    await clock.settle()
    await clock.advance(3)
    with pytest.raises(OperationTimeout) as caught:
        await soon(unknown)
    assert caught.value.outcome_unknown
    assert caught.value.id is not None
    again = await soon(ps.publish(TOPIC, say(2), id=caught.value.id))
    assert again.duplicate


async def test_pub_1_a_refusal_names_code_topic_and_remedy(tmp_path: object) -> None:
    from pathlib import Path

    rules = Path(str(tmp_path)) / "rules.yaml"
    rules.write_text(
        "rules:\n  - {pattern: 'a.**', require: {authenticated: true}, publish: false}"
    )
    async with MemoryServer(rules=str(rules)) as server:
        ps = server.client(server.token("alice"))
        with pytest.raises(PermissionDenied) as caught:
            await soon(ps.publish("a.b", say(1)))
        assert (caught.value.code, caught.value.topic) == ("forbidden", "a.b")
        assert caught.value.remedy
        await ps.close()


# ---------------------------------------------------------------- PUB-2


@pytest.mark.parametrize("seed", range(30))
async def test_pub_2_concurrent_publishes_keep_the_order_of_their_calls_across_reconnects(
    seed: int,
) -> None:
    rolls = random.Random(seed)
    async with MemoryServer(seed=seed, history_max_messages=1_000) as server:
        clock = clock_of(server)
        reader, ps = server.client(), server.client()
        sub = await soon(reader.subscribe(TOPIC))
        await soon(ps.connect())
        publishes: list[asyncio.Task[Published]] = []
        for number in range(60):
            publishes.append(asyncio.create_task(ps.publish(TOPIC, say(number), timeout=600)))
            if rolls.random() < 0.3:
                await asyncio.sleep(0)
            if rolls.random() < 0.1:
                server.lose_next("published", rolls.randrange(1, 4))
            if rolls.random() < 0.1:
                server.cut()
            if rolls.random() < 0.2:
                await clock.advance(rolls.random())
        while not all(publish.done() for publish in publishes):
            server.cut()
            await clock.settle()
            await connected(server, ps)
        await connected(server, reader)
        await clock.advance(5)
        results = await soon(asyncio.gather(*publishes))
        seqs = [result.seq for result in results]
        assert seqs == sorted(seqs, key=lambda seq: seq or 0)
        assert numbers(await read(sub, 60)) == list(range(60))
        assert not waiting(sub)
        await reader.close()
        await ps.close()


# ---------------------------------------------------------------- PUB-3

BIG = {"type": "token", "data": {"text": "x" * 980}}


async def test_pub_3_policy_error_raises_when_the_bytes_are_full(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client(send_queue=SendQueue(messages=1_000, bytes=5_000, policy="error"))
    with server.refusing():
        publishes = [asyncio.create_task(ps.publish(TOPIC, BIG)) for _ in range(8)]
        await clock.settle()
        full = [task for task in publishes if task.done()]
        assert len(full) == 3
        for task in full:
            with pytest.raises(QueueFull):
                await task
    await connected(server, ps)
    await soon(asyncio.gather(*(task for task in publishes if task not in full)))
    assert len([frame for frame in server.received if frame["type"] == "publish"]) == 5


async def test_pub_3_policy_block_waits_for_room_and_loses_nothing(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client(send_queue=SendQueue(messages=2, policy="block"))
    sub = await soon(ps.subscribe(TOPIC))
    publishes = [asyncio.create_task(ps.publish(TOPIC, say(n))) for n in range(50)]
    await soon(asyncio.gather(*publishes))
    assert numbers(await read(sub, 50)) == list(range(50))
    await sub.unsubscribe()


async def test_pub_3_policy_block_gives_up_when_its_time_has_passed(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client(send_queue=SendQueue(messages=1, policy="block"))
    with server.refusing():
        first = asyncio.create_task(ps.publish(TOPIC, say(1), timeout=60))
        await clock.settle()
        second = asyncio.create_task(ps.publish(TOPIC, say(2), timeout=2))
        third = asyncio.create_task(ps.publish(TOPIC, say(3), timeout=60))
        await clock.advance(2)
        with pytest.raises(OperationTimeout) as caught:
            await soon(second)
        assert not caught.value.outcome_unknown
    await connected(server, ps)
    assert (await soon(first)).seq is not None
    assert (await soon(third)).seq is not None
    sent = [
        frame["message"]["data"]["n"] for frame in server.received if frame["type"] == "publish"
    ]
    assert sent == [1, 3]


async def test_pub_3_policy_drop_oldest_fails_each_publish_that_was_dropped(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client(send_queue=SendQueue(messages=3, policy="drop_oldest"))
    with server.refusing():
        publishes = [asyncio.create_task(ps.publish(TOPIC, say(n))) for n in range(8)]
        await clock.settle()
        outcomes = [task.exception() if task.done() else None for task in publishes]
        assert [type(outcome) for outcome in outcomes[:5]] == [QueueFull] * 5
        assert all(getattr(outcome, "code", "") == "dropped" for outcome in outcomes[:5])
    await connected(server, ps)
    await soon(asyncio.gather(*publishes[5:]))
    sent = [
        frame["message"]["data"]["n"] for frame in server.received if frame["type"] == "publish"
    ]
    assert sent == [5, 6, 7]


async def test_pub_3_policy_latest_sends_the_newest_of_each_key(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client(send_queue=SendQueue(policy="latest"))
    with server.refusing():
        cursors = [
            asyncio.create_task(ps.publish(TOPIC, say(n), key=f"cursor-{n % 2}")) for n in range(6)
        ]
        other = asyncio.create_task(ps.publish(TOPIC, say(100)))
        await clock.settle()
        for task in cursors[:4]:
            with pytest.raises(Superseded):
                await task
    await connected(server, ps)
    await soon(asyncio.gather(*cursors[4:], other))
    sent = [
        frame["message"]["data"]["n"] for frame in server.received if frame["type"] == "publish"
    ]
    assert sorted(sent) == [4, 5, 100]


# ---------------------------------------------------------------- PUB-4


async def test_pub_4_rate_limited_is_never_a_silent_drop() -> None:
    async with MemoryServer(publish_rate_user=10, history_max_messages=1_000) as server:
        clock = clock_of(server)
        reader = server.client()
        sub = await soon(reader.subscribe(TOPIC))
        greedy = [server.client(server.token("alice")) for _ in range(2)]
        publishes = [
            asyncio.create_task(ps.publish(TOPIC, say(n), timeout=300))
            for n, ps in enumerate(greedy * 40)
        ]
        await clock.advance(60)
        results = await soon(asyncio.gather(*publishes))
        assert len({result.seq for result in results}) == 80
        assert sorted(numbers(waiting(sub))) == list(range(80))
        for ps in (*greedy, reader):
            await ps.close()


# ---------------------------------------------------------------- PUB-5


async def test_pub_5_a_publish_whose_time_has_passed_is_never_sent_later(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    with server.refusing():
        late = asyncio.create_task(ps.publish(TOPIC, say(1), timeout=2))
        patient = asyncio.create_task(ps.publish(TOPIC, say(2), timeout=600))
        given_up = asyncio.create_task(ps.publish(TOPIC, say(3), timeout=600))
        await clock.advance(2)
        given_up.cancel()
        with pytest.raises(OperationTimeout) as caught:
            await soon(late)
        assert not caught.value.outcome_unknown
    await connected(server, ps)
    await soon(patient)
    sent = [
        frame["message"]["data"]["n"] for frame in server.received if frame["type"] == "publish"
    ]
    assert sent == [2]
    assert given_up.cancelled()


async def test_pub_5_the_queue_drains_within_the_rate_and_latest_collapses_to_one() -> None:
    async with MemoryServer(publish_rate_user=10, history_max_messages=1_000) as server:
        clock = clock_of(server)
        ps = server.client(server.token("alice"), send_queue=SendQueue(policy="latest"))
        await soon(ps.connect())
        with server.refusing():
            await clock.settle()
            tasks = [asyncio.create_task(ps.publish(TOPIC, say(n), timeout=300)) for n in range(50)]
            cursor = [
                asyncio.create_task(ps.publish(TOPIC, say(1_000 + n), key="cursor", timeout=300))
                for n in range(500)
            ]
            await clock.settle()
        await connected(server, ps)
        began = clock.now()
        refused = server.stats.refused.get("rate_limited", 0)
        await clock.advance_until(lambda: all(task.done() for task in tasks), 60)
        assert clock.now() - began >= 3.5
        assert server.stats.refused.get("rate_limited", 0) == refused
        await clock.advance_until(lambda: all(task.done() for task in cursor), 60)
        outcomes = await soon(asyncio.gather(*cursor, return_exceptions=True))
        assert [type(outcome) for outcome in outcomes[:-1]] == [Superseded] * 499
        assert isinstance(outcomes[-1], Published)
        await ps.close()


@pytest.mark.parametrize(("kind", "count"), [("service", 400), ("user", 25)])
async def test_pub_5_pipelined_publishes_over_the_rate_arrive_in_order_and_none_is_refused(
    kind: Literal["service", "user"], count: int
) -> None:
    async with asyncio.timeout(60), running_server() as real:
        token = real.token("alice", kind=kind)
        async with (
            PubSubClient(real.ws, token, rest_url=real.http, transport="websocket") as ps,
            ps.subscribe("demo.rate") as sub,
        ):
            await asyncio.gather(
                *(ps.publish("demo.rate", say(n), timeout=40) for n in range(count))
            )
            seen = [(await anext(sub)).data["n"] for _ in range(count)]
        assert seen == list(range(count))
        assert real.stats.refused.get("rate_limited", 0) == 0


@pytest.mark.parametrize("wait", [True, False], ids=["connected", "not yet connected"])
async def test_pub_4_a_batch_far_beyond_the_rate_goes_at_the_rate(*, wait: bool) -> None:
    async with MemoryServer(publish_rate_service=100) as server:
        ps = server.client(operation_timeout=60)
        if wait:
            await ps.connect()
        began = server.clock.now()
        batch = [(TOPIC, {"data": {"n": n}}) for n in range(500)]
        task = asyncio.ensure_future(ps.publish_many(batch))
        await server.clock.advance_until(task.done)
        assert all(isinstance(result, Published) for result in await task)
        assert server.clock.now() - began < 7
        kept = [message.data["n"] async for message in ps.history(TOPIC)]
        assert kept == list(range(400, 500))


# ---------------------------------------------------------------- PUB-6


@pytest.mark.parametrize("timeout", [1, 60])
async def test_pub_6_a_server_that_stalls_refuses_no_publish_when_it_continues(
    timeout: float,
) -> None:
    async with MemoryServer(publish_rate_user=20, history_max_messages=1_000) as server:
        clock = clock_of(server)
        ps = server.client(server.token("alice"))
        await soon(ps.connect())
        publishes: list[asyncio.Task[Published]] = []
        with server.frozen():
            for n in range(60):  # 5 per second: below the rate
                publishes.append(asyncio.create_task(ps.publish(TOPIC, say(n), timeout=timeout)))
                await clock.advance(0.2)
        await clock.advance_until(lambda: all(task.done() for task in publishes), 30)
        await soon(asyncio.gather(*publishes, return_exceptions=timeout < 60))
        assert server.stats.refused.get("rate_limited", 0) == 0
        await ps.close()
