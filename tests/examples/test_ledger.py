"""The demonstration's ledger reports every kind of difference."""

from __future__ import annotations

import pytest

from examples.demo.ledger import Ledger, Reading, judge, percentile, summary
from examples.demo.story import load_words, rhythm

WORDS = 5


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    for index in range(WORDS):
        made.write(f"w{index} ", float(index))
    return made


def reading(ledger: Ledger, text: str, **more: int) -> Reading:
    found = Reading("reader", "test", finished=True, reconnects=3, rotations=2)
    ledger.take(found, text)
    for name, value in more.items():
        setattr(found, name, value)
    return found


WHOLE = "w0 w1 w2 w3 w4 "


def test_a_complete_reading_is_reported_as_complete(ledger: Ledger) -> None:
    whole = reading(ledger, WHOLE)
    assert ledger.account(whole).whole
    assert judge(ledger, WORDS, [whole], reconnects=3, rotations=2) == []
    assert summary(ledger, whole) == (
        "published 5 · received 5 · lost 0 · twice 0 · reconnects 3 · rotations 2"
    )


def test_a_text_that_grows_is_counted_by_words(ledger: Ledger) -> None:
    found = Reading("reader", "test")
    assert list(ledger.take(found, "w0 w")) == [0]
    assert list(ledger.take(found, "w0 w1 w2 ")) == [1, 2]
    assert list(ledger.take(found, WHOLE)) == [3, 4]
    assert found.count == 5


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("w0 w1 w2 w3 ", {}, "1 lost"),
        ("w0 w1 w3 w4 ", {}, "1 lost, 2 altered"),
        ("w0 w1 w2 w2 w3 w4 ", {}, "1 seen twice, 2 altered"),
        ("w0 w2 w1 w3 w4 ", {}, "2 altered"),
        ("w0 w1 w2 w3 other ", {}, "1 altered"),
        (WHOLE, {"altered": 1}, "1 altered"),
        (WHOLE, {"reconnects": 2}, "2 reconnects, not 3 or more"),
        (WHOLE, {"rotations": 1}, "1 rotation, not 2"),
        (WHOLE, {"finished": False}, "end of the stream"),
    ],
)
def test_every_difference_is_reported(
    ledger: Ledger, text: str, more: dict[str, int], says: str
) -> None:
    seen = reading(ledger, text, **more)
    assert says in " ".join(judge(ledger, WORDS, [seen], reconnects=3, rotations=2))


def test_an_altered_text_is_reported_although_it_is_replaced(ledger: Ledger) -> None:
    seen = reading(ledger, "other ")
    ledger.take(seen, WHOLE)
    assert "1 altered" in judge(ledger, WORDS, [seen], reconnects=3, rotations=2)[0]


def test_words_that_were_never_published_are_reported(ledger: Ledger) -> None:
    whole = reading(ledger, WHOLE)
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
