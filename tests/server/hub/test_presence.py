from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.errors import ServiceError
from pubsub_server.hub import attendance
from pubsub_server.listeners.websocket.encoder import SOCKET, SocketEncoder
from pubsub_server.shared import member_lists
from pubsub_server.shared.requests import Draft
from tests.server.hub_rig import ANNA, START_MS, STREAM, Rig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.server.hub_rig import Peer


async def test_a_join_is_sent_to_the_others_and_a_snapshot_to_the_new_member() -> None:
    rig = Rig()
    alice, bob, watcher = [await rig.client(name) for name in ("alice", "bob", "watcher")]
    alice.subscribe("a")
    watcher.subscribe("*")
    bob.say("subscribe", topics=["a"])
    frames = bob.read()
    assert [f["type"] for f in frames] == ["subscribed", "presence.snapshot"]
    assert [m["user_id"] for m in frames[1]["members"]] == ["alice", "bob"]
    assert frames[1]["members"][1] == {
        "client_id": bob.connection.client_id, "user_id": "bob", "name": "Bob",
        "joined_at": START_MS, "last_seen": START_MS,
    }  # fmt: skip
    assert alice.presence() == [("presence.join", "bob")]
    assert watcher.presence() == [("presence.join", "bob")]


async def test_a_presence_message_is_stamped_and_neither_numbered_nor_kept() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob:agent")
    alice.subscribe("a")
    bob.subscribe("a")
    (frame,) = alice.read()
    message = frame["message"]
    assert message["sender"] == {"type": "agent", "id": "bob"}
    assert message["topic"] == "a"
    assert "seq" not in message
    assert alice.subscribe("a", since=0)["history"] == []


async def test_a_pattern_watches_and_is_no_member() -> None:
    rig = Rig()
    alice, watcher = await rig.client("alice"), await rig.client("watcher")
    alice.subscribe("room.a", "room.b")
    watcher.say("subscribe", topics=["room.*"])
    snapshots = [f for f in watcher.read() if f["type"] == "presence.snapshot"]
    assert {f["topic"]: [m["user_id"] for m in f["members"]] for f in snapshots} == {
        "room.a": ["alice"], "room.b": ["alice"],
    }  # fmt: skip
    assert alice.read() == []


async def test_presence_updates_reach_all_members_on_all_three_paths() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a", "b")
    bob.subscribe("a")
    rig.rules.unwritable = lambda identity, topic: True
    alice.read()
    alice.say("presence.update", data={"status": "typing"}, ref="1")
    answer = next(f for f in alice.read() if f["type"] == "published")
    assert answer["ref"] == "1"
    (frame,) = bob.read()
    assert frame["message"]["type"] == "presence.update"
    assert frame["message"]["data"]["status"] == "typing"
    alice.say("presence.update", topic="b", data={"status": "idle"})
    assert bob.read() == []
    alice.say(
        "publish", ref="2", message={"topic": "a", "type": "presence.update", "data": {"k": 1}}
    )
    (frame,) = bob.read()
    assert frame["message"]["data"]["metadata"] == {"k": 1}
    assert [f["ref"] for f in alice.read() if f["type"] == "published"] == ["2"]


@pytest.mark.parametrize("kind", ["presence.join", "presence.leave", "presence.snapshot"])
async def test_only_the_server_announces_presence(kind: str) -> None:
    rig = Rig()
    service = await rig.client("bot:service")
    service.subscribe("a")
    service.say("publish", ref="1", message={"topic": "a", "type": kind, "data": {}})
    assert service.read_one("error")["code"] == "forbidden"


async def test_presence_needs_a_member_and_a_permission() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: topic == "closed"
    alice = await rig.client("alice")
    update: dict[str, Any] = {"type": "presence.update", "data": {}}
    for topic, code in (("closed", "forbidden"), ("elsewhere", "not_found")):
        alice.say("publish", ref="1", message={"topic": topic, **update})
        assert alice.read_one("error")["code"] == code
    alice.say("presence.update", topic="elsewhere", data={}, ref="2")
    assert alice.read_one("error")["ref"] == "2"
    (result,) = await rig.hub.publish(
        ANNA, [Draft("a", "presence.update", b"{}", None, None, None)]
    )
    assert isinstance(result, ServiceError)
    assert result.code == "unsupported"


async def test_presence_updates_count_against_the_rate() -> None:
    rig = Rig(publish_rate_user=5)
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.read()
    for _ in range(6):
        alice.say("presence.update", data={"status": "x"}, ref="1")
    assert [f["code"] for f in alice.read() if f["type"] == "error"] == ["rate_limited"]


async def test_unsubscribing_leaves() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a", "*")
    bob.say("unsubscribe", topics=["a"])
    assert [p for p in alice.presence() if p[0] == "presence.leave"] == [("presence.leave", "bob")]
    assert [m.user_id for m in await rig.hub.presence(ANNA, "a")] == ["alice"]


async def test_a_client_that_closes_its_connection_leaves_immediately() -> None:
    rig = Rig()
    alice, bob = await rig.members("a")
    bob.close(1000)
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_lost_client_leaves_after_the_grace() -> None:
    rig = Rig(presence_grace=5000)
    alice, bob = await rig.members("a")
    bob.close(None)
    rig.advance(4.9)
    assert alice.read() == []
    assert len(await rig.hub.presence(ANNA, "a")) == 2
    rig.advance(0.3)
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_client_that_is_lost_twice_has_its_whole_grace_each_time() -> None:
    rig = Rig(presence_grace=5000)
    alice, bob = await rig.members("a")
    old = bob.connection.client_id
    bob.close(None)
    rig.advance(3)
    again = rig.stranger()
    again.say("auth", token="bob", client_id=old)
    await rig.settle()
    again.subscribe("a")
    alice.read()
    again.close(None)
    rig.advance(4.9)
    assert alice.read() == []
    rig.advance(0.3)
    await asyncio.sleep(0)
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_client_that_reconnects_within_the_grace_stays_present() -> None:
    rig = Rig(presence_grace=5000)
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a", "b")
    bob.say("presence.update", data={"status": "typing"})
    alice.read()
    old = bob.connection.client_id
    bob.close(None)
    rig.advance(3)
    again = rig.stranger()
    again.say("auth", token="bob", client_id=old)
    await rig.settle()
    assert again.read_one("auth.ok")["client_id"] == old
    again.subscribe("a")
    rig.advance(10)
    assert alice.read() == []
    assert [m.status for m in await rig.hub.presence(ANNA, "a")] == [None, "typing"]
    assert await rig.hub.presence(ANNA, "b") == []


async def test_a_user_cannot_resume_the_session_of_another() -> None:
    rig = Rig()
    bob = await rig.client("bob")
    bob.subscribe("a")
    stolen = bob.connection.client_id
    mallory = await rig.client("mallory", client_id=stolen)
    assert mallory.connection.client_id != stolen
    assert bob.ending() is None
    unknown = await rig.client("bob", client_id="cl_0000")
    assert unknown.connection.client_id != "cl_0000"


async def test_a_client_that_is_back_before_its_old_connection_is_known_dead_replaces_it() -> None:
    rig = Rig()
    alice, bob = await rig.members("a")
    again = await rig.client("bob", client_id=bob.connection.client_id)
    assert bob.ending() == (4409, "replaced")
    again.subscribe("a")
    rig.advance(10)
    assert alice.read() == []
    assert again.connection.client_id in rig.hub.core.connections


async def test_presence_can_be_declined() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.say("subscribe", topics=["a"], presence=False)
    assert [f["type"] for f in alice.read()] == ["subscribed"]
    alice.subscribe("b")
    bob.subscribe("a", "b")
    topics = [f["message"]["topic"] for f in alice.read()]
    assert topics == ["b"]
    assert [m.user_id for m in await rig.hub.presence(ANNA, "a")] == ["alice", "bob"]
    alice.subscribe("a", presence=True)
    bob.say("unsubscribe", topics=["a"])
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_stream_receives_presence_as_a_list_and_is_a_member_only_on_request() -> None:
    rig = Rig()
    quiet = await rig.client("quiet", STREAM)
    loud = await rig.client("loud", STREAM)
    watching = await rig.client("watching", STREAM)
    quiet.send('{"type":"subscribe","topics":["a"],"presence":false}')
    watching.send('{"type":"subscribe","topics":["a"]}')
    loud.send('{"type":"subscribe","topics":["a"],"presence":true}')
    assert [e["event"] for e in quiet.read()] == ["subscribed"]
    assert [e["event"] for e in watching.read()] == ["subscribed", "presence", "presence"]
    assert [e["event"] for e in loud.read()] == ["subscribed", "presence"]
    alice = await rig.client("alice")
    alice.subscribe("a")
    assert quiet.read() == []
    (event,) = loud.read()
    assert event["event"] == "presence"
    assert [(m["id"], m["user_id"]) for m in event["members"]] == [
        ("loud", "loud"), ("alice", "alice"),
    ]  # fmt: skip


async def test_a_snapshot_that_clients_could_not_receive_has_no_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_lists, "MEMBERS_BYTES", 1_000)
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    for size in (100, 900, 1_000):
        alice.say("presence.update", topic="a", data={"text": "x" * size, "status": "here"})
        for encoder in (SOCKET, STREAM):
            reader = await rig.client("bob", encoder)
            reader.say("subscribe", topics=["*"], presence=True)
            (member,) = reader.read()[-1]["members"]
            assert member["status"] == "here"
            assert member.get("metadata") == ({"text": "x" * size} if size == 100 else None)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The lists of members that are encoded for WebSockets."""
    lists: list[object] = []
    encode = SocketEncoder.frame

    def note(encoder: SocketEncoder, frame: Mapping[str, object]) -> bytes:
        lists.extend([frame["members"]] if "members" in frame else [])
        return encode(encoder, frame)

    monkeypatch.setattr(SocketEncoder, "frame", note)
    return lists


async def test_metadata_that_alone_is_too_large_for_a_list_is_not_encoded_first(
    monkeypatch: pytest.MonkeyPatch, encoded: list[object]
) -> None:
    monkeypatch.setattr(member_lists, "MEMBERS_BYTES", 1_000)
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    alice.say("presence.update", topic="a", data={"text": "x" * 1_000})
    encoded.clear()
    bob.say("subscribe", topics=["*"])
    (members,) = encoded
    assert "xxx" not in str(members)


async def test_a_large_list_is_encoded_once_for_all_who_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, encoded: list[object]
) -> None:
    monkeypatch.setattr(attendance, "AT_ONCE", 1)
    rig = Rig()
    watchers = [await rig.client(f"watcher-{number}") for number in range(3)]
    alice, bob, cid = [await rig.client(name) for name in ("alice", "bob", "cid")]

    def lists(*clients: Peer) -> list[list[str]]:
        frames = [frame for client in clients for frame in client.read() if "members" in frame]
        return [[member["user_id"] for member in frame["members"]] for frame in frames]

    alice.subscribe("a")
    bob.subscribe("a")
    for watcher in watchers:
        watcher.say("subscribe", topics=["*"])
    assert lists(*watchers) == [["alice", "bob"]] * 3
    # The first one is that of alice, and the second one that of bob.
    assert len(encoded) == 2
    # Every change ends it: here, the joins of two, of whom the first waits for its list.
    for client in (cid, await rig.client("dan")):
        client.say("subscribe", topics=["a"])
    assert lists(cid)[0][:3] == ["alice", "bob", "cid"]
    alice.say("presence.update", topic="a", data={"status": "away"})
    watchers[0].say("unsubscribe", topics=["*"])
    watchers[0].say("subscribe", topics=["*"])
    (frame,) = [frame for frame in watchers[0].read() if "members" in frame]
    assert frame["members"][0]["status"] == "away"
    # The server does not keep the list indefinitely.
    rig.advance(10)
    assert not rig.hub.attendance._shared


async def test_a_large_list_is_not_kept_in_memory_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attendance, "AT_ONCE", 1)
    rig = Rig()
    alice, bob, watcher = [await rig.client(name) for name in ("alice", "bob", "watcher")]
    alice.subscribe("a")
    bob.subscribe("a")
    watcher.say("subscribe", topics=["*"])
    data = rig.hub.attendance._shared["a"][SOCKET]
    holders = sys.getrefcount(data)
    alice.say("presence.update", topic="a", data={"status": "away"})
    assert sys.getrefcount(data) == holders - 1
