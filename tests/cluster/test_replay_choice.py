"""What a replay takes from a log whose numbering this node has not delivered yet."""

from __future__ import annotations

from pubsub_server.backplane import Entry
from pubsub_server.backplanes.redis.reader import Chosen, Wanted, choose
from pubsub_server.backplanes.redis.records import Log

NOW = 9_000
START = 9_000_000
"""Where the newest numbering began."""


def chosen(after: int, stood: int, *retained: int) -> Chosen:
    entries = [Entry("demo.x", f"m{seq}", 1, seq, NOW + 1, b"{}") for seq in retained]
    log = Log(START, START + 1, NOW, 0, len(entries), entries)
    return choose("demo.x", log, Wanted(None, {"demo.x": after}, None), NOW, stood)


def told(choice: Chosen) -> tuple[list[int | None], int | None, bool, bool]:
    seqs = [entry.seq for entry in choice.entries]
    return seqs, choice.position, choice.truncated, choice.reset


def test_what_lacks_behind_a_position_of_a_former_log_has_no_size_that_anybody_knows() -> None:
    former, between = 3_000_000, 6_000_000
    assert told(chosen(former, between, START, START + 1)) == ([], between, True, True)
    assert told(chosen(5, 9, 6, 9, START, START + 1)) == ([6, 9], 9, True, True)


def test_a_numbering_that_is_yet_to_be_delivered_is_told_when_it_comes() -> None:
    assert told(chosen(7, 9, 8, 9, START, START + 1)) == ([8, 9], 9, False, False)
    assert told(chosen(9, 9, START, START + 1)) == ([], 9, False, False)
