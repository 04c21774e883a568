"""Repeated or late messages of a node, for connections that already have them from a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from pubsub_server.backplane import Entry
from pubsub_server.hub import floors
from pubsub_server.shared.requests import Draft
from tests.server.hub.test_far_backplane import FarBackplane
from tests.server.hub_rig import START_MS, Rig

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pubsub_server.backplane import Replay
    from tests.server.hub_rig import Peer

TOPIC = "demo.x"


class Unsure(FarBackplane):
    """A backplane that does not know which replayed messages it will still deliver."""

    def __init__(self) -> None:
        super().__init__(lambda: START_MS)
        self.gate.set()

    def replay(self, *given: Any, **more: Any) -> Awaitable[Replay]:  # type: ignore[override]
        later = super().replay(*given, **more)

        async def unsure() -> Replay:
            found = await later
            return replace(found, floors=found.positions)

        return unsure()

    def put(self, topic: str = TOPIC) -> int:
        """Publish, and return the position."""
        drafts = [Draft(topic, "t", b"1", None, None, None)]
        (answer,) = self.append(drafts, ("user", "u"))
        seq = getattr(answer, "seq", None)
        assert isinstance(seq, int)
        return seq


def entry(seq: int, topic: str = TOPIC) -> Entry:
    body = {"topic": topic, "id": f"m{seq}", "type": "t", "seq": seq}
    return Entry(topic, f"m{seq}", START_MS, seq, START_MS + 1_000, orjson.dumps(body))


async def subscribe(rig: Rig, peer: Peer, *topics: str) -> None:
    peer.say("subscribe", topics=list(topics), presence=False)
    await rig.settle()
    peer.read()


def received(peer: Peer) -> list[int]:
    return [each["seq"] for each in peer.messages()]


async def test_what_a_replay_included_is_not_delivered_again() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    alice, bob = await rig.client("alice"), await rig.client("bob")
    await subscribe(rig, alice, "demo.*")
    seq = backplane.put()
    assert received(alice) == [seq]
    await subscribe(rig, bob, TOPIC)
    for each in (seq, seq + 1, seq + 2):
        rig.hub.deliver(entry(each))
    assert received(alice) == [seq, seq + 1, seq + 2]
    assert received(bob) == [seq + 1, seq + 2]
    assert len(rig.hub.core.floors) == 0


async def test_a_message_without_a_position_goes_to_everyone() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    seq = backplane.put()
    await subscribe(rig, bob, TOPIC)
    passing = entry(seq)
    passing.seq = None
    rig.hub.deliver(passing)
    assert len(bob.messages()) == 1


async def begin(rig: Rig, backplane: Unsure, *topics: str) -> Peer:
    """Create a connection whose replay is being read."""
    backplane.gate.clear()
    peer = await rig.client("bob")
    peer.say("subscribe", topics=list(topics), presence=False)
    return peer


async def finish(rig: Rig, backplane: Unsure) -> None:
    backplane.gate.set()
    await rig.settle()


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_what_comes_during_a_replay_follows_it_unless_it_is_part_of_it(pattern: str) -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    seq = backplane.put()
    bob = await begin(rig, backplane, pattern)
    for each in (seq - 1, seq, seq + 1):
        rig.hub.deliver(entry(each))
    assert bob.read() == []
    await finish(rig, backplane)
    answer, *live = bob.read()
    assert answer["positions"] == {TOPIC: seq}
    assert [frame["message"]["seq"] for frame in live] == [seq + 1]


async def test_an_older_subscription_does_not_wait_for_the_replay_of_a_newer_one() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    seq = backplane.put()
    bob = await begin(rig, backplane, "demo.*")
    await finish(rig, backplane)
    bob.read()
    backplane.gate.clear()
    bob.say("subscribe", topics=[TOPIC], presence=False)
    rig.hub.deliver(entry(seq + 1))
    await finish(rig, backplane)
    assert [frame["type"] for frame in bob.read()] == ["subscribed", "message"]


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_a_repeated_subscription_replays_what_still_comes_to_the_first(pattern: str) -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    await subscribe(rig, bob, pattern)
    seq = backplane.put()
    bob.read()
    backplane.gate.clear()
    bob.say("subscribe", topics=[pattern], history=10, presence=False)
    rig.hub.deliver(entry(seq))
    await finish(rig, backplane)
    rig.hub.deliver(entry(seq + 1))
    answer, *live = bob.read()
    assert [each["seq"] for each in answer["history"]] == [seq]
    assert [frame["message"]["seq"] for frame in live] == [seq, seq + 1]


async def test_a_repeated_subscription_whose_replay_fails_stays_in_force() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    await subscribe(rig, bob, TOPIC)
    backplane.failing = True
    bob.say("subscribe", topics=[TOPIC], history=10, presence=False)
    await rig.settle()
    assert bob.read_one("error")["code"] == "unavailable"
    rig.hub.deliver(entry(backplane.put() + 1))
    assert len(received(bob)) == 2


async def test_a_topic_that_a_connection_may_not_read_any_more_does_not_follow_its_replay() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    seq = backplane.put()
    bob = await begin(rig, backplane, TOPIC)
    rig.hub.deliver(entry(seq + 1))
    rig.hub.subscriptions.drop(bob.connection, TOPIC)
    await finish(rig, backplane)
    assert [frame["type"] for frame in bob.read()] == ["subscribed"]


async def test_a_connection_for_which_too_much_waits_during_its_replay_is_ended() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane, send_queue_bytes=65_536)
    seq = backplane.put()
    bob = await begin(rig, backplane, TOPIC)
    large = entry(seq + 1)
    large.body = b" " * 40_000
    rig.hub.deliver(large)
    assert bob.ending() is None
    rig.hub.deliver(large)
    bob.read()
    assert bob.ending() == (4500, "slow_consumer")
    await finish(rig, backplane)


async def test_nothing_is_kept_for_a_connection_that_is_gone() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob, carol = await rig.client("bob"), await rig.client("carol")
    for name in ("demo.x", "demo.y"):
        backplane.put(name)
    await subscribe(rig, bob, "demo.*")
    await subscribe(rig, carol, "demo.x")
    kept = rig.hub.core.floors
    assert len(kept) == 3
    bob.close()
    assert len(kept) == 1
    carol.close()
    assert kept.idle


async def test_nothing_is_kept_for_a_connection_that_leaves_during_its_replay() -> None:
    backplane = Unsure()
    backplane.gate.clear()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    backplane.put()
    bob.say("subscribe", topics=[TOPIC], presence=False)
    assert not rig.hub.core.floors.idle
    bob.close()
    backplane.gate.set()
    await rig.settle()
    assert rig.hub.core.floors.idle


async def test_nothing_is_kept_for_a_replay_that_failed() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    backplane.failing = True
    bob.say("subscribe", topics=[TOPIC], presence=False)
    await rig.settle()
    assert bob.read_one("error")["code"] == "unavailable"
    assert rig.hub.core.floors.idle


async def test_the_topics_that_were_silent_longest_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(floors, "FLOORS_MAX", 2)
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    seqs = {name: backplane.put(name) for name in ("demo.x", "demo.y", "demo.z")}
    for name in seqs:
        await subscribe(rig, bob, name)
    for name, seq in seqs.items():
        rig.hub.deliver(entry(seq, name))
    assert [each["topic"] for each in bob.messages()] == ["demo.x"]


async def test_a_replay_that_fails_ends_the_subscription_however_many_there_are() -> None:
    backplane = Unsure()
    rig = Rig(backplane=backplane)
    bob = await rig.client("bob")
    older = [f"demo.t{n}" for n in range(20)]
    await subscribe(rig, bob, *older)
    backplane.failing = True
    bob.say("subscribe", topics=[TOPIC], presence=False)
    await rig.settle()
    assert bob.read_one("error")["code"] == "unavailable"
    assert list(bob.connection.patterns) == older
