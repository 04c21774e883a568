"""How the progress of a job is read from Spark. Without Spark: its interfaces are replaced."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.spark.watchers import Jobs, Operations, Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.spark.reports import Report


class Tracker:
    """The status tracker of a Spark context, in Python and in the JVM."""

    def __init__(self) -> None:
        self.jobs: dict[int, SimpleNamespace] = {}
        self.stages: dict[int, SimpleNamespace] = {}
        self.groups: dict[str, list[int]] = {}

    def run(self, id: int, *stages: int, status: str = "RUNNING") -> None:
        self.jobs[id] = SimpleNamespace(status=status, stageIds=list(stages))

    def stage(self, id: int, tasks: int, done: int, active: int = 0, failed: int = 0) -> None:
        self.stages[id] = SimpleNamespace(
            name=f"stage {id}",
            numTasks=tasks,
            numCompletedTasks=done,
            numActiveTasks=active,
            numFailedTasks=failed,
        )

    def getActiveJobsIds(self) -> list[int]:
        return [id for id, job in self.jobs.items() if job.status == "RUNNING"]

    def getJobIdsForGroup(self, group: str | None) -> list[int]:
        return list(self.jobs) if group is None else self.groups.get(group, [])

    def getJobInfo(self, id: int) -> SimpleNamespace | None:
        return self.jobs.get(id)

    def getStageInfo(self, id: int) -> SimpleNamespace | None:
        return self.stages.get(id)


class Watched:
    """Jobs on a tracker, and what they reported."""

    def __init__(self, tracker: Tracker, runs: Sequence[str] = ()) -> None:
        self.begun = 0
        """Number of jobs that Spark has begun; the tracker may not know the last ones yet."""
        # Java prints an array as Python prints a list.
        arrays = SimpleNamespace(toString=str)
        jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(Arrays=arrays)))
        context = SimpleNamespace(
            statusTracker=lambda: tracker,
            _jvm=jvm,
            _jsc=SimpleNamespace(
                statusTracker=lambda: tracker,
                sc=lambda: SimpleNamespace(
                    dagScheduler=lambda: SimpleNamespace(numTotalJobs=lambda: self.begun)
                ),
            ),
        )
        self.reported: list[Report] = []
        self.jobs = Jobs(context, lambda: runs, self.reported.append)
        self.jobs.start()

    def report_changes(self) -> list[tuple[object, str, int]]:
        """Poll; return the number, the kind and the done tasks of each report."""
        self.reported.clear()
        self.jobs.report_changes()
        return [
            (each.data["job"], each.type.rpartition(".")[2], int(str(each.data["done"])))
            for each in self.reported
        ]


@pytest.fixture
def tracker() -> Tracker:
    return Tracker()


def test_jobs_from_before_are_skipped(tracker: Tracker) -> None:
    tracker.run(0, status="SUCCEEDED")
    tracker.run(1)
    watched = Watched(tracker)
    assert watched.report_changes() == []
    tracker.run(2)
    assert watched.report_changes() == [(2, "started", 0)]


def test_jobs_of_other_groups_from_before_are_skipped(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.run(0, status="SUCCEEDED")
    tracker.run(1, status="SUCCEEDED")

    def of_no_group(_: str | None) -> list[int]:
        return []

    monkeypatch.setattr(tracker, "getJobIdsForGroup", of_no_group)
    assert Watched(tracker).report_changes() == []


def test_a_job_is_reported_when_its_tasks_change_until_it_ends(tracker: Tracker) -> None:
    watched = Watched(tracker)
    tracker.run(0, 7, 3)
    tracker.stage(3, tasks=4, done=4)
    tracker.stage(7, tasks=2, done=0, active=2)
    assert watched.report_changes() == [(0, "started", 4)]
    assert not watched.jobs.all_reported()
    assert watched.report_changes() == [], "nothing has changed"
    tracker.stage(7, tasks=2, done=1, active=1)
    assert watched.report_changes() == [(0, "progress", 5)]
    tracker.stage(7, tasks=2, done=2)
    tracker.run(0, 7, 3, status="SUCCEEDED")
    assert watched.report_changes() == [(0, "ended", 6)]
    assert watched.jobs.all_reported()
    assert watched.report_changes() == []


def test_a_job_that_the_tracker_does_not_know_at_the_end_is_still_to_be_reported(
    tracker: Tracker,
) -> None:
    watched = Watched(tracker)
    tracker.run(0, status="SUCCEEDED")
    watched.report_changes()
    watched.begun = 2
    watched.jobs.end()
    assert not watched.jobs.all_reported()
    tracker.run(1, status="SUCCEEDED")
    watched.begun = 3  # a job that began after the end
    assert watched.report_changes() == [(1, "ended", 0)]
    assert watched.jobs.all_reported()


def test_the_end_finds_jobs_after_one_that_spark_rejected(tracker: Tracker) -> None:
    watched = Watched(tracker)
    tracker.run(1, status="SUCCEEDED")
    watched.begun = 2
    watched.jobs.end()
    assert watched.report_changes() == [(1, "ended", 0)]
    assert watched.jobs.all_reported()


def test_a_stage_that_is_complete_is_not_read_again(tracker: Tracker) -> None:
    watched = Watched(tracker)
    tracker.run(0, 3)
    tracker.stage(3, tasks=4, done=4)
    assert watched.report_changes() == [(0, "started", 4)]
    tracker.stage(3, tasks=4, done=1)
    assert watched.report_changes() == []


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", None])
def test_the_end_of_a_job_says_how_it_ended_if_spark_still_knows(
    tracker: Tracker, status: str | None
) -> None:
    watched = Watched(tracker)
    tracker.run(0)
    watched.report_changes()
    if status is None:
        del tracker.jobs[0]
    else:
        tracker.run(0, status=status)
    watched.report_changes()
    (end,) = watched.reported
    assert end.data["state"] == ("ended" if status is None else status.lower())
    assert end.last


def test_jobs_of_micro_batches_are_left_out(tracker: Tracker) -> None:
    watched = Watched(tracker, ["run-1", "run-2", "run-3"])
    for id in range(4):
        tracker.run(id)
    tracker.groups = {"run-1": [0, 2], "run-2": [3], "run-3": []}
    assert watched.report_changes() == [(1, "started", 0)]


def test_a_job_whose_predecessor_spark_has_removed_is_found(tracker: Tracker) -> None:
    watched = Watched(tracker)
    tracker.run(5)
    assert watched.report_changes() == [(5, "started", 0)]


def test_jobs_are_found_after_thousands_that_spark_has_removed(tracker: Tracker) -> None:
    watched = Watched(tracker)
    tracker.run(5_000)
    assert watched.report_changes() == []
    assert watched.report_changes() == [(5_000, "started", 0)]


# ------------------------------------------------------------------------ Spark Connect


class Session:
    """A session of Spark Connect."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []
        self.registerProgressHandler = self.handlers.append
        self.removeProgressHandler = self.handlers.remove


def stage(id: int, tasks: int, done: int) -> SimpleNamespace:
    return SimpleNamespace(stage_id=id, num_tasks=tasks, num_completed_tasks=done)


def test_an_operation_reports_itself_from_start_to_end() -> None:
    session = Session()
    reported: list[Report] = []
    operations = Operations(session, reported.append)
    operations.start()
    (handler,) = session.handlers
    handler([stage(2, 3, 0), stage(1, 5, 5)], 2, "op", done=False)
    assert not operations.all_reported()
    operations.report_changes()
    handler([stage(1, 5, 5), stage(2, 3, 1)], 1, "op", done=False)
    handler([stage(1, 5, 5), stage(2, 3, 3)], 0, "op", done=True)
    assert operations.all_reported()
    assert [(r.type, r.data["state"], r.data["done"], r.data["active"]) for r in reported] == [
        ("spark.job.started", "running", 5, 2),
        ("spark.job.progress", "running", 6, 1),
        ("spark.job.ended", "ended", 8, 0),
    ]
    operations.stop()
    assert session.handlers == []


def test_an_operation_without_a_stage_or_that_has_ended_already_is_not_reported() -> None:
    session = Session()
    reported: list[Report] = []
    operations = Operations(session, reported.append)
    operations.start()
    (handler,) = session.handlers
    handler(None, 0, "plan", done=False)
    handler([], 0, "setting", done=True)
    handler([stage(1, 1, 0)], 1, None, done=False)
    handler([stage(1, 1, 1)], 0, "unknown", done=True)
    assert reported == []
    assert operations.all_reported()


# ------------------------------------------------------------------------ streaming queries


class Streams:
    """The streaming queries of a session, and their listeners."""

    def __init__(self) -> None:
        self.active: list[SimpleNamespace] = []
        self.listeners: list[Any] = []
        self.addListener = self.listeners.append
        self.removeListener = self.listeners.remove


def event(run: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(id="q", runId=run, **more)


def test_a_query_reports_its_events_and_is_settled_when_its_end_was_reported() -> None:
    streams = Streams()
    reported: list[Report] = []
    queries = Queries(SimpleNamespace(streams=streams), reported.append)
    queries.start()
    (listener,) = streams.listeners
    streams.active.append(SimpleNamespace(runId="r1"))
    listener.onQueryStarted(event("r1", name="alerts"))
    assert queries.all_reported()
    progress = {"id": "q", "runId": "r1", "name": "alerts", "batchId": 4, "numInputRows": 3}
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress))))
    listener.onQueryIdle(event("r1"))
    streams.active.clear()
    assert not queries.all_reported(), "its end was not reported yet"
    listener.onQueryTerminated(event("r1", exception="secret", errorClassOnException="CLASS"))
    assert queries.all_reported()
    assert queries.runs() == ["r1"], "its last jobs may still be polled"
    assert [(each.type, each.data["state"]) for each in reported] == [
        ("spark.query.started", "running"),
        ("spark.query.progress", "running"),
        ("spark.query.idle", "idle"),
        ("spark.query.terminated", "failed"),
    ]
    assert reported[1].data["batch"] == 4
    assert reported[3].data["error"] == "CLASS"
    assert "secret" not in str(reported)
    queries.stop()
    assert streams.listeners == []


def test_a_query_that_began_earlier_is_known_before_its_first_event() -> None:
    streams = Streams()
    reported: list[Report] = []
    streams.active.append(event("r1", name="alerts"))
    queries = Queries(SimpleNamespace(streams=streams), reported.append)
    queries.start()
    assert queries.runs() == ["r1"]
    assert reported == [], "its start was earlier"
    (listener,) = streams.listeners
    listener.onQueryIdle(event("r1"))
    assert reported[0].data["query"] == {"id": "q", "run": "r1", "name": "alerts"}


def test_a_query_that_ends_while_watching_begins_is_not_known_as_running() -> None:
    streams = Streams()
    streams.active.append(event("r1", name=None))
    queries = Queries(SimpleNamespace(streams=streams), lambda _: None)

    def end_query(_: object) -> None:
        queries.terminated(event("r1", exception=None))

    streams.addListener = end_query
    queries.start()
    streams.active.clear()
    assert queries.all_reported()


def test_the_error_of_an_older_spark_has_no_class() -> None:
    reported: list[Report] = []
    queries = Queries(SimpleNamespace(streams=Streams()), reported.append)
    queries.terminated(event("r1", exception="secret"))
    assert (reported[0].data["state"], reported[0].data["error"]) == ("failed", None)
    queries.terminated(event("r2", exception=None))
    assert reported[1].data["state"] == "stopped"


def test_the_runs_of_a_few_ended_queries_are_remembered() -> None:
    queries = Queries(SimpleNamespace(streams=Streams()), lambda _: None)
    for n in range(40):
        queries.started(event(f"r{n}", name=None))
        queries.terminated(event(f"r{n}", exception=None))
    assert queries.runs() == [f"r{n}" for n in range(24, 40)]
