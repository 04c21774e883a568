"""Times that are probably in milliseconds."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient, RetryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


def _logged(caplog: pytest.LogCaptureFixture, **settings: Any) -> list[str]:
    """What a new client with these settings logs."""
    caplog.clear()
    PubSubClient("ws://127.0.0.1:1/ws", "token", **settings)
    return [record.getMessage() for record in caplog.records]


def test_a_new_client_logs_times_that_look_like_milliseconds_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = (
        "`open_timeout` is 5000 s, and `operation_timeout` is 10000 s. "
        "Times are in seconds: for 5000 ms, pass 5."
    )
    assert _logged(caplog, operation_timeout=10_000, open_timeout=5_000) == [words]
    assert _logged(caplog, operation_timeout=10_000, open_timeout=5_000) == []


def test_a_longest_delay_in_milliseconds_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    (words,) = _logged(caplog, retry=RetryOptions(base=1_000, cap=30_000))
    assert words.startswith("`retry.cap` is 30000 s.")


def test_retry_options_with_the_default_cap_silence_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retry = RetryOptions(stable_after=20)
    (words,) = _logged(caplog, fetch_timeout=10_000, retry=retry)
    assert words.startswith("`fetch_timeout` is 10000 s.")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"close_timeout": 600, "pong_timeout": 300},
        {"close_timeout": 3_600},
        {"close_timeout": timedelta(seconds=5_000)},
        {"close_timeout": 5_000, "pong_timeout": 10},
    ],
)
def test_nothing_is_logged_for_times_that_a_program_may_mean(
    caplog: pytest.LogCaptureFixture, settings: Mapping[str, object]
) -> None:
    assert _logged(caplog, **settings) == []
