"""The messages about token streams at the start of a server."""

from __future__ import annotations

import pytest

from pubsub_server.settings.config import Settings
from pubsub_server.stream_capacity import describe, streams_at_once


@pytest.mark.parametrize(("window", "count"), [(40, 3), (100, 9), (250, 23), (500, 45)])
def test_the_streams_of_a_client_are_those_of_the_docs(window: int, count: int) -> None:
    assert streams_at_once(100, window) == count


def test_a_server_states_how_many_streams_a_client_can_write() -> None:
    assert describe(Settings()) == (
        "token streams: at 100 publishes per second (publish_rate_service), one client can stream"
        " 3 answers at once with new text every 40 ms, or 9 every 100 ms, or 45 every 500 ms"
    )


def test_large_numbers_are_grouped() -> None:
    output = describe(Settings(publish_rate_service=1_000_000))
    assert "at 1,000,000 publishes per second" in output
    assert "38,961 answers at once" in output


def test_a_history_too_short_for_late_readers_is_named() -> None:
    assert "history_max_messages" not in describe(Settings())
    output = describe(Settings(history_max_messages=20))
    assert "topics keep 20 messages" in output
    assert "history_max_messages" in output


def test_a_rate_too_low_for_any_stream_is_named() -> None:
    assert "cannot stream an answer" in describe(Settings(publish_rate_service=1))
