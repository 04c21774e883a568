"""Publishes reports to a topic: with bounds and a rate limit, and without blocking the job."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ClosedError, PubSubError
from hanzoai.pubsub.log_text import log_text
from hanzoai.pubsub.spark.ids import numbering
from hanzoai.pubsub.spark.messages import Encoder, together
from hanzoai.pubsub.spark.records import Record
from hanzoai.pubsub.spark.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.messages import Message
    from hanzoai.pubsub.spark.reports import Report

logger = logging.getLogger("hanzoai.pubsub.spark")

WAITING_MAX: Final = 100
"""Maximum subjects whose newest report waits."""
AT_ONCE: Final = 5
"""Reports per turn: with the default interval, ten per second, a user's rate by HIP-56."""
_TIMEOUT_MAX: Final = 5.0
_PAUSE_MAX: Final = 30.0


@dataclass(slots=True)
class ProgressStats:
    """Counters of the messages about progress.

    Attributes:
        published: Messages that the server acknowledged.
        replaced: Unsent reports that a newer one of the same subject replaced.
        dropped: Reports left out because too many subjects waited.
        failed: Messages that could not be published.
    """

    published: int = 0
    replaced: int = 0
    dropped: int = 0
    failed: int = 0


class Waiting:
    """The newest report of each subject, subjects that wait longest first.

    Args:
        stats: Counters to update.
        most: Maximum waiting subjects.
    """

    def __init__(self, stats: ProgressStats, most: int = WAITING_MAX) -> None:
        self._stats = stats
        self._most = most
        self._lock = threading.Lock()
        self._reports: dict[str, Report] = {}

    def put(self, report: Report) -> None:
        """Queue a report; returns immediately."""
        with self._lock:
            if report.subject in self._reports:
                self._stats.replaced += 1
            elif len(self._reports) >= self._most:
                self._stats.dropped += 1
                ended = (name for name, each in self._reports.items() if each.last)
                del self._reports[next(ended, next(iter(self._reports)))]
            self._reports[report.subject] = report

    def __len__(self) -> int:
        return len(self._reports)

    def take(self, most: int) -> list[Report]:
        """Return the reports that have waited longest, up to a maximum."""
        with self._lock:
            names = list(self._reports)[:most]
            return [self._reports.pop(name) for name in names]


class Outlet:
    """Publishes reports, a few per turn. Counts and logs failures instead of raising them.

    Args:
        topic: Topic of the reports.
        config: Configuration of the server.
        run: Prefix of the message ids; each message also contains it.
        sender: Replaces the default sender.
    """

    def __init__(
        self, topic: str, config: PubSubConfig, run: str, sender: Sender | None = None
    ) -> None:
        self.stats = ProgressStats()
        self._topic = topic
        self._run = run
        self._config = replace(
            config,
            ids="auto",
            max_in_flight=1,
            max_retries=min(1, config.max_retries),
            request_timeout=min(_TIMEOUT_MAX, config.request_timeout),
        )
        self._waiting = Waiting(self.stats)
        self._encoder = Encoder(self._config, numbering("random", run, 0))
        self._sender = sender
        self._number = 0
        self._sending = 0
        self._failures = 0
        self._not_before = 0.0

    @property
    def unsent(self) -> int:
        """Number of reports that wait, or whose outcome is not known yet."""
        return len(self._waiting) + self._sending

    def put(self, report: Report) -> None:
        """Queue a report for its turn; returns immediately."""
        self._waiting.put(report)

    def turn(self, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic) -> int:
        """Publish the reports of this turn.

        After failures, skips turns for up to half a minute; newer reports replace older ones.

        Args:
            stop: Set it to cancel the wait for the server.
            clock: Monotonic seconds.

        Returns:
            Number of reports taken from the queue.
        """
        if clock() < self._not_before:
            return 0
        reports = self._waiting.take(AT_ONCE)
        if not reports:
            return 0
        self._sending = len(reports)
        try:
            if self._sender is None:
                self._sender = Sender(self._config)
            sent = self._sender.send(together(map(self._message, reports)), stop)
            error = sent.refused[0][1] if sent.refused else None
            self.stats.published += sent.accepted
            self.stats.failed += len(sent.refused)
        except ClosedError:
            self.stats.failed += len(reports)
            return len(reports)
        except PubSubError as found:
            self.stats.failed += len(reports)
            error = found
        finally:
            self._sending = 0
        self._note(error, clock)
        return len(reports)

    def finish(self, stop: threading.Event) -> None:
        """Publish what waits, up to the first failure, and close the connection.

        Skips no turn: the server may be available again.

        Args:
            stop: Set it to cancel the wait for the server.
        """
        self._not_before = 0.0
        while self.turn(stop):
            pass
        if self._sender is not None:
            self._sender.close()

    def _message(self, report: Report) -> Message:
        self._number += 1
        data = {"run": self._run, **report.data}
        return self._encoder.encode(
            Record(self._topic, report.type, data, None, f"{self._run}:{self._number}")
        )

    def _note(self, error: PubSubError | None, clock: Callable[[], float]) -> None:
        if error is None:
            self._failures, self._not_before = 0, 0.0
            return
        self._failures += 1
        self._not_before = clock() + min(_PAUSE_MAX, 2.0**self._failures / 2)
        if self._failures == 1:
            logger.warning(
                "cannot publish the progress of the job (%s): %s",
                log_text(error.code),
                log_text(error.remedy),
            )
