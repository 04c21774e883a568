"""Spark's daemon of Python workers, with all imports done before it forks workers.

Spark forks a worker from a daemon to plan each read and each write. Spark's daemon leaves the
imports to the workers, which takes most of the time of a small query. `interpreter` is a Python for
Spark that runs this daemon instead. Programs that tests start use Spark's daemon.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPLACED = "-m pyspark.daemon"


@cache
def interpreter(folder: Path) -> Path:
    """Write a program that runs this Python, but replaces Spark's daemon.

    Args:
        folder: Folder for the program.
    """
    python = shlex.quote(sys.executable)
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        # Spark puts a zip file with the sources of PySpark here, which every process would compile.
        f"export PYTHONPATH={shlex.quote(str(ROOT))}\n"
        f'case "$1 $2" in "{REPLACED}")\n'
        f'  shift 2; exec {python} -m {__name__} "$@";;\n'
        "esac\n"
        f'exec {python} "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def main(worker: str) -> None:
    """Import the modules that workers use, and fork the workers."""
    # Forked processes would not have the threads of other libraries.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    spark = importlib.import_module("hanzoai.pubsub.spark")
    for found in pkgutil.iter_modules(spark.__path__, f"{spark.__name__}."):
        importlib.import_module(found.name)
    importlib.import_module(worker)
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main(*sys.argv[1:2])
