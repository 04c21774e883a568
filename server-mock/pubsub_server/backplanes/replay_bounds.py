"""How much one replay has at most, whatever keeps the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pubsub_server.backplane import Entry

REPLAY_MESSAGES: Final = 10_000
"""Messages of one replay; the newest ones, each topic that lacks some is truncated."""
REPLAY_TOPICS: Final = 10_000


def bounded(
    logs: Sequence[Sequence[Entry]], truncated: Sequence[str]
) -> tuple[list[Entry], list[str]]:
    """The messages of all logs by time, at most `REPLAY_MESSAGES`, and which topics lack some.

    Args:
        logs: Messages of each topic, oldest first.
        truncated: Topics that lack some already.
    """
    entries = [entry for log in logs for entry in log]
    if len(logs) > 1:
        entries.sort(key=lambda entry: entry.timestamp)
    lacking = dict.fromkeys(truncated)
    lacking.update(dict.fromkeys(entry.topic for entry in entries[:-REPLAY_MESSAGES]))
    return entries[-REPLAY_MESSAGES:], list(lacking)
