"""Options of the JVMs that tests start: they compile less, and load classes from an archive.

Spark spends half of its start on loading classes. The archive (AppCDS) is a file in `.cache/` that
the setup creates with `python -m tests.spark.jvm`. If it is missing, the first test that starts a
JVM creates it. A JVM that does not match the archive ignores it.
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
"""Maximum seconds to create the archive on a busy machine."""

BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of a JVM that runs only for minutes: it compiles less, and uses one GC thread."""


@cache
def options() -> str:
    """Return the options of every JVM of Spark, separated by spaces.

    Spark's launcher reads the standard output of a JVM, so the JVM must not log there.
    """
    return " ".join((*BRIEF, f"-XX:SharedArchiveFile={archive()}", "-Xlog:disable"))


def archive() -> Path:
    """Return the class archive of this Spark for this Java; create it if it is missing."""
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
    # The JVM writes the archive when its program has ended, and holds the output until then.
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
