"""The protocol of one connection between two nodes, without a connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hanzoai.pubsub.links.unparsed import FrameError
from pubsub_server.backplanes.mesh import codec
from pubsub_server.backplanes.mesh.codec import Member
from pubsub_server.backplanes.mesh.peering import (
    DEAD_AFTER,
    GREETING,
    Acknowledged,
    Event,
    Introduced,
    Left,
    MembersListed,
    Peering,
    Raw,
    Subscribed,
    Terms,
    Unsubscribed,
    Welcomed,
)

HEARTBEAT, WINDOW = 10.0, 2.0
LOW = Terms("node-a", "s1", "127.0.0.1:1", None, HEARTBEAT, WINDOW, 1_000)
HIGH = Terms("node-b", "s2", "127.0.0.1:2", None, HEARTBEAT, WINDOW, 1_000)
PING, PONG = (codec.frame(codec.HEARTBEAT, body) for body in (codec.PING, codec.PONG))
KEY = b"k" * 32


def peering(terms: Terms = LOW, *, dialed: bool = True, nonce: bytes = b"1" * 16) -> Peering:
    return Peering(terms, nonce, dialed=dialed, now=0.0)


def passed(one: Peering, other: Peering) -> list[Event]:
    """Pass the bytes of one side to the other, and return its events."""
    return list(other.received(one.output(), 0.0))


def greeted(low: Terms = LOW, high: Terms = HIGH) -> tuple[Peering, Peering]:
    """Two nodes that use their connection."""
    one, other = peering(low), peering(high, dialed=False, nonce=b"2" * 16)
    for _ in range(2):
        passed(one, other)
        passed(other, one)
    one.accept(missed=False)
    passed(one, other)
    other.accept(missed=False)
    passed(other, one)
    return one, other


def refusal(node: Peering, data: bytes, now: float = 0.0) -> str:
    with pytest.raises(FrameError) as caught:
        list(node.received(data, now))
    return caught.value.reason


@pytest.mark.parametrize("key", [None, KEY])
def test_two_nodes_introduce_and_welcome_each_other(key: bytes | None) -> None:
    one, other = peering(replace(LOW, key=key)), peering(replace(HIGH, key=key), dialed=False)
    events = [passed(one, other), passed(other, one), passed(one, other), passed(other, one)]
    found = [event for some in events for event in some]
    assert sorted(each.hello.node for each in found if isinstance(each, Introduced)) == [
        *("node-a", "node-b"),
    ]
    one.accept(missed=True)
    assert passed(one, other) == [Welcomed(plain=False, missed=True)]
    other.accept(missed=False)
    assert passed(other, one) == [Welcomed(plain=False, missed=False)]


def test_the_node_with_the_lower_id_sends_its_welcome_first_and_once() -> None:
    one, other = greeted()
    welcome = codec.frame(codec.WELCOME, codec.OK)
    assert refusal(one, welcome) == refusal(other, welcome) == "bad_order"
    early = peering(LOW)
    list(early.received(peering(HIGH).output(), 0.0))
    assert refusal(early, welcome) == "bad_order"
    assert refusal(peering(), welcome) == "bad_order"


def test_a_welcome_before_the_proof_is_refused() -> None:
    one, other = peering(replace(HIGH, key=KEY)), peering(replace(LOW, key=KEY), dialed=False)
    passed(other, one)
    assert refusal(one, codec.frame(codec.WELCOME, codec.OK)) == "bad_order"


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        (LOW, LOW, "myself"),
        (LOW, replace(LOW, start="s9"), "duplicate_id"),
        (LOW, replace(HIGH, key=KEY), "wrong_key"),
        (replace(LOW, key=KEY), HIGH, "wrong_key"),
    ],
)
def test_a_hello_of_the_wrong_node_is_refused(mine: Terms, theirs: Terms, reason: str) -> None:
    assert refusal(peering(mine), peering(theirs).output()) == reason


def test_a_second_hello_is_refused() -> None:
    one = peering()
    hello = peering(HIGH).output()
    list(one.received(hello, 0.0))
    assert refusal(one, hello) == "bad_order"


def test_another_version_is_refused() -> None:
    theirs = codec.Hello(codec.VERSION + 1, "node-b", "s2", "127.0.0.1:2", b"2" * 16, False)
    assert refusal(peering(), codec.hello(theirs)) == "version"


@pytest.mark.parametrize(
    ("sender", "dialed", "nonce", "ok"),
    [
        (HIGH, False, b"2", True),
        (HIGH, True, b"2", False),
        (HIGH, False, b"3", False),
        (replace(HIGH, key=b"x" * 32), False, b"2", False),
        (replace(HIGH, node="node-c"), False, b"2", False),
    ],
    ids=["right", "role", "connection", "key", "node"],
)
def test_a_proof_holds_for_one_key_node_role_and_connection(
    sender: Terms, dialed: bool, nonce: bytes, ok: bool
) -> None:
    one = peering(replace(LOW, key=KEY))
    list(one.received(peering(replace(HIGH, key=KEY), nonce=b"2" * 16).output(), 0.0))
    prover = peering(replace(sender, key=sender.key or KEY), dialed=dialed, nonce=nonce * 16)
    prover.output()
    list(prover.received(peering(replace(LOW, key=KEY)).output(), 0.0))
    proof = prover.output()
    if ok:
        assert [type(event) for event in one.received(proof, 0.0)] == [Introduced]
    else:
        assert refusal(one, proof) == "wrong_key"


def test_a_proof_that_was_not_requested_is_refused() -> None:
    proof = codec.frame(codec.PROOF, b"x" * 32)
    assert refusal(peering(), proof) == "bad_order"
    assert refusal(peering(replace(LOW, key=KEY)), proof) == "bad_order"
    one, other = greeted(replace(LOW, key=KEY), replace(HIGH, key=KEY))
    assert refusal(one, proof) == refusal(other, proof) == "bad_order"
    assert refusal(greeted()[0], proof) == "bad_order"


def test_a_peer_sends_large_frames_only_after_its_proof() -> None:
    large = codec.forward([b"a"], b"x" * codec.MAX_SMALL)
    low, high = (replace(terms, key=KEY, max_message=2 * codec.MAX_SMALL) for terms in (LOW, HIGH))
    one, _ = greeted(low, high)
    assert list(one.received(large, 0.0)) == [Raw([b"a"], b"x" * codec.MAX_SMALL)]
    assert refusal(peering(low), large) == "oversize"


def test_a_peer_without_a_hello_is_plain_and_uses_six_opcodes() -> None:
    one = peering()
    one.output()
    assert list(one.received(PING, 0.0)) == [Welcomed(plain=True, missed=False)]
    assert one.plain
    assert one.output() == PONG
    assert list(one.received(PONG, 0.0)) == []
    one.announcements.want(["a", "b.*"])
    one.announce(0.0)
    assert one.output() == codec.frame(codec.SUBSCRIBE, codec.topic_list([b"a"]))
    one.leave()
    assert one.output() == b""
    assert refusal(one, codec.frame(codec.LEAVING)) == "bad_order"
    assert refusal(one, peering(HIGH).output()) == "bad_order"
    assert refusal(peering(replace(LOW, key=KEY)), PING) == "wrong_key"


def test_a_heartbeat_before_the_welcome_is_ignored_and_other_frames_are_refused() -> None:
    one = peering()
    list(one.received(peering(HIGH).output(), 0.0))
    one.output()
    assert list(one.received(PING, 0.0)) == []
    assert one.output() == b""
    assert refusal(one, codec.frame(codec.SUBSCRIBE, codec.topic_list([b"a"]))) == "bad_order"


def test_a_silent_peer_is_asked_once_and_then_refused() -> None:
    one, patience = peering(), GREETING * WINDOW
    one.output()
    one.tick(patience - 0.1)
    assert one.output() == b""
    one.tick(patience)
    assert one.output() == PING
    one.tick(2 * patience - 0.1)
    assert one.output() == b""
    with pytest.raises(FrameError, match="sends nothing"):
        one.tick(2 * patience)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_greeting_that_is_not_completed_in_time_is_given_up(keyed: bool) -> None:
    one = peering(replace(LOW, key=KEY) if keyed else LOW)
    if not keyed:
        list(one.received(peering(HIGH).output(), 0.0))
    with pytest.raises(FrameError, match="not completed"):
        one.tick(GREETING * WINDOW)


def test_a_peer_that_answers_no_heartbeat_is_dead_and_any_frame_shows_that_it_lives() -> None:
    one, _ = greeted()
    for number in range(1, DEAD_AFTER + 1):
        one.tick(number * HEARTBEAT - 0.1)
        assert one.output() == b""
        one.tick(number * HEARTBEAT)
        assert one.output() == PING
    list(one.received(PONG * 9, 35.0))
    assert (one.pings, one.pongs) == (DEAD_AFTER, DEAD_AFTER)
    assert one.silence(36.0) == 1.0
    for number in range(DEAD_AFTER + 1, 2 * DEAD_AFTER + 1):
        one.tick(number * HEARTBEAT)
    with pytest.raises(FrameError) as caught:
        one.tick((2 * DEAD_AFTER + 1) * HEARTBEAT)
    assert caught.value.reason == "dead"


def test_requests_are_answered_and_reported() -> None:
    one, other = greeted()
    names = codec.topic_list([b"a", b"b.*"])
    assert list(one.received(codec.frame(codec.SUBSCRIBE, names), 0.0)) == [
        # The name of a topic has no wildcard.
        Subscribed(codec.SUBSCRIBE, ["a"])
    ]
    assert list(one.received(codec.frame(codec.PATTERNS, names), 0.0)) == [
        Subscribed(codec.PATTERNS, ["a", "b.*"])
    ]
    assert one.output() == b""
    one.acknowledge(codec.SUBSCRIBE, ok=True)
    assert one.output() == codec.frame(codec.SUBSCRIBE_ACK, codec.OK)
    assert list(one.received(codec.frame(codec.UNSUBSCRIBE, names), 0.0)) == [
        Unsubscribed(["a", "b.*"])
    ]
    assert one.output() == codec.frame(codec.UNSUBSCRIBE_ACK, codec.OK)
    for empty, answer in (
        (codec.SUBSCRIBE, codec.SUBSCRIBE_ACK),
        (codec.PATTERNS_END, codec.PATTERNS_END_ACK),
    ):
        list(one.received(codec.frame(empty), 0.0))
        assert one.output() == codec.frame(answer, codec.REFUSED)
    listed = [Member("node-c", "127.0.0.1:3")]
    other.send_members(listed)
    assert passed(other, one) == [MembersListed(listed)]
    assert list(one.received(codec.forward([b"a"], b"x"), 0.0)) == [Raw([b"a"], b"x")]
    assert refusal(one, codec.frame(codec.HEARTBEAT, b"pang")) == "bad_body"
    other.leave()
    assert passed(other, one) == [Left()]


def test_an_acknowledgement_says_whether_the_request_is_accepted() -> None:
    one, _ = greeted()
    one.announcements.want(["a"])
    one.tick(0.0)
    assert one.output() == codec.frame(codec.SUBSCRIBE, codec.topic_list([b"a"]))
    one.tick(WINDOW)
    for body, ok in ((codec.REFUSED, False), (codec.OK, None), (codec.OK, True)):
        expected = [] if ok is None else [Acknowledged(ok)]
        assert list(one.received(codec.frame(codec.SUBSCRIBE_ACK, body), 0.0)) == expected
