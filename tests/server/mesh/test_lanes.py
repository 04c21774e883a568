"""Requests of one kind to one peer, without a connection."""

from __future__ import annotations

from pubsub_server.backplanes.mesh.codec import SUBSCRIBE, frame, topic_list
from pubsub_server.backplanes.mesh.lanes import RESENDS, Lane


def test_a_subscription_that_was_taken_back_is_not_sent_again() -> None:
    lane = Lane(SUBSCRIBE, 1.0, resends=RESENDS, strict=True)
    for name in ("a", "b"):
        lane.add(name)
    assert lane.due(0) == frame(SUBSCRIBE, topic_list([b"a", b"b"]))
    lane.discard("a")
    assert lane.due(1) == frame(SUBSCRIBE, topic_list([b"b"]))
    lane.discard("b")
    assert lane.due(2) == b""
    assert lane.done == lane.asked
    lane.add("c")
    assert lane.due(3) == frame(SUBSCRIBE, topic_list([b"c"]))
