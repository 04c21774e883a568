"""Limits of one replay and of one page, for every backplane."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pubsub_server.backplane import Entry

REPLAY_MESSAGES: Final = 10_000
"""Maximum messages of one replay: the newest; topics with missing messages are truncated."""
REPLAY_TOPICS: Final = 10_000
PAGE_BYTES: Final = 8_388_608
"""Maximum bytes of the messages of a page; one message of any size is always a page."""


def bounded(
    logs: Sequence[Sequence[Entry]], truncated: Sequence[str]
) -> tuple[list[Entry], list[str]]:
    """Merges logs by time, up to `REPLAY_MESSAGES`, and names the topics with missing messages.

    Args:
        logs: Messages of each topic, oldest first.
        truncated: Topics that already have missing messages.
    """
    entries = [entry for log in logs for entry in log]
    if len(logs) > 1:
        entries.sort(key=lambda entry: entry.timestamp)
    truncated_topics = dict.fromkeys(truncated)
    truncated_topics.update(dict.fromkeys(entry.topic for entry in entries[:-REPLAY_MESSAGES]))
    return entries[-REPLAY_MESSAGES:], list(truncated_topics)


def first_of(entries: Sequence[Entry], limit: int) -> Sequence[Entry]:
    """The page at the beginning of these entries."""
    return entries[: _fitting(entries, limit)]


def last_of(entries: Sequence[Entry], limit: int) -> Sequence[Entry]:
    """The page at the end of these entries."""
    return entries[len(entries) - _fitting(reversed(entries), limit) :]


def _fitting(entries: Iterable[Entry], limit: int) -> int:
    count = size = 0
    for entry in islice(entries, limit):
        size += len(entry.body)
        if count and size > PAGE_BYTES:
            break
        count += 1
    return count
