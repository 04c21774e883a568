from __future__ import annotations

import asyncio

import pytest

from pubsub_server.errors import ServiceError
from tests.server.hub_rig import Rig


async def test_a_silent_client_is_pinged_and_then_given_up() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a")
    for _ in range(20):
        rig.advance(1)
        rig.hub.touch(bob.connection)
        bob.read()
    assert alice.pings == 0
    alice.read()
    assert alice.pings == 1
    assert bob.pings == 0
    rig.advance(9.9)
    assert alice.ending() is None
    rig.hub.touch(bob.connection)
    rig.advance(0.4)
    assert alice.read_one("error")["code"] == "idle_timeout"
    assert alice.ending() == (4408, "idle_timeout")
    await asyncio.sleep(0)
    assert bob.presence() == [("presence.leave", "alice")]


async def test_any_byte_counts_as_a_heartbeat() -> None:
    rig = Rig(program_timeout=0)
    alice = await rig.client("alice")
    for _ in range(20):
        rig.advance(16)
        rig.hub.touch(alice.connection)
    assert alice.ending() is None


async def test_a_pause_of_the_server_ends_no_client_that_answers_afterwards() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    for peer in (alice, bob):
        peer.subscribe("a")
        peer.read()
    rig.now += 300
    rig.hub.core.wheel.run()
    rig.hub.touch(alice.connection)
    alice.say("ping")
    rig.advance(14)
    assert (alice.ending(), bob.ending()) == (None, None)
    rig.hub.touch(alice.connection)
    rig.advance(2)
    bob.read()
    assert (alice.ending(), bob.ending()) == (None, (4408, "idle_timeout"))
    assert bob.pings == 1


async def test_a_silent_connection_that_ends_for_its_token_is_forgotten() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    rig.now += 300
    rig.hub.core.wheel.run()
    assert len(rig.hub.admission._doubted) == 1
    rig.hub.admission.expire_in(alice.connection, 0)
    rig.advance(0.2)
    assert alice.ending() == (4401, "token_expired")
    assert not rig.hub.admission._doubted


async def test_a_socket_that_answers_for_a_program_that_hangs_is_given_up() -> None:
    rig = Rig()
    hangs, hidden = await rig.client("alice"), await rig.client("bob")
    hangs.subscribe("a")
    hidden.subscribe("a")
    for second in range(119):
        rig.advance(1)
        for peer in (hangs, hidden):
            rig.hub.touch(peer.connection)
        if second % 60 == 59:
            # In a hidden tab, timers run once a minute.
            hidden.say("ping")
    assert hangs.ending() is None
    hidden.read()
    for _ in range(20):
        rig.advance(1)
        for peer in (hangs, hidden):
            rig.hub.touch(peer.connection)
    error = hangs.read()[-1]
    assert error["code"] == "idle_timeout"
    assert "the client sent no frame for 120 s" in error["message"]
    assert hangs.ending() == (4408, "idle_timeout")
    assert hidden.ending() is None
    await asyncio.sleep(0)
    assert hidden.presence() == [("presence.leave", "alice")]


async def test_a_slow_consumer_is_cut_with_a_reason_and_catches_up_from_history() -> None:
    rig = Rig(send_queue_bytes=10_000)
    slow, quick = await rig.client("slow"), await rig.client("quick")
    first = slow.subscribe("a", presence=False)
    quick.subscribe("a", presence=False)
    slow.read()
    rig.hub.pause(slow.connection)
    for number in range(50):
        quick.publish("a", str(number) * 300)
        rig.hub.core.delivery.flush()
    assert len(quick.messages()) == 50
    assert slow.read_one("error")["code"] == "slow_consumer"
    assert slow.ending() == (4500, "slow_consumer")
    assert rig.hub.stats.slow_consumers == 1
    again = await rig.client("slow")
    history = again.subscribe("a", since=first["timestamp"])["history"]
    assert len(history) == 50


async def test_draining_closes_connections_and_accepts_nothing_new() -> None:
    rig = Rig()
    alice, stranger = await rig.client("alice"), rig.stranger()
    alice.subscribe("a")
    alice.publish("a", 1)
    await rig.hub.drain(1)
    for peer in (alice, stranger):
        assert peer.ending() == (1001, "going_away")
    frames = alice.read()
    assert [f["type"] for f in frames if f["type"] != "presence.snapshot"] == ["message", "error"]
    with pytest.raises(ServiceError) as caught:
        rig.stranger()
    assert caught.value.code == "going_away"


async def test_a_connection_that_is_gone_leaves_nothing_behind() -> None:
    rig = Rig(presence_grace=0)
    for number in range(10):
        peer = await rig.client(f"u{number}")
        peer.subscribe("a", "b.*", "c")
        peer.close()
    stats, core = rig.hub.stats, rig.hub.core
    assert (stats.connections, stats.authenticated, stats.subscriptions) == ({"socket": 0}, 0, 0)
    assert (len(core.router), len(core.presence), core.connections) == (0, 0, {})
    assert not rig.hub._open
    rig.advance(60)
    assert sum(map(len, core.wheel._buckets.values())) == 1, "only the hub itself"


async def test_a_connection_that_ends_while_its_token_is_checked_is_forgotten() -> None:
    rig = Rig()
    rig.people.gate = asyncio.Event()
    peer = rig.stranger()
    peer.say("auth", token="alice")
    await asyncio.sleep(0)
    peer.close()
    rig.people.gate.set()
    await rig.settle()
    assert peer.read() == []
    assert rig.hub.core.connections == {}
    for _ in range(rig.settings.connections_per_user):
        await rig.client("alice")
