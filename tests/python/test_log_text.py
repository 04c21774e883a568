"""Text of servers and other clients in a log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import Gap
from hanzoai.pubsub.errors import from_code
from hanzoai.pubsub.log_text import log_error, log_text
from hanzoai.pubsub.runtime.handlers import Listeners, warn

if TYPE_CHECKING:
    import asyncio

    from hanzoai.pubsub.testing import MemoryServer

EVIL = "gone\n2026-01-01 ERROR root: forged\r\x1b[2J\x85\u2028\u202e"
SHOWN = "gone\\x0a2026-01-01 ERROR root: forged\\x0d\\x1b[2J\\x85\\u2028\\u202e"


def starts_nothing(coroutine: object, name: str) -> asyncio.Task[None]:
    raise AssertionError(name)


def test_text_for_a_log_is_one_line_of_at_most_300_characters_that_utf_8_can_contain() -> None:
    assert log_text("héllo 漢字") == "héllo 漢字"
    assert log_text(EVIL) == SHOWN
    assert log_text("x" * 300) == "x" * 300
    assert log_text("x" * 301) == "x" * 300 + "…"
    assert log_text("\ud800").encode() == b"\\ud800"


def test_the_copy_of_an_error_for_a_log_keeps_its_class_and_leaves_the_error_unchanged() -> None:
    error = from_code("forbidden", EVIL, remedy=EVIL, topic="a.b")
    shown = log_error(error)
    assert type(shown) is type(error)
    assert str(shown).startswith(SHOWN)
    assert "\n" not in str(shown)
    assert error.remedy == EVIL


@pytest.mark.parametrize("code", ["internal", "going_away", EVIL])
async def test_an_error_of_the_server_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, code: str
) -> None:
    error = from_code(code, EVIL + "x" * 1_000, remedy=EVIL)
    caplog.set_level(logging.INFO, "hanzoai.pubsub")
    Listeners(None, None, starts_nothing).report(error, EVIL)
    (record,) = caplog.records
    line = record.getMessage()
    assert line.isprintable()
    assert line.count(SHOWN) >= 3
    assert len(line) < 1_000


async def test_the_reasons_of_lost_connections_are_one_line_each_in_the_log(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hanzoai.pubsub")
    ps = pubsub_memory.client()
    with pubsub_memory.refusing(None, EVIL, transport="websocket"):
        ps.subscribe("a.b", on_message=print)
        await pubsub_memory.clock.advance_until(lambda: ps.transport == "sse", 120)
    lines = [record.getMessage() for record in caplog.records]
    assert all(map(str.isprintable, lines))
    outage, fallback = (line for line in lines if SHOWN in line)
    assert outage.startswith("No connection to ")
    assert fallback.startswith("The WebSocket ")


def test_a_gap_on_a_topic_that_a_server_invents_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn(Gap(EVIL, None, None, None, "unproven"), {})
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert SHOWN in record.getMessage()


async def test_a_request_for_a_reply_on_an_invented_topic_is_one_line_of_the_log(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    request = {"type": "request", "data": [], "meta": {"reply_to": EVIL}}
    async with pubsub_memory.client().respond("a.sum", lambda _: {"data": 0}):
        with caplog.at_level(logging.WARNING, "hanzoai.pubsub"):
            await pubsub_memory.publish("a.sum", request)
            await pubsub_memory.clock.advance(1)
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert f"asks for its reply on {SHOWN}" in record.getMessage()
