"""The settings of the server of the show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.chat import server

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

STANDARD_RATE = 100.0
"""Publishes per second that HIP-56 allows a service."""


def start(*, words: int, rate: float, notice: float) -> AbstractAsyncContextManager[server.Server]:
    """Start a server, and end it with the block.

    Args:
        words: History is kept for this many, and some more.
        rate: Words per second; the limit of a service is raised where this is over it.
        notice: Seconds before the end of a token at which the server asks for a new one.

    Raises:
        ServerFailed: It did not start.
    """
    settings = {
        "history_max_messages": str(words + 1000),
        "history_page_max": "1000",
        "expiring_notice": f"{round(notice * 1000)}ms",
    }
    if rate > STANDARD_RATE / 1.5:
        settings["publish_rate_service"] = str(round(rate * 2))
    return server.start(**settings)
