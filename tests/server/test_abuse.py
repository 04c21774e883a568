"""Malicious or misbehaving clients: their cost, and that other clients are not affected."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Literal, cast

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from hanzoai.pubsub import PubSubClient
from pubsub_server.access.setup import StartError
from pubsub_server.auth.identity import Identity, identity_from_claims
from pubsub_server.backplanes.memory import MemoryBackplane
from pubsub_server.backplanes.topic_log import TopicLog
from pubsub_server.errors import ServiceError
from pubsub_server.hub import attendance, delivery, inbound, large_subscriptions, routing
from pubsub_server.listeners.websocket import protocol as socket_protocol
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.shared import codec, topic_index, turns
from pubsub_server.shared.limits import ConnectionLimiter
from pubsub_server.shared.requests import Draft
from pubsub_server.testing import running_server
from tests.http_client import http_client
from tests.server.hub_rig import START_MS, STREAM, Peer, Rig
from tests.server.websocket_rig import BOUND, close_code, raw, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import httpx

    from pubsub_server.backplane import Entry, Replay


@pytest.mark.parametrize("speed", ["on", "off"])
async def test_what_is_nested_deeply_stops_no_reader(speed: Literal["on", "off"]) -> None:
    def deep(levels: int) -> str:
        return "[" * levels + "]" * levels

    async with running_server(publish_rate_user=1e6) as server:
        errors: list[Exception] = []
        async with (
            asyncio.timeout(BOUND),
            PubSubClient(
                url=server.ws,
                rest_url=server.http,
                token=server.token("alice"),
                speed=speed,
                on_error=errors.append,
            ) as alice,
            http_client(base_url=server.http) as mallory,
            connect(server.ws) as socket,
        ):
            subscription = alice.subscribe("demo.a")
            await subscription
            token = server.token("mallory")
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

            async def publish(body: str) -> int:
                path = "/v1/topics/demo.a/messages"
                return (await mallory.post(path, headers=headers, content=body)).status_code

            await socket.send(json.dumps({"type": "auth", "token": token}))
            await socket.send('{"type":"subscribe","topics":["demo.a"]}')
            for levels in (99, 100, 150, 195, 200, 240, 254):
                fits = levels == 99
                wanted = 201 if fits else 422
                body = '{"type":"deep","data":[%s],"meta":{"k":%s}}'
                assert await publish(body % (deep(levels), deep(1))) == wanted
                assert await publish(body % (deep(1), deep(levels))) == wanted
                update = '{"type":"presence.update","topic":"demo.a","ref":"%d","data":{"k":%s}}'
                await socket.send(update % (levels, deep(levels)))
                while (frame := json.loads(await socket.recv())).get("ref") != str(levels):
                    pass
                assert frame["type"] == ("published" if fits else "error")
            assert await publish('{"type":"end","data":1}') == 201
            found = [(await anext(subscription)).type for _ in range(3)]
            assert found == ["deep", "deep", "end"]
            assert [each.type async for each in alice.history("demo.a")] == found
            assert [each.user_id for each in await alice.presence("demo.a")] == ["alice", "mallory"]
        assert errors == []


@pytest.mark.parametrize("depth", range(240, 256))
async def test_metadata_too_deep_to_be_shown_is_refused_and_the_topic_lives(depth: int) -> None:
    rig = Rig()
    mallory = await rig.client("mallory")
    mallory.subscribe("room")
    deep = "[" * depth + "]" * depth
    mallory.send('{"type":"presence.update","topic":"room","data":{"k":' + deep + "}}")
    codes = [frame["code"] for frame in mallory.read() if frame["type"] == "error"]
    assert codes in ([], ["invalid_payload"])
    for encoder in (SOCKET, STREAM):
        alice = await rig.client("alice", encoder)
        alice.say("subscribe", topics=["room"])
        kinds = {frame.get("type", frame.get("event")) for frame in alice.read()}
        assert "error" not in kinds
    mallory.close(1000)
    assert [member.user_id for member in await rig.hub.attendance.members("room")] == ["alice"]


async def test_pongs_do_not_accumulate_for_a_client_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(auth_deadline=60_000) as server, raw(server) as mallory:
        mallory.writer.transport.pause_reading()  # type: ignore[attr-defined]
        protocol = server.protocol
        pings = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 500
        received = asyncio.Event()

        def receive(connection: object, data: object) -> None:
            received.set()

        monkeypatch.setattr(server.hub, "receive", receive)
        for _ in range(300):
            mallory.write(pings)
            await mallory.writer.drain()
        mallory.frame(b"{}")
        async with asyncio.timeout(BOUND):
            await received.wait()
        assert protocol.buffered() < 2 * socket_protocol.SOFT_BYTES


async def test_fragments_without_end_are_refused_though_they_are_empty() -> None:
    async with serving() as server, raw(server) as mallory:
        mallory.frame(b'{"type":"auth","token":"mallory"}')
        assert b"auth.ok" in (await mallory.receive())[1]
        mallory.frame(b"", fin=False)
        empty = Frame(Opcode.CONT, b"", False).serialize(mask=True)
        mallory.write(empty * (socket_protocol.FRAGMENTS + 1))
        assert b"payload_too_large" in (await mallory.receive())[1]
        opcode, payload = await mallory.receive()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 4413)


class Orgs:
    """A token contains a user and its organizations: `alice acme globex`."""

    async def authenticate(self, token: str) -> Identity:
        user, *orgs = token.split()
        return Identity(user_id=user, orgs=frozenset(orgs))


def with_orgs(rig: Rig, **limits: int) -> None:
    rig.hub.core.authenticator = Orgs()
    rig.hub.core.limiter = ConnectionLimiter(100, 100, limits)


async def renew(rig: Rig, peer: Peer, token: str) -> str:
    peer.read()
    peer.say("auth", token=token)
    await rig.settle()
    kind: str = next(f["type"] for f in peer.read() if f["type"].startswith("auth."))
    return kind


async def test_organizations_that_a_renewed_token_leaves_or_joins_are_counted() -> None:
    rig = Rig()
    with_orgs(rig, acme=1, globex=1)
    for _ in range(3):
        one = await rig.client("alice acme")
        assert await renew(rig, one, "alice globex") == "auth.ok"
        two = await rig.client("bob acme")
        with pytest.raises(ServiceError, match="globex"):
            await rig.client("bob globex")
        one.close()
        two.close()


async def test_a_renewed_token_of_a_full_organization_is_refused_and_the_old_one_holds() -> None:
    rig = Rig()
    with_orgs(rig, acme=1, globex=1)
    bob = await rig.client("bob acme")
    one = await rig.client("alice globex")
    assert await renew(rig, one, "alice acme") == "auth.error"
    one.say("ping")
    assert one.read_one("pong")
    with pytest.raises(ServiceError, match="globex"):
        await rig.client("carol globex")
    one.close()
    bob.close()
    await rig.client("carol globex acme")


@pytest.mark.parametrize("claim", ["sub", "name", "picture", "jti", "orgs", "agents"])
def test_a_claim_that_cannot_be_sent_is_refused(claim: str) -> None:
    with pytest.raises(ServiceError) as caught:
        identity_from_claims({"sub": "alice", claim: "a\ud800"})
    assert (caught.value.code, claim in caught.value.message) == ("token_invalid", True)


async def test_an_unknown_expectation_gets_417_and_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_server() as server, http_client(base_url=server.http) as http:
        response = await http.get("/v1/session", headers={"Expect": "miracles"})
        assert response.status_code == 417
        assert response.headers["X-Request-Id"]
        assert (await http.get("/healthz")).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_clock_that_goes_back_ends_no_token_that_the_authenticator_takes() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    rig.advance(1)
    alice.publish("a", 1)
    back = 3_600_000
    wall = rig.hub.core.today
    rig.hub.core.today = lambda: wall() - back
    bob = await rig.client(f"bob:user:{START_MS + 121_000 - back}")
    for _ in range(5):
        rig.advance(20)
        bob.say("ping")
        rig.hub.touch(bob.connection)
    assert bob.ending() is None
    rig.advance(25)
    assert bob.ending() == (4401, "token_expired")


async def test_a_clock_that_goes_back_leaves_a_new_token_its_whole_life_at_the_client() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.publish("a", 1)
    now = START_MS - 3_600_000
    rig.hub.core.today = lambda: now
    peer = rig.stranger()
    peer.say("auth", token=f"bob:user:{now + 600_000}", version=1)
    await rig.settle()
    ok = peer.read_one("auth.ok")
    assert ok["expires_at"] - ok["server_time"] == 600_000
    peer.say("ping")
    assert peer.read_one("pong")["server_time"] == now


async def test_messages_keep_their_order_when_the_clock_goes_back() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.publish("a", 1)
    rig.now -= 500
    alice.publish("a", 2)
    one, two = alice.messages()
    assert one["timestamp"] <= two["timestamp"]
    assert one["seq"] + 1 == two["seq"]


async def test_a_transport_that_fails_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    broken, alice = await rig.client("broken"), await rig.client("alice")
    for peer in (broken, alice):
        peer.subscribe("a", presence=False)
        peer.read()

    def fail(data: bytes) -> None:
        raise RuntimeError("the handle is closed")

    monkeypatch.setattr(broken.sink, "write", fail)
    alice.publish("a", 1)
    assert [message["data"] for message in alice.messages()] == [1]
    assert broken.sink.aborted


async def test_routes_are_forgotten_when_they_name_too_many_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "PLACES_MAX", 20)
    rig = Rig()
    peers = [await rig.client(f"user{n}") for n in range(6)]
    for peer in peers:
        peer.subscribe("**", presence=False)
    router = rig.hub.core.router
    for n in range(50):
        peers[0].publish(f"t.{n}", n)
        assert sum(len(route) for route in router._routes.values()) <= 20
    assert [len(peer.messages()) for peer in peers] == [50] * 6


async def test_a_redis_that_cannot_be_reached_is_reported_at_the_start_without_its_password(
    unused_tcp_port: int,
) -> None:
    url = f"redis://user:secret@127.0.0.1:{unused_tcp_port}"
    with pytest.raises(StartError, match="Redis cannot be reached") as caught:
        async with running_server(redis_url=url):
            pass
    assert "secret" not in str(caught.value)


async def events(
    http: httpx.AsyncClient, headers: dict[str, str], until: Callable[[str], bool]
) -> list[str]:
    """Return the lines of a stream up to the first matching one."""
    lines: list[str] = []
    async with (
        asyncio.timeout(BOUND),
        http.stream("GET", "/v1/subscribe?topics=demo.new", headers=headers) as response,
    ):
        async for line in response.aiter_lines():
            lines.append(line)
            if until(line):
                return lines
    raise AssertionError(lines)


async def test_a_stream_cut_before_its_first_message_resumes_on_a_topic_without_a_log() -> None:
    async with running_server() as server, http_client(base_url=server.http) as http:
        headers = {"Authorization": f"Bearer {server.token()}"}
        lines = await events(http, headers, lambda line: line.startswith("data:"))
        (mark,) = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
        body = {"type": "t", "data": "while you were away"}
        await http.post("/v1/topics/demo.new/messages", headers=headers, json=body)
        again = {**headers, "Last-Event-ID": mark}
        lines = await events(http, again, lambda line: line.startswith("data:"))
        history = orjson.loads(lines[-1].removeprefix("data: "))["history"]
        assert [message["data"] for message in history] == ["while you were away"]


def many_topics(rig: Rig, count: int) -> None:
    store = rig.hub.core.backplane
    assert isinstance(store, MemoryBackplane)
    drafts = [Draft(f"org.o{n % 7}.t{n}", "t", b"1", None, None, None) for n in range(count)]
    store.append(drafts, ("service", "s"))


async def test_many_topics_are_searched_piece_by_piece_and_none_is_missed() -> None:
    rig = Rig()
    many_topics(rig, 3 * topic_index.AT_ONCE)
    rig.rules.unreadable = lambda identity, topic: topic.startswith("org.o3.")
    alice = await rig.client("alice")
    writer = await rig.client("writer")
    alice.say("subscribe", topics=["org.**"], since=0, ref="1", presence=False)
    alice.say("ping", ref="2")
    assert alice.read() == []
    assert alice.sink.holds == [True]
    # This topic is created during the search.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writer.publish("org.new.topic", "in between")
    await rig.settle()
    frames = alice.read()
    assert [frame["type"] for frame in frames] == ["subscribed", "pong"]
    assert [m["data"] for m in frames[0]["history"] if m["topic"] == "org.new.topic"] == [
        "in between"
    ]
    readable = sum(n % 7 != 3 for n in range(3 * topic_index.AT_ONCE))
    assert len(frames[0]["positions"]) == readable + 1
    assert not any(topic.startswith("org.o3.") for topic in frames[0]["positions"])
    assert alice.sink.holds == [True, False]
    writer.publish("org.new.topic", "afterwards")
    assert [message["data"] for message in alice.messages()] == ["afterwards"]


async def test_a_search_among_many_topics_does_not_block_others() -> None:
    rig = Rig()
    many_topics(rig, 5 * topic_index.AT_ONCE)
    mallory, bob = await rig.client("mallory"), await rig.client("bob")
    mallory.say("subscribe", topics=["**"])
    answers = 0
    while rig.hub._tasks:
        bob.say("ping")
        answers += len(bob.read())
        await asyncio.sleep(0)
    assert answers >= 5 * topic_index.AT_ONCE / topic_index.PIECE


async def test_a_search_is_abandoned_when_its_client_has_left() -> None:
    rig = Rig()
    many_topics(rig, 2 * topic_index.AT_ONCE)
    mallory = await rig.client("mallory")
    mallory.say("subscribe", topics=["**"])
    await asyncio.sleep(0)
    mallory.close()
    await rig.settle()
    store = rig.hub.core.backplane
    assert isinstance(store, MemoryBackplane)
    assert store.store._index._surveys == {}
    assert len(rig.hub.core.router) == 0


async def test_subscriptions_that_come_all_at_once_take_turns_in_their_order() -> None:
    rig = Rig(history_max_messages=1000)
    writer, mallory, bob = [await rig.client(name) for name in ("writer", "mallory", "bob")]
    for n in range(1000):
        writer.publish("a", n)
    writer.read()
    rig.pace = turns.SECONDS / 50
    for n in range(100):
        mallory.say("subscribe", topics=["a"], history=1000, presence=False, ref=str(n))
    mallory.say("unsubscribe", topics=["a"], ref="last")
    done = len(mallory.read())
    assert 0 < done < 60
    # No expensive request starts before those that wait, of any user.
    bob.say("subscribe", topics=["b"], ref="b", presence=False)
    bob.say("ping", ref="p")
    assert bob.read() == []
    await rig.settle()
    assert [frame["ref"] for frame in bob.read()] == ["b", "p"]
    refs = [frame["ref"] for frame in mallory.read() if "ref" in frame]
    assert refs == [*map(str, range(done, 100)), "last"]
    assert mallory.connection.waiting is None


@pytest.mark.parametrize("kind", ["history", "presence"])
async def test_reads_over_http_take_turns(kind: str) -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.publish("a", 1)
    hub, identity = rig.hub, Identity("alice")

    async def read() -> None:
        await (hub.history(identity, "a") if kind == "history" else hub.presence(identity, "a"))

    rig.pace = turns.SECONDS / 50
    reads = [asyncio.ensure_future(read()) for _ in range(200)]
    await asyncio.sleep(0)
    assert 0 < sum(each.done() for each in reads) < 60
    await asyncio.wait_for(asyncio.gather(*reads), BOUND)


async def test_batches_over_http_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server() as server:
        hub, in_turn = server.hub, 0
        busiest = 0
        publish = hub.publish

        async def noted(*given: Any, **options: Any) -> Any:
            nonlocal busiest, in_turn
            if not in_turn:
                asyncio.get_running_loop().call_soon(end_turn)
            in_turn += 1
            busiest = max(busiest, in_turn)
            return await publish(*given, **options)

        def end_turn() -> None:
            nonlocal in_turn
            in_turn = 0

        wait, waiting = hub.turn, asyncio.Semaphore(0)
        together = asyncio.Event()

        async def turn(size: int) -> None:
            # All bodies have arrived before the first one is handled.
            waiting.release()
            await together.wait()
            await wait(size)

        monkeypatch.setattr(turns, "SECONDS", 1e-9)
        monkeypatch.setattr(hub, "publish", noted)
        monkeypatch.setattr(hub, "turn", turn)
        headers = {"Authorization": f"Bearer {server.token('mallory')}"}
        body = {"messages": [{"topic": "demo.a", "data": "x" * 100}] * 1_000}
        async with asyncio.timeout(BOUND), http_client(base_url=server.http) as client:
            posts = [
                asyncio.create_task(client.post("/v1/messages:batch", headers=headers, json=body))
                for _ in range(20)
            ]
            for _ in posts:
                await waiting.acquire()
            together.set()
            assert [(await each).status_code for each in posts] == [200] * 20
        assert busiest <= 2


async def test_the_subscriptions_of_an_event_stream_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_server() as server:
        sizes: list[int] = []

        async def turn(size: int) -> None:
            sizes.append(size)

        monkeypatch.setattr(server.hub, "turn", turn)
        headers = {"Authorization": f"Bearer {server.token()}", "Content-Type": "application/json"}
        body = b'{"subscriptions": [{"topics": ["demo.a"]}]}'
        async with (
            asyncio.timeout(BOUND),
            http_client(base_url=server.http) as client,
            client.stream("POST", "/v1/subscribe", headers=headers, content=body) as answer,
        ):
            assert answer.status_code == 200
        assert sizes == [len(body)]


async def test_snapshots_of_many_members_take_turns_before_later_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    topics = [f"room.{n}" for n in range(30)]
    members = [await rig.client(name) for name in "abcde"]
    for member in members:
        member.subscribe(*topics, presence=False)
    watcher = await rig.client("watcher")
    rig.pace = turns.SECONDS / 3
    watcher.say("subscribe", topics=["room.*"])
    received = watcher.read()
    assert len(received) <= 3
    members[0].say("presence.update", topic="room.29", data={"status": "late"})
    async with asyncio.timeout(BOUND):
        while received[-1]["type"] != "message":
            await asyncio.sleep(0)
            more = watcher.read()
            assert len(more) <= 3
            received += more
    shown = [each for each in received if each["type"] == "presence.snapshot"]
    assert [each["topic"] for each in shown] == topics
    assert {len(each["members"]) for each in shown} == {5}
    assert shown[-1]["members"][0]["status"] == "late"
    assert received[-1]["message"]["data"]["status"] == "late"


async def test_a_snapshot_in_its_turn_is_left_out_if_its_subscription_has_ended() -> None:
    rig = Rig()
    topics = [f"room.{n}" for n in range(200)]
    member, watcher = await rig.client("member"), await rig.client("watcher")
    member.subscribe(*topics, presence=False)
    await asyncio.sleep(0)
    rig.pace = turns.SECONDS / 3
    watcher.say("subscribe", topics=["room.*"], ref="s")
    watcher.say("unsubscribe", topics=["room.*"], ref="u")
    received = watcher.read()
    async with asyncio.timeout(BOUND):
        while not received or received[-1].get("ref") != "u":
            await asyncio.sleep(0)
            received += watcher.read()
    assert len([each for each in received if each["type"] == "presence.snapshot"]) < len(topics)


async def test_changes_of_presence_take_turns_in_their_order() -> None:
    rig = Rig()
    alice, bob = await rig.members("room")
    rig.use_up_turn()
    bob.say("presence.update", data={"status": "one"}, ref="1")
    bob.say("presence.update", topic="elsewhere", data={}, ref="2")
    bob.say("ping", ref="3")
    assert (bob.read(), bob.sink.holds) == ([], [True])
    await rig.settle()
    answers = [each for each in bob.read() if "ref" in each]
    assert [(each["type"], each["ref"]) for each in answers] == [
        ("published", "1"),
        ("error", "2"),
        ("pong", "3"),
    ]
    assert bob.sink.holds[-1] is False
    changes = [each["message"] for each in alice.read() if each["type"] == "message"]
    assert [each["data"]["status"] for each in changes] == ["one"]


async def test_long_lists_of_topics_and_messages_take_turns_in_their_order() -> None:
    rig = Rig(max_payload=10_000)
    topics = [f"long.list.{n}" for n in range(1_000)]
    peers = [await rig.client(f"user{n}") for n in range(20)]
    for peer in peers:
        peer.say("subscribe", topics=topics, presence=False)
        await rig.settle()
        peer.read()
    await asyncio.sleep(0)
    rig.pace = turns.SECONDS / 5
    for peer in peers:
        peer.say("unsubscribe", topics=topics, ref="1")
        peer.say("publish", messages=[{"topic": "a", "data": n} for n in range(500)], ref="2")
        peer.say("ping", ref="3")
    answered = [[frame["ref"] for frame in peer.read()] for peer in peers]
    assert 0 < sum(map(len, answered)) < 15
    assert peers[-1].sink.holds[-1] is True
    await rig.settle()
    for peer, refs in zip(peers, answered, strict=True):
        assert [*refs, *(frame["ref"] for frame in peer.read())] == ["1", "2", "3"]
        assert peer.sink.holds[-1:] in ([], [False])
    assert len(rig.hub.core.router) == 0


class LateStore:
    """Lets replays of a rig wait.

    Attributes:
        asked: Number of requested replays.
        waiting: Number of those that are awaited.
        answer: Set to answer them.
    """

    def __init__(self, rig: Rig) -> None:
        self.asked = self.waiting = 0
        self.answer = asyncio.Event()
        self._failed = asyncio.Event()
        self._store = rig.hub.core.backplane
        self._store.replay = self._replay  # type: ignore[method-assign]

    def _replay(self, topics: Sequence[str], *given: Any, **options: Any) -> Any:
        self.asked += 1
        store: Any = self._store
        return self._late(MemoryBackplane.replay(store, topics, *given, **options))

    def fail(self) -> None:
        """Reject those that are awaited now."""
        self._failed.set()
        self._failed = asyncio.Event()

    async def _late(self, found: Replay | Awaitable[Replay]) -> Replay:
        self.waiting += 1
        ends = [asyncio.ensure_future(each.wait()) for each in (self.answer, self._failed)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if not self.answer.is_set():
            raise ServiceError("unavailable", "the store failed")
        return cast("Replay", found)


async def test_large_subscriptions_wait_for_others_that_the_store_has_not_answered() -> None:
    rig = Rig()
    store = LateStore(rig)
    peers = [await rig.client(f"user{n}") for n in range(10)]
    topics = [f"t.{n}" for n in range(large_subscriptions.MANY + 1)]
    for peer in peers:
        peer.say("subscribe", topics=topics, presence=False, ref="1")
        await rig.hub.core.turns.wait()
    alice = await rig.client("alice")
    alice.say("subscribe", topics=["small"], presence=False, ref="1")
    await rig.hub.core.turns.wait()
    await asyncio.sleep(0)
    assert store.asked == large_subscriptions.AT_ONCE + 1
    # The server does not read in the meantime, so it receives nothing from its clients.
    rig.advance(100)
    store.answer.set()
    await rig.settle()
    assert [peer.read()[-1]["ref"] for peer in (*peers, alice)] == ["1"] * 11
    assert store.asked == 11


@pytest.mark.parametrize("failing", [False, True])
async def test_large_subscriptions_do_not_outwait_a_store_that_answers_none(
    failing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_subscriptions, "PATIENCE", 0.05)
    rig = Rig()
    store = LateStore(rig)
    peers = [await rig.client(f"user{n}") for n in range(10)]
    for peer in peers:
        peer.say("subscribe", topics=[f"t.{n}" for n in range(large_subscriptions.MANY + 1)])
        await rig.hub.core.turns.wait()
    first, waiting = (peers[: large_subscriptions.AT_ONCE], peers[large_subscriptions.AT_ONCE :])
    if failing:
        # Others take their places, for the rest of their time.
        store.fail()
    received: list[Any] = []
    async with asyncio.timeout(60):
        while len(received) < len(waiting):
            await asyncio.sleep(0.01)
            received += [frame for peer in waiting for frame in peer.read()]
    assert [frame["code"] for frame in received] == ["unavailable"] * len(waiting)
    assert [frame["code"] for peer in first for frame in peer.read()] == (
        ["unavailable"] * len(first) if failing else []
    )
    # Those that wait later have their own time, and the store answers again.
    store.answer.set()
    await rig.settle()
    peers[-1].say("subscribe", topics=["a"], presence=False, ref="again")
    await rig.settle()
    assert peers[-1].read()[-1]["ref"] == "again"


async def test_large_subscriptions_outwait_the_turns_of_a_busy_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_subscriptions, "PATIENCE", 1e-9)
    rig = Rig()
    peers = [await rig.client(f"user{n}") for n in range(10)]
    rig.use_up_turn()
    for peer in peers:
        topics = [f"t.{n}" for n in range(large_subscriptions.MANY + 1)]
        peer.say("subscribe", topics=topics, presence=False, ref="1")
    await rig.settle()
    assert [frame["type"] for peer in peers for frame in peer.read()] == ["subscribed"] * 10


async def test_large_subscriptions_of_one_turn_ask_the_store_only_if_they_wait_for_it() -> None:
    rig = Rig()
    store = LateStore(rig)
    peers = [await rig.client(f"user{n}") for n in range(10)]
    for peer in peers:
        peer.say(
            "subscribe", topics=[f"t.{n}" for n in range(large_subscriptions.MANY + 1)], ref="1"
        )
    for _ in range(3):
        await asyncio.sleep(0)
    assert store.asked == store.waiting == large_subscriptions.AT_ONCE
    store.answer.set()
    await rig.settle()
    assert store.waiting == 10


async def test_a_very_long_frame_that_waits_for_its_turn_is_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    alice = await rig.client("alice")
    parsed: list[int] = []

    def noted(data: str | bytes) -> dict[str, Any]:
        parsed.append(len(data))
        return codec.parse(data)

    monkeypatch.setattr(inbound, "parse", noted)
    rig.use_up_turn()
    alice.say("publish", messages=[{"topic": "t", "data": "x" * 100_000}] * 12)
    assert not parsed
    await rig.settle()
    assert len(parsed) == 1
    assert rig.hub.stats.published == 12


async def test_batches_that_fit_into_one_turn_share_it() -> None:
    rig = Rig()
    peers = [await rig.client(f"user{n}") for n in range(4)]
    messages = [{"topic": "t", "data": "x" * 80}] * 50
    rig.use_up_turn()
    for peer in peers:
        peer.say("publish", messages=messages)
    assert rig.hub.stats.published == 0
    for _ in range(3):
        await asyncio.sleep(0)
    assert rig.hub.stats.published == 200
    await rig.settle()


async def test_batches_that_wait_for_their_turn_are_published_though_their_client_has_closed() -> (
    None
):
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a", presence=False)
    rig.use_up_turn()
    messages = [{"topic": "a", "data": "x" * 100}] * 100
    bob.say("publish", messages=messages)
    bob.say("publish", messages=messages)
    bob.say("publish", topic="a", data="last")
    bob.close(1000)
    assert alice.messages() == []
    await rig.settle()
    received = alice.messages()
    assert len(received) == 201
    assert received[-1]["data"] == "last"


async def test_batches_that_wait_for_their_turn_end_with_a_connection_that_the_server_ends() -> (
    None
):
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a", presence=False)
    rig.use_up_turn()
    messages = [{"topic": "a", "data": "x" * 100}] * 100
    bob.say("publish", messages=messages)
    bob.say("publish", messages=messages)
    rig.hub.end(bob.connection, ServiceError("forbidden", "the account is locked"))
    await rig.settle()
    assert len(alice.messages()) == 100


async def test_frames_that_wait_end_with_a_connection_that_unreadable_ones_among_them_end() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a", presence=False)
    rig.use_up_turn()
    bob.say("publish", messages=[{"topic": "a", "data": "x" * 100}] * 100)
    for _ in range(inbound.BAD_FRAMES):
        rig.hub.receive(bob.connection, "{")
    bob.say("publish", topic="a", data="too late")
    await rig.settle()
    assert bob.connection.closed
    assert len(alice.messages()) == 100


async def test_a_client_that_closes_while_its_batches_wait_gets_no_new_rate_budget() -> None:
    rig = Rig(publish_rate_user=150)
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a", presence=False)
    rig.use_up_turn()
    messages = [{"topic": "a", "data": "x" * 100}] * 100
    bob.say("publish", messages=messages[:1])
    bob.say("publish", messages=messages)
    bob.say("publish", messages=messages)
    bob.close(1000)
    await rig.settle()
    assert len(alice.messages()) == 150


async def test_connections_with_many_topics_that_close_together_take_turns() -> None:
    rig = Rig()
    topics = [f"t.{n}" for n in range(1_000)]
    alice = await rig.client("alice")
    peers = [await rig.client(f"user{n}") for n in range(20)]
    for number, peer in enumerate(peers):
        peer.say("subscribe", topics=[*topics[1:], f"own.{number}.*"], presence=False)
        await rig.settle()
    await asyncio.sleep(0)
    rig.pace = turns.SECONDS / 10
    for peer in peers:
        peer.read()
        peer.close()
    router = rig.hub.core.router
    assert len(topics) + 10 < len(router) < len(topics) + 19
    assert rig.hub.stats.subscriptions == 0
    alice.publish("t.7", 1)
    alice.read()
    assert [peer.sink.writes for peer in peers] == [[]] * 20
    await rig.hub.turn(0)
    for _ in range(20):
        await rig.hub.core.turns.wait()
    assert len(router) == 0


async def test_members_of_many_topics_leave_in_turns_unless_they_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    topics = [f"room.{n}" for n in range(3 * attendance.LEAVES)]
    watcher, mallory = await rig.client("watcher"), await rig.client("mallory")
    watcher.subscribe("room.*")
    mallory.subscribe(*topics, presence=False)
    await rig.settle()
    watcher.read()
    rig.use_up_turn()
    rig.pace = turns.SECONDS / 2
    mallory.close(1000)
    assert watcher.read() == []
    again = await rig.client("mallory", client_id=mallory.connection.client_id)
    assert again.connection.client_id == mallory.connection.client_id
    rig.hub.attendance.enter(again.connection, topics[7])
    left = 0
    async with asyncio.timeout(BOUND):
        while len(rig.hub.core.presence) > 1:
            await asyncio.sleep(0)
            some = len(watcher.presence())
            assert some <= 2 * attendance.LEAVES
            left += some
    assert left == len(topics) - 1
    assert rig.hub.core.presence.topics() == [topics[7]]


async def test_replays_do_not_accumulate_for_a_client_that_does_not_read() -> None:
    rig = Rig()
    writer, mallory = await rig.client("writer"), await rig.client("mallory")
    writer.publish("a", 1)
    rig.hub.pause(mallory.connection)
    for n in range(500):
        mallory.say("subscribe", topics=["a"], history=10, presence=False, ref=str(n))
    backlog = mallory.connection.backlog
    assert backlog is not None
    assert len(backlog) == delivery.CROWDED
    assert mallory.sink.holds == [True]
    rig.hub.resume(mallory.connection)
    await rig.settle()
    assert [frame["ref"] for frame in mallory.read()] == [str(n) for n in range(500)]
    assert mallory.sink.holds[-1] is False


async def test_a_client_that_does_not_read_its_replays_is_cut_by_the_idle_timeout() -> None:
    rig = Rig()
    mallory = await rig.client("mallory")
    rig.hub.pause(mallory.connection)
    for n in range(100):
        mallory.say("subscribe", topics=["a"], history=10, presence=False, ref=str(n))
    rig.advance(31)
    assert mallory.ending() == (4408, "idle_timeout")
    await rig.settle()


async def test_bytes_buffered_before_the_first_auth_are_bounded() -> None:
    rig = Rig()
    rig.people.gate = asyncio.Event()
    mallory = rig.stranger()
    mallory.say("auth", token="mallory")
    for _ in range(20):
        mallory.send(b'{"type":"ping","pad":"' + b"x" * 200_000 + b'"}')
    waiting = mallory.connection.waiting
    assert waiting is not None
    assert sum(len(each) for each in waiting if isinstance(each, bytes)) <= inbound.WAITING_BYTES
    rig.people.gate.set()
    await rig.settle()
    kinds = [frame["type"] for frame in mallory.read()]
    assert kinds.count("pong") == len(kinds) - 1 - kinds.count("error") == 5


async def test_a_list_of_topics_looks_into_those_it_names_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    many_topics(rig, 500)
    looked: list[TopicLog] = []
    alive = TopicLog.alive

    def counted(log: TopicLog, now: int) -> list[Entry]:
        looked.append(log)
        return alive(log, now)

    monkeypatch.setattr(TopicLog, "alive", counted)
    boss = await rig.client("boss:admin")
    boss.subscribe("org.o0.t0", "org.o0.t0a", "z")
    looked.clear()
    assert boss.connection.identity is not None
    reports, more = await rig.hub.topics(boss.connection.identity, prefix="org.", limit=3)
    names = [report.topic for report in reports]
    assert (names, more) == (["org.o0.t0", "org.o0.t0a", "org.o0.t105"], True)
    assert len(looked) <= 4


async def test_endless_joins_and_leaves_are_paced_by_their_receivers() -> None:
    rig = Rig()
    mallory = await rig.client("mallory")
    for n in range(200):
        (await rig.client(f"user{n}")).subscribe("room")
        await asyncio.sleep(0)
    rig.pace = turns.SECONDS / 100
    for _ in range(1000):
        mallory.say("subscribe", topics=["room"], presence=False)
        mallory.say("unsubscribe", topics=["room"])
    assert rig.hub.stats.presence_changes < 1000
    mallory.close()
    await rig.settle()
