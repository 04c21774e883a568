from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.hub import subscriptions
from tests.server.hub_rig import START_MS, Rig

if TYPE_CHECKING:
    import pytest


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
    frames = alice.read()
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


async def test_truncated_and_reset_topics_of_a_replay_are_named() -> None:
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
    *frames, live = alice.read()
    assert len(frames) > 2
    assert [f.get("more", False) for f in frames] == [True] * (len(frames) - 1) + [False]
    assert [f["ref"] for f in frames] == ["1"] * len(frames)
    assert all(f["topics"] == ["a"] for f in frames)
    assert ["positions" in f for f in frames] == [False] * (len(frames) - 1) + [True]
    history = [m["data"][0] for f in frames for m in f["history"]]
    assert history == [str(n) for n in range(10)]
    assert live["message"]["data"] == "live"


async def test_a_denied_topic_is_reported_and_the_others_are_granted() -> None:
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
    frames = alice.read()
    assert [f["type"] for f in frames] == ["subscribed", "error"]
    assert (frames[1]["code"], frames[1]["topic"]) == ("forbidden", "closed")
    alice.say("subscribe", topics=["closed"], ref="1")
    assert [f["type"] for f in alice.read()] == ["subscribed"]


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
    alice.read()
    alice.publish("a", 2)
    assert len(alice.messages()) == 1


async def test_unsubscribe_ends_exactly_these_patterns() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a.b", "a.*", presence=False)
    alice.say("unsubscribe", topics=["a.b", "never"], ref="u")
    assert alice.read_one("unsubscribed") == {
        "type": "unsubscribed", "topics": ["a.b"], "ref": "u",
    }  # fmt: skip
    alice.publish("a.b", 1)
    assert len(alice.messages()) == 1
    alice.say("unsubscribe", topics=["a.*"])
    alice.publish("a.b", 2)
    assert alice.read() == []


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
    answer, live = alice.read()
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
