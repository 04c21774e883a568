"""REC-1 … REC-4: nothing is lost without a gap."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import Gap, Message, Subscription
from hanzoai.pubsub.testing import MemoryServer

from .help import TOPIC, clock_of, connected, numbers, read, say, soon, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hanzoai.pubsub.testing import VirtualClock

TOPICS = ("room.a", "room.b", "room.c")


async def run_schedule(seed: int, *, history: int, publishes: int) -> list[Message | Gap]:
    """Publish while the connection is randomly cut, refused and delayed; return what arrived."""
    rolls = random.Random(seed)
    async with MemoryServer(seed=seed, history_max_messages=history) as server:
        clock = clock_of(server)
        ps = server.client()
        sub = await soon(ps.subscribe("room.*"))
        number = 0
        while number < publishes:
            match rolls.randrange(8):
                case 0:
                    server.cut(rolls.choice([None, 1001, 1006, 1012, 4408]))
                case 1:
                    with server.refusing():
                        await clock.advance(rolls.random() * 3)
                        await server.publish(rolls.choice(TOPICS), say(number))
                        number += 1
                case 2:
                    await clock.advance(rolls.random() * 40)
                case 3:
                    # The connection is lost again before the answer to `subscribe`.
                    server.cut()
                    server.lose_next("subscribed")
                    await connected(server, ps)
                    server.cut()
                    server.lose_nothing()
                case _:
                    for _ in range(rolls.randrange(1, 6)):
                        await server.publish(rolls.choice(TOPICS), say(number))
                        number += 1
                    if rolls.random() < 0.5:
                        await clock.settle()
        await connected(server, ps)
        await clock.advance(60)
        assert ps.state == "connected"
        seen = await everything(sub)
        await ps.close()
        return seen


async def everything(sub: Subscription) -> list[Message | Gap]:
    events = sub.events()
    found: list[Message | Gap] = []
    while True:
        try:
            async with asyncio.timeout(0.02):
                entry = await anext(events)
        except TimeoutError:
            return found
        assert isinstance(entry, Message | Gap)
        found.append(entry)


def by_topic(seen: list[Message | Gap]) -> dict[str, list[Message | Gap]]:
    found: dict[str, list[Message | Gap]] = {}
    for entry in seen:
        found.setdefault(entry.topic, []).append(entry)
    return found


# ---------------------------------------------------------------- REC-1


@pytest.mark.parametrize("seed", range(60))
async def test_rec_1_within_history_what_is_delivered_is_what_was_published(seed: int) -> None:
    seen = await run_schedule(seed, history=10_000, publishes=60)
    assert not [entry for entry in seen if isinstance(entry, Gap)]
    messages = [entry for entry in seen if isinstance(entry, Message)]
    published = sorted(numbers(messages))
    assert published == list(range(len(published)))
    assert len(published) >= 60
    for entries in by_topic(seen).values():
        in_order = numbers([entry for entry in entries if isinstance(entry, Message)])
        assert in_order == sorted(in_order)


# ---------------------------------------------------------------- REC-2


@pytest.mark.parametrize("seed", range(40))
async def test_rec_2_beyond_history_every_message_is_delivered_or_counted_in_a_gap_before_the_next(
    seed: int,
) -> None:
    seen = await run_schedule(1_000 + seed, history=2, publishes=60)
    for entries in by_topic(seen).values():
        last: int | None = None
        for entry, following in zip(entries, [*entries[1:], None], strict=True):
            if isinstance(entry, Message):
                assert entry.seq is not None
                if last is not None:
                    assert entry.seq == last + 1
                last = entry.seq
            else:
                assert entry.to is not None
                if last is not None or entry.from_ is not None:
                    assert entry.from_ is not None
                    assert entry.missed == entry.to - entry.from_ + 1
                    assert last in (None, entry.from_ - 1)
                last = entry.to
                assert not isinstance(following, Gap)


async def test_rec_2_each_topic_that_lost_something_has_exactly_one_gap_in_its_place(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe("room.*"))
    for topic in TOPICS:
        await server.publish(topic, say(0))
    await clock.settle()
    with server.refusing():
        for number in range(1, 6):
            for topic in TOPICS[:2]:
                await server.publish(topic, say(number))
        server.forget_history()
        await clock.advance(5)
    await connected(server, ps)
    for topic in TOPICS:
        await server.publish(topic, say(6))
    await clock.settle()
    seen = by_topic(await everything(sub))
    for topic in TOPICS[:2]:
        first, gap, last = seen[topic]
        assert isinstance(gap, Gap)
        assert gap.missed == 5
        assert gap.reason == "history_trimmed"
        assert isinstance(first, Message)
        assert isinstance(last, Message)
        assert (first.data, last.data) == ({"n": 0}, {"n": 6})
    assert not [entry for entry in seen[TOPICS[2]] if isinstance(entry, Gap)]
    await sub.unsubscribe()


async def test_rec_2_a_log_that_started_again_is_one_gap(
    server: MemoryServer, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    got: list[Message] = []
    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC, on_message=got.append, on_gap=gaps.append))
    await server.publish(TOPIC, say(0))
    await clock.advance(1)
    with server.refusing():
        await server.publish(TOPIC, say(1))
        server.forget_history(positions=True)
        await clock.advance(5)
        await server.publish(TOPIC, say(2))
    await connected(server, ps)
    await clock.settle()
    assert len(gaps) == 1
    assert numbers(got) == [0, 2]
    await sub.unsubscribe()


# ---------------------------------------------------------------- REC-3

RULES = """
rules:
  - pattern: "room.b"
    require:
      user_id: "nobody-at-all"
    publish: true
  - pattern: "room.**"
    require:
      authenticated: true
    publish: true
"""


@pytest.mark.parametrize("seed", range(25))
async def test_rec_3_access_rules_wildcards_and_echo_make_no_phantom_gap(
    seed: int, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    rolls = random.Random(seed)
    gaps: list[Gap] = []
    async with MemoryServer(seed=seed, rules=str(file)) as server:
        clock = clock_of(server)
        ps = server.client(server.token("alice"), echo=False)
        every = ps.subscribe("room.**", on_gap=gaps.append)
        one = ps.subscribe(["room.a", "room.*"], on_gap=gaps.append)
        await soon(every)
        await soon(one)
        foreign: list[int] = []
        for number in range(80):
            topic = rolls.choice(TOPICS)
            if rolls.random() < 0.3 and topic != "room.b" and ps.state == "connected":
                await soon(ps.publish(topic, say(number)))
            else:
                await server.publish(topic, say(number))
                if topic != "room.b":
                    foreign.append(number)
            if rolls.random() < 0.15:
                server.cut()
                await clock.settle()
            if rolls.random() < 0.3:
                await clock.advance(rolls.random() * 4)
        await connected(server, ps)
        await clock.advance(10)
        for sub in (every, one):
            assert sorted(numbers(waiting(sub))) == foreign
            assert sub.stats.gaps == 0
        assert not gaps
        await ps.close()


# ---------------------------------------------------------------- REC-4


async def test_rec_4_the_state_loader_is_called_once_per_gap_with_the_positions_from_before(
    server: MemoryServer, clock: VirtualClock
) -> None:
    calls: list[tuple[Gap, dict[str, int]]] = []
    handled: list[object] = []
    loading, loaded = asyncio.Event(), asyncio.Event()

    async def load(gap: Gap, positions: Mapping[str, int]) -> None:
        calls.append((gap, dict(positions)))
        loading.set()
        await loaded.wait()
        handled.append("loaded")

    ps = server.client()
    sub = ps.subscribe(TOPIC, on_message=handled.append, on_gap=handled.append, state_loader=load)
    await soon(sub)
    first = await server.publish(TOPIC, say(0))
    await clock.settle()
    with server.refusing():
        await server.publish(TOPIC, say(1))
        last = await server.publish(TOPIC, say(2))
        server.forget_history()
    await connected(server, ps)
    await soon(loading.wait())
    for number in (3, 4):  # messages that arrive while it loads are kept
        await server.publish(TOPIC, say(number))
    await clock.settle()
    assert len(handled) == 1
    loaded.set()
    await clock.settle()
    ((gap, positions),) = calls
    assert first.seq is not None
    assert (gap.missed, gap.from_, gap.to) == (2, first.seq + 1, last.seq)
    assert positions == {TOPIC: last.seq}
    assert handled[1:3] == ["loaded", gap]
    assert numbers([entry for entry in handled if isinstance(entry, Message)]) == [0, 3, 4]
    await sub.unsubscribe()


async def test_rec_4_an_iteration_loads_the_state_before_it_continues(
    server: MemoryServer, clock: VirtualClock
) -> None:
    order: list[object] = []

    def load(gap: Gap, positions: Mapping[str, int]) -> None:
        order.append(("load", gap.missed))

    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC, state_loader=load))
    await server.publish(TOPIC, say(0))
    order.extend(numbers(await read(sub, 1)))
    with server.refusing():
        await server.publish(TOPIC, say(1))
        server.forget_history()
    await connected(server, ps)
    await server.publish(TOPIC, say(2))
    order.extend(numbers(await read(sub, 1)))
    assert order == [0, ("load", 1), 2]
    await sub.unsubscribe()
