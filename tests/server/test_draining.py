"""Shutdown: connections close at different times, after pending publishes are answered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.backplane import Published
from pubsub_server.backplanes.memory import MemoryBackplane
from pubsub_server.errors import ServiceError
from pubsub_server.settings.config import Settings
from pubsub_server.shared.requests import Draft
from pubsub_server.testing import running_server
from tests.cluster.waiting import until
from tests.server.hub_rig import START_MS, Peer, Rig
from tests.server.test_history import memory_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pubsub_server.backplane import Origin

HOUR = 3600.0


class Slow(MemoryBackplane):
    """Answers a publish when its gate opens."""

    def __init__(self) -> None:
        store = memory_store()
        super().__init__(store, lambda: START_MS)
        self.gate = asyncio.Event()

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        async def later() -> None:
            await self.gate.wait()
            done(self.append(drafts, sender))

        self.answering = asyncio.ensure_future(later())


def ended(peers: Sequence[Peer]) -> int:
    return sum(peer.ending() is not None for peer in peers)


async def test_connections_end_one_after_the_other_and_hurry_ends_the_rest() -> None:
    rig = Rig()
    peers = [await rig.client(f"u{n}") for n in range(10)]
    hurry = asyncio.Event()
    async with asyncio.timeout(60):
        draining = asyncio.create_task(rig.hub.drain(2 * HOUR, HOUR, hurry))
        await until(lambda: ended(peers), 1)
        first = next(peer for peer in peers if peer.ending() is not None)
        with pytest.raises(ServiceError, match="shutting down"):
            rig.stranger()
        hurry.set()
        await draining
    assert {peer.ending() for peer in peers} == {(1001, "going_away")}
    errors = [peer.read()[-1] for peer in peers if peer is not first]
    assert {error["code"] for error in errors} == {"going_away"}
    waits = sorted(error["retry_after_ms"] for error in errors)
    # Each client gets the remaining part of its share of the hour as the wait.
    assert all(abs(wait - 360_000 * (n + 1)) < 10_000 for n, wait in enumerate(waits))
    assert "retry_after_ms" not in first.read()[-1]


async def test_a_drain_takes_no_longer_than_its_time() -> None:
    rig = Rig()
    peers = [await rig.client(f"u{n}") for n in range(4)]
    async with asyncio.timeout(60):
        await rig.hub.drain(0.1, HOUR)
    assert {peer.ending() for peer in peers} == {(1001, "going_away")}


async def test_a_drain_without_connections_ends_immediately() -> None:
    async with asyncio.timeout(60):
        await Rig().hub.drain(HOUR, HOUR)


async def test_a_publish_under_way_is_answered_before_its_connection_ends() -> None:
    backplane = Slow()
    rig = Rig(backplane=backplane)
    alice = await rig.client("alice")
    alice.publish("a", 1)
    alice.say("publish", ref="7", message={"topic": "a", "type": "t", "data": 2})
    async with asyncio.timeout(60):
        draining = asyncio.create_task(rig.hub.drain(HOUR))
        await until(lambda: alice.sink.holds[-1:], [True])
        assert alice.ending() is None
        backplane.gate.set()
        await draining
    answer, error = alice.read()
    assert (answer["type"], answer["ref"], error["code"]) == ("published", "7", "going_away")
    assert alice.ending() == (1001, "going_away")


async def test_a_draining_server_rejects_publishes_that_would_be_lost() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    hurry = asyncio.Event()
    draft = Draft("a", "t", b"1", None, None, None)
    async with asyncio.timeout(60):
        draining = asyncio.create_task(rig.hub.drain(2 * HOUR, HOUR, hurry))
        await until(lambda: ended([alice, bob]), 1)
        # The server stops reading from open connections, so it acknowledges nothing more.
        assert [each.sink.holds[-1:] for each in (alice, bob)] == [[True], [True]]
        (answer,) = await rig.hub.publish(Identity("carol", "service"), [draft])
        hurry.set()
        await draining
    assert isinstance(answer, ServiceError)
    assert answer.code == "going_away"


async def test_publishes_to_a_store_are_accepted_until_the_server_ends() -> None:
    backplane = Slow()
    backplane.lasting = True
    backplane.gate.set()
    rig = Rig(backplane=backplane)
    async with asyncio.timeout(60):
        await rig.hub.drain(1)
        draft = Draft("a", "t", b"1", None, None, None)
        (answer,) = await rig.hub.publish(Identity("carol", "service"), [draft])
    assert isinstance(answer, Published)


class Ending(MemoryBackplane):
    """Records the calls at the shutdown of all nodes."""

    lasting = True

    def __init__(self, asked: list[str]) -> None:
        super().__init__(memory_store(), lambda: START_MS)
        self._asked = asked

    async def finish_writing(self) -> None:
        self._asked.append("finish_writing")

    async def deliver_rest(self) -> None:
        self._asked.append("deliver_rest")


async def test_nodes_that_end_together_stop_publishing_before_any_closes_its_listeners() -> None:
    asked: list[str] = []
    rig = Rig(backplane=Ending(asked))
    alice = await rig.client("alice")
    draft = Draft("a", "t", b"1", None, None, None)

    async def meet() -> None:
        (answer,) = await rig.hub.publish(Identity("carol", "service"), [draft])
        assert isinstance(answer, ServiceError)
        assert answer.code == "going_away"
        assert alice.sink.holds[-1:] == [True]
        assert alice.ending() is None
        asked.append("meet")

    await rig.hub.conclude(meet)
    assert asked == ["finish_writing", "meet", "deliver_rest"]
    assert alice.ending() is None
    await rig.hub.drain(1)
    assert alice.ending() == (1001, "going_away")


async def test_a_publish_that_waits_behind_auth_is_not_acknowledged_after_the_end_begins() -> None:
    rig = Rig()
    rig.people.gate = gate = asyncio.Event()
    bob = rig.stranger()
    bob.say("auth", token="bob")
    bob.say("publish", ref="1", message={"topic": "a", "type": "t", "data": 1})

    async def meet() -> None:
        gate.set()
        await rig.settle()

    async with asyncio.timeout(60):
        await rig.hub.conclude(meet)
        await rig.hub.drain(1)
    assert [frame["type"] for frame in bob.read()] == ["auth.ok", "error"]
    assert bob.ending() == (1001, "going_away")
    assert rig.hub.stats.published == 0


async def test_a_store_that_does_not_answer_holds_up_the_end_for_its_time_only() -> None:
    rig = Rig(backplane=Slow())
    alice = await rig.client("alice")
    alice.publish("a", 1)
    async with asyncio.timeout(60):
        await rig.hub.drain(0.05)
    assert alice.ending() == (1001, "going_away")


def test_nodes_on_a_store_spread_the_ends_and_one_alone_does_not() -> None:
    assert Settings().spread == 0
    assert Settings.model_validate({"redis_url": "redis://x"}).spread == 3_000
    assert Settings.model_validate({"drain_spread": "7s"}).spread == 7_000


@pytest.mark.parametrize("door", ["ws", "http"])
@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_accepted_during_the_drain_does_not_hang(door: str, turns: int) -> None:
    async with running_server(drain_timeout=0) as server:
        address = urlsplit(getattr(server, door))
        client = socket.create_connection((address.hostname, address.port))
        # The event loop needs some turns to pass a new connection to the server.
        for _ in range(turns):
            await asyncio.sleep(0)
    with client:
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(60):
                while await loop.sock_recv(client, 4096):
                    pass
