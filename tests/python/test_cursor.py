"""The cursor alone; spec/traces and tests/simulation test it in a whole session."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.dialects.plain.id_cursor import IdCursor
from hanzoai.pubsub.gap import Gap
from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.generated.wire import Message
from hanzoai.pubsub.session.cursor import Answer, Replay, SeqCursor
from hanzoai.pubsub.session.ports import Subscribe
from hanzoai.pubsub.settings.session import SessionOptions
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hanzoai.pubsub.session.cursor import Cursor


def message(
    seq: int | None, topic: str = "a", at: int = 0, id: str = "", ttl: int | None = None
) -> Message:
    return Message(
        id=id or f"{topic}{seq}", topic=topic, type="t", data=None, timestamp=at, seq=seq, ttl=ttl
    )


def seq_cursor(after: Mapping[str, int] | None = None, topics: int = 1_000) -> SeqCursor:
    options = SessionOptions(remembered_topics=topics)
    return SeqCursor(Subscribe(1, ("a",), after=after or {}), options)


def id_cursor(
    *, since: int | None = None, overlap: int, ids: int = 1_000, topics: int = 1_000
) -> IdCursor:
    options = SessionOptions(overlap=overlap, remembered_ids=ids, remembered_topics=topics)
    return IdCursor(Subscribe(1, ("a",), since=since), options, LIMITS.history_max_messages)


def found(cursor: SeqCursor, message: Message) -> str:
    """What the cursor finds a live message to be."""
    new, beyond = cursor.admit([message])
    return "new" if new else "beyond" if beyond else "known"


def replayed(cursor: Cursor, replay: Replay) -> tuple[list[Message | Gap], Sequence[Message]]:
    """The new messages and gaps of a replay, and the held messages after a hole."""
    rest = cursor.replay(replay)
    return replay.steps, rest


def ids(steps: list[Message | Gap]) -> list[object]:
    return [step if isinstance(step, Gap) else step.id for step in steps]


def test_next_is_new_before_is_known_beyond_is_a_jump() -> None:
    cursor = seq_cursor(after={"a": 5})
    assert found(cursor, message(6)) == "new"
    assert found(cursor, message(6)) == "known"
    assert found(cursor, message(8)) == "beyond"
    assert cursor.positions == {"a": 6}
    assert found(cursor, message(None)) == "new"


def test_a_run_of_messages_is_admitted_up_to_a_hole() -> None:
    cursor = seq_cursor(after={"a": 5})
    new, beyond = cursor.admit([message(seq, at=seq or 0) for seq in (6, 6, None, 7, 9, 8)])
    assert [one.seq for one in new] == [6, None, 7]
    assert [one.seq for one in beyond] == [9, 8]
    assert cursor.positions == {"a": 7}
    assert cursor.moved() == (7, {"a": None})


@given(known=st.none() | st.integers(0, 5), run=st.lists(st.none() | st.integers(0, 9), min_size=1))
def test_a_run_is_admitted_like_its_messages_one_by_one(
    known: int | None, run: list[int | None]
) -> None:
    after = None if known is None else {"a": known}
    together, single = seq_cursor(after=after), seq_cursor(after=after)
    messages = [message(seq, at=n, id=f"m{n}") for n, seq in enumerate(run)]
    expected: list[Message] = []
    beyond: list[Message] = []
    for n, one in enumerate(messages):
        new, hole = single.admit([one])
        expected += new
        if hole:
            beyond = messages[n:]
            break
    new, rest = together.admit(messages)
    assert (list(new), list(rest)) == (expected, beyond)
    assert (together.positions, together.moved()) == (single.positions, single.moved())


@given(
    known=st.none() | st.integers(0, 5),
    first=st.integers(0, 9),
    number=st.integers(1, 5),
    topics=st.integers(1, 2),
)
def test_a_run_with_consecutive_positions_is_admitted_like_a_list_of_its_messages(
    known: int | None, first: int, number: int, topics: int
) -> None:
    after = {} if known is None else {"a": known, "b": 1}
    together, single = seq_cursor(after, topics), seq_cursor(after, topics)
    messages = [message(first + n, at=n) for n in range(number)]
    new, rest = single.admit(messages)
    admitted, beyond = together.admit(Run(messages, first))
    assert (list(admitted), list(beyond)) == (list(new), list(rest))
    assert (together.positions, together.moved()) == (single.positions, single.moved())
    assert together.retried == single.retried
    for found in (new, admitted):
        if isinstance(found, Run):
            assert [one.seq for one in found] == [found.first + n for n in range(len(found))]
    assert len(new) < 2 or isinstance(new, Run)


def test_positions_go_backwards_only_with_a_reset() -> None:
    cursor = seq_cursor(after={"a": 9})
    cursor.replay(Replay(Answer(positions={"a": 3}), held=[]))
    assert cursor.positions == {"a": 9}
    steps, _ = replayed(cursor, Replay(Answer(positions={"a": 3}, reset={"a": None}), held=[]))
    assert steps == [Gap("a", 10, None, None, "log_reset")]
    assert cursor.positions == {"a": 3}


def test_a_reset_that_is_truncated_too_is_one_gap() -> None:
    cursor = seq_cursor(after={"a": 9})
    steps, _ = replayed(
        cursor, Replay(Answer([message(105)], {"a": 105}, {"a": None}, {"a": None}), held=[])
    )
    assert ids(steps) == [Gap("a", 10, None, None, "log_reset"), "a105"]


def test_positions_at_the_limit_of_safe_integers_are_counted() -> None:
    top = 2**53 - 1
    cursor = seq_cursor(after={"a": top - 1})
    assert found(cursor, message(top)) == "new"
    assert found(cursor, message(top)) == "known"


def test_memory_is_bounded_by_topics() -> None:
    cursor = seq_cursor(topics=10)
    for n in range(1_000):
        cursor.admit([message(1, topic=f"t{n}", at=n)])
    assert list(cursor.positions) == [f"t{n}" for n in range(990, 1_000)]
    assert cursor.request().since == 989


def test_a_replay_of_many_topics_leaves_memory_bounded() -> None:
    cursor = seq_cursor(topics=10)
    cursor.replay(Replay(Answer([message(1, topic=f"t{n}") for n in range(1_000)]), held=[]))
    kept = [value for value in vars(cursor).values() if isinstance(value, Sized)]
    assert max(map(len, kept)) == 10


def test_the_topic_idle_longest_is_removed() -> None:
    cursor = seq_cursor(topics=2)
    cursor.admit([message(1, topic="a")])
    cursor.admit([message(1, topic="b")])
    cursor.admit([message(2, topic="a")])
    cursor.admit([message(1, topic="c")])
    assert list(cursor.positions) == ["a", "c"]


def test_topics_of_other_nodes_count_in_the_bound_of_memory() -> None:
    options = SessionOptions(remembered_topics=2)
    cursor = SeqCursor(Subscribe(1, ("*",), after={"a": None, "b": None}), options)
    cursor.admit([message(1, topic="a", at=3)])
    assert cursor.moved() == (3, {"b": None, "a": None})
    cursor.admit([message(1, topic="c", at=4)])
    assert cursor.moved() == (4, {"a": None, "c": None})


def test_a_sibling_in_the_same_millisecond_is_replayed() -> None:
    cursor = id_cursor(since=0, overlap=10)
    cursor.admit([message(None, at=100, id="m1")])
    steps, _ = replayed(
        cursor,
        Replay(Answer([message(None, at=100, id="m1"), message(None, at=100, id="m2")]), held=[]),
    )
    assert ids(steps) == ["m2"]
    assert cursor.request().since == 90


def test_history_and_held_are_one_batch() -> None:
    cursor = id_cursor(since=0, overlap=10)
    cursor.admit([message(None, at=100, id="m1")])
    repeated = message(None, at=100, id="m2")
    far = message(None, at=500, id="m3")
    steps, _ = replayed(
        cursor,
        Replay(Answer([message(None, at=100, id="m1"), repeated, far]), held=[repeated, far]),
    )
    assert ids(steps) == ["m2", "m3"]


def test_a_message_that_may_have_expired_proves_no_loss() -> None:
    cursor = id_cursor(since=0, overlap=1_000)
    cursor.admit([message(None, at=100, id="m1", ttl=1)])
    steps, _ = replayed(cursor, Replay(Answer(), held=[], at=1_100))
    assert steps == []
    steps, _ = replayed(cursor, Replay(Answer(), held=[], at=1_099))
    assert steps == [Gap("a", None, None, None, "unproven")]


def test_ids_and_topics_are_bounded() -> None:
    cursor = id_cursor(overlap=10**9, ids=5, topics=3)
    for topic in range(10):
        for n in range(100):
            cursor.admit([message(None, topic=f"t{topic}", at=n, id=f"{topic}.{n}")])
    assert list(cursor.moved()[1]) == ["t7", "t8", "t9"]
    assert all(len(near) == 5 for near in cursor._near.values())


@given(
    published=st.integers(1, 30),
    received=st.integers(0, 30),
    retained=st.integers(0, 30),
    held=st.integers(0, 10),
)
def test_delivered_is_published_or_one_gap_counts_what_is_missing(
    published: int, received: int, retained: int, held: int
) -> None:
    received = min(received, published)
    cursor = seq_cursor(after={"a": 0})
    got: list[Message | Gap] = []
    for n in range(1, received + 1):
        assert found(cursor, message(n)) == "new"
        got.append(message(n))
    oldest = max(1, published - retained + 1)
    steps, rest = replayed(
        cursor,
        Replay(
            Answer(
                [message(n) for n in range(max(oldest, received + 1), published + 1)],
                positions={"a": published},
                truncated={"a": None} if oldest > received + 1 else {},
            ),
            held=[message(n) for n in range(max(1, published - 2), published + held + 1)],
        ),
    )
    assert not rest
    at = 0
    gaps = 0
    for step in got + steps:
        if isinstance(step, Gap):
            gaps += 1
            assert (step.from_, step.missed) == (at + 1, (step.to or 0) - at)
            at = step.to or 0
        else:
            assert step.seq == at + 1
            at += 1
    assert at == published + held
    assert gaps <= 1
