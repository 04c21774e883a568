"""Places in a job at which tasks write a file, so that a test can break things exactly there."""

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
"""Rows per batch that a task passes on."""
ONWARDS = 5 * SLICE
"""Rows that a task passes on after a mark before it waits, so that requests are in flight."""
BOUND = 240
AGAIN = 0.005


@dataclass(frozen=True, slots=True)
class Mark:
    """One place in a job.

    Attributes:
        name: Name of the file; only the first attempt that reaches the mark writes it.
        partition: Partition of the task.
        after: Rows of the task before the mark.
        batch: Micro-batch; None outside of streams.
        twin: Whether the task waits until a second attempt has reached the mark, too. Otherwise,
            it waits slightly later, until the test has run its action.
    """

    name: str
    partition: int
    after: int
    batch: int | None = None
    twin: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """The data that a task writes at a mark.

    Attributes:
        process: Process id of the task's Python.
        first: Number of the first row that this attempt passed on.
    """

    process: int
    first: int


def left(file: Path) -> Left:
    """Read the file of a mark."""
    return Left(**json.loads(file.read_text(encoding="ascii")))


@dataclass(frozen=True, slots=True)
class Marked:
    """Function for `mapInArrow`: passes rows on unchanged, and writes a file at each mark.

    Attributes:
        folder: Folder of the files.
        marks: The places.
    """

    folder: str
    marks: Sequence[Mark]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pass on the rows of a partition."""
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
    """The file that the test writes when it has run its action at a mark."""
    return file.with_suffix(".done")


def _leave(file: Path, first: int) -> bool:
    """Write the file; return whether it is new."""
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps({"process": os.getpid(), "first": first}), encoding="ascii")
    try:
        # The file appears atomically, and only once.
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
