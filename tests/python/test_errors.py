from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from hanzoai.pubsub import errors
from hanzoai.pubsub.errors import (
    CLASSES,
    AuthError,
    AuthRefused,
    ConnectionFailed,
    ConnectionLimit,
    InsecureUrl,
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    MessagesMissed,
    OperationTimeout,
    PayloadTooLarge,
    PermissionDenied,
    PubSubError,
    RateLimited,
    TokenExpired,
    UsageError,
    from_code,
)
from hanzoai.pubsub.session.events import code_of
from spec._generate import yaml_text

CODES: dict[str, dict[str, Any]] = yaml_text.parse(
    (Path(__file__).parents[2] / "spec" / "errors.yaml").read_text()
)["codes"]


@pytest.mark.parametrize("code", CODES)
def test_every_code_builds_its_class_with_meaning_and_remedy(code: str) -> None:
    row = CODES[code]
    error = from_code(code)
    # The specification marks SDK names, and each language spells them in its own way.
    meaning, remedy = (re.sub(r"\{(.+?)\}", r"`\1`", row[name]) for name in ("meaning", "remedy"))
    assert type(error).__name__ == row["error"]
    assert (error.code, error.message, error.remedy, error.retryable) == (
        code,
        meaning,
        remedy,
        row["retryable"],
    )


def test_every_class_has_a_code_of_its_own_name_in_the_table() -> None:
    for name, cls in CLASSES.items():
        assert CODES[cls.usual_code]["error"] == name
        assert type(cls()) is cls
        assert cls().code == cls.usual_code
    assert {row["error"] for row in CODES.values()} == set(CLASSES)


def test_the_drawn_tree_is_the_real_one() -> None:
    lines = [line.strip() for line in (errors.__doc__ or "").splitlines()]
    drawn = {m[1] for line in lines if (m := re.search(r"[├└]── (\w+)", line))}
    assert drawn == set(CLASSES)
    for parent, child in (("AuthError", "TokenExpired"), ("LimitExceeded", "ConnectionLimit")):
        assert issubclass(CLASSES[child], CLASSES[parent])


def test_builtin_exceptions_catch_what_they_should() -> None:
    assert isinstance(ConnectionFailed(), ConnectionError)
    assert isinstance(OperationTimeout(), TimeoutError)
    assert isinstance(InvalidTopic(), ValueError)
    assert isinstance(InvalidOption(), ValueError)
    assert isinstance(InsecureUrl(), InvalidOption)
    assert isinstance(InvalidPayload(), ValueError)
    assert isinstance(UsageError(), RuntimeError)
    assert issubclass(TokenExpired, AuthError)
    assert issubclass(AuthRefused, AuthError)
    assert issubclass(ConnectionLimit, PubSubError)


def test_the_text_of_an_error_has_the_problem_and_the_remedy() -> None:
    error = InvalidTopic("`a..b` has an empty segment.", topic="a..b", remedy="Write `a.b`.")
    assert str(error) == (
        "`a..b` has an empty segment. Write `a.b`. See https://pubsub.hanzo.ai/docs/errors/#invalid_topic"
    )
    assert error.topic == "a..b"
    assert (
        repr(error) == "InvalidTopic(code='invalid_topic', message='`a..b` has an empty segment.')"
    )


def test_a_code_of_a_later_server_is_kept_and_not_retried() -> None:
    error = from_code("quota_exceeded", "Out of credits.", retry_after=2.5)
    assert type(error) is PubSubError
    assert (error.code, error.message, error.remedy) == ("quota_exceeded", "Out of credits.", "")
    assert not error.retryable
    assert error.retry_after == 2.5
    assert str(from_code("x")) == "Error `x`."


@pytest.mark.parametrize("close", [None, 0, 1006, 4999])
def test_a_cause_without_an_error_code_counts_as_a_failed_connection(close: int | None) -> None:
    assert code_of(close) == "connection_failed"


def test_missed_messages_have_a_gap_also_if_a_server_sends_only_the_code() -> None:
    error = from_code("messages_missed", topic="chat.a")
    assert isinstance(error, MessagesMissed)
    assert (error.gap.topic, error.gap.missed, error.gap.reason) == ("chat.a", None, "unproven")


def test_a_number_of_seconds_to_wait_belongs_to_rate_limited() -> None:
    assert RateLimited(retry_after=1.5).retry_after == 1.5


def test_a_timeout_says_whether_the_outcome_is_unknown() -> None:
    assert not OperationTimeout().outcome_unknown
    unknown = from_code("outcome_unknown")
    assert isinstance(unknown, OperationTimeout)
    assert unknown.outcome_unknown
    assert OperationTimeout(outcome_unknown=True, id="msg_1").id == "msg_1"


def test_the_error_of_a_too_large_payload_states_both_sizes() -> None:
    error = PayloadTooLarge(size=300_000, limit=262_144)
    assert error.message == "The payload has 300,000 bytes of JSON; the limit is 262,144."


@pytest.mark.parametrize(
    ("message", "topic", "text"),
    [
        ("you may not read this", "chat.a", "you may not read this (topic chat.a)."),
        ("You may not.", "chat.**", "You may not (topic chat.**)."),
        ("a rule forbids it", "a.b", "a rule forbids it (topic a.b)."),
        ("A user may not publish.", "user", "A user may not publish."),
        ("`chat.a` is not for you", "chat.a", "`chat.a` is not for you"),
        ("nobody may read chat.a.", "chat.a", "nobody may read chat.a."),
        ("nobody may read chat.a.b", "chat.a", "nobody may read chat.a.b (topic chat.a)."),
        ("no access", None, "no access"),
    ],
)
def test_a_refusal_names_its_topic(message: str, topic: str | None, text: str) -> None:
    error = from_code("forbidden", message, topic=topic)
    assert isinstance(error, PermissionDenied)
    assert error.message == text
    assert str(error).startswith(text)
    assert from_code("forbidden", error.message, topic=topic).message == text
    assert (topic is None) or topic in PermissionDenied(topic=topic).message


def test_an_endless_message_of_a_server_is_cut() -> None:
    assert len(from_code("internal", "x" * 1_000_000).message) <= 2_001


def test_a_cause_is_kept() -> None:
    cause = OSError("refused")
    assert ConnectionFailed(cause=cause).__cause__ is cause


@pytest.mark.parametrize(
    "error",
    [
        from_code("quota_exceeded", "Out of credits.", retry_after=2.5),
        InvalidTopic("bad", topic="a..b"),
        ConnectionFailed("refused"),
        OperationTimeout(outcome_unknown=True, id="msg_1"),
        PayloadTooLarge(size=3, limit=2),
        AuthRefused(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: PubSubError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert twin.__dict__ == error.__dict__
        assert str(twin) == str(error)
        assert twin.args == error.args


def test_message_and_remedy_read_as_two_sentences() -> None:
    error = PermissionDenied("the rules do not allow this", remedy="Ask for access.")
    assert str(error).startswith("the rules do not allow this. Ask for access. ")
    asked = PermissionDenied("Who is it?", remedy="Say who.")
    assert str(asked).startswith("Who is it? Say who. ")


def test_every_code_leads_to_its_place_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
    for code in CODES:
        error = from_code(code)
        assert str(error).endswith(f" See {error.docs}")
        path, _, anchor = error.docs.partition("#")
        assert path == "https://pubsub.hanzo.ai/docs/errors/"
        assert f'<a id="{anchor}"></a>' in page
    assert from_code("a_code_of_a_later_server").docs == ""
