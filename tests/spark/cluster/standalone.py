"""A standalone Spark cluster: a Master, and Workers on two loopback addresses."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path

import pyspark

from tests.spark import jvm, warm_daemon
from tests.spark.cluster.processes import Program

ROOT = Path(__file__).parents[3]
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two hosts, because Spark does not run two attempts of a task on the same host."""

_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
_CLASSES = "org.apache.spark.deploy"


def variables(folder: Path) -> dict[str, str]:
    """Return the environment of all processes of a cluster; they write only to this folder."""
    path = os.environ.get("PYTHONPATH")
    return {
        "PYSPARK_PYTHON": str(warm_daemon.interpreter(folder)),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": HOSTS[0],
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java_options(folder),
    }


def java_options(folder: Path) -> str:
    """Return the options of each JVM: no files outside of this folder, and a fast start."""
    return f"-Djava.io.tmpdir={folder} {jvm.options()}"


class Standalone:
    """A Master and Workers of one core each.

    Args:
        folder: Folder for their logs and for the executors' files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._programs: list[Program] = []

    async def start(self) -> None:
        """Start it, and wait until all Workers are registered."""
        master = self._run("master", HOSTS[0], f"{_CLASSES}.master.Master")
        await master.came_to(lambda: _ADDRESS.search(_text(master)) is not None)
        found = _ADDRESS.search(_text(master))
        assert found is not None
        self.url = found[1]
        workers = [
            self._run(
                f"worker{number}",
                host,
                f"{_CLASSES}.worker.Worker",
                *("--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self.folder / "work"), self.url),
            )
            for number, host in enumerate(HOSTS)
        ]
        for worker in workers:
            await worker.came_to(partial(_registered, worker))

    def end(self) -> None:
        """Stop the Workers, which stop their executors, and the Master."""
        while self._programs:
            self._programs.pop().end(signal.SIGTERM)

    def _run(self, name: str, host: str, kind: str, *arguments: str) -> Program:
        program = Program(
            [
                f"{variables(self.folder)['SPARK_HOME']}/bin/spark-class",
                *(kind, "--host", host, "--port", "0", "--webui-port", "0"),
                *arguments,
            ],
            self.folder / f"{name}.log",
            self.folder,
            {**variables(self.folder), "SPARK_LOCAL_IP": host},
        )
        self._programs.append(program)
        return program


def _registered(worker: Program) -> bool:
    return "Successfully registered with master" in _text(worker)


def _text(program: Program) -> str:
    return program.log.read_text(encoding="utf-8", errors="replace")
