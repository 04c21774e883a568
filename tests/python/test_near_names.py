"""The name that someone meant who wrote an unknown one."""

from __future__ import annotations

import pytest

from hanzoai.pubsub.near_names import did_you_mean

NAMES = ["url", "token", "transport", "open_timeout", "--token-file"]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("tok", "token"),
        ("TRANS", "transport"),
        ("--tok", "--token-file"),
        ("opentimeout", "open_timeout"),
        ("tokn", "token"),
    ],
)
def test_a_misspelt_or_shortened_name_is_found(wrong: str, meant: str) -> None:
    assert did_you_mean(wrong, NAMES) == f"Did you mean `{meant}`? "


@pytest.mark.parametrize("wrong", ["", "t", "to", "--t", "--to", "--"])
def test_fewer_than_three_letters_are_not_the_beginning_of_a_name(wrong: str) -> None:
    assert did_you_mean(wrong, NAMES) == ""


def test_all_names_that_end_with_what_was_written_are_suggested() -> None:
    names = ["url", "pong_timeout", "operation_timeout"]
    assert did_you_mean("timeout", names) == (
        "Did you mean one of `operation_timeout`, `pong_timeout`? "
    )
    assert did_you_mean("timeout", names[:2]) == "Did you mean `pong_timeout`? "
