"""Watches the progress of a job: Spark's status tracker, Spark Connect's handler, query events.

The status tracker is polled. A listener of the JVM would be called for every task, over a socket,
by the bus that all listeners share; a slow listener loses the events of all.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.spark.reports import QueryStanding, StageStanding, job_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hanzoai.pubsub.spark.reports import Report

_PROBED_MAX: Final = 1_000
"""Maximum jobs per poll; the number that Spark remembers (`spark.ui.retainedJobs`)."""
_ENDED_KEPT: Final = 16
"""Maximum ended queries whose last jobs may not have been polled yet."""


class Queries:
    """The streaming queries of a session.

    Args:
        spark: The session, classic or Spark Connect.
        put: Receives reports.
    """

    def __init__(self, spark: Any, put: Callable[[Report], object]) -> None:
        self._spark = spark
        self._put = put
        self._lock = threading.Lock()
        self._known: dict[str, QueryStanding] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED_KEPT)
        self._listener = _listener(self)

    def runs(self) -> list[str]:
        """Ids of the current runs, and of the last ended ones."""
        with self._lock:
            return [*self._known, *self._ended]

    def start(self) -> None:
        """Start to listen."""
        self._spark.streams.addListener(self._listener)
        # Their starts were before, and their first events may be after their first jobs.
        for query in self._spark.streams.active:
            run = str(query.runId)
            with self._lock:
                if run not in self._known and run not in self._ended:
                    self._known[run] = QueryStanding(str(query.id), run, query.name)

    def stop(self) -> None:
        """Stop listening."""
        self._spark.streams.removeListener(self._listener)

    def all_reported(self) -> bool:
        """Whether the end of each ended query was reported."""
        active = {str(query.runId) for query in self._spark.streams.active}
        with self._lock:
            return active.issuperset(self._known)

    def started(self, event: Any) -> None:
        """Handle an event of Spark; never raises, never waits."""
        standing = self._standing(event.id, event.runId)
        standing.name = event.name
        self._put(standing.started())

    def progressed(self, event: Any) -> None:
        """See `started`."""
        progress: dict[str, Any] = json.loads(event.progress.json)
        standing = self._standing(progress["id"], progress["runId"])
        self._put(standing.progressed(progress))

    def idle(self, event: Any) -> None:
        """See `started`."""
        self._put(self._standing(event.id, event.runId).idle())

    def terminated(self, event: Any) -> None:
        """See `started`."""
        standing = self._standing(event.id, event.runId)
        with self._lock:
            self._known.pop(standing.run, None)
            self._ended.append(standing.run)
        error = getattr(event, "errorClassOnException", None)
        self._put(standing.terminated(error, failed=event.exception is not None))

    def _standing(self, id: object, run: object) -> QueryStanding:
        with self._lock:
            return self._known.setdefault(str(run), QueryStanding(str(id), str(run)))


def _listener(queries: Queries) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            queries.started(event)

        def onQueryProgress(self, event: Any) -> None:
            queries.progressed(event)

        def onQueryIdle(self, event: Any) -> None:
            queries.idle(event)

        def onQueryTerminated(self, event: Any) -> None:
            queries.terminated(event)

    return Listener()


@dataclass(slots=True)
class _Job:
    id: int
    reported: bool = False
    seen: object = None
    stages: dict[int, StageStanding] = field(default_factory=dict[int, StageStanding])


class Jobs:
    """The jobs that a Spark context starts from now on, without those of micro-batches.

    Args:
        context: `spark.sparkContext`.
        runs: Ids of the current streaming runs, which are the group names of their jobs.
        put: Receives reports.
    """

    def __init__(
        self,
        context: Any,
        runs: Callable[[], Iterable[str]],
        put: Callable[[Report], object],
    ) -> None:
        self._context = context
        self._tracker = context.statusTracker()
        self._runs = runs
        self._put = put
        self._next = 0
        self._last = -1
        self._running: dict[int, _Job] = {}

    def start(self) -> None:
        """Skip the existing jobs."""
        known = [*self._tracker.getActiveJobsIds(), *self._tracker.getJobIdsForGroup(None)]
        self._next = max(known, default=-1) + 1
        while self._tracker.getJobInfo(self._next) is not None:
            self._next += 1

    def stop(self) -> None:
        """See `Operations.stop`."""

    def end(self) -> None:
        """Require reports of all jobs until now.

        Spark queues events for the tracker, so a job may end before the tracker knows it.
        """
        self._last = self._context._jsc.sc().dagScheduler().numTotalJobs() - 1  # noqa: SLF001

    def all_reported(self) -> bool:
        """Whether no job is running, and `end` has no unknown job."""
        return self._next > self._last and not self._running

    def report_changes(self) -> None:
        """Report changes."""
        for id in self._begun():
            self._running[id] = _Job(id)
        for job in list(self._running.values()):
            self._report_job(job)

    def _begun(self) -> list[int]:
        """Return new jobs: their numbers are consecutive.

        Spark gives a number also to a job that it rejects, and reports no such job.
        """
        found: list[int] = []
        highest = max([*self._tracker.getActiveJobsIds(), self._last])
        for id in range(self._next, self._next + _PROBED_MAX):
            if self._tracker.getJobInfo(id) is not None:
                found.append(id)
            elif id > highest:
                break
        if found:
            self._next = found[-1] + 1
        elif highest - self._next >= _PROBED_MAX:
            # Spark has removed all jobs in between.
            self._next = highest
        if found and (streamed := self._streamed()):
            found = [id for id in found if id not in streamed]
        return found

    def _streamed(self) -> set[int]:
        """Return the jobs of micro-batches.

        An array of the JVM costs one call per element, a text only one.
        """
        jvm = self._context._jvm  # noqa: SLF001
        tracker = self._context._jsc.statusTracker()  # noqa: SLF001
        ids: set[int] = set()
        for run in self._runs():
            text: str = jvm.java.util.Arrays.toString(tracker.getJobIdsForGroup(run))
            ids.update(int(part) for part in text.strip("[]").split(",") if part.strip())
        return ids

    def _report_job(self, job: _Job) -> None:
        info = self._tracker.getJobInfo(job.id)
        if info is None:
            # Spark removes the oldest jobs, so it must have ended.
            state = "ended"
        else:
            state = {"SUCCEEDED": "succeeded", "FAILED": "failed"}.get(info.status, "running")
            for id in sorted(info.stageIds):
                known = job.stages.get(id)
                if known is None or not known.complete:
                    found = self._tracker.getStageInfo(id)
                    if found is not None:
                        job.stages[id] = StageStanding(
                            id,
                            found.name,
                            found.numTasks,
                            found.numCompletedTasks,
                            found.numActiveTasks,
                            found.numFailedTasks,
                        )
        report = job_report(job.id, state, list(job.stages.values()), first=not job.reported)
        if report.last:
            del self._running[job.id]
        if report.last or report.data != job.seen:
            job.reported, job.seen = True, report.data
            self._put(report)


class Operations:
    """The operations of a Spark Connect session that its server reports.

    Args:
        spark: The session.
        put: Receives reports.
    """

    def __init__(self, spark: Any, put: Callable[[Report], object]) -> None:
        self._spark = spark
        self._put = put
        self._known: set[str] = set()

    def start(self) -> None:
        """Start to listen."""
        self._spark.registerProgressHandler(self._on_progress)

    def stop(self) -> None:
        """Stop listening."""
        self._spark.removeProgressHandler(self._on_progress)

    def end(self) -> None:
        """Do nothing: operations report themselves."""

    def all_reported(self) -> bool:
        """Whether no operation is running."""
        return not self._known

    def report_changes(self) -> None:
        """Do nothing: operations report themselves."""

    def _on_progress(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        ordered = sorted(stages or (), key=lambda each: each.stage_id)
        # Operations without a stage (settings, plans) are not jobs.
        if not operation_id or not ordered:
            return
        newest = ordered[-1].stage_id
        found = [
            StageStanding(
                each.stage_id,
                None,
                each.num_tasks,
                each.num_completed_tasks,
                # The server does not report them by stage.
                inflight_tasks if each.stage_id == newest else 0,
                0,
            )
            for each in ordered
        ]
        first = operation_id not in self._known
        if done and first:
            return
        if done:
            self._known.discard(operation_id)
        else:
            self._known.add(operation_id)
        self._put(job_report(operation_id, "ended" if done else "running", found, first=first))
