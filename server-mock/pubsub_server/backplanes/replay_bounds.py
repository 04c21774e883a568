"""Limits of one replay, for every backplane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pubsub_server.backplane import Entry

REPLAY_MESSAGES: Final = 10_000
"""Maximum messages of one replay: the newest; topics with missing messages are truncated."""
REPLAY_TOPICS: Final = 10_000


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
    lacking = dict.fromkeys(truncated)
    lacking.update(dict.fromkeys(entry.topic for entry in entries[:-REPLAY_MESSAGES]))
    return entries[-REPLAY_MESSAGES:], list(lacking)
