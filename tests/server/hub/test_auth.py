from __future__ import annotations

import asyncio

import pytest

from pubsub_server.hub import inbound as module
from tests.server.hub_rig import START_MS, Rig


@pytest.mark.parametrize("version", [0, 2, None])
async def test_auth_is_answered_with_the_version_of_the_server(version: object) -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="alice", version=version)
    await rig.settle()
    assert peer.read_one("auth.ok")["version"] == 1


@pytest.mark.parametrize("version", ["0.9", "2.0", "1", 1.5])
async def test_a_version_that_is_not_an_integer_is_rejected(version: object) -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="alice", version=version)
    await rig.settle()
    error = peer.read_one("error")
    assert error["code"] == "invalid_frame"
    assert "`version`" in error["message"]


async def test_nothing_is_answered_before_auth() -> None:
    rig = Rig()
    peer = rig.stranger()
    for kind, fields in (
        ("subscribe", {"topics": ["a"]}),
        ("publish", {"topic": "a", "data": 1}),
        ("unsubscribe", {"topics": ["a"]}),
        ("presence.update", {"data": {}}),
        ("ping", {}),
        ("levitate", {}),
    ):
        peer.say(kind, ref="7", **fields)
        error = peer.read_one("error")
        assert (error["code"], error["ref"]) == ("unauthenticated", "7")
    assert peer.ending() is None


async def test_auth_ok_contains_the_identity_and_the_features_of_the_server() -> None:
    rig = Rig(publish_rate_user=10)
    peer = rig.stranger()
    peer.say("auth", token="Bearer alice:user:1700000100000", ref="r", version=1)
    await rig.settle()
    ok = peer.read_one("auth.ok")
    assert ok["client_id"].startswith("cl_")
    assert ok["ref"] == "r"
    assert ok["user_id"] == "alice"
    assert ok["version"] == 1
    assert ok["features"] == ["ref", "ack", "seq", "idempotency", "batch", "resume", "meta"]
    assert ok["expires_at"] == 1_700_000_100_000
    assert ok["server_time"] == START_MS
    assert ok["limits"] == {
        "publish_rate": 10, "max_payload": 262_144, "history_max": 100,
        "max_subscriptions": 1000, "max_batch": 1000,
    }  # fmt: skip


async def test_a_bad_token_is_refused_and_the_connection_ends() -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="bad", ref="r")
    await rig.settle()
    error = peer.read_one("auth.error")
    assert (error["code"], error["ref"]) == ("token_invalid", "r")
    assert peer.ending() == (4401, "token_invalid")


async def test_frames_that_follow_auth_at_once_wait_for_it() -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="alice")
    peer.say("subscribe", topics=["a"], ref="1")
    peer.say("ping", ref="2")
    assert peer.read() == []
    await rig.settle()
    assert [frame["type"] for frame in peer.read()] == [
        "auth.ok", "subscribed", "presence.snapshot", "pong",
    ]  # fmt: skip


async def test_frames_that_wait_for_auth_are_bounded() -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="alice")
    for _ in range(module.WAITING_FRAMES + 10):
        peer.say("ping")
    assert [frame["code"] for frame in peer.read()] == ["unauthenticated"] * 10


async def test_a_connection_without_auth_ends_after_its_deadline() -> None:
    rig = Rig(auth_deadline=5000)
    peer = rig.stranger()
    rig.advance(4.9)
    assert peer.read() == []
    rig.advance(0.2)
    assert peer.read_one("auth.error")["code"] == "auth_timeout"
    assert peer.ending() == (4401, "auth_timeout")


def token(ends_in: float) -> str:
    return f"alice:user:{START_MS + int(ends_in * 1000)}"


async def test_a_token_that_ends_is_announced_and_then_ends_the_connection() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000, program_timeout=0)
    alice = await rig.client(token(200))
    rig.advance(139.9)
    assert alice.read() == []
    rig.advance(0.2)
    expiring = alice.read_one("auth.expiring")
    assert expiring["expires_at"] == START_MS + 200_000
    assert 59_000 < expiring["expires_in"] <= 60_000
    rig.advance(59.8)
    assert alice.read() == []
    rig.advance(0.2)
    assert alice.read_one("auth.error")["code"] == "token_expired"
    assert alice.ending() == (4401, "token_expired")


async def test_a_client_with_short_tokens_is_not_asked_for_one_after_another() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000, program_timeout=0)
    alice = await rig.client(token(30))
    rig.advance(14.9)
    assert alice.read() == []
    rig.advance(0.2)
    assert 14_000 < alice.read_one("auth.expiring")["expires_in"] <= 15_000
    alice.say("auth", token=token(45))
    await rig.settle()
    alice.read_one("auth.ok")
    rig.advance(14.8)
    assert alice.read() == []
    rig.advance(0.3)
    alice.read_one("auth.expiring")


async def test_a_new_token_keeps_the_client_and_its_subscriptions() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000, program_timeout=0)
    alice = await rig.client(token(100))
    client_id = alice.connection.client_id
    alice.subscribe("a")
    rig.advance(50)
    alice.read()
    alice.say("auth", token=token(1000), ref="again")
    await rig.settle()
    ok = alice.read_one("auth.ok")
    assert (ok["client_id"], ok["ref"]) == (client_id, "again")
    rig.advance(100)
    assert alice.ending() is None
    alice.publish("a", 1)
    assert len(alice.messages()) == 1
    rig.advance(800)
    assert alice.read_one("auth.expiring")


async def test_nothing_is_lost_while_a_new_token_is_being_checked() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    rig.people.gate = asyncio.Event()
    alice.say("auth", token="alice", ref="1")
    await asyncio.sleep(0)
    alice.publish("a", 1)
    assert len(alice.messages()) == 1
    alice.say("auth", token="alice", ref="2")
    assert alice.read_one("error")["code"] == "rate_limited"
    rig.people.gate.set()
    await rig.settle()
    assert alice.read_one("auth.ok")["ref"] == "1"


async def test_a_new_token_that_is_bad_leaves_the_old_one_in_force() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    for bad in ("bad", "mallory", "alice:service"):
        alice.say("auth", token=bad)
        await rig.settle()
        assert alice.read_one("auth.error")["code"] == "token_invalid"
    assert alice.ending() is None
    alice.say("ping")
    assert alice.read_one("pong")


async def test_the_permissions_of_a_new_token_are_checked_again() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a", "b", "c.*")
    alice.publish("c.x", 0)
    assert len(alice.messages()) == 1
    rig.rules.unreadable = lambda identity, topic: topic in ("b", "c.x")
    alice.say("auth", token="alice")
    await rig.settle()
    frames = alice.read()
    assert [(f["code"], f["topic"]) for f in frames if f["type"] == "error"] == [("forbidden", "b")]
    for topic in ("a", "b", "c.x", "c.y"):
        alice.publish(topic, topic)
    assert [m["data"] for m in alice.messages()] == ["a", "c.y"]


async def test_connections_of_a_user_are_bounded() -> None:
    rig = Rig(connections_per_user=2)
    first = await rig.client("alice")
    await rig.client("alice")
    third = rig.stranger()
    third.say("auth", token="alice")
    await rig.settle()
    assert third.read_one("auth.error")["code"] == "connection_limit"
    assert third.ending() == (4429, "connection_limit")
    await rig.client("bob")
    first.close()
    first.close()
    await rig.client("alice")
