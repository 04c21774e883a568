"""Counters of a task, and their log lines."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

logger = logging.getLogger("hanzoai.pubsub.spark")


@dataclass(slots=True)
class PublishStats:
    """Counters of one task.

    Attributes:
        partition: Partition of the task; 0 outside of Spark.
        attempt: Attempt of the task, from 0.
        rows: Rows that the server acknowledged, duplicates included.
        duplicates: Rows that were already published with the same id.
        dead_letters: Rows that went to the dead-letter topic.
        dropped: Rows over the size limit that `on_oversize="drop"` left out.
        batches: Requests that succeeded.
        retries: Requests that were sent again, completely or partly.
        bytes: Bytes of the batches.
        seconds: From the first row to the last acknowledgement.
    """

    partition: int = 0
    attempt: int = 0
    rows: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    dropped: int = 0
    batches: int = 0
    retries: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def add(self, other: PublishStats) -> None:
        """Add the counts of another task or batch."""
        self.rows += other.rows
        self.duplicates += other.duplicates
        self.dead_letters += other.dead_letters
        self.dropped += other.dropped
        self.batches += other.batches
        self.retries += other.retries
        self.bytes += other.bytes


def log_stats(text: str, *values: object) -> None:
    """Log counters at INFO; on stderr if the process has no logging, such as those of Spark.

    Python shows only warnings there, and a user cannot configure it.

    Args:
        text: What to log, with a place for each value.
        *values: The values.
    """
    if logger.hasHandlers():
        logger.info(text, *values)
    else:
        sys.stderr.write(f"{text % values}\n")
