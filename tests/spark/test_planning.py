"""The end of a micro-batch and the ranges of its tasks, without Spark and without a server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.spark.bounds import beginnings, endings, places_at
from hanzoai.pubsub.spark.losses import Loss
from hanzoai.pubsub.spark.planning import (
    UNKNOWN,
    Offset,
    Range,
    Standing,
    advance,
    missing,
    ranges,
    read_offset,
    share_out,
    split,
)
from hanzoai.pubsub.spark.source_config import EARLIEST, LATEST


def initial(**read: int) -> Offset:
    return Offset(read, read)


def test_a_batch_goes_to_the_newest_position_of_each_topic() -> None:
    start = Offset({"a": 10, "b": 5})
    found = advance(start, {"a": Standing(1, 12), "b": Standing(1, 5)})
    assert found.end == Offset({"a": 12, "b": 5})
    assert ranges(start, found.end) == [Range("a", 10, 12)]
    assert not found.losses


def test_nothing_new_leaves_the_offset_as_it_is() -> None:
    start = Offset({"a": 10}, {"a": 3})
    assert advance(start, {"a": Standing(1, 10)}).end is start


def test_an_offset_is_written_with_sorted_keys_and_read_back_as_the_same_text() -> None:
    one = Offset({"b": 2, "a": 1}, {"d": 1, "c": 0}).as_json()
    text = json.dumps(one)
    assert text == '{"@from": {"c": 0, "d": 1}, "@source": "hanzo-pubsub", "a": 1, "b": 2}'
    assert json.dumps(read_offset(json.loads(text)).as_json()) == text


@pytest.mark.parametrize(
    "other",
    [
        0,
        None,
        {"a": {"0": 5}},
        {"@from": 1, "a": 2},
        {"logOffset": 0},
        {"offset": 1000, "timestamp": 100},
        {"version": 1, "snapshot_id": 7, "position": 0, "scan_all_files": False},
        {"@source": "another", "a": 1},
    ],
)
def test_an_offset_of_another_source_is_refused(other: object) -> None:
    with pytest.raises(InvalidOption, match="another source") as caught:
        read_offset(other)
    assert caught.value.field == "checkpointLocation"


def test_an_offset_of_any_topic_is_read_and_so_is_one_without_the_name_of_the_source() -> None:
    for topic in ("logOffset", "offset", "a.b"):
        assert read_offset(Offset({topic: 3}).as_json()) == Offset({topic: 3})
    own = Offset({"offset": 3, "timestamp": 4})
    assert read_offset(own.as_json()) == own
    assert read_offset({"@from": {"a": 1}, "a": 3}) == Offset({"a": 3}, {"a": 1})
    assert read_offset({}) == Offset()


def test_a_first_batch_that_is_repeated_after_a_restart_reads_the_same_rows() -> None:
    found = advance(initial(a=10, b=5), {"a": Standing(1, 12), "b": Standing(1, 5)})
    # Spark recorded only the end, and requests the initial offset again, which is newer by then.
    assert ranges(initial(a=20, b=9), found.end) == [Range("a", 10, 12)]


def test_a_topic_that_appears_later_starts_at_its_first_retained_row() -> None:
    start = Offset({"a": 10})
    found = advance(start, {"a": Standing(1, 10), "b": Standing(41, 50)})
    assert ranges(start, found.end) == [Range("b", 40, 50)]
    assert not found.losses


def test_a_topic_of_which_nothing_was_kept_is_read_from_its_first_retained_row() -> None:
    assert ranges(Offset({}), Offset({"a": 9})) == [Range("a", UNKNOWN, 9)]


def test_a_topic_without_a_log_is_no_news() -> None:
    start = Offset({"a": 10})
    found = advance(start, {"a": Standing(1, 0), "b": Standing(1, 0)})
    assert found.end is start
    assert not found.losses


def test_trimmed_rows_are_a_loss_and_reading_continues_after_them() -> None:
    start = Offset({"a": 80})
    found = advance(start, {"a": Standing(231, 330)})
    assert found.losses == (Loss("a", 81, 230),)
    assert ranges(start, found.end) == [Range("a", 230, 330)]


def test_a_log_that_started_again_is_a_loss_and_its_rows_are_read() -> None:
    start = Offset({"a": 1_000_000})
    found = advance(start, {"a": Standing(9_000_000_000_000, 9_000_000_000_004)})
    assert found.losses == (Loss("a", 1_000_001, 8_999_999_999_999),)
    assert ranges(start, found.end) == [Range("a", 8_999_999_999_999, 9_000_000_000_004)]


def test_a_log_that_ends_before_what_was_read_is_a_loss() -> None:
    start = Offset({"a": 100})
    found = advance(start, {"a": Standing(1, 90)})
    assert found.losses == (Loss("a", 101, 90),)
    assert ranges(start, found.end) == []
    following = advance(found.end, {"a": Standing(1, 92)})
    assert ranges(found.end, following.end) == [Range("a", 90, 92)]


def test_a_target_is_not_exceeded_and_topics_beyond_it_stay() -> None:
    start = Offset({"a": 10, "c": 7})
    seen = {"a": Standing(1, 30), "b": Standing(1, 5), "c": Standing(1, 9)}
    found = advance(start, seen, target={"a": 20, "c": 7})
    assert found.end == Offset({"a": 20, "c": 7})
    assert advance(found.end, seen, target={"a": 20, "c": 7}).end is found.end


def test_what_is_lost_behind_the_target_does_not_concern_it() -> None:
    start = Offset({"a": 20})
    found = advance(start, {"a": Standing(50, 60)}, target={"a": 20})
    assert found.end is start
    assert not found.losses


def test_rows_before_the_target_that_are_lost_take_the_batch_to_it() -> None:
    start = Offset({"a": 20})
    found = advance(start, {"a": Standing(50, 60)}, target={"a": 30})
    assert found.losses == (Loss("a", 21, 49),)
    assert found.end.read == {"a": 30}
    assert ranges(start, found.end) == []


def test_a_topic_that_is_gone_for_long_leaves_the_offset() -> None:
    start = Offset({"a": 10, "old": 3})
    standings = {"a": Standing(1, 10)}
    found = advance(start, standings, forgotten=["old"])
    assert found.end.read == {"a": 10}
    assert advance(found.end, standings, forgotten=["old"]).end is found.end


# ---------------------------------------------------------------- limits


def test_small_backlogs_get_all_and_the_rest_is_shared_equally() -> None:
    shares, _ = share_out({"a": 100, "b": 2, "c": 100}, 12)
    assert shares == {"a": 5, "b": 2, "c": 5}


def test_rows_left_over_go_to_each_topic_in_turn() -> None:
    backlog = {"a": 9, "b": 9, "c": 9}
    first, turn = share_out(backlog, 1)
    second, turn = share_out(backlog, 1, turn)
    third, turn = share_out(backlog, 1, turn)
    fourth, _ = share_out(backlog, 1, turn)
    assert [first, second, third, fourth] == [{"a": 1}, {"b": 1}, {"c": 1}, {"a": 1}]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), max_size=8),
    st.integers(1, 120),
    st.sampled_from(["", *"abcdefgh"]),
)
def test_shares_are_whole_fair_and_use_up_the_limit(
    backlog: dict[str, int], most: int, turn: str
) -> None:
    shares, _ = share_out(backlog, most, turn)
    assert sum(shares.values()) == min(most, sum(backlog.values()))
    assert all(0 < rows <= backlog[topic] for topic, rows in shares.items())
    cut = [shares.get(topic, 0) for topic in backlog if shares.get(topic, 0) < backlog[topic]]
    if cut:
        # A topic with unread rows gets at least as many rows as any other, except for one.
        assert max(shares.values()) - min(cut) <= 1


# ---------------------------------------------------------------- tasks


topic_ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 400)), max_size=6).map(
    lambda found: [Range(f"t{n}", low, low + rows) for n, (low, rows) in enumerate(found)]
)


@given(topic_ranges, st.integers(1, 9), st.integers(1, 300))
def test_tasks_cover_each_row_once_and_keep_to_the_limits(
    found: list[Range], tasks: int, most: int
) -> None:
    parts = split(found, tasks=tasks, most=most)
    rows = [(each.topic, seq) for each in found for seq in range(each.after + 1, each.last + 1)]
    cut = [
        (each.topic, seq)
        for part in parts
        for each in part
        for seq in range(each.after + 1, each.last + 1)
    ]
    assert cut == rows
    sizes = [sum(each.last - each.after for each in part) for part in parts]
    assert all(0 < size <= most for size in sizes)
    assert len(parts) >= min(tasks, len(rows))
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert split(found, tasks=tasks, most=most) == parts


def test_a_range_with_an_unknown_start_is_one_task() -> None:
    far = Range("b", UNKNOWN, 1_740_307_200_000_042)
    parts = split([Range("a", 0, 4), far], tasks=2, most=10)
    assert parts == [(Range("a", 0, 2),), (Range("a", 2, 4),), (far,)]


# ---------------------------------------------------------------- starting positions


STANDINGS = {"a": Standing(41, 50, 45), "b": Standing(8, 7, 8), "none": Standing(1, 0)}


def test_words_and_numbers_say_where_a_query_begins() -> None:
    assert beginnings("latest", STANDINGS) == {"a": 50, "b": 7}
    assert beginnings("earliest", STANDINGS) == {"a": 40, "b": 7}
    assert beginnings({"a": 44}, STANDINGS) == {"a": 44, "b": 7}
    newest = {"a": LATEST, "b": EARLIEST, "none": LATEST}
    assert beginnings(newest, STANDINGS) == {"a": 50, "b": 7}
    # Before every log: no row was read, so none is lost.
    assert beginnings({"a": 0, "none": 0}, STANDINGS) == {"a": 40, "b": 7}
    assert beginnings({"none": 12}, STANDINGS) == {"a": 40, "b": 7, "none": 12}
    assert places_at(STANDINGS) == {"a": 44, "b": 7}


def test_words_and_numbers_say_where_a_batch_ends() -> None:
    assert endings("latest", STANDINGS) == {"a": 50, "b": 7, "none": 0}
    assert endings({"a": 44}, STANDINGS) == {"a": 44, "b": 7, "none": 0}


@pytest.mark.parametrize(("topic", "newest"), [("a", 50), ("none", 0), ("other", 0)])
def test_a_position_that_is_not_there_yet_is_refused(topic: str, newest: int) -> None:
    with pytest.raises(InvalidOption, match=f"which is {newest}") as caught:
        endings({topic: 51}, STANDINGS)
    assert caught.value.field == "endingOffsets"
    assert "-2" not in caught.value.remedy  # a batch cannot end there
    if newest:
        with pytest.raises(InvalidOption, match=r"which is 50.* -1 or -2"):
            beginnings({topic: 51}, STANDINGS)


def test_a_loss_is_what_is_behind_a_position_and_before_the_oldest_row() -> None:
    assert missing("a", 40, STANDINGS["a"]) is None
    assert missing("a", 39, STANDINGS["a"]) == Loss("a", 40, 40)
    assert missing("none", 39, STANDINGS["none"]) is None


# ---------------------------------------------------------------- whole queries


@dataclass
class Log:
    first: int = 1
    last: int = 0

    def standing(self) -> Standing:
        return Standing(self.first, self.last)


@dataclass
class Service:
    """Logs, the published messages, and the messages that a query read or reported as lost."""

    logs: dict[str, Log] = field(default_factory=dict)
    published: list[tuple[str, int]] = field(default_factory=list)
    read: list[tuple[str, int]] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)
    clock: int = 0

    def publish(self, topic: str, rows: int) -> None:
        if topic not in self.logs:
            self.clock += 1_000_000
            self.logs[topic] = Log(self.clock, self.clock - 1)
        for _ in range(rows):
            self.logs[topic].last += 1
            self.published.append((topic, self.logs[topic].last))

    def trim(self, topic: str, rows: int) -> None:
        if (log := self.logs.get(topic)) is not None:
            log.first = min(log.last + 1, log.first + rows)

    def lose(self, topic: str) -> None:
        self.logs.pop(topic, None)

    def standings(self) -> dict[str, Standing]:
        return {topic: log.standing() for topic, log in self.logs.items()}


topics = st.sampled_from("abc")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), topics, st.integers(1, 9)),
        st.tuples(st.just("trim"), topics, st.integers(1, 9)),
        st.tuples(st.just("lose"), topics, st.just(0)),
        st.tuples(st.just("batch"), st.just(""), st.integers(1, 12)),
        st.tuples(st.just("again"), st.just(""), st.integers(1, 12)),
    ),
    max_size=40,
)


@given(steps, st.booleans())
def test_each_row_is_read_once_in_order_or_reported_as_lost(
    found: list[tuple[str, str, int]], limited: bool
) -> None:
    service = Service()
    start = Offset()
    turn = ""

    def batch(rows: int | None, repeated: bool) -> None:
        nonlocal start, turn
        before = start
        step = advance(start, service.standings(), most=rows, turn=turn)
        start, turn = step.end, step.turn
        service.lost += step.losses
        if step.end is before:
            return
        # After a restart, the plan is made from the stored texts of both ends.
        reported = [json.loads(json.dumps(each.as_json())) for each in (before, step.end)]
        if repeated and before.nothing_read:
            reported[0] = {"a": 10**12}
        for part in split(ranges(*map(read_offset, reported)), tasks=2, most=5):
            for topic, after, last in part:
                service.read += [(topic, seq) for seq in range(after + 1, last + 1)]

    for name, topic, number in found:
        match name:
            case "publish":
                service.publish(topic, number)
            case "trim":
                service.trim(topic, number)
            case "lose":
                service.lose(topic)
            case _:
                batch(number if limited else None, name == "again")
    for _ in range(200):
        before = start
        batch(7 if limited else None, False)
        if start is before:
            break
    assert len(service.read) == len(set(service.read))
    for topic in "abc":
        seqs = [seq for name, seq in service.read if name == topic]
        assert seqs == sorted(seqs)
        assert set(seqs) <= {seq for name, seq in service.published if name == topic}
    known = set(service.read)
    log_rows = {
        (topic, seq)
        for topic, log in service.logs.items()
        for seq in range(log.first, log.last + 1)
    }
    # Retained messages were read; messages after one that was read were read or reported as lost.
    assert log_rows <= known
    for topic, seq in service.published:
        earlier = [s for name, s in service.read if name == topic and s < seq]
        later = [s for name, s in service.read if name == topic and s > seq]
        if (topic, seq) not in known and earlier and later:
            assert any(
                loss.topic == topic and loss.first <= seq <= loss.last for loss in service.lost
            )
