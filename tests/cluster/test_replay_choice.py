"""The messages that a replay selects from a log whose numbering started again."""

from __future__ import annotations

import pytest

from pubsub_server.backplane import Entry
from pubsub_server.backplanes.redis.layout import Log
from pubsub_server.backplanes.redis.reader import LEAP, Chosen, Wanted, choose, choose_without_log

NOW = 9_000
START = 9_000_000
"""The start of the newest numbering."""


def chosen(wanted: Wanted, live_after: int | None, *retained: int) -> Chosen:
    entries = [Entry("demo.x", f"m{seq}", 1, seq, NOW + 1, b"{}") for seq in retained]
    log = Log(START, START + 1, NOW, 0, len(entries), entries)
    return choose("demo.x", log, wanted, NOW, live_after)


def reported(choice: Chosen) -> tuple[list[int | None], int | None, bool, bool]:
    seqs = [entry.seq for entry in choice.entries]
    return seqs, choice.position, choice.truncated, choice.reset


def behind(
    after: int, live_after: int, *retained: int
) -> tuple[list[int | None], int | None, bool, bool]:
    return reported(chosen(Wanted(None, {"demo.x": after}, None), live_after, *retained))


def test_what_lacks_behind_a_position_of_a_former_numbering_has_no_known_size() -> None:
    former, between = 3_000_000, 6_000_000
    assert behind(former, between, START, START + 1) == ([], between, True, True)
    assert behind(former, between, between, START) == ([between], between, True, True)


def test_a_former_numbering_repeats_nothing_that_the_subscriber_may_know() -> None:
    former, between = 3_000_000, 6_000_000
    assert behind(former, between, former + 1, between, START) == ([between], between, True, True)
    assert behind(former, between, former + 1, START) == ([], between, True, True)


def test_what_lacks_within_one_numbering_is_counted_though_another_has_begun() -> None:
    assert behind(5, 9, 6, 9, START, START + 1) == ([6, 9], 9, True, False)
    assert behind(5, 5 + LEAP - 1, START) == ([], 5 + LEAP - 1, True, False)


def test_a_numbering_without_deliveries_is_reported_with_its_first_message() -> None:
    assert behind(7, 9, 8, 9, START, START + 1) == ([8, 9], 9, False, False)


def test_a_subscriber_that_has_all_of_a_former_numbering_is_moved_to_the_new_one_at_once() -> None:
    assert behind(9, 9, START, START + 1) == ([], START - 1, False, True)


def test_a_subscriber_ahead_of_its_node_learns_of_a_new_numbering_once() -> None:
    assert behind(9, 7, START, START + 1) == ([], START - 1, False, True)


def test_a_subscriber_that_is_ahead_of_its_node_gets_nothing_that_it_has() -> None:
    log = (START, START + 1)
    assert behind(START, START - 1, *log) == ([START + 1], START + 1, False, False)
    assert behind(START + 1, START - 1, *log) == ([], START + 1, False, False)


def test_what_a_node_has_not_delivered_is_replayed_if_the_log_has_it() -> None:
    assert behind(START - 1, START, START, START + 1) == (
        [START, START + 1],
        START + 1,
        False,
        False,
    )
    # Otherwise, the node delivers it after the replay.
    assert behind(START - 1, START, START) == ([START], START, True, False)
    assert behind(START, START - 1) == ([], START, True, False)


def test_a_lost_log_with_messages_that_were_delivered_here_is_reported() -> None:
    former, between = 3_000_000, 6_000_000
    wanted = Wanted(None, {"demo.x": former}, None)
    choice = choose_without_log("demo.x", wanted, START, between)
    assert choice is not None
    assert reported(choice) == ([], between, False, True)
    # The subscriber has the numbering that was delivered last, so its missing messages are counted.
    choice = choose_without_log("demo.x", wanted, START, former + 9)
    assert choice is not None
    assert reported(choice) == ([], former + 9, True, False)
    # It has all delivered messages, or none was delivered.
    for same in (former, former - 1, 0, None):
        assert choose_without_log("demo.x", wanted, START, same) is None
    assert choose_without_log("demo.x", Wanted(0, {}, None), START, between) is None


def test_a_position_that_the_next_numbering_would_not_exceed_is_of_another_one() -> None:
    wanted = Wanted(None, {"demo.x": START}, None)
    for behind_it in (START - 1, 0, None):
        assert choose_without_log("demo.x", wanted, START + 1, behind_it) is None
        choice = choose_without_log("demo.x", wanted, START, behind_it)
        assert choice is not None
        assert reported(choice) == ([], None, False, True)
    # The next numbering is above what a node has delivered.
    assert choose_without_log("demo.x", wanted, START, START) is None


def test_a_replay_by_time_over_two_numberings_is_complete_and_reports_the_reset() -> None:
    wanted = Wanted(0, {"demo.other": 1}, None)
    assert reported(chosen(wanted, None, 7, 8, START, START + 1)) == (
        [7, 8, START, START + 1],
        START + 1,
        False,
        True,
    )
    assert reported(chosen(wanted, None, START, START + 1))[3] is False


LOST = NOW + 3
"""Unix ms of a failover: positions from `LOST * 1000` on were not assigned before it."""


@pytest.mark.parametrize(
    ("mark", "lost", "repeated"),
    [
        (START + 2, LOST, False),
        (START + 2 * LEAP, LOST, False),
        (LOST * 1000 - 1, LOST, False),
        # It is of another service, or of a clock that was ahead.
        (LOST * 1000, LOST, True),
        (START + 10**9, LOST, True),
        # The log has its end.
        (START + 2, 0, True),
    ],
)
def test_a_subscriber_ahead_of_a_log_that_has_lost_its_end_gets_nothing_again(
    mark: int, lost: int, repeated: bool
) -> None:
    seqs = [START, START + 1]
    entries = [Entry("demo.x", f"m{seq}", 1, seq, LOST + 1, b"{}") for seq in seqs]
    log = Log(START, START + 1, NOW, lost, len(entries), entries)
    for live_after in (None, START + 1, mark):
        choice = choose("demo.x", log, Wanted(None, {"demo.x": mark}, None), LOST, live_after)
        assert reported(choice) == (seqs if repeated else [], START + 1, False, True)
