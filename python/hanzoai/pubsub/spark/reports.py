"""Reports of a job: figures and names, never a row, an option, or the text of an error.

Each report has the complete state of its subject, so the newest one is enough to display it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

STAGES_SHOWN: Final = 10
"""Maximum stages in the report of a job: the newest ones."""
_NAME_MAX: Final = 200


class Report(NamedTuple):
    """One message to publish.

    Attributes:
        subject: Its subject; a newer report on the same subject replaces it.
        type: Type of the message.
        data: Its payload.
        last: Whether it is the last report on this subject.
    """

    subject: str
    type: str
    data: dict[str, object]
    last: bool = False


@dataclass(slots=True)
class QueryStanding:
    """The state of one streaming query, over all of its events.

    Attributes:
        id: Id of the query; the same after a restart from its checkpoint.
        run: Id of this run of the query.
        name: Its name.
    """

    id: str
    run: str
    name: str | None = None
    figures: dict[str, object] = field(default_factory=dict[str, object])
    total: int = 0

    def started(self) -> Report:
        """Report the start."""
        return self._report("started", "running")

    def progressed(self, progress: Mapping[str, Any]) -> Report:
        """Report the end of a micro-batch.

        Args:
            progress: Spark's `StreamingQueryProgress` as JSON.
        """
        rows = _whole(progress.get("numInputRows")) or 0
        operators: list[Mapping[str, Any]] = progress.get("stateOperators") or []
        self.total += rows
        self.name = progress.get("name") or self.name
        sink: Mapping[str, Any] = progress.get("sink") or {}
        written = _whole(sink.get("numOutputRows"))
        self.figures = {
            "batch": _whole(progress.get("batchId")),
            "rows": rows,
            "rows_total": self.total,
            "rows_written": None if written is None or written < 0 else written,
            "input_per_second": _number(progress.get("inputRowsPerSecond")),
            "processed_per_second": _number(progress.get("processedRowsPerSecond")),
            "batch_ms": _whole(progress.get("batchDuration")),
            "backlog": _backlogs(progress.get("sources") or []),
            "state_rows": sum(_whole(each.get("numRowsTotal")) or 0 for each in operators),
        }
        return self._report("progress", "running")

    def idle(self) -> Report:
        """No action is needed."""
        return self._report("idle", "idle")

    def terminated(self, error: str | None, *, failed: bool) -> Report:
        """Report the end.

        Args:
            error: Spark's class of the error.
            failed: Whether there was an error.
        """
        end: dict[str, object] = {"error": error[:_NAME_MAX] if error else None}
        return self._report("terminated", "failed" if failed else "stopped", end)

    def _report(self, what: str, state: str, more: Mapping[str, object] | None = None) -> Report:
        query = {"id": self.id, "run": self.run, "name": (self.name or "")[:_NAME_MAX] or None}
        data: dict[str, object] = {"query": query, "state": state, **self.figures, **(more or {})}
        return Report(f"query {self.run}", f"spark.query.{what}", data, what == "terminated")


@dataclass(frozen=True, slots=True)
class StageStanding:
    """Tasks of a stage."""

    id: int
    name: str | None
    tasks: int
    done: int
    active: int
    failed: int

    @property
    def complete(self) -> bool:
        """Whether all tasks are done."""
        return self.done >= self.tasks and not self.active


def job_report(job: int | str, state: str, stages: list[StageStanding], *, first: bool) -> Report:
    """The state of a Spark job.

    Args:
        job: Its number; its operation's id on Spark Connect.
        state: `running`, `succeeded`, `failed`, or `ended` if Spark does not report which.
        stages: All known stages, oldest first.
        first: Whether it is the first report of this job.
    """
    over = state != "running"
    shown = [
        {
            "id": stage.id,
            "name": stage.name[:_NAME_MAX] if stage.name else None,
            "tasks": stage.tasks,
            "done": stage.done,
            "active": 0 if over else stage.active,
            "failed": stage.failed,
        }
        for stage in stages[-STAGES_SHOWN:]
    ]
    data: dict[str, object] = {
        "job": job,
        "state": state,
        "tasks": sum(stage.tasks for stage in stages),
        "done": sum(stage.done for stage in stages),
        "active": 0 if over else sum(stage.active for stage in stages),
        "failed": sum(stage.failed for stage in stages),
        "stage_count": len(stages),
        "stages": shown,
    }
    what = "ended" if over else "started" if first else "progress"
    return Report(f"job {job}", f"spark.job.{what}", data, over)


def backlog(end: object, latest: object) -> int | None:
    """Return how far one offset of a source is behind another.

    Args:
        end: Offset that was read: numbers, in objects of any depth, or their JSON text.
        latest: Newest offset, in the same form.

    Returns:
        The sum of all differences; None if an offset contains anything else.
    """
    end, latest = _parsed(end), _parsed(latest)
    if _is_number(end) and _is_number(latest):
        return max(0, int(cast("float", latest)) - int(cast("float", end)))
    if isinstance(end, Mapping) and isinstance(latest, Mapping):
        ends = cast("Mapping[str, object]", end)
        found = 0
        for key, value in cast("Mapping[str, object]", latest).items():
            # A topic that began after the read has no start yet; "@…" is not a topic.
            counted = key in ends and not key.startswith("@")
            behind = backlog(ends[key], value) if counted else 0
            if behind is None:
                return None
            found += behind
        return found
    return None


def _backlogs(sources: list[Mapping[str, Any]]) -> int | None:
    found = [backlog(each.get("endOffset"), each.get("latestOffset")) for each in sources]
    known = [behind for behind in found if behind is not None]
    return sum(known) if known and len(known) == len(found) else None


def _parsed(offset: object) -> object:
    if isinstance(offset, str):
        try:
            return json.loads(offset)
        except ValueError:
            return None
    return offset


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: object) -> float | None:
    return round(float(cast("float", value)), 3) if _is_number(value) else None


def _whole(value: object) -> int | None:
    return int(cast("float", value)) if _is_number(value) else None
