from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pubsub_server.errors import ServiceError
from pubsub_server.hub.faults import (
    Clear,
    Delay,
    Drop,
    Evict,
    Expire,
    Fault,
    Faults,
    Freeze,
    Refuse,
    plan,
)
from tests.server.hub_rig import START_MS, STREAM, Peer, Rig
from tests.server.websocket_rig import client, serving

BOUND = 60.0


async def two(rig: Rig) -> tuple[Peer, Peer]:
    alice, bob = await rig.client("alice"), await rig.client("bob")
    for peer in (alice, bob):
        peer.subscribe("a", presence=False)
    return alice, bob


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    assert plan(7, 10_000, 50) == plan(7, 10_000, 50)
    assert plan(7, 10_000, 50) != plan(8, 10_000, 50)


def test_a_schedule_is_in_order_and_ends_undisturbed() -> None:
    for seed in range(50):
        schedule = plan(seed, 1_000, 20)
        assert [at for at, _ in schedule] == sorted(at for at, _ in schedule)
        refusing = False
        for _, fault in schedule:
            if isinstance(fault, Refuse):
                refusing = fault.on
            elif isinstance(fault, Clear):
                refusing = False
        assert not refusing
        assert schedule[-1] == (1_000, Clear())


async def test_connections_are_cut_without_a_close_frame() -> None:
    rig = Rig()
    alice, bob = await two(rig)
    faults = Faults(rig.hub)
    assert faults.perform({"fault": "drop", "user": "alice"}) == {"connections": 1}
    assert (alice.sink.aborted, alice.ending()) == (True, None)
    assert not bob.sink.aborted
    assert faults.inject(Drop()) == 1
    assert bob.sink.aborted


async def test_a_connection_is_cut_after_a_number_of_messages() -> None:
    rig = Rig()
    alice, bob = await two(rig)
    faults = Faults(rig.hub)
    faults.inject(Drop(user="alice", after=3, times=2))
    for number in range(5):
        bob.publish("a", number)
        await asyncio.sleep(0)
    assert [m["data"] for m in alice.messages()] == [0, 1, 2]
    assert alice.sink.aborted
    assert [m["data"] for m in bob.messages()] == [0, 1, 2, 3, 4]
    again, third = await rig.client("alice"), await rig.client("alice")
    again.subscribe("a", presence=False)
    for number in range(5, 10):
        bob.publish("a", number)
        await asyncio.sleep(0)
    assert [m["data"] for m in again.messages()] == [5, 6, 7]
    third.subscribe("a", presence=False)
    for number in range(10, 15):
        bob.publish("a", number)
        await asyncio.sleep(0)
    assert len(third.messages()) == 5


async def test_deliveries_wait_and_keep_their_order() -> None:
    rig = Rig()
    alice, bob = await two(rig)
    faults = Faults(rig.hub, seed=3)
    faults.inject(Delay(ms=1, jitter=20))
    for number in range(30):
        bob.publish("a", number)
    assert alice.messages() == []
    faults.inject(Delay(ms=0))
    bob.publish("a", 30)
    got: list[int] = []
    async with asyncio.timeout(BOUND):
        while len(got) < 31:
            got += [m["data"] for m in alice.messages()]
            await asyncio.sleep(0.002)
    assert got == list(range(31))


async def test_nothing_delayed_is_lost_when_faults_are_cleared() -> None:
    rig = Rig()
    alice, bob = await two(rig)
    faults = Faults(rig.hub)
    faults.inject(Delay(ms=60_000))
    for number in range(5):
        bob.publish("a", number)
    faults.inject(Clear())
    assert [m["data"] for m in alice.messages()] == [0, 1, 2, 3, 4]


async def test_history_is_evicted_with_or_without_its_numbers() -> None:
    rig = Rig()
    alice, _ = await two(rig)
    faults = Faults(rig.hub)
    for topic in ("a", "b"):
        alice.publish(topic, 1)
    faults.inject(Evict(topic="b"))
    answer = alice.subscribe("a", "b", since=0, presence=False)
    assert [m["topic"] for m in answer["history"]] == ["a"]
    assert answer["truncated"] == ["b"]
    assert answer["positions"]["b"] == START_MS * 1000
    faults.inject(Evict(log=True))
    positions = alice.subscribe("a", "b", since=0, presence=False)["positions"]
    assert min(positions["a"], positions["b"]) > START_MS * 1000


async def test_tokens_end_now_or_soon() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000, program_timeout=0)
    alice, bob = await two(rig)
    faults = Faults(rig.hub)
    assert faults.inject(Expire(user="alice")) == 1
    rig.advance(0.1)
    assert alice.read_one("auth.error")["code"] == "token_expired"
    assert alice.ending() == (4401, "token_expired")
    faults.inject(Expire(user="bob", ms=5_000))
    rig.advance(0.1)
    assert bob.read_one("auth.expiring")["expires_in"] <= 5_000
    bob.say("auth", token="bob")
    await rig.settle()
    assert bob.read_one("auth.ok")
    rig.advance(10)
    assert bob.ending() is None


async def test_new_connections_are_rejected_and_accepted_again() -> None:
    rig = Rig()
    faults = Faults(rig.hub)
    faults.inject(Refuse())
    with pytest.raises(ServiceError) as caught:
        rig.stranger()
    assert caught.value.code == "unavailable"
    faults.inject(Refuse(on=False))
    rig.stranger()


async def test_a_frozen_connection_neither_reads_nor_writes() -> None:
    rig = Rig()
    alice, bob = await two(rig)
    faults = Faults(rig.hub)
    assert faults.inject(Freeze(user="alice")) == 1
    bob.publish("a", 1)
    assert alice.messages() == []
    assert alice.sink.freezes == [True]
    assert len(bob.messages()) == 1
    assert faults.inject(Freeze(on=False)) == 1
    assert alice.sink.freezes == [True, False]
    assert len(alice.messages()) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "fault"),
        ({"fault": "levitate"}, "fault"),
        ({"fault": "drop", "after": 0}, "after"),
        ({"fault": "drop", "who": "x"}, "who"),
        ({"fault": "delay"}, "ms"),
        ({"fault": "delay", "ms": -1}, "ms"),
        ({"fault": "play", "seed": 1, "ms": 10, "steps": 10**9}, "steps"),
    ],
)
async def test_a_wrong_order_names_the_field(body: dict[str, Any], field: str) -> None:
    faults = Faults(Rig().hub)
    with pytest.raises(ServiceError) as caught:
        faults.perform(body)
    assert (caught.value.code, caught.value.field) == ("invalid_frame", field)


async def test_a_schedule_is_played_and_answered_with_its_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = Faults(Rig().hub)
    answer = faults.perform({"fault": "play", "seed": 1, "ms": 30, "steps": 3})
    assert [{"at": at, **f.model_dump()} for at, f in plan(1, 30, 3)] == answer["plan"]
    done = asyncio.Event()
    injected: list[Fault] = []

    def inject(fault: Fault) -> int:
        injected.append(fault)
        if isinstance(fault, Clear):
            done.set()
        return 0

    monkeypatch.setattr(faults, "inject", inject)
    faults.play(plan(2, 30, 5))
    async with asyncio.timeout(BOUND):
        await done.wait()
    assert injected == [fault for _, fault in plan(2, 30, 5)]


async def test_faults_of_one_time_are_injected_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(Rig().hub)
    schedule: list[tuple[int, Fault]] = [(1, Delay(ms=n)) for n in range(20)]
    done = asyncio.Event()
    injected: list[Fault] = []

    def inject(fault: Fault) -> int:
        injected.append(fault)
        if len(injected) == len(schedule):
            done.set()
        return 0

    monkeypatch.setattr(faults, "inject", inject)
    faults.play(schedule)
    async with asyncio.timeout(BOUND):
        await done.wait()
    assert injected == [fault for _, fault in schedule]


async def test_a_cut_socket_breaks_off_and_a_frozen_one_is_silent() -> None:
    async with serving() as server:
        faults = Faults(server.hub)
        async with client(server) as alice, client(server, "bob") as bob:
            await alice.ask("subscribe", topics=["a"], presence=False)
            faults.inject(Freeze(user="alice"))
            await alice.say("ping", ref="frozen")
            await bob.ask("publish", topic="a", data=1, ref="1")
            assert server.hub.stats.frames_in == 4
            faults.inject(Freeze(on=False))
            assert (await alice.receive())["type"] == "message"
            assert (await alice.receive())["ref"] == "frozen"
            faults.inject(Drop(user="alice"))
            assert (await alice.ended())[0] == 1006
            assert (await bob.ask("ping"))["type"] == "pong"


async def test_a_stream_can_be_cut_like_a_socket() -> None:
    rig = Rig()
    stream = await rig.client("alice", STREAM)
    Faults(rig.hub).inject(Drop())
    assert stream.sink.aborted
