"""Publishes the progress of a long job as messages on a topic."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.settings.checks import check_seconds
from hanzoai.pubsub.spark.config import check_config
from hanzoai.pubsub.spark.outlet import Outlet, ProgressStats
from hanzoai.pubsub.spark.reports import Report
from hanzoai.pubsub.topics import validate_topic

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Self

    from pyspark.sql import SparkSession

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.watchers import Jobs, Operations, Queries

logger = logging.getLogger("hanzoai.pubsub.spark")

CLOSING: Final = 5.0
"""Maximum seconds that the end of the block waits for the last messages."""
_REPORT_WAIT: Final = 1.5
"""Seconds for Spark to report how the last job or query ended."""
_REPORT_STEP: Final = 0.05


class PubSubProgress:
    """Publishes the progress of the session's queries and jobs while its block runs.

    Reports when streaming queries start, end a micro-batch, idle and terminate, and the stages and
    tasks of Spark jobs. docs/spark.md shows the messages. They contain only figures and names,
    never a row, an option or the text of an error.

    A separate thread publishes. The job neither waits for it nor fails because of it: `stats`
    counts what cannot be published, and the log reports it once.

    On Spark Connect, jobs are the operations of this client that the server reports. Their tasks
    have no names, and their ends have no reasons.

    Args:
        spark: The session, classic or Spark Connect.
        topic: Topic of the messages.
        config: Configuration of the server; the driver reads the token from its source.
        interval: Seconds between two messages about the same query or job, 0.1 to 60.

    Raises:
        InvalidTopic: `topic` is not valid.
        InvalidOption: `config` is not a `PubSubConfig`, or `interval` is out of range.
    """

    def __init__(
        self,
        spark: SparkSession | Any,
        topic: str,
        config: PubSubConfig,
        *,
        interval: float = 0.5,
    ) -> None:
        check_config(config)
        check_seconds("interval", interval, 0.1, 60.0)
        self.run = uuid.uuid4().hex[:16]
        """Id of this block in each message."""
        self._spark = spark
        self._interval = interval
        self._outlet = Outlet(validate_topic(topic), config, self.run)
        self._ended = threading.Event()
        self._abandoned = threading.Event()
        self._thread: threading.Thread | None = None
        self._queries: Queries | None = None
        self._jobs: Jobs | Operations | None = None
        self._began = 0.0
        self._failed = False

    @property
    def stats(self) -> ProgressStats:
        """Counters of the messages so far. At the end of the block, unsent messages have failed."""
        stats = self._outlet.stats
        unsent = self._outlet.unsent if self._abandoned.is_set() else 0
        return replace(stats, failed=stats.failed + unsent)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop(failed=kind is not None)

    def start(self) -> None:
        """Start to report. `with` calls this.

        Raises:
            UsageError: It has already stopped: each run has its own id.
        """
        if self._ended.is_set():
            raise UsageError(
                "This PubSubProgress has already reported a run.",
                remedy="Create another PubSubProgress for each run.",
            )
        if self._thread is not None:
            return
        self._began = time.monotonic()
        context = getattr(self._spark, "sparkContext", None)
        about: dict[str, object] = {"state": "running", "name": None, "application": None}
        with _harmless("the progress of the job is reported only in part"):
            if context is not None:
                about.update(name=str(context.appName)[:200], application=context.applicationId)
            self._outlet.put(Report("run", "spark.run.started", about))
            self._watch(context)
        self._thread = threading.Thread(
            target=self._work, args=(about,), name="hanzo-pubsub-progress", daemon=True
        )
        self._thread.start()

    def stop(self, *, failed: bool = False) -> None:
        """Stop reporting. `with` calls this. It takes at most 5 seconds, and usually less than one.

        Args:
            failed: Whether to report that the job failed.
        """
        if self._thread is None or self._ended.is_set():
            return
        self._failed = failed
        self._ended.set()
        self._thread.join(CLOSING)
        self._abandoned.set()

    def _watch(self, context: Any) -> None:
        from hanzoai.pubsub.spark.watchers import Jobs, Operations, Queries

        queries = Queries(self._spark, self._outlet.put)
        queries.start()
        self._queries = queries
        jobs: Jobs | Operations
        if context is None:
            jobs = Operations(self._spark, self._outlet.put)
        else:
            jobs = Jobs(context, queries.runs, self._outlet.put)
        jobs.start()
        self._jobs = jobs

    def _work(self, about: dict[str, object]) -> None:
        # A job may end before the first interval: report its start anyway.
        self._outlet.turn(self._abandoned)
        while not self._ended.wait(self._interval):
            self._report_changes()
            self._outlet.turn(self._abandoned)
        self._wait_for_reports()
        for watcher in (self._jobs, self._queries):
            if watcher is not None:
                with _harmless(None):
                    watcher.stop()
        seconds = round(time.monotonic() - self._began, 3)
        end = {**about, "state": "failed" if self._failed else "ended", "seconds": seconds}
        self._outlet.put(Report("run", "spark.run.ended", end, last=True))
        self._outlet.finish(self._abandoned)

    def _report_changes(self) -> None:
        if self._jobs is not None:
            with _harmless(None):
                self._jobs.report_changes()

    def _wait_for_reports(self) -> None:
        """Wait for Spark, which reports an end with a short delay."""
        until = time.monotonic() + _REPORT_WAIT
        if self._jobs is not None:
            with _harmless(None):
                self._jobs.end()
        while True:
            self._report_changes()
            reported = True
            with _harmless(None):
                reported = all(each.all_reported() for each in (self._jobs, self._queries) if each)
            if reported or time.monotonic() > until or self._abandoned.wait(_REPORT_STEP):
                return


@contextlib.contextmanager
def _harmless(warning: str | None) -> Generator[None]:
    """Log any failure of a watcher, so that the job continues.

    Args:
        warning: Logged with the type of the failure, not its text, which may contain data.
    """
    try:
        yield
    except Exception as error:
        level = logging.DEBUG if warning is None else logging.WARNING
        logger.log(level, "%s (%s)", warning or "Spark reported nothing", type(error).__name__)
