"""The members of all nodes in the store, and the notifications that two nodes receive."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from pubsub_server.backplanes.redis import link, member_lanes, roster, wire
from pubsub_server.backplanes.redis.link import Link
from pubsub_server.backplanes.redis.redis_clock import RedisClock
from pubsub_server.backplanes.redis.roster import RedisRoster
from pubsub_server.errors import ServiceError
from pubsub_server.tasks import Tasks
from tests.cluster.fleet import BOUND, SHARDS, nodes
from tests.cluster.front import front
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
    from pathlib import Path

    from pubsub_server.shared.roster import Change, MemberChange
    from tests.cluster.front import Front
    from tests.cluster.store import Store

TOPIC = "demo.room"


def shown(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


@dataclass
class Noted:
    """Records the notifications of a roster."""

    backplane: Any
    reported: list[tuple[str, str]] = field(default_factory=list)
    own: list[tuple[str, str]] = field(default_factory=list)
    held: list[tuple[str, str, bytes]] = field(default_factory=list)
    anything: list[bool] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.roster = self.backplane.roster
        self.roster.attend(self)
        self.backplane.join(TOPIC)

    @property
    def name(self) -> str:
        """Name of the node."""
        found: str = self.backplane._lease.node
        return found

    def received(self, change: MemberChange) -> None:
        self.reported.append((change.change, change.client_id))

    def recorded(self, change: Change, topic: str, client_id: str, id: str, shown: bytes) -> None:
        self.own.append((change, client_id))

    def restored(self, topic: str, client_id: str, shown: bytes) -> None:
        self.own.append(("restored", client_id))

    def refused(self, topic: str, client_id: str) -> None:
        self.own.append(("refused", client_id))

    def overruled(self, topic: str, client_id: str) -> None:
        self.own.append(("overruled", client_id))

    def everybody(self) -> list[tuple[str, str, bytes]]:
        return self.held

    def connected(self, client_id: str) -> bool:
        return client_id not in self.gone

    def interrupted(self) -> None:
        pass

    def missed(self, topics: Iterable[str], *, anything: bool) -> None:
        self.anything.append(anything)
        self.found.update(topics)

    async def enter(self, client_id: str, text: str) -> None:
        self.held.append((TOPIC, client_id, shown(text)))
        await self.roster.join(TOPIC, client_id, shown(text))

    async def members(self) -> dict[str, tuple[bool, bytes]]:
        """Return by client id whether it is a client of this node, and its metadata."""
        found = await self.roster.read([TOPIC])
        return dict(found.members[TOPIC])


@asynccontextmanager
async def two(store: Store, **more: object) -> AsyncGenerator[tuple[Noted, Noted]]:
    async with asyncio.timeout(BOUND), nodes(store, 2, **more) as fleet:
        a, b = (Noted(node.hub.core.backplane) for node in fleet)
        for each in (a, b):
            await each.roster.wait_joined((), [TOPIC])
        yield a, b


async def test_a_subscription_that_the_feed_does_not_confirm_in_time_waits_no_longer(
    store: Store,
) -> None:
    async with two(store) as (a, _):
        of_a: Any = a.roster
        of_a._patience = 0
        with pytest.raises(ServiceError, match="the members are unknown"):
            await of_a.wait_joined((), ["demo.never"])
        await asyncio.sleep(0)
        assert [feed._waiters for feed in of_a._feed._lanes if feed._waiters] == []


async def test_a_member_of_another_node_is_neither_changed_nor_taken_out(store: Store) -> None:
    async with two(store) as (a, b):
        await a.enter("cl_1", "of a")
        await until(lambda: b.reported, [("join", "cl_1")])
        b.roster.update(TOPIC, "cl_1", "msg_1", shown("of b"))
        b.roster.leave(TOPIC, "cl_1")
        await b.enter("cl_2", "of b")
        # The node that does not own the member is overruled, and no other node is notified.
        assert b.own == [("overruled", "cl_1"), ("join", "cl_2")]
        await until(lambda: a.reported, [("join", "cl_1"), ("join", "cl_2")])
        assert await a.members() == {"cl_1": (True, shown("of a")), "cl_2": (False, shown("of b"))}


async def test_only_the_own_members_of_a_removed_node_leave(store: Store) -> None:
    async with two(store) as (a, b):
        await a.enter("cl_1", "of a")
        layout = a.backplane._layout
        base = layout.bases[layout.shard(TOPIC)]
        link = b.backplane._link
        # Simulate a move while the former node could not reach this shard.
        async with store.client() as redis:
            await redis.sadd(f"{base}:m:dead", f"cl_1 {TOPIC}")
        answer = await link.call("revoke.lua", [base], ["dead", 100, 60_000, 60_000])
        assert answer == [0] or answer == [b"0"]
        await b.enter("cl_2", "of b")
        await until(lambda: a.reported, [("join", "cl_1"), ("join", "cl_2")])
        assert await b.members() == {"cl_1": (False, shown("of a")), "cl_2": (True, shown("of b"))}


async def test_a_node_that_starts_again_does_not_report_unchanged_members(
    store: Store,
) -> None:
    async with two(store) as (a, b):
        await a.enter("cl_1", "as it was")
        await a.enter("cl_2", "before")
        a.held[1] = (TOPIC, "cl_2", shown("after"))
        former = a.name
        a.backplane._lease.lose("the test requests it")
        await until(lambda: a.name != former)
        await until(lambda: b.reported[2:], [("update", "cl_2")])
        await b.enter("cl_3", "of b")
        await until(lambda: b.reported[3:], [("join", "cl_3")])
        assert b.reported[:2] == [("join", "cl_1"), ("join", "cl_2")]


async def test_a_change_does_not_interrupt_the_writing_of_more_members_than_changes_may_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "WAITING_CHANGES", 3)
    async with two(store, node_timeout=120_000, node_heartbeat=60_000) as (a, b):
        ids = [f"cl_{number}" for number in range(5)]
        a.held = [(TOPIC, client_id, shown("here")) for client_id in ids]
        renewed = a.roster.renew(["former"])
        a.roster.update(TOPIC, "cl_1", "msg_1", shown("away"))
        await renewed
        await until(lambda: b.reported, [*(("join", each) for each in ids), ("update", "cl_1")])


async def test_what_is_remembered_of_the_calls_of_a_node_is_removed_with_it(store: Store) -> None:
    async with two(store) as (a, _), store.client() as redis:
        await a.enter("cl_1", "here")
        former = a.name
        kept = {str(key, "ascii").split(":")[-2] for key in await redis.keys(f"*:[ny]:{former}")}
        assert kept == {"n", "y"}
        a.backplane._lease.lose("the test requests it")
        await until(lambda: redis.keys(f"*:[ny]:{former}"), [])


async def test_a_node_that_learns_of_its_removal_from_a_change_registers_all_members_again(
    store: Store,
) -> None:
    # The node must not learn it from a heartbeat, so heartbeats are longer than the test.
    async with two(store, node_heartbeat=60_000, node_timeout=120_000) as (a, b):
        await a.enter("cl_1", "first")
        former = a.name
        async with store.client() as redis:
            for base in a.backplane._layout.bases:
                await redis.zadd(f"{base}:d", {former: 2**50})
        await a.enter("cl_2", "second")
        await until(
            b.members,
            {
                "cl_1": (False, shown("first")),
                "cl_2": (False, shown("second")),
            },
        )
        assert a.name != former


async def test_a_member_above_the_limit_is_rejected_and_not_reported(store: Store) -> None:
    async with two(store, presence_max_members=1) as (a, b):
        await a.enter("cl_1", "first")
        await b.enter("cl_2", "second")
        assert b.own == [("refused", "cl_2")]
        a.roster.leave(TOPIC, "cl_1")
        await until(lambda: b.reported, [("join", "cl_1"), ("leave", "cl_1")])
        assert await b.members() == {}


async def test_a_node_that_started_again_and_was_disconnected_may_have_missed_anything(
    store: Store,
) -> None:
    async with two(store) as (a, b):
        await a.enter("cl_1", "first")
        async with store.client() as redis:
            await redis.client_kill_filter(_type="pubsub")
            await until(lambda: (a.anything, b.anything), ([False], [False]))
            names = {a.name, b.name}
            # Along with the members, the store has removed all records of their nodes.
            await redis.flushall()
            await until(lambda: names.isdisjoint({a.name, b.name}))
            await redis.client_kill_filter(_type="pubsub")
            await until(lambda: (a.anything[-1], b.anything[-1]), (True, True))


async def test_a_node_that_was_disconnected_for_very_long_may_have_missed_anything(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(store) as (_, b), store.client() as redis:
        await until(lambda: len(b.backplane._catching_up._unbroken), SHARDS)
        # The store has forgotten the topics that were left before the disconnection.
        monkeypatch.setattr(roster, "EMPTIED_MS", 1)
        await redis.client_kill_filter(_type="pubsub")
        await until(lambda: b.anything, [True])


async def test_a_node_looks_for_all_changes_since_it_stopped_listening(store: Store) -> None:
    async with two(store, node_timeout=120_000, node_heartbeat=60_000) as (a, b):
        await until(lambda: len(a.backplane._catching_up._unbroken), SHARDS)
        await b.enter("cl_1", "first")
        # The heartbeats of the node continue while one of its servers does not answer.
        a.backplane._lease.last_heartbeat += 60_000
        await a.backplane._catching_up.restored(range(SHARDS))
        assert a.found == {TOPIC}


async def test_changes_that_wait_for_the_store_are_made_in_their_order(store: Store) -> None:
    async with two(store, node_timeout=120_000, node_heartbeat=60_000) as (a, b):
        await a.enter("cl_1", "0")
        await store.end()
        for number in range(1, 4):
            a.roster.update(TOPIC, "cl_1", f"msg_{number}", shown(str(number)))
        joining = asyncio.create_task(a.enter("cl_2", "here"))
        a.roster.leave(TOPIC, "cl_3")
        await until(lambda: a.roster._lanes[0].unanswered)
        await store.start()
        await joining
        assert a.own[1:] == [*[("update", "cl_1")] * 3, ("join", "cl_2")]
        await until(b.members, {"cl_1": (False, shown("3")), "cl_2": (False, shown("here"))})


@asynccontextmanager
async def behind_a_network(
    store: Store, patch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Front, Noted, Noted, Any]]:
    """Run a node behind a network, a node next to the store, and a monitor of the store."""
    quiet: dict[str, Any] = {"node_timeout": 120_000, "node_heartbeat": 60_000}
    async with (
        asyncio.timeout(BOUND),
        front(store) as way,
        nodes(way, 1, **quiet) as (first,),
        nodes(store, 1, **quiet) as (second,),
        store.client() as redis,
        redis.monitor() as monitor,
    ):
        a, b = (Noted(node.hub.core.backplane) for node in (first, second))
        for each in (a, b):
            await each.roster.wait_joined((), [TOPIC])
        patch.setattr(wire, "ANSWER_WITHIN", 0.5)  # for the answers that are lost
        yield way, a, b, monitor


async def received(monitor: Any, word: str, copies: int) -> None:
    """Wait until the store has received a call with this word several times."""
    while copies:
        command: str = (await monitor.next_command())["command"]
        copies -= command.startswith("EVAL") and word in command


async def test_a_member_that_has_left_does_not_return_by_a_late_copy_of_its_join(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_network(store, monkeypatch) as (way, a, b, monitor):
        await a.enter("cl_1", "stays")
        # The store receives the first copy of the join last.
        late = way.hold(b"leaves")
        await a.enter("cl_2", "leaves")
        a.roster.leave(TOPIC, "cl_2")
        await until(lambda: a.own[-1], ("leave", "cl_2"))
        late.set()
        await received(monitor, "leaves", 2)
        assert await a.members() == {"cl_1": (True, shown("stays"))}
        assert await b.members() == {"cl_1": (False, shown("stays"))}
        await b.enter("cl_3", "of b")
        changes = [("join", "cl_1"), ("join", "cl_2"), ("leave", "cl_2"), ("join", "cl_3")]
        await until(lambda: b.reported[-1], changes[-1])
        assert b.reported == changes


async def test_a_late_join_of_a_client_that_has_left_does_not_take_it_from_another_node(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_network(store, monkeypatch) as (way, a, b, monitor):
        await a.enter("cl_1", "stays")
        late = way.hold(b"moves")
        joining = a.roster.join(TOPIC, "cl_2", shown("moves"))
        # The call is on its way when the client is disconnected and joins at the other node.
        await until(lambda: a.roster.waiting, 0)
        a.gone.add("cl_2")
        await b.enter("cl_2", "moved")
        await joining
        late.set()
        await received(monitor, "moves", 1)
        assert await b.members() == {
            "cl_1": (False, shown("stays")),
            "cl_2": (True, shown("moved")),
        }
        await b.enter("cl_3", "of b")
        changes = [("join", "cl_1"), ("join", "cl_2"), ("join", "cl_3")]
        await until(lambda: b.reported[-1], changes[-1])
        assert b.reported == changes


def dated(since: int, text: str, within: int = 0) -> bytes:
    fields = {"since": since, "within": within, "text": text}
    return json.dumps(fields, separators=(",", ":")).encode()


async def test_a_late_join_does_not_take_a_client_from_its_newer_connection(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_network(store, monkeypatch) as (way, a, b, _):
        monkeypatch.setattr(wire, "ANSWER_WITHIN", BOUND)
        await a.enter("cl_1", "opens a connection")
        late = way.hold(b"older")
        joining = a.roster.join(TOPIC, "cl_2", dated(1_000, "older"))
        await until(lambda: a.roster.waiting, 0)
        await b.roster.join(TOPIC, "cl_2", dated(2_000, "newer"))
        late.set()
        await joining
        assert (await b.members())["cl_2"] == (True, dated(2_000, "newer"))
        assert a.own[-1] == ("overruled", "cl_2")
        await b.enter("cl_3", "of b")
        await until(lambda: b.reported[-1], ("join", "cl_3"))
        assert b.reported == [("join", "cl_1"), ("join", "cl_2"), ("join", "cl_3")]


@pytest.fixture
def ahead(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Coroutine[Any, Any, None]]:
    """Sets the clock that the scripts read: so many seconds ahead of the real one."""
    text = link._text

    def shifted(path: Path) -> str:
        return text(path).replace(
            "tonumber(clock[1])", "(tonumber(clock[1]) + (redis.call('GET', 'ahead') or 0))"
        )

    async def set_clock(seconds: int) -> None:
        async with store.client() as redis:
            await redis.set("ahead", seconds)

    monkeypatch.setattr(link, "_text", shifted)
    return set_clock


async def test_a_newer_connection_takes_a_member_also_after_the_clock_was_set_back(
    store: Store, ahead: Callable[[int], Coroutine[Any, Any, None]]
) -> None:
    await ahead(3_600)
    async with two(store) as (a, b):
        names = {a.name, b.name}
        began = a.roster.steady()

        def everybody() -> list[tuple[str, str, bytes]]:
            earliest, latest = a.roster.store_time(began)
            return [(TOPIC, "cl_1", dated(earliest, "first", latest - earliest))]

        a.everybody = everybody  # type: ignore[method-assign]
        await until(lambda: a.roster.store_time(began)[0] > 0)
        await a.roster.join(*everybody()[0])
        await ahead(0)
        await until(lambda: names.isdisjoint({a.name, b.name}) and not a.roster.waiting)
        earliest, latest = b.roster.store_time(b.roster.steady())
        await b.roster.join(TOPIC, "cl_1", dated(earliest, "newer", latest - earliest))
        assert ("overruled", "cl_1") not in b.own
        assert (await b.members())["cl_1"][0]


async def test_a_node_that_died_before_the_clock_was_set_back_is_removed(
    store: Store, ahead: Callable[[int], Coroutine[Any, Any, None]]
) -> None:
    await ahead(3_600)
    async with two(store) as (a, b):
        doomed = b.name
        await b.enter("cl_1", "of the node that dies")
        await b.backplane._lease._tasks.stop()
        await ahead(0)
        await until(lambda: ("leave", "cl_1") in a.own)
        async with store.client() as redis:
            assert await redis.zscore(a.backplane._layout.nodes, doomed) is None


async def test_of_two_connections_within_the_accuracy_of_the_clocks_the_last_join_counts(
    store: Store,
) -> None:
    async with two(store) as (a, b):
        await a.roster.join(TOPIC, "cl_1", dated(1_050, "first"))
        await b.roster.join(TOPIC, "cl_1", dated(1_000, "last", within=50))
        assert await b.members() == {"cl_1": (True, dated(1_000, "first", within=50))}
        await until(lambda: a.reported, [("join", "cl_1"), ("move", "cl_1")])


async def test_a_change_does_not_take_a_member_from_a_connection_that_may_be_newer(
    store: Store,
) -> None:
    async with two(store) as (a, b):
        await a.roster.join(TOPIC, "cl_1", dated(1_050, "first"))
        await b.roster.join(TOPIC, "cl_1", dated(1_000, "last", within=100))
        a.roster.update(TOPIC, "cl_1", "msg_1", dated(1_050, "changed"))
        await until(lambda: a.own[1:], [("overruled", "cl_1")])
        assert await b.members() == {"cl_1": (True, dated(1_000, "first", within=100))}


async def test_a_change_whose_answer_is_lost_is_reported_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_network(store, monkeypatch) as (way, a, b, _):
        await a.enter("cl_0", "opens a connection")
        await until(lambda: b.reported, [("join", "cl_0")])
        changes: list[tuple[str, Callable[[], object]]] = [
            ("join", lambda: a.roster.join(TOPIC, "cl_1", shown("first"))),
            ("update", lambda: a.roster.update(TOPIC, "cl_1", "msg_1", shown("second"))),
            ("leave", lambda: a.roster.leave(TOPIC, "cl_1")),
        ]
        for number, (name, change) in enumerate(changes, 2):
            way.unanswered = b"cl_1"
            change()
            await until(lambda: b.reported[-1], (name, "cl_1"))
            way.unanswered = None
            await until(lambda: len(a.own), number)
        await b.enter("cl_2", "of b")
        expected = [("join", "cl_0"), *((name, "cl_1") for name, _ in changes)]
        await until(lambda: b.reported[-1], ("join", "cl_2"))
        assert a.own == expected
        assert b.reported == [*expected, ("join", "cl_2")]


async def test_clients_with_many_changes_wait_for_room_one_after_the_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_lanes, "CROWDED", 10)
    async with two(store, node_timeout=120_000, node_heartbeat=60_000) as (a, _):
        most = 0

        async def change(client: int) -> None:
            nonlocal most
            await a.roster.room([TOPIC])
            for number in range(10):
                a.roster.update(TOPIC, f"cl_{client}", f"msg_{number}", shown(str(number)))
            most = max(most, a.roster.waiting)

        await asyncio.gather(*map(change, range(20)))
        assert most < 20


async def test_there_is_no_room_while_the_store_is_away_and_there_is_room_afterwards(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_lanes, "CROWDED", 1)
    async with two(store, node_timeout=120_000, node_heartbeat=60_000) as (a, _):
        a.roster._patience = 0.1
        await store.end()
        # More than one call of the store takes.
        for number in range(member_lanes.CALL_CHANGES + 1):
            a.roster.update(TOPIC, "cl_1", f"msg_{number}", shown(str(number)))
        for _ in range(2):
            with pytest.raises(ServiceError, match="still wait for the store"):
                await a.roster.room([TOPIC])
        a.roster._patience = BOUND
        await store.start()
        await a.roster.room([TOPIC])
        assert not a.roster.waiting


async def test_a_search_that_has_failed_leaves_no_calls_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Link.call

    async def fail() -> list[bytes]:
        raise RedisConnectionError("the connection is lost")

    def first_fails(self: Link, *rest: object) -> Coroutine[Any, Any, list[bytes]]:
        monkeypatch.setattr(Link, "call", call)
        return fail()

    async with nodes(store, 1) as (node,):
        noted = Noted(node.hub.core.backplane)
        await until(lambda: len(noted.backplane._catching_up._unbroken), SHARDS)
        noted.roster._doubt(range(SHARDS), 1)
        monkeypatch.setattr(Link, "call", first_fails)
        store.stall()
        before = asyncio.all_tasks()
        try:
            with pytest.raises(RedisConnectionError):
                await noted.roster.catch_up()
            left = asyncio.all_tasks() - before
        finally:
            store.go_on()
        assert "Link.call" not in str(left)


class Links:
    """Replaces the link and the names of keys: no search ends until `error` or `free` is set."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.free = False
        self.error: Exception | None = None

    clock = RedisClock()
    cluster = False
    bases = ("base",)
    lanes = (range(1),)

    async def call(
        self, name: str, keys: Sequence[str], arguments: Sequence[object]
    ) -> list[bytes]:
        self.asked.set()
        if self.error is not None:
            raise self.error
        if not self.free:
            await asyncio.Event().wait()
        return [TOPIC.encode()]


class Followers:
    """Replaces the hub: records the topics with missed changes."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def interrupted(self) -> None:
        pass

    def missed(self, topics: Iterable[str], *, anything: bool) -> None:
        self.found.update(topics)


@pytest.mark.parametrize("error", [None, ValueError("another program has written this index")])
async def test_a_search_for_members_that_ends_too_early_is_made_again(
    error: Exception | None,
) -> None:
    links: Any = Links()
    links.error = error
    followers: Any = Followers()
    tasks = Tasks(asyncio.get_running_loop(), logging.getLogger("test"), "test")
    roster = RedisRoster(
        *(links, links, links, links), max_members=1, secret="secret", patience=BOUND
    )
    roster.attend(followers)
    roster.interrupted([0], 1)
    roster.interrupted([0], 1)
    async with asyncio.timeout(BOUND):
        searching = tasks.spawn(roster.catch_up(), expected=(ValueError,))
        await links.asked.wait()
        await tasks.end(searching)
        assert followers.found == set()
        links.error, links.free = None, True
        await roster.catch_up()
    assert followers.found == {TOPIC}


async def test_a_missed_change_is_found_while_the_topic_loses_and_gets_members(
    store: Store,
) -> None:
    async with two(store) as (a, b):
        shards = [b.backplane._layout.shard(TOPIC)]
        link, turn = b.roster._link, asyncio.Lock()

        async def change() -> None:
            if a.held:
                a.held.clear()
                a.roster.leave(TOPIC, "cl_1")
                await until(a.members, {})
            else:
                await a.enter("cl_1", "first")

        def in_turn(method: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
            async def call(*arguments: object, **more: object) -> Any:
                # After each call of the search, the only member joins or leaves.
                async with turn:
                    found = await method(*arguments, **more)
                    await change()
                    return found

            return call

        for empty in (False, True):
            while empty == bool(a.held):
                await change()
            b.found.clear()
            b.roster._link = SimpleNamespace(call=in_turn(link.call), topics=in_turn(link.topics))
            b.roster._doubt(shards, 1)
            await b.roster.catch_up()
            b.roster._link = link
            assert b.found == {TOPIC}
