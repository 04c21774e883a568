"""The raw readers of a run: when they request a replay, and what they record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.readers import SocketReader, Whims, _AgainError
from tests.chaos.records import Client, Gap, Message, Subscription

TOPIC = "team.blue.busy"


def reader() -> SocketReader:
    subscription = Subscription("socket0", (TOPIC,), ("team.**",), 0.0)
    whims = Whims("socket0", 0.0, lambda: 1.0)
    client = Client("socket0", "websocket")
    found = SocketReader(subscription, client, "token", 1, lambda: 1.0, whims)
    found._answered({"positions": {TOPIC: 10}})
    return found


def message(seq: int) -> dict[str, Any]:
    return {"topic": TOPIC, "id": f"m{seq}", "seq": seq, "data": None}


def test_a_message_behind_a_hole_is_asked_for_though_the_answer_before_it_was_empty() -> None:
    one = reader()
    with pytest.raises(_AgainError):
        one._take(message(1_000), replayed=False)
    # Meanwhile the store has lost this numbering, too, and the topic has no log.
    one._answered({"history": []})
    with pytest.raises(_AgainError):
        one._take(message(2_000), replayed=False)
    one._answered({"reset": [TOPIC], "history": [message(2_000)]})
    gap, received = one.subscription.received
    assert isinstance(gap, Gap)
    assert (gap.reason, gap.first) == ("log_reset", 11)
    assert isinstance(received, Message)
    assert received.seq == 2_000


def test_a_message_that_no_answer_has_is_asked_for_once() -> None:
    one = reader()
    with pytest.raises(_AgainError):
        one._take(message(12), replayed=False)
    one._answered({"history": []})
    one._take(message(12), replayed=False)
    assert [entry.seq for entry in one.subscription.received if isinstance(entry, Message)] == [12]
