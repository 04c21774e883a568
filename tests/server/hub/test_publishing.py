from __future__ import annotations

import pytest

from tests.server.hub_rig import START_MS, Rig


async def test_a_message_reaches_all_subscribers_and_its_publisher() -> None:
    rig = Rig()
    alice, bob, eve = [await rig.client(name) for name in ("alice", "bob", "eve")]
    alice.subscribe("chat.a")
    bob.subscribe("chat.*")
    eve.subscribe("chat.b")
    for each in (alice, bob, eve):
        each.read()
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


async def test_the_sender_never_comes_from_the_client() -> None:
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
    assert alice.read() == []
    alice.say("publish", ref="7", message={"topic": "a", "data": 1, "id": "m1"})
    assert alice.read_one("published") == {
        "type": "published", "id": "m1", "timestamp": START_MS, "seq": START_MS * 1000 + 1,
        "duplicate": False, "ref": "7",
    }  # fmt: skip
    alice.say("publish", ref="8", message={"topic": "a", "data": 1, "id": "m1"})
    assert alice.read_one("published")["duplicate"] is True
    alice.say("publish", ref="9", message={"topic": "a", "data": 2, "id": "m1"})
    error = alice.read_one("error")
    assert (error["code"], error["topic"], error["ref"]) == ("conflict", "a", "9")


async def test_a_message_id_cannot_be_reserved_by_another_sender() -> None:
    rig = Rig()
    mallory, alice = await rig.client("mallory"), await rig.client("alice")
    mallory.publish("a", 1, id="m")
    alice.say("publish", ref="1", message={"topic": "a", "data": 1, "id": "m"})
    assert alice.read_one("published")["duplicate"] is False
    # She repeats the publish after a reconnect.
    again = await rig.client("alice")
    again.say("publish", ref="2", message={"topic": "a", "data": 1, "id": "m"})
    assert again.read_one("published")["duplicate"] is True


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
    frames = alice.read()
    (answer,) = [frame for frame in frames if frame["type"] == "published"]
    results = answer["results"]
    assert [r.get("error", {}).get("code") for r in results] == [
        None, "forbidden", "invalid_topic", None,
    ]  # fmt: skip
    assert results[3]["id"] == "m4"
    assert answer["ref"] == "b"
    assert [f["message"]["data"] for f in frames if f["type"] == "message"] == [1, 4]


@pytest.mark.parametrize("dev", [True, False])
async def test_a_development_server_names_the_topics_that_every_user_may_use(*, dev: bool) -> None:
    rig = Rig(dev=dev)
    rig.rules.unwritable = rig.rules.unreadable = lambda identity, topic: True
    alice = await rig.client("alice")
    alice.publish("a", 1)
    assert ("`demo.`" in alice.read_one("error")["message"]) is dev
    (denied,) = alice.subscribe("a")["denied"]
    assert ("`demo.`" in denied["message"]) is dev


async def test_publishing_is_checked_against_the_rules() -> None:
    rig = Rig()
    rig.rules.unwritable = lambda identity, topic: True
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.publish("a", 1)
    error = alice.read_one("error")
    assert (error["code"], error["topic"]) == ("forbidden", "a")
    assert "ref" not in error


async def test_the_publish_rate_is_limited_and_the_error_has_the_time_to_wait() -> None:
    rig = Rig(publish_rate_user=10, publish_rate_service=100)
    alice, bot = await rig.client("alice"), await rig.client("bot:service")
    for peer, rate in ((alice, 10), (bot, 100)):
        for number in range(rate + 1):
            peer.say("publish", ref=str(number), topic="a", data=1)
        answers = peer.read()
        assert [a["type"] for a in answers] == ["published"] * rate + ["error"]
        error = answers[-1]
        assert (error["code"], error["ref"]) == ("rate_limited", str(rate))
        assert 0 < error["retry_after_ms"] <= 1000 / rate + 1
    rig.advance(1)
    alice.say("publish", ref="x", topic="a", data=1)
    assert alice.read_one("published")


async def test_a_batch_counts_by_message() -> None:
    rig = Rig(publish_rate_user=10)
    alice = await rig.client("alice")
    alice.say("publish", ref="b", messages=[{"topic": "a", "data": n} for n in range(15)])
    results = alice.read_one("published")["results"]
    assert ["error" in r for r in results] == [False] * 10 + [True] * 5
    assert results[10]["error"]["code"] == "rate_limited"
    assert results[10]["error"]["retry_after_ms"] > 0


async def test_a_payload_over_the_limit_is_rejected_and_the_connection_stays_open() -> None:
    rig = Rig(max_payload=1000)
    alice = await rig.client("alice")
    alice.publish("a", "x" * 999)
    assert alice.read_one("error")["code"] == "payload_too_large"
    alice.publish("a", "x" * 998)
    assert alice.read() == []
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


async def test_a_message_is_measured_whatever_else_the_loop_turn_brings() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.read()
    measured = rig.hub.stats.publish_to_write
    before = measured.count
    alice.say("ping")
    alice.publish("a", 1)
    assert len(alice.messages()) == 1
    assert measured.count == before + 1
