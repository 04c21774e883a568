"""Drivers: processes that run jobs on a cluster, and are killed during these jobs."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.cluster.waiting import until
from tests.spark.cluster import processes
from tests.spark.cluster.marks import SLICE, done, left
from tests.spark.cluster.processes import Program, command_line, parents
from tests.spark.cluster.standalone import HOSTS, ROOT, java_options, variables

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from tests.spark.cluster.marks import Left, Mark
    from tests.spark.cluster.standalone import Standalone

Act: TypeAlias = "Callable[[Left], Awaitable[None]]"
"""The action at a mark."""
Plan: TypeAlias = "dict[Mark, Act]"

JOB_BOUND = 600

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    # The first task needs long to start its Python, so a tenth of its time already counts as slow.
    "spark.speculation.multiplier": "0.1",
}


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of every driver."""
    java = java_options(folder)
    return {
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": java,
        "spark.ui.enabled": "false",
        "spark.default.parallelism": "4",
        "spark.sql.shuffle.partitions": "4",
        # Small batches, so that a mark is close to the published rows when a task reaches it.
        "spark.buffer.size": "4096",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(SLICE),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.task.maxFailures": "8",
    }


class Driver:
    """Runs driver programs on one cluster, one after the other.

    Args:
        cluster: The cluster that runs the executors.
        folder: Folder of the log.
        more: Settings of Spark.
    """

    def __init__(self, cluster: Standalone, folder: Path, more: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._folder = folder
        self._settings = {**settings(folder), **more}
        self._numbers = itertools.count()
        self._program: Program | None = None

    def _started(self) -> Program:
        if self._program is None or not self._program.running:
            self._program = Program(
                [
                    *(sys.executable, str(ROOT / "tests/spark/cluster/program.py")),
                    *(self._cluster.url, json.dumps(self._settings)),
                ],
                self._folder / "driver.log",
                self._folder,
                variables(self._folder),
            )
        return self._program

    async def run(
        self,
        job: Mapping[str, Any],
        marks: Plan,
        published: Callable[[int], bool],
    ) -> int:
        """Run a job with the actions at its marks until it succeeds.

        If the driver is killed, the same job runs again.

        Args:
            job: The job, in the format that `program.py` reads.
            marks: The actions at the marks.
            published: Whether subscribers have received a row. An action at a mark waits for the
                first row of the task.

        Returns:
            The number of starts.
        """
        folder = self._folder / f"job{next(self._numbers)}"
        folder.mkdir()
        whole = {**job, "folder": str(folder), "marks": [asdict(mark) for mark in marks]}
        plan = {mark: act for mark, act in marks.items() if not mark.twin}
        watch = asyncio.create_task(_watch(folder, plan, published))
        try:
            async with asyncio.timeout(JOB_BOUND):
                times = await self._until_done(whole, folder)
                never = [mark.name for mark in plan if not (folder / mark.name).exists()]
                assert not never, f"no task came to {never}"
                await watch
        finally:
            watch.cancel()
        for mark in marks:
            if mark.twin:
                assert len(list(folder.glob(f"{mark.name}.twin*"))) > 1
        return times

    async def _until_done(self, job: dict[str, Any], folder: Path) -> int:
        for times in itertools.count(1):
            program = self._started()
            result = folder / f"result{times}"
            program.say(json.dumps({**job, "result": str(result)}))
            await until(partial(_over, program, result))
            if result.exists():
                problem = result.read_text(encoding="utf-8")
                assert not problem, f"{problem}\n{program.tail()}"
                return times
            assert program is not self._program, f"the driver ended by itself:\n{program.tail()}"
        raise AssertionError

    async def kill(self, _: Left) -> None:
        """Send SIGKILL to the driver's Python and to its JVM."""
        program, self._program = self._program, None
        assert program is not None
        await asyncio.to_thread(program.end, signal.SIGKILL)

    async def kill_executor(self, at: Left) -> None:
        """Send SIGKILL to the executor that runs a task."""
        executor = next(
            pid
            for pid in parents(at.process)
            if "CoarseGrainedExecutorBackend" in command_line(pid)
        )
        await asyncio.to_thread(processes.kill, executor)

    def end(self) -> None:
        """Stop the program."""
        program, self._program = self._program, None
        if program is not None:
            program.end(signal.SIGTERM)


def _over(program: Program, result: Path) -> bool:
    return result.exists() or not program.running


async def _watch(folder: Path, plan: Plan, published: Callable[[int], bool]) -> None:
    """Run the action of each mark in order, when a task has reached the mark."""

    async def at(mark: Mark, act: Act) -> None:
        file = folder / mark.name
        await until(file.exists)
        async with turn:
            found = left(file)
            await until(partial(published, found.first))
            await act(found)
            done(file).touch()

    turn = asyncio.Lock()
    await asyncio.gather(*(at(mark, act) for mark, act in plan.items()))
