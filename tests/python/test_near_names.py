"""The name that someone meant who wrote an unknown one."""

from __future__ import annotations

import pytest

from hanzoai.pubsub.near_names import did_you_mean, misspelt_variable

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


@pytest.mark.parametrize("name", ["HANZO_PUBSUB_TOKN", "HANZO_PUBSUB_TOKENS"])
def test_a_variable_that_is_probably_misspelt_is_named_without_its_value(name: str) -> None:
    assert misspelt_variable("HANZO_PUBSUB_TOKEN", {"HOME": "/", name: "secret"}) == (
        f" {name} is set: did you mean HANZO_PUBSUB_TOKEN?"
    )


def test_another_variable_is_not_taken_for_a_misspelt_one() -> None:
    others = dict.fromkeys(["TOKEN", "HANZO_PUBSUB_REST_URL", "HANZO_PUBSUB_SPEED"], "x")
    assert misspelt_variable("HANZO_PUBSUB_URL", others) == ""
    assert misspelt_variable("HANZO_PUBSUB_TOKEN", others | {"HANZO_PUBSUB_TOKEN": ""}) == ""
