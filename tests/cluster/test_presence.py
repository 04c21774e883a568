"""Presence on several nodes: each node sees all members, each change once, and no stale members."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PresenceChange, PubSubClient, users_of
from pubsub_server.backplanes.redis import wire
from pubsub_server.backplanes.redis.lease import Lease
from pubsub_server.shared.wall_clock import now_ms
from tests.cluster.fleet import BOUND, TIMEOUT, meeting, node_process, nodes, peer, present, stream
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from pubsub_server.shared.roster import MemberChange
    from tests.cluster.store import Store
    from tests.interop.peer import Json, Socket

TOPIC = "demo.room"


def changes(frames: list[Json]) -> list[tuple[str, str]]:
    """Return change and user of the presence messages among these frames."""
    found: list[tuple[str, str]] = []
    for frame in frames:
        message = frame.get("message", {})
        if message.get("type", "").startswith("presence."):
            found.append((message["type"].removeprefix("presence."), message["data"]["user_id"]))
    return found


async def change(socket: Socket, kind: str) -> Json:
    """Return the next change, which must be of this kind."""
    while True:
        frame = await socket.next()
        message = frame.get("message", {})
        if message.get("type", "").startswith("presence."):
            assert message["type"] == f"presence.{kind}", frame
            data: Json = message["data"]
            return data


async def snapshot(socket: Socket) -> list[Json]:
    members: list[Json] = (await socket.until("presence.snapshot"))["members"]
    return members


async def shown(socket: Socket, wanted: list[str]) -> None:
    """Read until the received snapshots and changes result in these users."""
    there: list[str] | None = None
    while there != wanted:
        frame = await socket.next()
        if frame["type"] == "presence.snapshot":
            there = users(frame["members"])
        elif there is not None:
            for kind, user in changes([frame]):
                if kind == "leave" and user in there:
                    there.remove(user)
                elif kind == "join" and user not in there:
                    there.append(user)


def users(members: list[Json]) -> list[Any]:
    return [member["user_id"] for member in members]


async def test_members_of_all_nodes_are_in_every_snapshot(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.token("ann", name="Ann")) as ann,
        peer(b, b.token("bob")) as bob,
        peer(b, b.token("eve")) as eve,
    ):
        await ann.subscribe(TOPIC)
        assert users(await snapshot(ann)) == ["ann"]
        await bob.subscribe(TOPIC)
        seen = await snapshot(bob)
        assert [(m["user_id"], m["name"], m["client_id"]) for m in seen] == [
            ("ann", "Ann", ann.client_id),
            ("bob", "bob", bob.client_id),
        ]
        assert all(m["last_seen"] >= m["joined_at"] > 0 for m in seen)
        await eve.subscribe("demo.*")
        assert users(await snapshot(eve)) == ["ann", "bob"]
        for node in (a, b):
            assert users(await present(node, TOPIC, node.token("ann"))) == ["ann", "bob"]
        async with stream(a, a.token("sam"), topics=TOPIC, presence="true") as events:
            listed = (await events.event("presence")).json["members"]
            assert users(listed) == ["ann", "bob", "sam"]


async def test_each_change_is_received_once_on_the_other_node(store: Store) -> None:
    async with meeting(store, there=["bob", "eve"]) as ((a, _), (bob, eve)):
        await bob.subscribe(TOPIC)
        await eve.subscribe("demo.*")
        await snapshot(bob)
        await snapshot(eve)
        async with peer(a, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            assert users(await snapshot(ann)) == ["bob", "ann"]
            await ann.send(
                {
                    "type": "presence.update",
                    "topic": TOPIC,
                    "data": {"status": "typing"},
                    "ref": "1",
                }
            )
            assert (await change(ann, "update"))["status"] == "typing"
            await ann.send({"type": "unsubscribe", "topics": [TOPIC], "ref": "2"})
            await ann.until("unsubscribed")
            for listener in (bob, eve):
                assert (await change(listener, "join"))["client_id"] == ann.client_id
                assert (await change(listener, "update"))["status"] == "typing"
                assert (await change(listener, "leave"))["client_id"] == ann.client_id
            assert changes(await ann.fence()) == []
        for listener in (bob, eve):
            assert changes(await listener.fence()) == []


async def test_an_event_stream_is_shown_the_list_when_it_changes_elsewhere(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        stream(b, b.token("sam"), topics=TOPIC) as events,
    ):
        assert (await events.event("presence")).json["members"] == []
        async with peer(a, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            listed = (await events.event("presence")).json["members"]
            assert [member["id"] for member in listed] == ["ann"]
        assert (await events.event("presence")).json["members"] == []


async def test_a_reconnect_to_another_node_within_the_grace_period_is_invisible(
    store: Store,
) -> None:
    async with meeting(store, there=["bob"], presence_grace=1_000) as ((a, b), (bob,)):
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        async with peer(a, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            joined = await change(bob, "join")
            await ann.send({"type": "presence.update", "topic": TOPIC, "data": {"mood": "gay"}})
            await change(bob, "update")
            ann.cut()
        await until(lambda: a.hub.core.connections.get(joined["client_id"]), None)
        async with peer(b, b.token("ann"), joined["client_id"]) as back:
            assert back.client_id == joined["client_id"]
            await back.subscribe(TOPIC)
            (again,) = [m for m in await snapshot(back) if m["user_id"] == "ann"]
            assert again["metadata"] == {"mood": "gay"}
            assert again["joined_at"] == joined["joined_at"]
            # The first node removes its member when the grace period is over.
            await until(lambda: a.hub.core.presence.client(joined["client_id"]), None)
            assert changes(await bob.fence()) == []
            assert users(await present(a, TOPIC, a.token("ann"))) == ["bob", "ann"]
            await back.send({"type": "presence.update", "topic": TOPIC, "data": {"n": 1}})
            update = await change(bob, "update")
            assert update["metadata"] == {"mood": "gay", "n": 1}
            assert update["joined_at"] == joined["joined_at"]


async def test_a_client_that_does_not_reconnect_leaves_after_the_grace_period(store: Store) -> None:
    async with meeting(store, there=["bob"]) as ((a, _), (bob,)):
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        async with peer(a, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            await change(bob, "join")
            ann.cut()
        assert (await change(bob, "leave"))["user_id"] == "ann"


async def test_a_user_cannot_resume_the_connection_of_another_user_on_another_node(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        peer(a, a.token("ann")) as ann,
        peer(b, b.token("eve"), ann.client_id) as eve,
        peer(b, b.token("ann", kind="agent"), ann.client_id) as agent,
    ):
        assert eve.client_id != ann.client_id
        assert agent.client_id != ann.client_id


async def test_a_client_that_is_on_another_node_by_now_loses_its_old_connection(
    store: Store,
) -> None:
    async with meeting(store, ["ann"], ["bob"]) as ((a, b), (ann, bob)):
        await ann.subscribe(TOPIC)
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        async with peer(b, b.token("ann"), ann.client_id) as back:
            await back.subscribe(TOPIC)
            assert await ann.closed() == 4409
            await until(lambda: a.hub.core.presence.client(ann.client_id), None)
            assert changes(await bob.fence()) == []
            # Then move back immediately.
            async with peer(a, a.token("ann"), ann.client_id) as again:
                await again.subscribe(TOPIC)
                assert await back.closed() == 4409
                assert users(await snapshot(again)) == ["ann", "bob"]
                await until(lambda: b.hub.core.presence.client(ann.client_id), None)
                await again.fence()
                assert changes(await bob.fence()) == []


async def test_a_node_that_dies_leaves_no_ghosts(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store) as (a, b),
        node_process(store) as doomed,
        peer(a, a.token("bob")) as bob,
        peer(b, b.token("eve")) as eve,
    ):
        await bob.subscribe(TOPIC)
        await eve.subscribe("demo.*")
        await snapshot(bob)
        await snapshot(eve)
        async with peer(doomed, a.token("ann")) as ann, peer(doomed, a.token("sam")) as sam:
            await ann.subscribe(TOPIC, "demo.other")
            await sam.subscribe(TOPIC)
            await change(bob, "join")
            await change(bob, "join")
            # A client that reconnects to another node in time does not leave.
            async with peer(b, b.token("sam"), sam.client_id) as moved:
                await doomed.end(signal.SIGKILL)
                await moved.subscribe(TOPIC)
                assert (await change(bob, "leave"))["client_id"] == ann.client_id
                await until(lambda: _beating(store), 2)
                assert changes(await bob.fence()) == []
                received = [each for each in changes(await eve.fence()) if each[0] == "leave"]
                assert received == [("leave", "ann"), ("leave", "ann")]
                for node in (a, b):
                    assert users(await present(node, TOPIC, node.token("x"))) == ["bob", "sam"]


async def test_a_live_node_that_was_removed_returns_with_its_members(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (a,),
        node_process(store) as sleepy,
        peer(a, a.token("bob")) as bob,
        peer(sleepy, a.token("ann")) as ann,
    ):
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        await ann.subscribe(TOPIC)
        await change(bob, "join")
        sleepy.stall()
        await change(bob, "leave")
        sleepy.go_on()
        assert (await change(bob, "join"))["client_id"] == ann.client_id
        await ann.send({"type": "presence.update", "topic": TOPIC, "data": {"status": "here"}})
        assert (await change(bob, "update"))["status"] == "here"
        assert users(await present(a, TOPIC, a.token("bob"))) == ["bob", "ann"]


@pytest.mark.parametrize("stalls", [False, True])
async def test_members_outlast_an_outage_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, stalls: bool
) -> None:
    # A store that stalls executes all copies of repeated calls afterwards.
    monkeypatch.setattr(wire, "ANSWER_WITHIN", 0.5)
    async with meeting(store, ["ann", "sam"], ["bob"]) as ((a, b), (ann, sam, bob)):
        await ann.subscribe(TOPIC)
        await sam.subscribe(TOPIC)
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        names = {node.hub.core.backplane._lease.node for node in (a, b)}  # type: ignore[attr-defined]
        if stalls:
            store.stall()
        else:
            await store.end()
        # Changes during the outage are reported when the store is back.
        await sam.send({"type": "unsubscribe", "topics": [TOPIC], "ref": "1"})
        await sam.until("unsubscribed")
        # The leases of the nodes run out meanwhile: the subject is time.
        await asyncio.sleep(TIMEOUT / 1000)
        if stalls:
            store.go_on()
        else:
            await store.start()
        await until(lambda: _names(a, b).isdisjoint(names))
        await until(lambda: _users(b), ["ann", "bob"])
        await shown(bob, ["ann", "bob"])


async def test_a_store_that_lost_its_data_gets_the_members_again(store: Store) -> None:
    async with meeting(store, ["ann"], ["bob"]) as ((a, b), (ann, bob)):
        await ann.subscribe(TOPIC)
        await bob.subscribe(TOPIC)
        async with store.client() as redis:
            await redis.flushall()
        await until(lambda: _users(a), ["ann", "bob"])
        await until(lambda: _users(b), ["ann", "bob"])


async def test_a_node_that_starts_on_an_emptied_store_recognizes_the_clients_of_the_others(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1) as (a,):
        lease: Any = a.hub.core.backplane._lease  # type: ignore[attr-defined]
        # With its second heartbeat, a node has initialized the store.
        await until(lambda: bool(lease.last_heartbeat))
        first = lease.last_heartbeat
        await until(lambda: bool(lease.last_heartbeat > first))
        async with store.client() as redis:
            await redis.flushall()
            await until(lambda: redis.exists("hanzo-pubsub:{0}:layout"), 1)
        async with peer(a, a.token("ann")) as ann, nodes(store, 1) as (b,):
            client_id = ann.client_id
            ann.cut()
            async with peer(b, b.token("ann"), client_id) as back:
                assert back.client_id == client_id


@pytest.mark.parametrize("by", [TOPIC, "demo.*"])
async def test_members_of_a_node_that_dies_as_the_store_forgets_everything_are_shown_gone(
    store: Store, by: str
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (a,),
        node_process(store) as doomed,
        peer(a, a.token("bob")) as bob,
        peer(a, a.token("sam")) as sam,
    ):
        await sam.subscribe(TOPIC)
        await bob.subscribe(by)
        assert "sam" in users(await snapshot(bob))
        async with peer(doomed, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            assert (await change(bob, "join"))["user_id"] == "ann"
            await doomed.end(signal.SIGKILL)
            async with store.client() as redis:
                await redis.flushall()
        there = {"ann", "sam"}
        while "ann" in there:
            frame = await bob.next()
            if frame["type"] == "presence.snapshot":
                there = set(users(frame["members"]))
            for kind, user in changes([frame]):
                (there.add if kind == "join" else there.discard)(user)
        # Members that are connected stay.
        assert "sam" in there
        wanted = {"bob", "sam"} if by == TOPIC else {"sam"}

        async def there_now() -> set[Any]:
            return set(await _users(a))

        await until(there_now, wanted)


async def test_members_of_a_node_that_dies_before_its_next_beat_on_an_emptied_store_leave(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (a,),
        node_process(store, node_heartbeat=60_000, node_timeout=120_000) as doomed,
        peer(a, a.token("bob")) as bob,
    ):
        await bob.subscribe(TOPIC)
        await until(lambda: _beating(store), 2)
        async with store.client() as redis:
            await redis.flushall()
        await until(lambda: _beating(store), 1)
        async with peer(doomed, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            await until(lambda: _users(a), ["bob", "ann"])
            await doomed.end(signal.SIGKILL)
        while ("leave", "ann") not in changes([await bob.next()]):
            pass
        assert await _users(a) == ["bob"]
        # No node is left to look for.
        await until(lambda: _owners(store), _names(a))


@pytest.mark.parametrize("pattern", [TOPIC, "demo.*"])
async def test_members_of_a_node_that_dies_before_the_store_is_emptied_leave(
    store: Store, pattern: str
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1) as (a,),
        node_process(store, node_heartbeat=60_000, node_timeout=120_000) as doomed,
        peer(a, a.token("bob")) as bob,
    ):
        await bob.subscribe(pattern)
        async with peer(doomed, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            while ("join", "ann") not in changes([await bob.next()]):
                pass
            await doomed.end(signal.SIGKILL)
        async with store.client() as redis:
            await redis.flushall()
        while "ann" in users(await snapshot(bob)):
            pass


async def _beating(store: Store) -> int:
    async with store.client() as redis:
        return len(await redis.zrange("hanzo-pubsub:{0}:nodes", 0, -1))


async def _owners(store: Store) -> set[str]:
    async with store.client() as redis:
        keys = await redis.keys("hanzo-pubsub:*:o")
        return {name.decode() for key in keys for name in await redis.zrange(key, 0, -1)}


async def test_changes_that_a_cut_connection_missed_are_shown(store: Store) -> None:
    async with meeting(store, there=["bob"]) as ((a, b), (bob,)):
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        feed: Any = b.hub.core.backplane._feed._lanes[0]  # type: ignore[attr-defined]
        receive = feed._receive
        feed._receive = len
        async with peer(a, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            await until(lambda: _users(b), ["bob", "ann"])
            feed._receive = receive
            async with store.client() as redis:
                await redis.client_kill_filter(_type="pubsub")
            assert users(await snapshot(bob)) == ["bob", "ann"]


async def test_the_members_of_a_topic_are_limited_over_all_nodes(store: Store) -> None:
    members = {"here": ["ann"], "there": ["bob", "eve"]}
    async with meeting(store, **members, presence_max_members=2) as (_, (ann, bob, eve)):
        for each in (ann, bob, eve):
            await each.subscribe(TOPIC)
        assert users(await snapshot(eve)) == ["ann", "bob"]
        await eve.send({"type": "unsubscribe", "topics": [TOPIC], "ref": "1"})
        await eve.until("unsubscribed")
        assert ("leave", "eve") not in changes(await ann.fence())


async def test_a_node_is_notified_only_of_topics_that_its_clients_use(
    store: Store,
) -> None:
    async with meeting(store, ["ann"], ["bob"]) as ((_, b), (ann, bob)):
        received: list[str] = []
        attendance: Any = b.hub.attendance
        receive = attendance.received

        def listen(reported: MemberChange) -> None:
            received.append(reported.topic)
            receive(reported)

        attendance.received = listen
        await bob.subscribe("demo.mine")
        await ann.subscribe("demo.theirs")
        await ann.subscribe("demo.mine")
        await change(bob, "join")
        assert set(received) == {"demo.mine"}


def _names(*all: Any) -> set[str]:
    return {node.hub.core.backplane._lease.node for node in all}


async def _users(node: Any) -> list[Any]:
    try:
        return users(await present(node, TOPIC, node.token("x")))
    except AssertionError:
        return []


async def test_a_user_with_connections_to_two_nodes_leaves_with_the_last_one(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, presence_grace=0) as (a, b),
        PubSubClient(b.ws, b.token("bob"), rest_url=b.http) as bob,
    ):
        seen: asyncio.Queue[PresenceChange] = asyncio.Queue()
        watching = await bob.subscribe(TOPIC, on_presence=seen.put_nowait)
        assert (await seen.get()).change == "snapshot"
        async with PubSubClient(b.ws, b.token("ann"), rest_url=b.http) as here:
            await here.subscribe(TOPIC, on_message=print)
            assert (await seen.get()).change == "join"
            async with PubSubClient(a.ws, a.token("ann"), rest_url=a.http) as there:
                await there.subscribe(TOPIC, on_message=print)
                change = await seen.get()
                assert (change.change, len(change.members)) == ("connect", 3)
                assert [user.user_id for user in users_of(change.members)] == ["bob", "ann"]
                own = there.client_id
            change = await seen.get()
            assert change.member is not None
            assert (change.change, change.member.client_id) == ("disconnect", own)
            assert [user.user_id for user in users_of(change.members)] == ["bob", "ann"]
        change = await seen.get()
        assert change.member is not None
        assert (change.change, change.member.user_id) == ("leave", "ann")
        assert seen.empty()
        await watching.unsubscribe()


async def test_a_client_moves_from_a_node_whose_clock_is_ahead_or_was_set_back(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as (a, b):
        core: Any = a.hub.core
        await until(lambda: bool(core.backplane._lease.last_heartbeat))
        # The clock of messages never goes back, so it is ahead for a while after this.
        wall, core.wall = core.wall, lambda: wall() + 3_600_000
        async with peer(a, a.token("ann")) as ann:
            await ann.subscribe(TOPIC)
            assert users(await snapshot(ann)) == ["ann"]
            ann.cut()
        async with peer(b, b.token("ann"), ann.client_id) as back:
            await back.subscribe(TOPIC)
            assert users(await snapshot(back)) == ["ann"]
            await until(lambda: a.hub.core.connections, {})
            await back.fence()
            found = await b.hub.core.backplane.roster.read([TOPIC])  # type: ignore[attr-defined]
            assert [held for held, _ in found.members[TOPIC].values()] == [True]


async def test_a_connection_whose_late_join_finds_a_newer_one_at_another_node_ends(
    store: Store,
) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as (a, b):
        core: Any = a.hub.core
        (lane,) = core.roster._lanes
        perform, free = lane._perform, asyncio.Event()

        async def perform_late(call: object) -> bool:
            await free.wait()
            return bool(await perform(call))

        lane._perform = perform_late
        async with peer(a, a.token("ann")) as ann:
            core.connections[ann.client_id].steady_since -= 1_000
            await ann.send({"type": "subscribe", "topics": [TOPIC], "ref": "1"})
            await until(lambda: len(core.presence), 1)
            async with peer(b, b.token("ann"), ann.client_id) as back:
                await back.subscribe(TOPIC)
                assert users(await snapshot(back)) == ["ann"]
                free.set()
                assert await ann.closed() == 4409
                await back.fence()


async def test_a_connection_whose_client_moves_before_its_join_is_answered_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), nodes(store) as (a, b):
        core: Any = a.hub.core
        link, attendance = core.backplane._link, core.roster._audience
        call, receive = link.call, attendance.received
        joined, answered, moved = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def call_slowly(name: str, *given: Any, **more: Any) -> Any:
            answer = await call(name, *given, **more)
            if name == "members.lua":
                joined.set()
                await answered.wait()
            return answer

        def received(change: MemberChange) -> None:
            receive(change)
            if change.change == "move":
                moved.set()

        monkeypatch.setattr(link, "call", call_slowly)
        monkeypatch.setattr(attendance, "received", received)
        async with peer(a, a.token("ann")) as ann:
            await ann.send({"type": "subscribe", "topics": [TOPIC], "ref": "1"})
            await joined.wait()
            await core.roster.wait_joined((), [TOPIC])
            async with peer(b, b.token("ann"), ann.client_id) as back:
                await back.subscribe(TOPIC)
                await moved.wait()
                answered.set()
                assert await ann.closed() == 4409
                await back.fence()


async def test_a_client_moves_from_a_node_that_accepted_it_before_its_first_heartbeat(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), nodes(store, 1) as (b,), AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(Lease, "_beat", asyncio.Event().wait)
            (a,) = await stack.enter_async_context(nodes(store, 1))
        # The clock of this machine is an hour ahead.
        core: Any = a.hub.core
        monkeypatch.setattr(core.backplane._lease.clock, "_wall", lambda: now_ms() + 3_600_000)
        ann = await stack.enter_async_context(peer(a, a.token("ann")))
        await ann.subscribe(TOPIC)
        assert users(await snapshot(ann)) == ["ann"]
        async with peer(b, b.token("ann"), ann.client_id) as back:
            await back.subscribe(TOPIC)
            assert users(await snapshot(back)) == ["ann"]
            assert await ann.closed() == 4409
            await back.fence()
