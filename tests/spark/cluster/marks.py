"""Places in a job where its tasks leave a file, for a test to break things at just that place."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SLICE = 25
"""Rows that a task hands on at a time."""
ONWARDS = 5 * SLICE
"""Rows that a task hands on behind a mark, while requests are under way, before it waits there."""
BOUND = 240
AGAIN = 0.005


@dataclass(frozen=True, slots=True)
class Mark:
    """One place.

    Attributes:
        name: Of the file; it is left once, by whichever attempt comes there first.
        partition: Of the task.
        after: Rows of it.
        batch: Micro-batch; None outside of streams.
        twin: The task waits there until a second attempt of it has come there, too. Otherwise it
            waits, a little further on, until the test has done what it does there.
    """

    name: str
    partition: int
    after: int
    batch: int | None = None
    twin: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What a task leaves at a mark.

    Attributes:
        process: Of the task's Python.
        first: Number of the first row that this attempt handed on.
    """

    process: int
    first: int


def left(file: Path) -> Left:
    """What is in the file of a mark."""
    return Left(**json.loads(file.read_text(encoding="ascii")))


@dataclass(frozen=True, slots=True)
class Marked:
    """For `mapInArrow`: the same rows, and files in `folder` at each mark.

    Attributes:
        folder: For the files.
        marks: The places.
    """

    folder: str
    marks: Sequence[Mark]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Hands on the rows of a partition."""
        context: Any = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId")
        here = (context.partitionId(), None if batch is None else int(batch))
        ahead = sorted(
            (mark for mark in self.marks if (mark.partition, mark.batch) == here),
            key=lambda mark: mark.after,
        )
        waits: list[tuple[int, Path]] = []
        count = first = 0
        for whole in batches:
            if not count and whole.num_rows:
                first = json.loads(whole.column("data")[0].as_py())["n"]
            for start in range(0, whole.num_rows, SLICE):
                part = whole.slice(start, SLICE)
                yield part
                count += part.num_rows
                while ahead and count >= ahead[0].after:
                    mark = ahead.pop(0)
                    file = Path(self.folder, mark.name)
                    if mark.twin:
                        _meet(file, context.taskAttemptId())
                    elif _leave(file, first):
                        waits.append((count + ONWARDS, done(file)))
                while waits and count >= waits[0][0]:
                    _wait(waits.pop(0)[1].exists)
        for _, file in waits:
            _wait(file.exists)


def done(file: Path) -> Path:
    """What the test leaves when it has done what it does at a mark."""
    return file.with_suffix(".done")


def _leave(file: Path, first: int) -> bool:
    """Leave the file; whether it was not there before."""
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps({"process": os.getpid(), "first": first}), encoding="ascii")
    try:
        # It appears as a whole, and once.
        os.link(scratch, file)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return True


def _meet(file: Path, attempt: int) -> None:
    file.with_suffix(f".twin{attempt}").touch()
    _wait(lambda: len(list(file.parent.glob(f"{file.stem}.twin*"))) > 1)


def _wait(look: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND
    while not look():
        if time.monotonic() > end:
            raise TimeoutError("nobody did what this task waits for")
        time.sleep(AGAIN)
