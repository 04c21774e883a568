"""Options of the JVMs that tests start: they compile less, and load classes from an archive.

Loading its classes is half of what Spark does when it starts. The archive (AppCDS) is a file in
`.cache/` that the set-up makes with `python -m tests.spark.jvm`. Where it is missing, the first
test that starts a JVM makes it. A JVM that it doesn't fit ignores it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "spark"
BOUND = 600
"""Seconds to make the archive on a busy machine."""

BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of a JVM that lives for minutes: it compiles less, and collects with one thread."""


@cache
def options() -> str:
    """Options of every JVM of Spark, separated by spaces.

    The launcher of Spark reads the standard output of a JVM, so nothing is logged there.
    """
    return " ".join((*BRIEF, f"-XX:SharedArchiveFile={archive()}", "-Xlog:disable"))


def archive() -> Path:
    """The classes of this Spark for this Java; makes the file where it doesn't exist."""
    jars = Path(pyspark.__file__).parent / "jars"
    java = subprocess.run(["java", "-version"], check=True, capture_output=True, timeout=60).stderr
    newest = max(jar.stat().st_mtime_ns for jar in jars.glob("*.jar"))
    key = hashlib.sha256(f"{jars} {newest} {java!r}".encode()).hexdigest()[:16]
    made = CACHE / f"{key}.jsa"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(made)
    return made


def _make(file: Path) -> None:
    for old in CACHE.glob("*.jsa"):
        old.unlink()
    fresh = file.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    # The JVM writes when its program has ended, and has the program's output until then.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.spark.usual_job"),
            " ".join((*BRIEF, f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:disable")),
        ],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BOUND,
        check=False,
    )
    if done.returncode or not fresh.exists():
        raise RuntimeError(f"no archive of Spark's classes: {json.dumps(done.stdout.decode())}")
    fresh.rename(file)


if __name__ == "__main__":
    archive()
