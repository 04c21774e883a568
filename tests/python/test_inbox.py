"""The bounded queue of a subscription."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanzoai.pubsub.errors import PermissionDenied, PubSubError, SlowConsumer
from hanzoai.pubsub.generated.wire import Denial, Message, PresenceMember
from hanzoai.pubsub.runtime.inbox import Inbox, denial_error, measure
from hanzoai.pubsub.settings.options import ReceivePolicy, ReceiveQueue
from hanzoai.pubsub.values import Gap, PresenceChange
from hanzoai.pubsub.wire.runs import Run


def envelope(seq: int | None, topic: str = "a", size: int = 0) -> Message:
    data = {"text": "x" * size}
    return Message(id=f"{topic}-{seq}", topic=topic, type="t", data=data, timestamp=1, seq=seq)


def make(messages: int = 4, size: int = 1 << 20, policy: ReceivePolicy = "gap") -> Inbox:
    bounds = ReceiveQueue(messages=messages, bytes=size, policy=policy)
    return Inbox(("a", "b"), bounds, lambda: None)


def take_all(inbox: Inbox) -> list[object]:
    found: list[object] = []
    while (entry := inbox.take()) is not None:
        found.append(entry)
    return found


def test_messages_come_out_in_the_order_they_went_in() -> None:
    inbox = make()
    messages = [envelope(seq) for seq in range(4)]
    for message in messages:
        inbox.put([message])
    assert take_all(inbox) == messages


def test_a_full_queue_drops_the_oldest_and_reports_one_gap_per_topic() -> None:
    inbox = make(messages=2)
    for seq in range(1, 4):
        inbox.put([envelope(seq, "a")])
        inbox.put([envelope(seq, "b")])
    assert take_all(inbox) == [
        Gap("a", 1, 2, 2, "slow_consumer"),
        Gap("b", 1, 2, 2, "slow_consumer"),
        envelope(3, "a"),
        envelope(3, "b"),
    ]
    assert inbox.stats().gaps == 2


def test_a_queue_that_dropped_messages_is_full_until_the_program_has_taken_their_gap() -> None:
    inbox = make(messages=100, size=2_000)
    for seq in range(3):
        inbox.put([envelope(seq, size=1_000)])
    assert inbox.full
    assert inbox.take() == Gap("a", 0, 1, 2, "slow_consumer")
    assert not inbox.full


def test_a_queue_that_has_ended_is_near_no_limit() -> None:
    inbox = make(messages=1, policy="error")
    assert inbox.put([envelope(1)])
    assert not inbox.put([envelope(2)])
    assert inbox.finished


def test_a_gap_of_the_session_is_merged_with_a_drop_that_overtakes_it() -> None:
    inbox = make(messages=2)
    inbox.put([envelope(1)])
    inbox.put_other(Gap("a", 2, 3, 2, "history_trimmed"))
    inbox.put([envelope(4)])
    inbox.put([envelope(5)])
    inbox.put([envelope(6)])
    assert take_all(inbox) == [
        Gap("a", 1, 4, 4, "slow_consumer"),
        envelope(5),
        envelope(6),
    ]


def test_an_unknown_count_stays_unknown_when_gaps_are_merged() -> None:
    inbox = make(messages=1)
    inbox.put_other(Gap("a", None, None, None, "unproven"))
    inbox.put([envelope(None)])
    inbox.put([envelope(None)])
    gap = inbox.take()
    assert isinstance(gap, Gap)
    assert gap.missed is None


def test_of_presence_that_cannot_wait_the_newest_of_each_topic_is_kept() -> None:
    member = PresenceMember(client_id="c", user_id="u", name="n", joined_at=1, last_seen=1)
    first = PresenceChange("a", (member,), "snapshot")
    second = PresenceChange("a", (), "leave", member)
    inbox = make(messages=2)
    for entry in (first, second):
        inbox.put_other(entry)
    inbox.put([envelope(1)])
    inbox.put([envelope(2)])
    assert take_all(inbox) == [second, envelope(1), envelope(2)]
    assert inbox.stats().dropped == 0


def test_a_replay_may_exceed_the_bound_and_shrinks_back_as_it_is_read() -> None:
    inbox = make(messages=3)
    inbox.put([envelope(seq) for seq in range(10)], many=True)
    assert inbox.stats().dropped == 0
    for _ in range(8):
        inbox.take()
    inbox.put([envelope(10)])
    assert inbox.stats().dropped == 0
    inbox.put([envelope(11)])
    assert inbox.stats().dropped == 1
    assert inbox.stats().queued == 3


@pytest.mark.parametrize("policy", ["gap", "error"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_gap_between_the_messages_of_a_replay_drops_none_of_them(
    policy: ReceivePolicy, size: int
) -> None:
    inbox = make(messages=2, policy=policy)
    first = [envelope(seq, "a") for seq in range(size)]
    second = [envelope(seq, "b") for seq in range(5, 9)]
    gap = Gap("b", 1, 4, 4, "history_trimmed")
    inbox.put(first, many=True)
    inbox.put_other(gap, many=True)
    inbox.put(second, many=True)
    assert take_all(inbox) == [*first, gap, *second]
    assert not inbox.finished


def test_the_bound_in_bytes_holds_even_for_few_messages() -> None:
    inbox = make(messages=100, size=5_000)
    for seq in range(20):
        inbox.put([envelope(seq, size=1_000)])
        assert inbox.stats().queued_bytes <= 5_000


def test_one_message_larger_than_the_bound_is_still_delivered() -> None:
    inbox = make(size=1_000)
    inbox.put([envelope(1, size=50_000)])
    assert take_all(inbox) == [envelope(1, size=50_000)]


def test_policy_error_ends_the_inbox_once_and_notifies_its_owner() -> None:
    overflows: list[int] = []
    inbox = Inbox(("a",), ReceiveQueue(messages=2, policy="error"), lambda: overflows.append(1))
    for seq in range(6):
        inbox.put([envelope(seq)])
    assert isinstance(inbox.error, SlowConsumer)
    assert inbox.error.topic == "a"
    assert overflows == [1]
    assert inbox.finished


def test_policy_block_keeps_everything_and_reports_that_it_is_full() -> None:
    inbox = make(messages=2, policy="block")
    for seq in range(5):
        inbox.put([envelope(seq)])
    was_full = inbox.full
    for _ in range(4):
        inbox.take()
    assert (was_full, inbox.full) == (True, False)
    assert inbox.stats().dropped == 0


def test_positions_follow_what_was_taken_and_pass_over_gaps() -> None:
    inbox = make()
    inbox.put([envelope(5)])
    inbox.put_other(Gap("a", 6, 8, 3, "history_trimmed"))
    inbox.put([envelope(9)])
    assert inbox.positions == {}
    inbox.take()
    assert inbox.positions == {"a": 5}
    inbox.take()
    assert inbox.positions == {"a": 8}
    inbox.take()
    assert inbox.positions == {"a": 9}


def test_peek_says_what_take_gives() -> None:
    inbox = make(messages=2)
    assert inbox.peek() is None
    for seq in range(5):
        inbox.put([envelope(seq)])
    while (shown := inbox.peek()) is not None:
        assert inbox.take() is shown


async def test_a_burst_wakes_a_waiter_once_and_a_cancelled_wait_leaves_nothing() -> None:
    inbox = make()
    woken = 0

    async def wait() -> None:
        nonlocal woken
        await inbox.wait()
        woken += 1

    given_up = asyncio.create_task(wait())
    waiter = asyncio.create_task(wait())
    await asyncio.sleep(0)
    given_up.cancel()
    for seq in range(3):
        inbox.put([envelope(seq)])
    async with asyncio.timeout(60):
        await waiter
    assert woken == 1
    assert inbox.stats().queued == 3


def test_after_the_end_nothing_is_added_and_what_waits_can_be_taken() -> None:
    inbox = make()
    inbox.put([envelope(1)])
    inbox.finish(PermissionDenied())
    inbox.put([envelope(2)])
    inbox.put([envelope(3)], many=True)
    inbox.put_other(Gap("a", 1, 1, 1, "unproven"))
    assert take_all(inbox) == [envelope(1)]


@pytest.mark.parametrize(
    ("code", "message"), [("forbidden", None), ("invalid_topic", "no"), ("odd_code", "later")]
)
def test_what_was_denied_becomes_the_error_of_its_code(code: str, message: str | None) -> None:
    error = denial_error([Denial(topic="a.b", code=code, message=message)], ("a.b",))
    assert isinstance(error, PubSubError)
    assert (error.code, error.topic) == (code, "a.b")


def test_the_error_of_several_refused_topics_names_them() -> None:
    denials = [Denial(topic=f"a.{n}", code="forbidden", message="not for you") for n in range(8)]
    two = denial_error(denials[:2], ("a.0", "a.1"))
    assert two.message == "not for you (topic a.0). Also rejected: a.1."
    many = denial_error(denials, ("a.*",))
    assert many.message.endswith("Also rejected: a.1, a.2, a.3, a.4, a.5 and 2 more.")


def test_a_subscription_without_an_answer_for_its_topic_is_forbidden() -> None:
    assert denial_error([], ("a.b",)).code == "forbidden"


def test_a_payload_is_measured_like_its_json() -> None:
    assert measure("x" * 100) == 100
    assert measure({"key": "x" * 100}) >= 103
    assert measure([{"a": 1}, 2, None, True]) > 20


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3_000)),
        st.tuples(st.just("replay"), st.integers(0, 12)),
        st.tuples(st.just("gap"), st.just(0)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("stats"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(actions=ACTIONS, messages=st.integers(1, 6), size=st.sampled_from([1_500, 6_000, 1 << 20]))
def test_the_accounts_are_right_whatever_happens(
    actions: list[tuple[str, int]], messages: int, size: int
) -> None:
    inbox = make(messages, size)
    seq = 0
    delivered: set[int] = set()
    missed: set[int] = set()

    def take() -> None:
        entry = inbox.take()
        if isinstance(entry, Message):
            assert entry.seq is not None
            assert entry.seq == max(delivered | missed, default=0) + 1
            delivered.add(entry.seq)
        elif isinstance(entry, Gap):
            assert entry.from_ is not None
            assert entry.to is not None
            assert entry.missed == entry.to - entry.from_ + 1
            missed.update(range(entry.from_, entry.to + 1))

    for action, amount in actions:
        match action:
            case "put":
                seq += 1
                inbox.put([envelope(seq, size=amount)])
            case "replay":
                inbox.put([envelope(seq + n + 1) for n in range(amount)], many=True)
                seq += amount
            case "gap":
                inbox.put_other(Gap("a", seq + 1, seq + 2, 2, "history_trimmed"))
                seq += 2
            case "take":
                for _ in range(amount):
                    take()
            case _:
                stats = inbox.stats()
                assert stats.handled == len(delivered)
                assert stats.received == stats.handled + stats.dropped + stats.queued
    while not inbox.empty:
        take()
    assert delivered | missed == set(range(1, seq + 1))
    stats = inbox.stats()
    assert (stats.queued, stats.queued_bytes) == (0, 0)
    assert stats.handled == len(delivered)
    assert stats.received == stats.handled + stats.dropped


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("run", "put", "replay", "gap", "take", "peek", "positions", "stats", "expect", "clear")
        ),
        st.integers(1, 5),
        st.sampled_from("ab"),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(
    steps=STEPS,
    messages=st.sampled_from([1, 4, 12, 1_000]),
    size=st.sampled_from([1_500, 6_000, 1 << 26]),
    policy=st.sampled_from(["gap", "block"]),
)
def test_a_run_is_kept_and_taken_like_its_messages(
    steps: list[tuple[str, int, str]], messages: int, size: int, policy: ReceivePolicy
) -> None:
    inbox, plain = make(messages, size, policy), make(messages, size, policy)
    seqs = {"a": 0, "b": 0}
    for step, number, topic in steps:
        first = seqs[topic] + 1
        added = [envelope(first + n, topic) for n in range(number)]
        match step:
            case "run" | "put" | "replay":
                seqs[topic] += number
                many = step == "replay"
                near = inbox.put(Run(added, first) if step == "run" else added, many)
                assert near == plain.put(added, many)
            case "gap":
                seqs[topic] += 1
                for one in (inbox, plain):
                    one.put_other(Gap(topic, first, first, 1, "history_trimmed"))
            case "take":
                for _ in range(number):
                    assert inbox.take() == plain.take()
            case "peek":
                assert inbox.peek() == plain.peek()
            case "positions":
                assert inbox.positions == plain.positions
            case "stats":
                assert inbox.stats() == plain.stats()
            case "expect":
                for one in (inbox, plain):
                    one.expect(number * 1_000)
            case _:
                inbox.clear()
                plain.clear()
        assert (inbox.empty, inbox.full) == (plain.empty, plain.full)
    assert take_all(inbox) == take_all(plain)
    assert inbox.positions == plain.positions
    assert inbox.stats() == plain.stats()


def typed(seq: int, type: str, topic: str = "a") -> Message:
    return envelope(seq, topic).model_copy(update={"type": type})


def feed(inbox: Inbox, *messages: Message) -> None:
    inbox.put(inbox.wanted(messages))


def test_messages_of_other_types_move_the_position_when_nothing_waits_before_them() -> None:
    inbox = make()
    inbox.types = frozenset({"paid"})
    feed(inbox, typed(1, "viewed"))
    assert inbox.positions == {"a": 1}
    feed(inbox, typed(2, "paid"), typed(3, "viewed"), typed(9, "viewed", "b"))
    assert inbox.positions == {"a": 1}
    assert take_all(inbox) == [typed(2, "paid")]
    assert inbox.positions == {"a": 3, "b": 9}
    stats = inbox.stats()
    assert (stats.received, stats.handled, stats.queued) == (1, 1, 0)


def test_messages_of_other_types_neither_fill_the_queue_nor_move_a_position_back() -> None:
    inbox = make(messages=2)
    inbox.types = frozenset({"paid"})
    feed(inbox, *(typed(seq, "viewed") for seq in range(1, 50)))
    feed(inbox, typed(50, "paid"), typed(51, "viewed"), typed(52, "paid"))
    assert [entry.seq for entry in take_all(inbox) if isinstance(entry, Message)] == [50, 52]
    assert inbox.positions == {"a": 52}
    assert inbox.stats().gaps == 0
