"""Subscriptions of this node at one peer, without a connection."""

from __future__ import annotations

import pytest

from pubsub_server.backplanes.mesh.codec import (
    MAX_LIST,
    MAX_TOPIC,
    PATTERNS,
    PATTERNS_ACK,
    PATTERNS_END,
    SUBSCRIBE,
    SUBSCRIBE_ACK,
    UNSUBSCRIBE,
    UNSUBSCRIBE_ACK,
    frame,
    topic_list,
)
from pubsub_server.backplanes.mesh.lanes import (
    RESENDS,
    UNWANTED_MAX,
    Announcements,
    Lane,
    Unacknowledged,
)


def request(opcode: int, *names: str) -> bytes:
    return frame(opcode, topic_list(name.encode("latin-1") for name in names))


def strict() -> Lane:
    return Lane(SUBSCRIBE, 1.0, resends=RESENDS, strict=True)


def announcements(*, wildcards: bool = True) -> Announcements:
    return Announcements(1.0, wildcards=wildcards)


def test_a_subscription_that_was_taken_back_is_not_sent_again() -> None:
    lane = strict()
    for name in ("a", "b"):
        lane.add(name)
    assert lane.due(0) == request(SUBSCRIBE, "a", "b")
    lane.discard("a")
    assert lane.due(1) == request(SUBSCRIBE, "b")
    lane.discard("b")
    assert lane.due(2) == b""
    assert lane.done == lane.asked
    lane.add("c")
    assert lane.due(3) == request(SUBSCRIBE, "c")


def test_changes_wait_for_the_acknowledgement_and_are_then_sent_together() -> None:
    lane = strict()
    lane.add("a")
    assert lane.due(0) == request(SUBSCRIBE, "a")
    for name in ("b", "c", "d"):
        lane.add(name)
    lane.discard("c")
    assert (lane.unsent, lane.asked, lane.done) == (2, 4, 0)
    assert lane.due(0.5) == b""
    assert lane.acknowledged()
    assert lane.done == 1
    assert lane.due(0.6) == request(SUBSCRIBE, "b", "d")
    assert (lane.unsent, lane.done) == (0, 1)
    assert lane.acknowledged()
    assert lane.done == lane.asked == 4
    assert lane.due(9) == b""


def test_a_request_is_repeated_each_time_it_is_late_and_then_given_up() -> None:
    lane = strict()
    lane.add("a")
    assert lane.due(0) == request(SUBSCRIBE, "a")
    for second in range(1, RESENDS + 1):
        assert lane.due(second - 0.1) == b""
        assert lane.due(second) == request(SUBSCRIBE, "a")
    assert lane.due(RESENDS + 0.9) == b""
    with pytest.raises(Unacknowledged):
        lane.due(RESENDS + 1)


def test_a_request_that_need_not_be_acknowledged_is_not_repeated() -> None:
    lane = Lane(UNSUBSCRIBE, 1.0, resends=0, strict=False)
    lane.add("a")
    assert lane.due(0) == request(UNSUBSCRIBE, "a")
    lane.add("b")
    assert lane.due(0.9) == b""
    assert lane.due(1) == request(UNSUBSCRIBE, "b")
    assert lane.done == 1


def test_the_acknowledgements_of_repeats_belong_to_no_later_request() -> None:
    lane = strict()
    lane.add("a")
    for second in range(3):
        assert lane.due(second) == request(SUBSCRIBE, "a")
    assert lane.acknowledged()
    lane.add("b")
    assert lane.due(3) == request(SUBSCRIBE, "b")
    assert [lane.acknowledged() for _ in range(2)] == [False, False]
    assert lane.done == 1
    assert lane.acknowledged()
    assert lane.done == 2


def test_an_acknowledgement_without_a_request_changes_nothing() -> None:
    lane = strict()
    lane.add("a")
    assert lane.acknowledged()
    assert lane.done == 0
    assert lane.due(0) == request(SUBSCRIBE, "a")
    assert lane.acknowledged()
    assert lane.done == 1


def test_a_list_holds_a_limited_number_of_bytes_and_the_rest_follows() -> None:
    lane = strict()
    size = 63
    names = [f"{number:0{size}}" for number in range(MAX_LIST // (size + 1) + 1)]
    for name in names:
        lane.add(name)
    assert lane.due(0) == request(SUBSCRIBE, *names[:-1])
    assert lane.unsent == 1
    assert lane.acknowledged()
    assert lane.due(0) == request(SUBSCRIBE, names[-1])


def test_topics_and_patterns_are_announced_apart_and_both_must_be_acknowledged() -> None:
    mine = announcements()
    mine.want(["a", "b.*"])
    asked = mine.asked
    assert mine.unsent == 2
    assert mine.due(0) == request(SUBSCRIBE, "a") + request(PATTERNS, "b.*")
    assert mine.acknowledged(SUBSCRIBE_ACK)
    assert not mine.reached(asked)
    assert mine.acknowledged(PATTERNS_ACK)
    assert mine.reached(asked)
    mine.want(["c"])
    asked = mine.asked
    assert not mine.reached(asked)
    assert mine.due(0) == request(SUBSCRIBE, "c")
    assert mine.acknowledged(SUBSCRIBE_ACK)
    assert mine.reached(asked)


def test_what_is_wanted_again_before_it_was_announced_is_not_ended() -> None:
    mine = announcements()
    mine.want(["a", "b.*"])
    mine.unwant(["a", "b.*"])
    assert mine.due(0) == request(UNSUBSCRIBE, "a") + request(PATTERNS_END, "b.*")
    mine.unwant(["c"])
    mine.want(["c"])
    assert mine.acknowledged(UNSUBSCRIBE_ACK)
    assert mine.due(0) == request(SUBSCRIBE, "c")


def test_the_end_of_a_subscription_is_sent_once() -> None:
    mine = announcements()
    mine.unwant(["a"])
    assert mine.due(0) == request(UNSUBSCRIBE, "a")
    assert mine.due(1) == mine.due(2) == b""


def test_a_plain_peer_gets_no_patterns() -> None:
    mine = announcements(wildcards=False)
    mine.want(["a", "b.*"])
    mine.unwant(["c.*"])
    assert mine.due(0) == request(SUBSCRIBE, "a")
    assert mine.unsent == 0


def test_topics_that_are_forwarded_in_vain_are_ended_again_up_to_a_limit() -> None:
    mine = announcements()
    longest = "x" * MAX_TOPIC
    for topic in ("", longest, longest + "x", "\N{SNOWMAN}"):
        mine.repeat_unwanted(topic)
    assert mine.due(0) == request(UNSUBSCRIBE, "", longest)
    for number in range(UNWANTED_MAX + 1):
        mine.repeat_unwanted(str(number))
    assert mine.unsent == UNWANTED_MAX
