from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.backplanes.memory import MemoryBackplane
from pubsub_server.errors import ServiceError
from pubsub_server.hub import inbound as module
from pubsub_server.hub import subscriptions
from pubsub_server.hub.requests import Draft
from pubsub_server.interfaces import Published, WireForm
from tests.server.hub_rig import START_MS, Rig
from tests.server.test_history import memory_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pubsub_server.backplane import Replay

ANNA = Identity(user_id="anna", kind="admin")


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
        error = peer.hear_one("error")
        assert (error["code"], error["ref"]) == ("unauthenticated", "7")
    assert peer.ending() is None


async def test_auth_tells_who_one_is_and_what_the_server_can_do() -> None:
    rig = Rig(publish_rate_user=10)
    peer = rig.stranger()
    peer.say("auth", token="Bearer alice:user:1700000100000", ref="r", version=1)
    await rig.settle()
    ok = peer.hear_one("auth.ok")
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
    error = peer.hear_one("auth.error")
    assert (error["code"], error["ref"]) == ("token_invalid", "r")
    assert peer.ending() == (4401, "token_invalid")


async def test_frames_that_follow_auth_at_once_wait_for_it() -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="alice")
    peer.say("subscribe", topics=["a"], ref="1")
    peer.say("ping", ref="2")
    assert peer.hear() == []
    await rig.settle()
    assert [frame["type"] for frame in peer.hear()] == [
        "auth.ok", "subscribed", "presence.snapshot", "pong",
    ]  # fmt: skip


async def test_frames_that_wait_for_auth_are_bounded() -> None:
    rig = Rig()
    peer = rig.stranger()
    peer.say("auth", token="alice")
    for _ in range(module.WAITING_FRAMES + 10):
        peer.say("ping")
    assert [frame["code"] for frame in peer.hear()] == ["unauthenticated"] * 10


async def test_a_connection_without_auth_ends_after_its_deadline() -> None:
    rig = Rig(auth_deadline=5000)
    peer = rig.stranger()
    rig.advance(4.9)
    assert peer.hear() == []
    rig.advance(0.2)
    assert peer.hear_one("auth.error")["code"] == "auth_timeout"
    assert peer.ending() == (4401, "auth_timeout")


async def test_malformed_frames_are_refused_and_the_connection_lives() -> None:
    rig = Rig()
    peer = await rig.client("alice")
    for data in ("{", "[]", '"x"', b"\xff", '{"type":5}', '{"type":"subscribe"}'):
        peer.send(data)
        assert peer.hear_one("error")["code"] == "invalid_frame"
    peer.say("levitate", ref="9")
    assert peer.hear_one("error")["ref"] == "9"
    peer.say("ping", ref="a")
    assert peer.hear_one("pong")["ref"] == "a"


async def test_many_malformed_frames_in_a_row_end_the_connection() -> None:
    rig = Rig()
    peer = await rig.client("alice")
    for _ in range(module.BAD_FRAMES - 1):
        peer.send("{")
    peer.say("ping")
    for _ in range(module.BAD_FRAMES - 1):
        peer.send("{")
    assert peer.ending() is None
    peer.send("{")
    assert peer.ending() == (4400, "invalid_frame")


# ---------------------------------------------------------------- publish


async def test_a_message_reaches_all_subscribers_and_its_publisher() -> None:
    rig = Rig()
    alice, bob, eve = [await rig.client(name) for name in ("alice", "bob", "eve")]
    alice.subscribe("chat.a")
    bob.subscribe("chat.*")
    eve.subscribe("chat.b")
    for each in (alice, bob, eve):
        each.hear()
    alice.publish("chat.a", {"x": 1}, ttl=60, meta={"k": "v"})
    (message,) = alice.messages()
    assert message == {
        "id": message["id"], "topic": "chat.a", "type": "t", "data": {"x": 1},
        "sender": {"type": "user", "id": "alice"}, "timestamp": START_MS, "ttl": 60,
        "seq": START_MS * 1000, "meta": {"k": "v"},
    }  # fmt: skip
    assert message["id"].startswith("msg_")
    assert bob.messages() == [message]
    assert eve.messages() == []


async def test_the_sender_is_never_the_clients_word() -> None:
    rig = Rig()
    alice = await rig.client("alice:service")
    alice.subscribe("a")
    alice.publish("a", 1, sender={"type": "admin", "id": "root"}, timestamp=1, seq=5)
    (message,) = alice.messages()
    assert message["sender"] == {"type": "service", "id": "alice"}
    assert (message["timestamp"], message["seq"]) == (START_MS, START_MS * 1000)


async def test_a_publish_with_a_ref_is_answered_and_one_without_is_not() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.publish("a", 1)
    assert alice.hear() == []
    alice.say("publish", ref="7", message={"topic": "a", "data": 1, "id": "m1"})
    assert alice.hear_one("published") == {
        "type": "published", "id": "m1", "timestamp": START_MS, "seq": START_MS * 1000 + 1,
        "duplicate": False, "ref": "7",
    }  # fmt: skip
    alice.say("publish", ref="8", message={"topic": "a", "data": 1, "id": "m1"})
    assert alice.hear_one("published")["duplicate"] is True
    alice.say("publish", ref="9", message={"topic": "a", "data": 2, "id": "m1"})
    error = alice.hear_one("error")
    assert (error["code"], error["topic"], error["ref"]) == ("conflict", "a", "9")


async def test_a_repeated_id_is_delivered_once() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    for _ in range(3):
        alice.publish("a", 1, id="m")
    assert len(alice.messages()) == 1


async def test_a_batch_is_answered_item_by_item() -> None:
    rig = Rig()
    rig.rules.unwritable = lambda identity, topic: topic == "closed"
    alice = await rig.client("alice")
    alice.subscribe("**")
    alice.say(
        "publish",
        ref="b",
        messages=[
            {"topic": "a", "data": 1},
            {"topic": "closed", "data": 2},
            {"topic": "a.*", "data": 3},
            {"topic": "b", "data": 4, "id": "m4"},
        ],
    )
    frames = alice.hear()
    (answer,) = [frame for frame in frames if frame["type"] == "published"]
    results = answer["results"]
    assert [r.get("error", {}).get("code") for r in results] == [
        None, "forbidden", "invalid_topic", None,
    ]  # fmt: skip
    assert results[3]["id"] == "m4"
    assert answer["ref"] == "b"
    assert [f["message"]["data"] for f in frames if f["type"] == "message"] == [1, 4]


async def test_publishing_is_checked_against_the_rules() -> None:
    rig = Rig()
    rig.rules.unwritable = lambda identity, topic: True
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.publish("a", 1)
    error = alice.hear_one("error")
    assert (error["code"], error["topic"]) == ("forbidden", "a")
    assert "ref" not in error


async def test_the_publish_rate_is_kept_and_tells_when_to_come_again() -> None:
    rig = Rig(publish_rate_user=10, publish_rate_service=100)
    alice, bot = await rig.client("alice"), await rig.client("bot:service")
    for peer, rate in ((alice, 10), (bot, 100)):
        for number in range(rate + 1):
            peer.say("publish", ref=str(number), topic="a", data=1)
        answers = peer.hear()
        assert [a["type"] for a in answers] == ["published"] * rate + ["error"]
        error = answers[-1]
        assert (error["code"], error["ref"]) == ("rate_limited", str(rate))
        assert 0 < error["retry_after_ms"] <= 1000 / rate + 1
    rig.advance(1)
    alice.say("publish", ref="x", topic="a", data=1)
    assert alice.hear_one("published")


async def test_a_batch_counts_by_message() -> None:
    rig = Rig(publish_rate_user=10)
    alice = await rig.client("alice")
    alice.say("publish", ref="b", messages=[{"topic": "a", "data": n} for n in range(15)])
    results = alice.hear_one("published")["results"]
    assert ["error" in r for r in results] == [False] * 10 + [True] * 5
    assert results[10]["error"]["code"] == "rate_limited"
    assert results[10]["error"]["retry_after_ms"] > 0


async def test_a_payload_over_the_limit_is_refused_and_the_connection_lives() -> None:
    rig = Rig(max_payload=1000)
    alice = await rig.client("alice")
    alice.publish("a", "x" * 999)
    assert alice.hear_one("error")["code"] == "payload_too_large"
    alice.publish("a", "x" * 998)
    assert alice.hear() == []
    assert rig.hub.stats.published == 1


async def test_two_thousand_tokens_arrive_in_order() -> None:
    rig = Rig()
    alice, bot = await rig.client("alice"), await rig.client("bot:service")
    alice.subscribe("chat.a")
    for number in range(2000):
        bot.publish("chat.a", number)
    messages = alice.messages()
    assert [m["data"] for m in messages] == list(range(2000))
    first = messages[0]["seq"]
    assert [m["seq"] for m in messages] == list(range(first, first + 2000))


# ---------------------------------------------------------------- subscribe


async def test_a_subscription_is_answered_with_positions_and_time() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.publish("a", 1)
    answer = alice.subscribe("a", "b.*")
    assert answer == {
        "type": "subscribed", "topics": ["a", "b.*"], "history": [], "ref": "sub",
        "timestamp": START_MS - 1, "positions": {"a": START_MS * 1000},
    }  # fmt: skip


async def test_what_follows_the_answer_within_its_millisecond_is_newer_than_its_time() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    time = alice.subscribe("a")["timestamp"]
    alice.publish("a", 1)
    assert [m["data"] for m in alice.subscribe("a", since=time)["history"]] == [1]


async def test_history_comes_first_and_live_follows_without_a_gap() -> None:
    rig = Rig()
    alice, bot = await rig.client("alice"), await rig.client("bot:service")
    for number in range(3):
        bot.publish("a", number)
    alice.say("subscribe", topics=["a"], since=0, ref="1")
    bot.publish("a", 3)
    frames = alice.hear()
    assert [f["type"] for f in frames] == ["subscribed", "presence.snapshot", "message"]
    assert [m["data"] for m in frames[0]["history"]] == [0, 1, 2]
    assert frames[2]["message"]["seq"] == frames[0]["positions"]["a"] + 1


async def test_a_position_resumes_behind_it() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    for number in range(5):
        alice.publish("a", number)
    answer = alice.subscribe("a", after={"a": START_MS * 1000 + 2})
    assert [m["data"] for m in answer["history"]] == [3, 4]
    assert "truncated" not in answer
    assert "reset" not in answer


async def test_what_is_missing_is_said() -> None:
    rig = Rig(history_max_messages=2)
    alice = await rig.client("alice")
    for number in range(5):
        alice.publish("a", number)
    alice.publish("b", 1)
    answer = alice.subscribe("*", after={"a": START_MS * 1000, "b": 5})
    assert answer["truncated"] == ["a"]
    assert answer["reset"] == ["b"]


async def test_a_large_history_is_split_and_live_messages_come_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "FRAME_BYTES", 3_000)
    rig = Rig()
    alice, bot = await rig.client("alice"), await rig.client("bot:service")
    for number in range(10):
        bot.publish("a", str(number) * 1000)
    alice.say("subscribe", topics=["a"], history=100, ref="1", presence=False)
    bot.publish("a", "live")
    *frames, live = alice.hear()
    assert len(frames) > 2
    assert [f.get("more", False) for f in frames] == [True] * (len(frames) - 1) + [False]
    assert [f["ref"] for f in frames] == ["1"] * len(frames)
    assert all(f["topics"] == ["a"] for f in frames)
    assert ["positions" in f for f in frames] == [False] * (len(frames) - 1) + [True]
    history = [m["data"][0] for f in frames for m in f["history"]]
    assert history == [str(n) for n in range(10)]
    assert live["message"]["data"] == "live"


async def test_a_denied_topic_is_told_and_the_others_are_granted() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: topic == "closed"
    rig.rules.denied_patterns.add("**")
    alice = await rig.client("alice")
    answer = alice.subscribe("a", "closed", "a..b", "**")
    assert answer["topics"] == ["a"]
    assert {d["topic"]: d["code"] for d in answer["denied"]} == {
        "closed": "forbidden", "a..b": "invalid_topic", "**": "forbidden",
    }  # fmt: skip


async def test_a_client_that_sends_no_ref_gets_an_error_for_each_denied_topic() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: topic == "closed"
    alice = await rig.client("alice")
    alice.say("subscribe", topics=["a", "closed"], presence=False)
    frames = alice.hear()
    assert [f["type"] for f in frames] == ["subscribed", "error"]
    assert (frames[1]["code"], frames[1]["topic"]) == ("forbidden", "closed")
    alice.say("subscribe", topics=["closed"], ref="1")
    assert [f["type"] for f in alice.hear()] == ["subscribed"]


async def test_a_pattern_delivers_only_what_may_be_read() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: topic.endswith(f".not-{identity.user_id}")
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.publish("x.not-alice", 0)
    for peer in (alice, bob):
        history = peer.subscribe("x.*", since=0)["history"]
        assert len(history) == (peer is bob)
    alice.publish("x.not-alice", 1)
    alice.publish("x.not-bob", 2)
    alice.publish("x.all", 3)
    assert [m["data"] for m in alice.messages()] == [2, 3]
    assert [m["data"] for m in bob.messages()] == [1, 3]


async def test_a_pattern_takes_topics_that_come_later() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("agent.**.events")
    alice.publish("agent.x.y.events", 1)
    alice.publish("agent.events", 2)
    assert [m["data"] for m in alice.messages()] == [1]


async def test_overlapping_patterns_bring_one_copy() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a.b", "a.*", "**")
    alice.publish("a.b", 1)
    assert len(alice.messages()) == 1


async def test_subscribing_again_replays_again_and_counts_once() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.publish("a", 1)
    for _ in range(3):
        assert len(alice.subscribe("a", since=0)["history"]) == 1
    assert rig.hub.stats.subscriptions == 1
    alice.hear()
    alice.publish("a", 2)
    assert len(alice.messages()) == 1


async def test_unsubscribe_ends_exactly_these_patterns() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a.b", "a.*")
    alice.say("unsubscribe", topics=["a.b", "never"], ref="u")
    assert alice.hear_one("unsubscribed") == {
        "type": "unsubscribed", "topics": ["a.b"], "ref": "u",
    }  # fmt: skip
    alice.publish("a.b", 1)
    assert len(alice.messages()) == 1
    alice.say("unsubscribe", topics=["a.*"])
    alice.publish("a.b", 2)
    assert alice.hear() == []


async def test_what_was_published_before_unsubscribe_still_arrives() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    for peer in (alice, bob):
        peer.subscribe("a", presence=False)
    alice.publish("a", 1)
    alice.say("unsubscribe", topics=["a"])
    alice.publish("a", 2)
    assert [m["data"] for m in alice.messages()] == [1]
    assert [m["data"] for m in bob.messages()] == [1, 2]


async def test_what_was_published_before_subscribe_does_not_come_as_live() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    bob.subscribe("a", presence=False)
    bob.publish("a", 1)
    bob.publish("a", 2)
    alice.say("subscribe", topics=["a"], history=1, presence=False)
    bob.publish("a", 3)
    answer, live = alice.hear()
    assert [m["data"] for m in answer["history"]] == [2]
    assert live["message"]["data"] == 3


async def test_subscriptions_of_a_connection_are_bounded() -> None:
    rig = Rig(max_subscriptions=50)
    alice = await rig.client("alice")
    alice.subscribe(*(f"t{n}" for n in range(40)))
    answer = alice.subscribe(*(f"u{n}" for n in range(20)))
    assert len(answer["topics"]) == 10
    assert {d["code"] for d in answer["denied"]} == {"subscription_limit"}
    alice.say("unsubscribe", topics=["t0"])
    assert alice.subscribe("v")["topics"] == ["v"]


async def test_a_pattern_bomb_is_answered() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    bombs = [".".join(["**"] * n) for n in range(1, 60)] + [
        ".".join(["*", "**"] * n) for n in range(1, 40)
    ]
    assert len(alice.subscribe(*bombs)["topics"]) == len(bombs)
    alice.publish(".".join(["a"] * 120), 1)
    assert len(alice.messages()) == 1


# ---------------------------------------------------------------- tokens


def token(ends_in: float) -> str:
    return f"alice:user:{START_MS + int(ends_in * 1000)}"


async def test_a_token_that_ends_is_announced_and_then_ends_the_connection() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000)
    alice = await rig.client(token(200))
    rig.advance(139.9)
    assert alice.hear() == []
    rig.advance(0.2)
    expiring = alice.hear_one("auth.expiring")
    assert expiring["expires_at"] == START_MS + 200_000
    assert 59_000 < expiring["expires_in"] <= 60_000
    rig.advance(59.8)
    assert alice.hear() == []
    rig.advance(0.2)
    assert alice.hear_one("auth.error")["code"] == "token_expired"
    assert alice.ending() == (4401, "token_expired")


async def test_who_brings_short_tokens_is_not_asked_for_one_after_the_other() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000)
    alice = await rig.client(token(30))
    rig.advance(14.9)
    assert alice.hear() == []
    rig.advance(0.2)
    assert 14_000 < alice.hear_one("auth.expiring")["expires_in"] <= 15_000
    alice.say("auth", token=token(45))
    await rig.settle()
    alice.hear_one("auth.ok")
    rig.advance(14.8)
    assert alice.hear() == []
    rig.advance(0.3)
    alice.hear_one("auth.expiring")


async def test_a_new_token_keeps_the_client_and_its_subscriptions() -> None:
    rig = Rig(presence_timeout=1_000_000, server_ping_interval=1_000_000)
    alice = await rig.client(token(100))
    client_id = alice.connection.client_id
    alice.subscribe("a")
    rig.advance(50)
    alice.hear()
    alice.say("auth", token=token(1000), ref="again")
    await rig.settle()
    ok = alice.hear_one("auth.ok")
    assert (ok["client_id"], ok["ref"]) == (client_id, "again")
    rig.advance(100)
    assert alice.ending() is None
    alice.publish("a", 1)
    assert len(alice.messages()) == 1
    rig.advance(800)
    assert alice.hear_one("auth.expiring")


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
    assert alice.hear_one("error")["code"] == "rate_limited"
    rig.people.gate.set()
    await rig.settle()
    assert alice.hear_one("auth.ok")["ref"] == "1"


async def test_a_new_token_that_is_bad_leaves_the_old_one_in_force() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    for bad in ("bad", "mallory", "alice:service"):
        alice.say("auth", token=bad)
        await rig.settle()
        assert alice.hear_one("auth.error")["code"] == "token_invalid"
    assert alice.ending() is None
    alice.say("ping")
    assert alice.hear_one("pong")


async def test_a_new_token_is_asked_again_what_it_may() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a", "b", "c.*")
    alice.publish("c.x", 0)
    assert len(alice.messages()) == 1
    rig.rules.unreadable = lambda identity, topic: topic in ("b", "c.x")
    alice.say("auth", token="alice")
    await rig.settle()
    frames = alice.hear()
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
    assert third.hear_one("auth.error")["code"] == "connection_limit"
    assert third.ending() == (4429, "connection_limit")
    await rig.client("bob")
    first.close()
    first.close()
    await rig.client("alice")


# ---------------------------------------------------------------- liveness


async def test_a_silent_client_is_pinged_and_then_given_up() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a")
    for _ in range(20):
        rig.advance(1)
        rig.hub.heard(bob.connection)
        bob.hear()
    assert alice.pings == 0
    alice.hear()
    assert alice.pings == 1
    assert bob.pings == 0
    rig.advance(9.9)
    assert alice.ending() is None
    rig.hub.heard(bob.connection)
    rig.advance(0.2)
    assert alice.hear_one("error")["code"] == "idle_timeout"
    assert alice.ending() == (4408, "idle_timeout")
    assert bob.presence() == [("presence.leave", "alice")]


async def test_any_byte_counts_as_a_sign_of_life() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    for _ in range(20):
        rig.advance(16)
        rig.hub.heard(alice.connection)
    assert alice.ending() is None


async def test_a_stream_is_kept_alive_by_comments_and_never_idle() -> None:
    rig = Rig()
    stream = await rig.client("alice", WireForm.EVENT_STREAM)
    rig.advance(61)
    assert stream.hear() == [{"comment": "keepalive"}] * 4
    assert stream.ending() is None


# ---------------------------------------------------------------- presence


async def test_joining_is_told_to_the_others_and_a_snapshot_to_oneself() -> None:
    rig = Rig()
    alice, bob, watcher = [await rig.client(name) for name in ("alice", "bob", "watcher")]
    alice.subscribe("a")
    watcher.subscribe("*")
    bob.say("subscribe", topics=["a"])
    frames = bob.hear()
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
    (frame,) = alice.hear()
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
    snapshots = [f for f in watcher.hear() if f["type"] == "presence.snapshot"]
    assert {f["topic"]: [m["user_id"] for m in f["members"]] for f in snapshots} == {
        "room.a": ["alice"], "room.b": ["alice"],
    }  # fmt: skip
    assert alice.hear() == []


async def test_presence_updates_reach_everybody_by_all_three_ways() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a", "b")
    bob.subscribe("a")
    rig.rules.unwritable = lambda identity, topic: True
    alice.hear()
    alice.say("presence.update", data={"status": "typing"}, ref="1")
    answer = next(f for f in alice.hear() if f["type"] == "published")
    assert answer["ref"] == "1"
    (frame,) = bob.hear()
    assert frame["message"]["type"] == "presence.update"
    assert frame["message"]["data"]["status"] == "typing"
    alice.say("presence.update", topic="b", data={"status": "idle"})
    assert bob.hear() == []
    alice.say(
        "publish", ref="2", message={"topic": "a", "type": "presence.update", "data": {"k": 1}}
    )
    (frame,) = bob.hear()
    assert frame["message"]["data"]["metadata"] == {"k": 1}
    assert [f["ref"] for f in alice.hear() if f["type"] == "published"] == ["2"]


@pytest.mark.parametrize("kind", ["presence.join", "presence.leave", "presence.snapshot"])
async def test_only_the_server_announces_presence(kind: str) -> None:
    rig = Rig()
    service = await rig.client("bot:service")
    service.subscribe("a")
    service.say("publish", ref="1", message={"topic": "a", "type": kind, "data": {}})
    assert service.hear_one("error")["code"] == "forbidden"


async def test_presence_needs_a_member_and_a_right() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: topic == "closed"
    alice = await rig.client("alice")
    update: dict[str, Any] = {"type": "presence.update", "data": {}}
    for topic, code in (("closed", "forbidden"), ("elsewhere", "not_found")):
        alice.say("publish", ref="1", message={"topic": topic, **update})
        assert alice.hear_one("error")["code"] == code
    alice.say("presence.update", topic="elsewhere", data={}, ref="2")
    assert alice.hear_one("error")["ref"] == "2"
    (result,) = await rig.hub.publish(
        ANNA, [Draft("a", "presence.update", b"{}", None, None, None)]
    )
    assert isinstance(result, ServiceError)
    assert result.code == "unsupported"


async def test_presence_updates_count_against_the_rate() -> None:
    rig = Rig(publish_rate_user=5)
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.hear()
    for _ in range(6):
        alice.say("presence.update", data={"status": "x"}, ref="1")
    assert [f["code"] for f in alice.hear() if f["type"] == "error"] == ["rate_limited"]


async def test_unsubscribing_leaves() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a", "*")
    bob.say("unsubscribe", topics=["a"])
    assert [p for p in alice.presence() if p[0] == "presence.leave"] == [("presence.leave", "bob")]
    assert [m.user_id for m in await rig.hub.presence(ANNA, "a")] == ["alice"]


async def test_a_client_that_says_good_bye_leaves_at_once() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a")
    alice.hear()
    bob.close(1000)
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_lost_client_leaves_after_the_grace() -> None:
    rig = Rig(presence_grace=5000)
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a")
    alice.hear()
    bob.close(None)
    rig.advance(4.9)
    assert alice.hear() == []
    assert len(await rig.hub.presence(ANNA, "a")) == 2
    rig.advance(0.3)
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_client_that_comes_back_within_the_grace_does_not_flicker() -> None:
    rig = Rig(presence_grace=5000)
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a", "b")
    bob.say("presence.update", data={"status": "typing"})
    alice.hear()
    old = bob.connection.client_id
    bob.close(None)
    rig.advance(3)
    again = rig.stranger()
    again.say("auth", token="bob", client_id=old)
    await rig.settle()
    assert again.hear_one("auth.ok")["client_id"] == old
    again.subscribe("a")
    rig.advance(10)
    assert alice.hear() == []
    assert [m.status for m in await rig.hub.presence(ANNA, "a")] == [None, "typing"]
    assert await rig.hub.presence(ANNA, "b") == []


async def test_nobody_resumes_somebody_else() -> None:
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
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.subscribe("a")
    bob.subscribe("a")
    alice.hear()
    again = await rig.client("bob", client_id=bob.connection.client_id)
    assert bob.ending() == (4409, "replaced")
    again.subscribe("a")
    rig.advance(10)
    assert alice.hear() == []
    assert again.connection.client_id in rig.hub.core.connections


async def test_presence_can_be_declined() -> None:
    rig = Rig()
    alice, bob = await rig.client("alice"), await rig.client("bob")
    alice.say("subscribe", topics=["a"], presence=False)
    assert [f["type"] for f in alice.hear()] == ["subscribed"]
    alice.subscribe("b")
    bob.subscribe("a", "b")
    topics = [f["message"]["topic"] for f in alice.hear()]
    assert topics == ["b"]
    assert [m.user_id for m in await rig.hub.presence(ANNA, "a")] == ["alice", "bob"]
    alice.subscribe("a", presence=True)
    bob.say("unsubscribe", topics=["a"])
    assert alice.presence() == [("presence.leave", "bob")]


async def test_a_stream_hears_presence_as_a_list_and_is_a_member_only_if_it_says_so() -> None:
    rig = Rig()
    quiet = await rig.client("quiet", WireForm.EVENT_STREAM)
    loud = await rig.client("loud", WireForm.EVENT_STREAM)
    watching = await rig.client("watching", WireForm.EVENT_STREAM)
    quiet.send('{"type":"subscribe","topics":["a"],"presence":false}')
    watching.send('{"type":"subscribe","topics":["a"]}')
    loud.send('{"type":"subscribe","topics":["a"],"presence":true}')
    assert [e["event"] for e in quiet.hear()] == ["subscribed"]
    assert [e["event"] for e in watching.hear()] == ["subscribed", "presence", "presence"]
    assert [e["event"] for e in loud.hear()] == ["subscribed", "presence"]
    alice = await rig.client("alice")
    alice.subscribe("a")
    assert quiet.hear() == []
    (event,) = loud.hear()
    assert event["event"] == "presence"
    assert [(m["id"], m["user_id"]) for m in event["members"]] == [
        ("loud", "loud"), ("alice", "alice"),
    ]  # fmt: skip


# ---------------------------------------------------------------- streams


async def test_an_event_stream_carries_the_same_envelope_with_a_mark_to_resume_from() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    stream = await rig.client("alice", WireForm.EVENT_STREAM)
    alice.publish("a", 0)
    stream.send('{"type":"subscribe","topics":["a"],"since":0,"presence":false}')
    alice.subscribe("a")
    alice.publish("a", 1)
    subscribed, message = stream.hear()
    assert subscribed["event"] == "subscribed"
    assert subscribed["mark"] == f"{START_MS - 1}-a@{START_MS * 1000}"
    assert [m["data"] for m in subscribed["history"]] == [0]
    assert message["mark"] == f"{START_MS}-a@{START_MS * 1000 + 1}"
    (same,) = alice.messages()
    del message["event"], message["mark"]
    assert message == same


# ---------------------------------------------------------------- requests


async def test_history_is_paged_within_its_limits() -> None:
    rig = Rig(history_page_max=10, history_page_default=5)
    alice = await rig.client("alice")
    for number in range(20):
        alice.publish("a", number)
    page = await rig.hub.history(ANNA, "a")
    assert [orjson.loads(m)["data"] for m in page.messages] == [15, 16, 17, 18, 19]
    assert page.has_more
    for limit in (0, 11):
        with pytest.raises(ServiceError) as caught:
            await rig.hub.history(ANNA, "a", limit=limit)
        assert (caught.value.code, caught.value.field) == ("invalid_option", "limit")
    with pytest.raises(ServiceError) as caught:
        await rig.hub.history(ANNA, "a", before="m", after=5)
    assert caught.value.code == "invalid_option"


async def test_reading_needs_a_valid_topic_and_a_right() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: True
    for topic, code in (("a", "forbidden"), ("a.*", "invalid_topic")):
        with pytest.raises(ServiceError) as caught:
            await rig.hub.history(ANNA, topic)
        assert caught.value.code == code
        with pytest.raises(ServiceError) as caught:
            await rig.hub.presence(ANNA, topic)
        assert caught.value.code == code


async def test_topics_are_listed_for_admins() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("x.b")
    alice.publish("x.a", 1)
    alice.publish("y", 1)
    reports, more = await rig.hub.topics(ANNA, prefix="x.")
    assert [(r.topic, r.subscribers, r.messages) for r in reports] == [("x.a", 0, 1), ("x.b", 1, 0)]
    assert not more
    reports, more = await rig.hub.topics(ANNA, limit=1)
    assert ([r.topic for r in reports], more) == (["x.a"], True)
    with pytest.raises(ServiceError) as caught:
        await rig.hub.topics(Identity(user_id="alice"))
    assert caught.value.code == "forbidden"


async def test_what_rest_publishes_reaches_sockets() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    (result,) = await rig.hub.publish(ANNA, [Draft("a", "t", b"1", None, None, None)])
    assert isinstance(result, Published)
    assert [m["id"] for m in alice.messages()] == [result.id]


# ---------------------------------------------------------------- ends


async def test_a_slow_consumer_is_told_and_cut_and_catches_up_from_history() -> None:
    rig = Rig(send_queue_bytes=10_000)
    slow, quick = await rig.client("slow"), await rig.client("quick")
    first = slow.subscribe("a", presence=False)
    quick.subscribe("a", presence=False)
    slow.hear()
    rig.hub.pause(slow.connection)
    for number in range(50):
        quick.publish("a", str(number) * 300)
        rig.hub.core.delivery.flush()
    assert len(quick.messages()) == 50
    assert slow.hear_one("error")["code"] == "slow_consumer"
    assert slow.ending() == (4500, "slow_consumer")
    assert rig.hub.stats.slow_consumers == 1
    again = await rig.client("slow")
    history = again.subscribe("a", since=first["timestamp"])["history"]
    assert len(history) == 50


async def test_draining_says_good_bye_and_takes_nothing_new() -> None:
    rig = Rig()
    alice, stranger = await rig.client("alice"), rig.stranger()
    alice.subscribe("a")
    alice.publish("a", 1)
    await rig.hub.drain(1)
    for peer in (alice, stranger):
        assert peer.ending() == (1001, "going_away")
    frames = alice.hear()
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
    assert (stats.connections, stats.authenticated, stats.subscriptions) == ([0, 0], 0, 0)
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
    assert peer.hear() == []
    assert rig.hub.core.connections == {}
    for _ in range(rig.settings.connections_per_user):
        await rig.client("alice")


async def test_an_error_inside_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    alice = await rig.client("alice")

    def broken(identity: Identity, topic: str) -> bool:
        raise RuntimeError("rules are broken")

    rig.rules.unwritable = broken
    alice.say("publish", ref="1", topic="a", data=1)
    error = alice.hear_one("error")
    assert (error["code"], error["ref"]) == ("internal", "1")
    assert "rules are broken" not in error["message"]
    assert "could not be handled" in caplog.text


# ---------------------------------------------------------------- an asynchronous backplane


class FarBackplane(MemoryBackplane):
    """Answers later, as one behind a network does."""

    def __init__(self, wall: Callable[[], int]) -> None:
        store = memory_store()
        super().__init__(store, wall)
        self.gate = asyncio.Event()
        self.failing = False

    async def _wait(self) -> None:
        await self.gate.wait()
        if self.failing:
            raise ServiceError("unavailable", "the store does not answer", retry_after_ms=100)

    def publish(  # type: ignore[override]
        self, drafts: Sequence[Draft], sender: tuple[str, str]
    ) -> Awaitable[list[Published | ServiceError]]:
        async def later() -> list[Published | ServiceError]:
            await self._wait()
            return MemoryBackplane.publish(self, drafts, sender)

        return later()

    def replay(  # type: ignore[override]
        self, topics: Sequence[str], patterns: Sequence[str], *, since: int | None,
        after: Mapping[str, int], newest: int | None, allowed: Callable[[str], bool],
    ) -> Awaitable[Replay]:  # fmt: skip
        found = MemoryBackplane.replay(
            self, topics, patterns, since=since, after=after, newest=newest, allowed=allowed
        )

        async def later() -> Replay:
            await self._wait()
            return found

        return later()


async def test_live_messages_wait_behind_a_replay_that_is_on_its_way() -> None:
    backplane = FarBackplane(lambda: START_MS)
    rig = Rig(backplane=backplane)
    alice = await rig.client("alice")
    alice.say("subscribe", topics=["a"], since=0, ref="1", presence=False)
    MemoryBackplane.publish(backplane, [Draft("a", "t", b"1", None, None, None)], ("user", "u"))
    assert alice.hear() == []
    backplane.gate.set()
    await rig.settle()
    assert [f["type"] for f in alice.hear()] == ["subscribed", "message"]


async def test_a_publish_is_answered_when_the_store_has_answered() -> None:
    backplane = FarBackplane(lambda: START_MS)
    rig = Rig(backplane=backplane)
    alice = await rig.client("alice")
    alice.say("publish", ref="1", topic="a", data=1)
    assert alice.hear() == []
    backplane.gate.set()
    await rig.settle()
    assert alice.hear_one("published")["ref"] == "1"
    backplane.failing = True
    alice.say("publish", ref="2", topic="a", data=1)
    alice.say("subscribe", ref="3", topics=["a"])
    await rig.settle()
    errors = alice.hear()
    assert [(e["code"], e["ref"]) for e in errors] == [("unavailable", "2"), ("unavailable", "3")]
    alice.say("ping")
    assert alice.hear_one("pong")


# ---------------------------------------------------------------- who listens


class Ears:
    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def record(
        self, action: str, identity: Identity, topic: str, *, client_id: str | None,
        message_id: str | None = None, refused: str | None = None,
    ) -> None:  # fmt: skip
        self.heard.append((action, identity.user_id, topic, refused))

    def wants(self, event: str, topic: str) -> bool:
        return topic != "quiet"

    def notify(self, event: str, topic: str, body: bytes) -> None:
        self.heard.append((event, topic, orjson.loads(body)))


async def test_what_happens_is_audited_refusals_too() -> None:
    rig = Rig()
    ears = rig.hub.core.audit = Ears()
    rig.rules.unreadable = rig.rules.unwritable = lambda identity, topic: topic == "closed"
    alice = await rig.client("alice")
    alice.subscribe("a", "closed")
    alice.publish("a", 1)
    alice.publish("closed", 1)
    alice.say("unsubscribe", topics=["a"])
    assert ears.heard == [
        ("subscribe", "alice", "a", None),
        ("subscribe", "alice", "closed", "forbidden"),
        ("publish", "alice", "a", None),
        ("publish", "alice", "closed", "forbidden"),
        ("unsubscribe", "alice", "a", None),
    ]


async def test_webhooks_are_told_what_they_want() -> None:
    rig = Rig()
    ears = rig.hub.core.webhooks = Ears()
    alice = await rig.client("alice")
    alice.subscribe("a", "quiet")
    alice.subscribe("*")
    alice.hear()
    alice.publish("a", {"x": 1}, id="m")
    alice.publish("a", {"x": 1}, id="m")
    alice.publish("quiet", 2)
    (message,) = [m for m in alice.messages() if m["topic"] == "a"]
    alice.close(1000)
    told = [(event, topic) for event, topic, _ in ears.heard]
    assert told == [
        ("subscribe", "a"), ("join", "a"), ("subscribe", "*"), ("publish", "a"), ("leave", "a"),
    ]  # fmt: skip
    assert ears.heard[3][2] == message
