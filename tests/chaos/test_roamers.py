"""The roamer: when a subscription of its history continues, ends or begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.chaos.readers import Whims
from tests.chaos.records import Client, History
from tests.chaos.roamers import Roamer, _Request

if TYPE_CHECKING:
    from tests.chaos.records import Subscription

ONE, TWO = "team.blue.one", "team.blue.two"
PATTERN = "team.blue.*"


class Played:
    """A roamer whose frames the test sends."""

    def __init__(self) -> None:
        self.history = History()
        self.roamer = Roamer(
            *((PATTERN,), ("team.**",), (ONE, TWO), self.history),
            *(Client("roamer0", "websocket"), "token", 1, lambda: 1.0),
            Whims("roamer0", 0.0, lambda: 1.0),
        )

    def subscribe(self, *topics: str, fresh: tuple[str, ...], **more: Any) -> None:
        """Subscribe to these topics; the answer contains the other fields."""
        after = more.pop("after", {})
        self.roamer._request = _Request("r", fresh=fresh, after=after)
        answer = {"type": "subscribed", "ref": "r", "topics": list(topics), "timestamp": 1, **more}
        self.roamer._frame(answer)

    def unsubscribe(self, *topics: str) -> None:
        self.roamer._request = _Request("u")
        self.roamer._frame({"type": "unsubscribed", "ref": "u", "topics": list(topics)})

    def message(self, topic: str, seq: int) -> dict[str, Any]:
        return {"topic": topic, "id": f"m{seq}", "seq": seq, "data": None}

    def arrive(self, topic: str, seq: int) -> None:
        self.roamer._frame({"type": "message", "message": self.message(topic, seq)})

    def received(self) -> list[tuple[tuple[str, ...], list[int], bool]]:
        """Return patterns, positions and whether it lasts, of each subscription."""
        return [
            (one.patterns, _positions(one), one.left is None) for one in self.history.subscriptions
        ]


def _positions(subscription: Subscription) -> list[int]:
    return [getattr(entry, "seq", -1) for entry in subscription.received]


def test_a_subscription_continues_after_its_position_and_otherwise_a_new_one_begins() -> None:
    played = Played()
    played.subscribe(ONE, fresh=(ONE,))
    played.arrive(ONE, 1)
    played.unsubscribe(ONE)
    assert played.received() == [((ONE,), [1], False)]
    history = [played.message(ONE, 2)]
    played.subscribe(ONE, fresh=(ONE,), after={ONE: 1}, history=history)
    played.arrive(ONE, 3)
    assert played.received() == [((ONE,), [1, 2, 3], True)]
    played.unsubscribe(ONE)
    played.subscribe(ONE, fresh=(ONE,))
    played.arrive(ONE, 5)
    assert played.received() == [((ONE,), [1, 2, 3], False), ((ONE,), [5], True)]


def test_a_topic_goes_on_while_a_name_or_a_pattern_covers_it() -> None:
    played = Played()
    played.subscribe(PATTERN, fresh=(ONE, TWO))
    played.arrive(ONE, 1)
    # The replay of a topic that is already covered repeats messages.
    played.subscribe(ONE, fresh=(), history=[played.message(ONE, 1)])
    played.unsubscribe(PATTERN)
    played.arrive(ONE, 2)
    assert played.received() == [((ONE,), [1, 2], True), ((TWO,), [], False)]


def test_a_message_of_a_topic_that_was_not_requested_is_recorded_without_a_pattern() -> None:
    played = Played()
    played.subscribe(ONE, fresh=(ONE,))
    played.arrive(TWO, 1)
    assert played.received() == [((ONE,), [], True), ((), [1], True)]


def test_members_are_those_of_the_last_snapshot_and_of_later_changes() -> None:
    played = Played()
    played.subscribe(ONE, fresh=(ONE,))
    members = [{"client_id": f"c{user}", "user_id": user} for user in ("ana", "ben")]
    played.roamer._frame({"type": "presence.snapshot", "topic": ONE, "members": members})
    for kind, user in (("leave", "ana"), ("join", "eva"), ("update", "ben")):
        data = {"client_id": f"c{user}", "user_id": user}
        change = {"type": f"presence.{kind}", "topic": ONE, "data": data}
        played.roamer._frame({"type": "message", "message": change})
    played.roamer.look()
    (found,) = played.history.subscriptions
    assert sorted(found.members[ONE]) == ["ben", "eva", "roamer0"]
