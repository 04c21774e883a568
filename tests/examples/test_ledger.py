"""The demonstration's bookkeeping: every kind of difference is told."""

from __future__ import annotations

import pytest

from examples.demo.ledger import Ledger, Reading, judge, percentile, summary
from examples.demo.story import load_words, rhythm

WORDS = 5


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    for index in range(WORDS):
        made.sending(index, f"w{index} ", float(index))
        made.published(f"id{index}", index)
    return made


def reading(indices: list[int], **more: int) -> Reading:
    found = Reading("reader", "test", finished=True, reconnects=3, rotations=2)
    for index in indices:
        found.note(f"id{index}", index, f"w{index} ", 0.001)
    for name, value in more.items():
        setattr(found, name, value)
    return found


def test_a_whole_reading_is_told_as_such(ledger: Ledger) -> None:
    whole = reading([0, 1, 2, 3, 4])
    assert judge(ledger, WORDS, [whole], reconnects=3, rotations=2) == []
    assert summary(ledger, whole) == (
        "published 5 · received 5 · lost 0 · twice 0 · reconnects 3 · rotations 2"
    )


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (reading([0, 1, 3, 4]), "1 lost"),
        (reading([0, 1, 2, 2, 3, 4]), "1 seen twice"),
        (reading([0, 2, 1, 3, 4]), "1 out of order"),
        (reading([0, 1, 2, 3, 4, 5]), "1 never published"),
        (reading([0, 1, 2, 3, 4], gaps=1), "1 gap reported"),
        (reading([0, 1, 2, 3, 4], reconnects=2), "2 reconnects, not 3"),
        (reading([0, 1, 2, 3, 4], rotations=1), "1 rotation, not 2"),
        (reading([0, 1, 2, 3, 4], finished=False), "end of the stream"),
    ],
)
def test_every_difference_is_told(ledger: Ledger, seen: Reading, says: str) -> None:
    assert says in " ".join(judge(ledger, WORDS, [seen], reconnects=3, rotations=2))


def test_an_altered_word_is_told(ledger: Ledger) -> None:
    seen = reading([0, 1, 2, 3])
    seen.note("id4", 4, "other ", 0.0)
    assert "1 altered" in judge(ledger, WORDS, [seen], reconnects=3, rotations=2)[0]


def test_words_that_were_never_published_are_told(ledger: Ledger) -> None:
    whole = reading([0, 1, 2, 3, 4])
    assert "5 of 6" in judge(ledger, 6, [whole], reconnects=3, rotations=2)[0]


def test_the_text_has_two_thousand_words_and_is_kept_to_the_letter() -> None:
    words = load_words()
    assert len(words) == 2000
    assert [word.index for word in words] == list(range(2000))
    assert "".join(word.content for word in words).startswith("THE ORDER OF THINGS SAID\n\nLong")


def test_the_rhythm_keeps_its_rate_and_repeats_for_a_seed() -> None:
    first, again = rhythm(7, 54), rhythm(7, 54)
    pauses = [next(first) for _ in range(5000)]
    assert pauses == [next(again) for _ in range(5000)]
    assert 5000 / sum(pauses) == pytest.approx(54, rel=0.05)


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1.0], 0.99) == 1
    assert percentile([], 0.5) == 0
