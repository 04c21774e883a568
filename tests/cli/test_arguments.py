"""The values of options."""

from __future__ import annotations

import argparse
import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.cli import publish
from hanzoai.pubsub.cli.arguments import (
    count,
    duration,
    moment,
    number,
    parse_json,
    position,
    whole_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("60s", 60),
        ("5m", 300),
        ("1h", 3600),
        ("2d", 172800),
        ("1.5s", 1.5),
        ("7", 7),
    ],
)
def test_a_duration_has_a_unit_or_is_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "0s", "5 minutes", "5M", "1e3", "367d", "٣s", "inf"])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


def test_a_ttl_is_a_duration_of_whole_seconds() -> None:
    assert [whole_seconds(text) for text in ("0", "90", "5m", "1h")] == [0, 90, 300, 3600]
    for wrong in ("500ms", "1.5", "-1", "1 hour"):
        with pytest.raises(argparse.ArgumentTypeError):
            whole_seconds(wrong)


def test_a_time_is_a_span_back_or_unix_milliseconds_or_iso_8601() -> None:
    assert moment("5m") == timedelta(minutes=5)
    assert moment("1740307200000") == 1740307200000
    assert moment("2026-11-20T08:00:00Z") == datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert moment("2026-11-20T10:00:00+02:00") == datetime(2026, 11, 20, 8, tzinfo=UTC)
    local = moment("2026-11-20T08:00:00")
    assert isinstance(local, datetime)
    assert local == datetime(2026, 11, 20, 8).astimezone()


@given(st.text(max_size=20))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parser in (duration, whole_seconds, moment, count, number, position):
        with contextlib.suppress(argparse.ArgumentTypeError):
            parser(text)


def test_a_position_is_cut_at_its_last_equals_sign() -> None:
    assert position("a.b=12") == ("a.b", 12)
    for wrong in ("a.b", "=1", "a.b=-1", "a.b=x", f"a.b={2**53}"):
        with pytest.raises(argparse.ArgumentTypeError):
            position(wrong)


def test_a_count_is_at_least_one() -> None:
    assert count("1") == 1
    for wrong in ("0", "-1", "x", "1000000001"):
        with pytest.raises(argparse.ArgumentTypeError):
            count(wrong)


@pytest.mark.parametrize("text", ["NaN", "[1, -Infinity]", "{", "[" * 100_000, "'x'", ""])
def test_what_is_no_json_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|nested") as caught:
        parse_json(text)
    assert len(str(caught.value)) < 100
    assert str(caught.value).startswith(("not valid JSON: ", "nested "))


def test_data_without_its_flag_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        publish.main(["demo.a", '{"text": "hi"}'])
    assert end.value.code == 2
    output = capsys.readouterr().err
    assert "Pass --data JSON, --data @FILE or --data -." in output
    assert '"hi"' not in output
