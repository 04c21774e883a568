"""The checker reports nothing for a good history, and each rule finds its own violations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.chaos.checker import RULES, check
from tests.chaos.records import Client, Gap, History, Loss, Message, Publication, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "team.blue.busy"
BASE = 1_700_000_000_000_000


def published(number: int, *, begun: float | None = None, by: str = "writer") -> Publication:
    at = float(number) if begun is None else begun
    return Publication(
        id=f"{by}-{number}",
        topic=TOPIC,
        by=by,
        user=by,
        order=number,
        data={"n": number},
        begun=at,
        ended=at + 0.1,
        outcome="acknowledged",
        seq=BASE + number,
    )


def message(number: int, at: float | None = None) -> Message:
    return Message(
        at=float(number) + 0.2 if at is None else at,
        topic=TOPIC,
        id=f"writer-{number}",
        seq=BASE + number,
        sender="writer",
        data={"n": number},
    )


def gap(first: int | None, last: int | None, **more: object) -> Gap:
    given = {"at": 3.5, "missed": None, "reason": "log_reset", **more}
    return Gap(
        topic=TOPIC,
        first=None if first is None else BASE + first,
        last=None if last is None else BASE + last,
        **given,  # type: ignore[arg-type]
    )


def good() -> History:
    """Five messages; a reader of the topic, a reader of a pattern, and one without permission."""
    history = History(retained=100)
    for number in range(1, 6):
        one = published(number)
        history.publications[one.id] = one
    for client, patterns in (("reader", (TOPIC,)), ("watcher", ("team.**",))):
        found = Subscription(client, patterns, ("team.blue.**",), asked=0.1, began=0.5)
        found.received = [message(number) for number in range(1, 6)]
        history.subscriptions.append(found)
        history.clients.append(Client(client, "websocket", "connected", "websocket"))
    stranger = Subscription("stranger", (TOPIC, "team.**"), ("team.red.**",), 0.1, 0.5)
    history.subscriptions.append(stranger)
    history.members = {TOPIC: ["reader"]}
    history.present = {("node0", TOPIC): ["reader"]}
    return history


def rules(history: History) -> set[str]:
    return {violation.rule for violation in check(history)}


def test_a_history_that_keeps_every_promise_has_no_violation() -> None:
    assert check(good()) == []


def reader(history: History) -> Subscription:
    return history.subscriptions[0]


def never_published(history: History) -> None:
    reader(history).received.append(replace(message(6), seq=BASE + 9))


def another_payload(history: History) -> None:
    reader(history).received[2] = replace(message(3), data={"n": 4})


def another_sender(history: History) -> None:
    reader(history).received[2] = replace(message(3), sender="stranger")


def another_topic(history: History) -> None:
    history.subscriptions[1].received[2] = replace(message(3), topic="team.blue.calm")
    history.publications["writer-3"].begun = 0.2


def unasked_topic(history: History) -> None:
    reader(history).received.append(gap(None, None))
    reader(history).received[-1] = replace(gap(None, None), topic="team.blue.calm")
    history.losses.append(Loss(0.0, 0.1))


def unasked_past(history: History) -> None:
    for subscription in history.subscriptions[:2]:
        subscription.asked = subscription.began = 2.5


def out_of_order(history: History) -> None:
    entries = reader(history).received
    entries[1], entries[2] = entries[2], entries[1]


def twice(history: History) -> None:
    entry = message(5, at=6.0)
    reader(history).received.append(replace(entry, seq=BASE + 60))


def one_position_for_two(history: History) -> None:
    other = published(1, by="other")
    other.begun = 0.0
    history.publications[other.id] = other


def overtaken(history: History) -> None:
    for one in history.publications.values():
        one.order = -one.order


def missing_in_the_middle(history: History) -> None:
    del reader(history).received[2]


def missing_at_the_end(history: History) -> None:
    del reader(history).received[4]


def nothing_of_a_fresh_topic(history: History) -> None:
    reader(history).received.clear()


def lost_with_the_store_and_not_told(history: History) -> None:
    history.losses.append(Loss(2.5, 2.8))
    del reader(history).received[:2]


def received_only_by_another(history: History) -> None:
    one = history.publications["writer-3"]
    one.outcome, one.seq = "unknown", None
    del reader(history).received[2]


def beside_the_gap(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[1:3] = [gap(2, 2)]


def behind_an_open_gap(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[1:] = [gap(2, None, at=2.5)]


def gap_without_a_loss(history: History) -> None:
    reader(history).received[2] = gap(3, 3)


def gap_too_many(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[2:4] = [gap(3, 3), gap(4, 4)]


def gap_of_a_slow_reader(history: History) -> None:
    reader(history).received[2] = gap(3, 3, reason="slow_consumer")


def gap_of_what_is_retained(history: History) -> None:
    reader(history).received[2] = gap(3, 3, reason="history_trimmed")


def gap_over_what_came(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[2] = gap(2, 3)


def gap_behind_its_place(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[2:] = [message(4), message(5), gap(3, 3)]
    reader(history).received.insert(2, replace(gap(6, 9), at=3.4))


def gap_that_counts_too_many(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[2] = gap(3, 3, missed=16_656_278)


def gap_that_counts_too_few(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    reader(history).received[2:4] = [gap(3, 4, missed=1)]


def lost_between_nodes(history: History) -> None:
    history.node = 1
    history.publications["writer-3"].seq = None
    for subscription in history.subscriptions[:2]:
        del subscription.received[2]


def received_without_permission(history: History) -> None:
    history.subscriptions[2].received.append(message(3))


def told_of_a_gap_without_permission(history: History) -> None:
    history.losses.append(Loss(1.0, 1.1))
    history.subscriptions[2].received.append(gap(3, 3))


def members_seen_without_permission(history: History) -> None:
    history.subscriptions[2].members = {TOPIC: ["reader"]}


def published_without_permission(history: History) -> None:
    history.publications["writer-3"].allowed = False


def failed_for_good(history: History) -> None:
    history.clients[0].failure = "4409 replaced"


def left_behind(history: History) -> None:
    history.clients[0].state = "reconnecting"


def left_on_an_event_stream(history: History) -> None:
    history.clients[0].found = "sse"


def never_acknowledged(history: History) -> None:
    reader(history).began = None


def ended_by_itself(history: History) -> None:
    reader(history).ended = "replaced"


def missing_member(history: History) -> None:
    history.present["node0", TOPIC] = []


def ghost(history: History) -> None:
    history.present["node0", TOPIC] = ["reader", "watcher"]


def member_twice(history: History) -> None:
    history.present["node0", TOPIC] = ["reader", "reader"]


def ghost_in_the_eyes_of_a_client(history: History) -> None:
    reader(history).members = {TOPIC: ["reader", "stranger"]}


def not_served_afterwards(history: History) -> None:
    one = replace(published(6), final=True, outcome="unknown", seq=None)
    history.publications[one.id] = one


PLANTED: list[tuple[str, Callable[[History], None]]] = [
    ("published", never_published),
    ("published", another_payload),
    ("published", another_sender),
    ("published", another_topic),
    ("asked", unasked_topic),
    ("asked", unasked_past),
    ("ordered", out_of_order),
    ("once", twice),
    ("numbered", one_position_for_two),
    ("in_turn", overtaken),
    ("lost", missing_in_the_middle),
    ("lost", missing_at_the_end),
    ("lost", nothing_of_a_fresh_topic),
    ("lost", lost_with_the_store_and_not_told),
    ("lost", received_only_by_another),
    ("lost", beside_the_gap),
    ("lost", behind_an_open_gap),
    ("proven", gap_without_a_loss),
    ("proven", gap_too_many),
    ("proven", gap_of_a_slow_reader),
    ("proven", gap_of_what_is_retained),
    ("proven", gap_over_what_came),
    ("proven", gap_behind_its_place),
    ("proven", gap_that_counts_too_many),
    ("proven", gap_that_counts_too_few),
    ("crossed", lost_between_nodes),
    ("allowed", received_without_permission),
    ("allowed", told_of_a_gap_without_permission),
    ("allowed", members_seen_without_permission),
    ("allowed", published_without_permission),
    ("failed", failed_for_good),
    ("failed", ended_by_itself),
    ("connected", left_behind),
    ("connected", left_on_an_event_stream),
    ("connected", never_acknowledged),
    ("presence", missing_member),
    ("presence", ghost),
    ("presence", member_twice),
    ("presence", ghost_in_the_eyes_of_a_client),
    ("served", not_served_afterwards),
]


@pytest.mark.parametrize(
    ("rule", "plant"), PLANTED, ids=[f"{rule}-{plant.__name__}" for rule, plant in PLANTED]
)
def test_a_planted_violation_is_found_by_its_rule_and_by_no_other(
    rule: str, plant: Callable[[History], None]
) -> None:
    history = good()
    plant(history)
    assert rules(history) == {rule}


def test_every_rule_has_a_planted_violation() -> None:
    names = {"connected": {"connected", "failed"}, "present": {"presence"}}
    found = [names.get(rule.__name__, {rule.__name__}) for rule in RULES]
    assert set().union(*found) == {rule for rule, _ in PLANTED}


# ---------------------------------------------------------------- not violations


def test_a_gap_in_its_place_covers_what_was_lost_with_the_store() -> None:
    history = good()
    history.losses.append(Loss(2.5, 2.8))
    reader(history).received[1:3] = [gap(2, 3)]
    assert check(history) == []


def test_a_hole_behind_a_restart_of_the_log_is_of_the_same_loss() -> None:
    history = good()
    history.losses.append(Loss(2.5, 2.8))
    reader(history).received[0:4] = [gap(None, None), message(3, at=4.0), gap(4, 4, at=4.1)]
    assert check(history) == []


def test_the_past_may_come_unasked_if_the_store_is_lost_while_a_subscription_begins() -> None:
    history = good()
    for subscription in history.subscriptions:
        subscription.asked = subscription.began = 2.5
    assert rules(history) == {"asked"}
    history.losses.append(Loss(0.4, 2.4))
    assert rules(history) == {"asked"}
    history.losses.append(Loss(0.4, 2.6))
    assert "asked" not in rules(history)


def test_the_past_may_come_unasked_if_the_store_lost_its_id_and_numbers_a_repeat() -> None:
    history = good()
    subscription = reader(history)
    subscription.asked = subscription.began = 8.0
    subscription.received = [replace(message(1, at=8.5), seq=BASE + 5000)]
    history.losses.append(Loss(5.5, 5.6))
    assert "asked" not in rules(history)
    # A message with its first number can only come from the lost log.
    subscription.received = [message(1, at=8.5)]
    assert "asked" in rules(history)


def test_a_repeat_may_come_behind_later_publishes_if_the_store_lost_the_first_attempt() -> None:
    history = good()
    overtaken(history)
    assert "in_turn" in rules(history)
    first = min(history.publications.values(), key=lambda one: one.begun)
    history.losses.append(Loss(first.begun - 0.5, first.begun - 0.1))
    assert "in_turn" in rules(history)
    for one in history.publications.values():
        history.losses.append(Loss(one.begun + 0.02, one.begun + 0.05))
    assert "in_turn" not in rules(history)


def test_a_gap_without_positions_covers_all_that_precedes_the_next_message() -> None:
    history = good()
    history.losses.append(Loss(2.5, 2.8))
    reader(history).received[:3] = [gap(None, None)]
    assert check(history) == []


def test_a_gap_covers_what_is_no_longer_retained() -> None:
    history = good()
    history.retained = 2
    reader(history).received[1:3] = [gap(2, 3, missed=2, reason="history_trimmed", at=4.5)]
    assert check(history) == []


def test_what_is_published_while_the_answer_is_on_its_way_may_come_or_not() -> None:
    history = good()
    reader(history).began = 2.05
    del reader(history).received[1]
    assert "lost" in rules(history)
    del reader(history).received[0]
    assert check(history) == []


def test_a_publish_without_an_answer_may_reach_all_subscribers_or_none() -> None:
    history = good()
    one = history.publications["writer-5"]
    one.outcome, one.seq = "unknown", None
    assert check(history) == []
    for subscription in history.subscriptions[:2]:
        del subscription.received[4]
    assert check(history) == []


def test_a_message_may_come_again_when_its_id_was_lost_with_the_store() -> None:
    history = good()
    history.losses.append(Loss(5.0, 5.4))
    for subscription in history.subscriptions[:2]:
        subscription.received += [gap(6, 59, at=5.8), replace(message(5, at=6.0), seq=BASE + 60)]
    assert check(history) == []


def test_a_pattern_need_not_know_of_a_topic_that_appeared_and_was_lost_with_the_store() -> None:
    history = good()
    history.losses.append(Loss(2.5, 2.8))
    for subscription in history.subscriptions[:2]:
        del subscription.received[:2]
    lost = [each for each in check(history) if each.rule == "lost"]
    assert {each.who for each in lost} == {"reader"}


def test_a_subscriber_that_has_left_got_all_messages_before_its_last_one() -> None:
    history = good()
    reader(history).left = 4.0
    del reader(history).received[3:]
    assert check(history) == []
    del reader(history).received[1]
    assert rules(history) == {"lost"}


def test_past_messages_come_only_on_request() -> None:
    history = good()
    one = reader(history)
    one.asked, one.began = 3.5, 3.6
    assert "asked" in rules(history)
    one.past = True
    assert check(history) == []
