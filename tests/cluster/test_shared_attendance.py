"""The members that a connection sees while the store is read, fails, or answers late."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.errors import ServiceError
from pubsub_server.hub import large_subscriptions, shared_attendance, stream_pace
from pubsub_server.hub.attendance import snapshot_bytes
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.shared import member_lists, turns
from pubsub_server.shared.connection import PAUSED
from pubsub_server.shared.roster import MemberChange, Present
from tests.cluster.fleet import BOUND, meeting, peer, stream
from tests.cluster.test_presence import TOPIC, change, changes, snapshot, users
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from pubsub_server.auth.identity import Identity
    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store
    from tests.interop.peer import Json, Socket

    Read = Callable[[Sequence[str]], Awaitable[Present]]

OTHER = "demo.other"


class Reading:
    """Delays the reads of a node's attendance, before or after the call to the store."""

    def __init__(self, node: RunningServer) -> None:
        attendance: Any = node.hub.attendance
        self.attendance = attendance
        self._read: Read = attendance._roster.read
        attendance._roster.read = self.read
        self.begun = asyncio.Event()
        self.before = asyncio.Event()
        self.after = asyncio.Event()
        self.failures = 0
        self.at = 0
        self.open()

    def open(self) -> None:
        self.before.set()
        self.after.set()

    async def read(self, topics: Sequence[str]) -> Present:
        if self.failures:
            self.failures -= 1
            raise ServiceError("unavailable", "away")
        await self._pass(self.before)
        found = await self._read(topics)
        self.at = max(found.at.values(), default=0)
        await self._pass(self.after)
        return found

    async def _pass(self, gate: asyncio.Event) -> None:
        if not gate.is_set():
            self.begun.set()
            await gate.wait()


@asynccontextmanager
async def one(store: Store) -> AsyncGenerator[tuple[RunningServer, Reading, Socket, Socket]]:
    """Run a node with two clients: one that watches, and one that joins and leaves."""
    async with (
        asyncio.timeout(BOUND),
        meeting(store, ["bob", "ann"]) as ((node, _), (bob, ann)),
    ):
        yield node, Reading(node), bob, ann


async def test_a_client_learns_of_its_own_leave_by_a_pattern(
    store: Store,
) -> None:
    async with one(store) as (_, _, bob, ann):
        await bob.subscribe(TOPIC)
        await ann.subscribe("demo.*")
        await ann.subscribe(TOPIC)
        await ann.send({"type": "unsubscribe", "topics": [TOPIC], "ref": "1"})
        await ann.until("unsubscribed")
        assert (await change(bob, "join"))["user_id"] == "ann"
        assert (await change(bob, "leave"))["user_id"] == "ann"
        assert (await change(ann, "leave"))["user_id"] == "ann"
        await ann.send({"type": "unsubscribe", "topics": ["demo.*"], "ref": "2"})
        await ann.until("unsubscribed")
        await ann.subscribe(TOPIC)
        await ann.send({"type": "unsubscribe", "topics": [TOPIC], "ref": "3"})
        await ann.until("unsubscribed")
        assert (await change(bob, "join"))["user_id"] == "ann"
        assert (await change(bob, "leave"))["user_id"] == "ann"
        assert changes(await ann.fence()) == []


async def test_a_change_before_the_snapshot_is_read_is_only_in_the_snapshot(
    store: Store,
) -> None:
    async with one(store) as (_, reading, bob, ann):
        reading.before.clear()
        subscribing = asyncio.create_task(bob.subscribe(TOPIC))
        await reading.begun.wait()
        await ann.subscribe(TOPIC, presence=False)
        reading.open()
        await subscribing
        assert users(await snapshot(bob)) == ["bob", "ann"]
        assert changes(await bob.fence()) == []


async def test_changes_are_compared_with_the_clock_of_the_server_that_has_their_topic(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one(store) as (_, reading, bob, ann):
        roster: Any = reading.attendance._roster
        shard, ahead = roster._layout.shard(TOPIC), 3_600_000_000
        read, received = roster._read_some, reading.attendance.received

        # The server of this topic is an hour ahead of that of the other topic.
        async def read_ahead(number: int, topics: Sequence[str]) -> Present:
            found: Present = await read(number, topics)
            later = {topic: at + ahead * (number == shard) for topic, at in found.at.items()}
            return replace(found, at=later)

        def receive_ahead(change: MemberChange) -> None:
            received(replace(change, at=change.at + ahead * (change.topic == TOPIC)))

        monkeypatch.setattr(roster, "_read_some", read_ahead)
        monkeypatch.setattr(reading.attendance, "received", receive_ahead)
        assert roster._layout.shard(OTHER) != shard
        reading.before.clear()
        subscribing = asyncio.create_task(bob.subscribe(TOPIC, OTHER))
        await reading.begun.wait()
        await ann.subscribe(TOPIC, OTHER, presence=False)
        reading.open()
        await subscribing
        for _ in range(2):
            assert users(await snapshot(bob)) == ["bob", "ann"]
        assert changes(await bob.fence()) == []
        await ann.send({"type": "unsubscribe", "topics": [TOPIC, OTHER], "ref": "1"})
        for _ in range(2):
            assert (await change(bob, "leave"))["user_id"] == "ann"


async def test_the_list_of_a_topic_is_read_and_encoded_once_for_all_who_wait_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["bob", "ann", "cid", "dan"]
    async with meeting(store, names) as ((node, _), (bob, *others)):
        reading, reads, encoded = Reading(node), 0, 0
        read, encode = reading.attendance._roster.read, snapshot_bytes

        async def count_read(topics: Sequence[str]) -> Present:
            nonlocal reads
            reads += 1
            found: Present = await read(topics)
            return found

        def count_encoded(*given: Any) -> bytes:
            nonlocal encoded
            encoded += 1
            return encode(*given)

        monkeypatch.setattr(reading.attendance._roster, "read", count_read)
        monkeypatch.setattr(shared_attendance, "snapshot_bytes", count_encoded)
        reading.after.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(bob.subscribe(TOPIC))
            await reading.begun.wait()
            for other in others:
                group.create_task(other.subscribe(TOPIC))
            waiting = reading.attendance._reads._waiting
            await until(lambda: len(waiting[TOPIC]), len(others))
            reading.open()
        assert users(await snapshot(bob)) == ["bob"]
        for other in others:
            # Each is in its own list, because the read began after the last join.
            assert sorted(users(await snapshot(other))) == sorted(names)
        assert (reads, encoded) == (2, 2)
        assert not waiting


async def test_a_list_has_metadata_up_to_its_maximum_size(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["bob", "ann", "cid", "dan", "eve"]
    async with meeting(store, names) as ((node, _), clients):
        for client in clients:
            await client.subscribe(TOPIC, presence=False)
            update = {"topic": TOPIC, "data": {"text": "x" * 100}, "ref": "1"}
            await client.send({"type": "presence.update", **update})
            await client.until("published")
        watcher, attendance = clients[0], Reading(node).attendance
        await watcher.subscribe("demo.*")
        await snapshot(watcher)

        async def shown_again() -> Json:
            attendance.missed([TOPIC], anything=False)
            return await watcher.until("presence.snapshot")

        whole = await shown_again()
        size = len(SOCKET.frame(whole))
        # What the store has of them is larger.
        present = await attendance._roster.read([TOPIC])
        assert sum(len(shown) for _, shown in present.members[TOPIC].values()) > size
        for limit, has_metadata in ((size, True), (size - 1, False)):
            monkeypatch.setattr(member_lists, "MEMBERS_BYTES", limit)
            members = (await shown_again())["members"]
            assert sorted(users(members)) == sorted(names)
            assert all(("metadata" in each) is has_metadata for each in members)


async def test_those_who_wait_for_the_next_list_fail_with_a_store_that_does_not_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_attendance, "AGAIN_AFTER", 0.01)
    async with one(store) as (_, reading, bob, ann):
        reading.before.clear()
        read = reading.attendance._roster.read

        async def fail(topics: Sequence[str]) -> Present:
            await read(topics)
            raise ServiceError("unavailable", "away")

        with monkeypatch.context() as patch:
            patch.setattr(reading.attendance._roster, "read", fail)
            async with asyncio.TaskGroup() as group:
                group.create_task(bob.subscribe(TOPIC))
                await reading.begun.wait()
                group.create_task(ann.subscribe(TOPIC))
                waiting = reading.attendance._reads._waiting
                await until(lambda: len(waiting[TOPIC]), 1)
                reading.open()
            # Of this node, for want of others.
            for client in (bob, ann):
                assert users(await snapshot(client)) == ["bob", "ann"]
        assert not waiting
        for client in (bob, ann):
            assert users(await snapshot(client)) == ["bob", "ann"]


async def test_a_change_after_the_snapshot_was_read_is_sent_after_it(
    store: Store,
) -> None:
    async with one(store) as (_, reading, bob, ann):
        reading.after.clear()
        subscribing = asyncio.create_task(bob.subscribe(TOPIC))
        await reading.begun.wait()
        await ann.subscribe(TOPIC, presence=False)
        reading.open()
        await subscribing
        assert users(await snapshot(bob)) == ["bob"]
        assert (await change(bob, "join"))["user_id"] == "ann"
        assert changes(await bob.fence()) == []


async def test_a_late_change_that_was_in_the_snapshot_is_not_sent_again(
    store: Store,
) -> None:
    async with one(store) as (node, reading, bob, ann):
        await ann.subscribe(TOPIC, presence=False)
        await bob.subscribe(TOPIC)
        assert users(await snapshot(bob)) == ["ann", "bob"]
        await bob.fence()
        (member,) = [m for m in node.hub.attendance.local(TOPIC) if m.user_id == "ann"]
        shown = shared_attendance.shown_bytes(member, 0)
        for late, reported in ((-1, []), (1, [("join", "ann")])):
            at = reading.at + late
            reading.attendance.received(MemberChange("join", TOPIC, ann.client_id, "", at, shown))
            assert changes(await bob.fence()) == reported


async def test_a_change_after_a_failover_to_a_server_whose_clock_is_behind_is_sent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_attendance, "LATE_FOR", BOUND)
    async with one(store) as (node, reading, bob, ann):
        roster: Any = reading.attendance._roster
        read = roster._read_some

        async def read_ahead(shard: int, topics: Sequence[str]) -> Present:
            found: Present = await read(shard, topics)
            return replace(found, at={topic: at + 3_600_000_000 for topic, at in found.at.items()})

        with monkeypatch.context() as patch:
            patch.setattr(roster, "_read_some", read_ahead)
            await bob.subscribe(TOPIC)
            assert users(await snapshot(bob)) == ["bob"]
        feed: Any = node.hub.core.backplane._feed  # type: ignore[attr-defined]
        lost = feed.losses
        await store.command("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: bool(feed.losses > lost and feed.up))
        await ann.subscribe(TOPIC)
        assert (await change(bob, "join"))["user_id"] == "ann"


async def test_a_new_token_with_fewer_permissions_also_limits_a_snapshot_in_progress(
    store: Store,
) -> None:
    async with one(store) as (node, reading, bob, ann):
        await ann.subscribe(TOPIC)
        core: Any = node.hub.core
        authenticate, checked = core.authenticator.authenticate, asyncio.Event()

        async def authenticate_late(token: str) -> Any:
            await checked.wait()
            return await authenticate(token)

        def may_subscribe(identity: Identity, topic: str) -> bool:
            return not checked.is_set()

        core.authenticator.authenticate = authenticate_late
        core.policy.may_subscribe = may_subscribe
        reading.after.clear()
        await bob.send({"type": "auth", "token": node.token("bob")})
        await bob.send({"type": "subscribe", "topics": [TOPIC], "ref": "1"})
        await reading.begun.wait()
        checked.set()
        await until(lambda: core.connections[bob.client_id].authenticating, False)
        reading.open()
        assert (await bob.until("subscribed"))["topics"] == []
        assert [each for each in await bob.fence() if each["type"] == "presence.snapshot"] == []


async def test_a_list_that_was_read_before_a_reported_change_contains_it(
    store: Store,
) -> None:
    async with one(store) as (_, reading, bob, ann):
        await ann.subscribe(TOPIC, presence=False)
        await bob.subscribe(TOPIC)
        assert users(await snapshot(bob)) == ["ann", "bob"]
        for change_, request, present in (
            ("leave", "unsubscribe", ["bob"]),
            ("join", "subscribe", ["bob", "ann"]),
        ):
            reading.begun.clear()
            reading.after.clear()
            reading.attendance.missed([TOPIC], anything=False)
            await reading.begun.wait()
            await ann.send({"type": request, "topics": [TOPIC], "presence": False, "ref": "1"})
            assert (await change(bob, change_))["user_id"] == "ann"
            # A second read would not return: members of a topic that always changes are shown, too.
            reading.before.clear()
            reading.after.set()
            assert users(await snapshot(bob)) == present
            reading.open()


@pytest.mark.parametrize(("read_at", "sent"), [(7, 1), (10, 1), (12, 0)])
async def test_a_list_with_a_later_change_follows_a_greeting_that_was_read_before_the_change(
    store: Store, read_at: int, sent: int
) -> None:
    async with one(store) as (node, reading, bob, ann):
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        attendance = reading.attendance
        connection = node.hub.core.connections[bob.client_id]
        joined = MemberChange(
            "join",
            TOPIC,
            ann.client_id,
            "",
            10,
            b'{"kind":"user","client_id":"a","user_id":"ann","joined_at":1}',
        )
        attendance.expect(connection)
        present = Present({TOPIC: 5}, {TOPIC: {}})
        attendance._show_some({TOPIC: True}, {TOPIC: {ann.client_id: joined}}, present)
        assert len(attendance._held(connection, {TOPIC: read_at})) == sent
        attendance.greeted(connection)


async def test_a_stream_of_a_topic_that_always_changes_gets_each_list_with_all_changes(
    store: Store,
) -> None:
    async with (
        one(store) as (node, reading, bob, ann),
        stream(node, node.token("eve"), topics="demo.*", presence="true") as events,
    ):
        await events.event("subscribed")
        reading.after.clear()
        await ann.subscribe(TOPIC, presence=False)
        await reading.begun.wait()
        await bob.subscribe(TOPIC, presence=False)
        attendance = reading.attendance
        await until(lambda: bob.client_id in attendance._reading[TOPIC])
        # A second read would not return.
        reading.before.clear()
        reading.after.set()
        assert users((await events.event("presence")).json["members"]) == ["ann", "bob"]
        reading.open()


async def test_a_pause_of_streams_also_holds_while_a_list_is_read_for_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_pace, "LARGE", 1)
    monkeypatch.setattr(stream_pace, "BYTES_PER_SECOND", 1)
    async with (
        one(store) as (node, reading, bob, _),
        stream(node, node.token("eve"), topics="demo.*", presence="true") as events,
    ):
        await events.event("subscribed")
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        await events.event("presence")
        attendance = reading.attendance
        shown: list[str] = []

        def note(topic: str, size: int) -> None:
            shown.append(topic)

        monkeypatch.setattr(attendance._pace, "shown", note)
        attendance.missed([TOPIC], anything=False)
        assert users(await snapshot(bob)) == ["bob"]
        assert shown == []
        attendance._pace.lapse(TOPIC, inf)
        assert users((await events.event("presence")).json["members"]) == ["bob"]
        assert shown == [TOPIC]


async def test_a_list_that_could_not_be_read_is_shown_when_it_can(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_attendance, "AGAIN_AFTER", 0.01)
    async with meeting(store, ["bob"], ["ann"]) as ((a, _), (bob, ann)):
        reading = Reading(a)
        await ann.subscribe(TOPIC)
        # Fails once for the subscription, and once when the members are sent again.
        reading.failures = 2
        await bob.subscribe(TOPIC)
        assert users(await snapshot(bob)) == ["bob"]
        assert users(await snapshot(bob)) == ["ann", "bob"]
        reading.failures = 1
        reading.attendance.missed([TOPIC], anything=False)
        assert users(await snapshot(bob)) == ["ann", "bob"]


@pytest.mark.parametrize("step", ["wait_joined", "matching"])
async def test_lists_of_a_pattern_that_could_not_be_searched_are_shown_when_they_can(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(shared_attendance, "AGAIN_AFTER", 0.01)
    async with meeting(store, ["bob"], ["ann"]) as ((a, _), (bob, ann)):
        await ann.subscribe(TOPIC)
        roster: Any = a.hub.core.roster
        work, failures = getattr(roster, step), iter(range(2))

        async def fail_twice(*arguments: object) -> object:
            if next(failures, None) is None:
                return await work(*arguments)
            raise ServiceError("unavailable", "away")

        setattr(roster, step, fail_twice)
        await bob.subscribe("demo.*")
        assert users(await snapshot(bob)) == ["ann"]


async def test_a_list_that_is_requested_again_during_a_failing_read_is_shown_when_it_can(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_attendance, "AGAIN_AFTER", 0.0)
    async with (
        asyncio.timeout(BOUND),
        meeting(store, ["bob"], ["ann"]) as ((a, _), (bob, ann)),
    ):
        await bob.subscribe(TOPIC)
        await snapshot(bob)
        await ann.subscribe(TOPIC)
        await change(bob, "join")
        attendance: Any = a.hub.attendance
        read: Read = attendance._roster.read
        begun = asyncio.Semaphore(0)
        failing = [asyncio.Event() for _ in range(3)]
        waiting = iter(failing)

        async def read_late(topics: Sequence[str]) -> Present:
            begun.release()
            fails = next(waiting, None)
            if fails is None:
                return await read(topics)
            await fails.wait()
            raise ServiceError("unavailable", "away")

        attendance._roster.read = read_late
        attendance.missed([TOPIC], anything=False)
        await begun.acquire()
        attendance.missed([TOPIC], anything=False)
        failing[0].set()
        for fails in failing[1:]:
            await begun.acquire()
            await bob.fence()
            fails.set()
        assert users(await snapshot(bob)) == ["bob", "ann"]
        await until(lambda: attendance._retrying, False)
        assert not attendance._unread


async def test_a_list_that_a_pattern_got_late_is_shown_again_after_the_store_lost_its_data(
    store: Store,
) -> None:
    async with meeting(store, ["bob"], ["ann"]) as ((a, _), (bob, ann)):
        reading = Reading(a)
        await ann.subscribe(TOPIC)
        reading.failures = 1
        await bob.subscribe("demo.*")
        while users(await snapshot(bob)) != ["ann"]:
            pass
        await bob.fence()
        # The store reports no topics, because it has lost them.
        reading.attendance.missed([], anything=True)
        assert users(await snapshot(bob)) == ["ann"]


async def test_a_change_that_waits_for_a_slow_connection_is_not_sent_without_the_next_one(
    store: Store,
) -> None:
    async with one(store) as (node, reading, bob, ann):
        await ann.subscribe(OTHER)
        await bob.subscribe("demo.*")
        connection = node.hub.core.connections[bob.client_id]
        delivery = node.hub.core.delivery
        delivery.stall(connection, PAUSED)
        await ann.subscribe(TOPIC)
        await until(lambda: bool(connection.pending))
        reading.after.clear()
        reading.before.clear()
        await bob.send({"type": "subscribe", "topics": [TOPIC]})
        await reading.begun.wait()
        await ann.send({"type": "unsubscribe", "topics": [TOPIC], "ref": "1"})
        await ann.until("unsubscribed")
        (arrival,) = reading.attendance._arriving.values()
        await until(lambda: len(arrival.held), 1)
        reading.open()
        await until(lambda: connection.busy, False)
        delivery.release(connection, PAUSED)
        seen: list[Any] = []
        for frame in await bob.fence():
            if frame.get("topic") == TOPIC:
                seen = users(frame["members"])
            for kind, user in changes([frame]):
                if kind == "leave":
                    seen.remove(user)
                else:
                    seen.append(user)
        assert seen == ["bob"]


async def test_too_many_changes_during_a_subscription_send_the_list_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_attendance, "HELD_MAX", 1)
    async with one(store) as (node, reading, bob, ann):
        reading.after.clear()
        subscribing = asyncio.create_task(bob.subscribe(TOPIC))
        await reading.begun.wait()
        await ann.subscribe(TOPIC, presence=False)
        async with peer(node, node.token("eve")) as eve:
            await eve.subscribe(TOPIC, presence=False)
            # Changes arrive asynchronously from the store.
            (arrival,) = reading.attendance._arriving.values()
            await until(lambda: TOPIC in arrival.overflow)
            reading.open()
            await subscribing
            assert users(await snapshot(bob)) == ["bob"]
            assert users(await snapshot(bob)) == ["bob", "ann", "eve"]


async def test_a_client_that_is_joining_this_node_is_not_disconnected_before_it_has_joined(
    store: Store,
) -> None:
    async with one(store) as (_, reading, _, ann):
        await ann.subscribe(TOPIC, presence=False)
        attendance, client_id = reading.attendance, ann.client_id
        moved = MemberChange("move", TOPIC, client_id, "", 0, b"another")
        asked: list[str] = []
        join: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        join.add_done_callback(partial(attendance._joined, client_id, TOPIC))

        async def elsewhere(topic: str, client_id: str) -> bool:
            asked.append(topic)
            if len(asked) == 1:
                # The client joins during the call to the store.
                attendance._joining[client_id, topic] = join
            return True

        attendance._roster.elsewhere = elsewhere
        for _ in range(2):
            attendance.received(moved)
            await ann.fence()
        assert asked == [TOPIC]
        join.set_result(None)
        assert await ann.closed() == 4409


async def test_a_connection_whose_client_moved_ends_also_if_the_store_first_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_attendance, "AGAIN_AFTER", 0.01)
    async with one(store) as (_, reading, _, ann):
        await ann.subscribe(TOPIC, presence=False)
        attendance = reading.attendance
        failures = [ServiceError("unavailable", "away")] * 2

        async def elsewhere(topic: str, client_id: str) -> bool:
            if failures:
                raise failures.pop()
            return True

        attendance._roster.elsewhere = elsewhere
        attendance.received(MemberChange("move", TOPIC, ann.client_id, "", 0, b"another"))
        assert await ann.closed() == 4409


async def test_many_changes_of_one_client_wait_for_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one(store) as (node, reading, _, ann):
        room = asyncio.Event()
        waiting: list[str] = []

        def waits(for_what: str) -> Callable[[object], Awaitable[None]]:
            async def wait(topics: object) -> None:
                waiting.append(for_what)
                await room.wait()

            return wait

        topics = [f"demo.{number}" for number in range(shared_attendance.FEW + 1)]
        monkeypatch.setattr(reading.attendance._roster, "room", waits("joins"))
        await ann.send({"type": "subscribe", "topics": topics, "ref": "1"})
        await until(lambda: len(waiting) > 0)
        assert len(node.hub.core.presence) == 0
        room.set()
        await ann.until("subscribed")
        assert len(node.hub.core.presence) == len(topics)
        room.clear()
        monkeypatch.setattr(reading.attendance._roster, "room", waits("changes"))
        # This changes one member.
        data = {"status": "away"}
        await ann.send({"type": "presence.update", "topic": "demo.1", "data": data, "ref": "2"})
        await ann.until("published")
        await ann.send({"type": "presence.update", "data": {"status": "here"}, "ref": "3"})
        await until(lambda: waiting[-1] == "changes")
        assert [each.status for each in await node.hub.attendance.members("demo.1")] == ["away"]
        room.set()
        await ann.until("published")
        assert waiting == ["joins", "changes"]


async def test_a_change_for_which_there_is_no_room_is_to_be_sent_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one(store) as (_, reading, _, ann):
        monkeypatch.setattr(shared_attendance, "FEW", 0)
        await ann.send({"type": "subscribe", "topics": ["demo.1"], "ref": "1"})
        await ann.until("subscribed")

        async def full(topics: object) -> None:
            raise ServiceError("unavailable", "earlier changes still wait", retry_after_ms=500)

        monkeypatch.setattr(reading.attendance._roster, "room", full)
        await ann.send({"type": "presence.update", "data": {"status": "here"}, "ref": "2"})
        error = await ann.until("error")
        assert (error["code"], error["ref"], error["retry_after_ms"]) == ("rate_limited", "2", 500)


async def test_a_large_subscription_that_fails_while_members_are_read_leaves_its_topics(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"demo.{'x' * 40}.{n}" for n in range(large_subscriptions.MANY + 1)]
    async with one(store) as (node, reading, bob, ann):
        await ann.subscribe(TOPIC)
        reading.before.clear()
        with monkeypatch.context() as patch:
            patch.setattr(large_subscriptions, "PATIENCE", 0.2)
            # What follows the first question of a turn waits.
            patch.setattr(turns, "SECONDS", 1e-9)
            await ann.send({"type": "subscribe", "topics": [TOPIC, *topics], "ref": "1"})
            assert (await ann.until("error"))["code"] == "unavailable"
        reading.open()
        await bob.subscribe(TOPIC, topics[0])
        assert users(await snapshot(bob)) == ["ann", "bob"]
        assert users(await snapshot(bob)) == ["bob"]
        core = node.hub.core
        assert core.presence.keeps(ann.client_id, TOPIC)
        assert not any(core.presence.keeps(ann.client_id, topic) for topic in topics)
