"""Calculates how many token streams one client of a service can publish at the same time.

The rates are those of the SDK's writers: one token per window, and a snapshot of the whole text
every 1.5 seconds, less often with a wide window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings

WINDOWS: Final = (40, 100, 500)
"""Milliseconds between two tokens, from the writers' default to their widest window."""

SNAPSHOT_EVERY: Final = 41
"""Maximum messages of a stream per snapshot."""


def streams_at_once(rate: float, window: int) -> int:
    """Number of streams within this publish rate per second, for a window in milliseconds."""
    between_snapshots = max(1_500, min(5_000, 1_500 * window // 40))
    return int(rate / (1_000 / window + 1_000 / between_snapshots))


def describe(settings: Settings) -> str:
    """The streaming capacity of a client of a service, in one line."""
    rate = settings.publish_rate_service
    counts = [(streams_at_once(rate, window), window) for window in WINDOWS]
    fits = [f"{count:,} every {window} ms" for count, window in counts if count]
    line = (
        f"token streams: at {rate:,.12g} publishes per second (publish_rate_service), one client "
    )
    if fits:
        most = ", or ".join(fits).replace(" every", " answers at once with new text every", 1)
        line += f"can stream {most}"
    else:
        line += "cannot stream an answer"
    if settings.history_max_messages < SNAPSHOT_EVERY:
        line += (
            f"; topics keep {settings.history_max_messages} messages, so a reader that joins late"
            " waits up to 1.5 s for the text (history_max_messages)"
        )
    return line
