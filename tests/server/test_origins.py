"""Which pages may use the server, and the log line about a page that may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.listeners.origins import LOG_EVERY, SHOWN, Origins

if TYPE_CHECKING:
    import pytest


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rejected_origins_are_logged_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    origins = Origins(["https://a.example"], clock)
    assert not origins.allows("https://b.example")
    clock.now += LOG_EVERY - 1
    assert not origins.allows("https://c.example")
    assert origins.allows("https://a.example")
    clock.now += 1
    assert not origins.allows("https://d.example")
    assert [each.split("'")[1] for each in caplog.messages] == [
        "https://b.example",
        "https://d.example",
    ]
    assert all("add it if the page is yours" in each for each in caplog.messages)


def test_an_origin_cannot_forge_or_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert not Origins(["https://a.example"], Clock()).allows("x\n" + "y" * 1_000)
    (line,) = caplog.messages
    assert "\n" not in line
    assert "y" * SHOWN not in line


def test_without_a_list_every_origin_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    assert Origins(["*"], Clock()).allows("https://b.example")
    assert not caplog.messages
