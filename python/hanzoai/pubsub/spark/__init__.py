"""Read and publish from Spark: `format("hanzo-pubsub")`, partitions, the progress of a job.

Importing this needs neither pyspark nor a running Spark; docs/spark.md is the guide.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.errors import InvalidOption, UsageError
from hanzoai.pubsub.spark.config import PubSubConfig
from hanzoai.pubsub.spark.losses import DataLossError
from hanzoai.pubsub.spark.outlet import ProgressStats
from hanzoai.pubsub.spark.progress import PubSubProgress
from hanzoai.pubsub.spark.publish import (
    ARROW_SCHEMA,
    foreach_batch,
    foreach_partition,
    publish_arrow,
    publish_partition,
)
from hanzoai.pubsub.spark.stats import PublishStats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ARROW_SCHEMA",
    "FORMAT",
    "DataLossError",
    "ProgressStats",
    "PubSubConfig",
    "PubSubProgress",
    "PublishStats",
    "foreach_batch",
    "foreach_partition",
    "publish_arrow",
    "publish_partition",
    "register",
]

FORMAT = "hanzo-pubsub"
"""The name of the data source, for `spark.read.format` and `df.write.format`."""


def register(spark: SparkSession | Any) -> None:
    """Make `format("hanzo-pubsub")` known to a session, of Spark 4.0 or later or Spark Connect.

    Spark finds the format without this call if the package is installed for the Python that Spark
    starts.

    On a local master the workers then run the Python of this program, unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` names another one. On a cluster, set ``PYSPARK_PYTHON`` yourself.
    Otherwise, Spark starts workers as ``python3``, which may not have this package. Spark Connect
    needs the variable on a local master, too, before the session starts.

    Spark looks for the format only in the active session, and a new thread has none: call this in
    each thread that writes or starts a stream.

    Args:
        spark: The session.

    Raises:
        InvalidOption: This Spark has no Python data sources.
        UsageError: The extra ``spark`` is not installed, or the session was stopped.
    """
    try:
        from hanzoai.pubsub.spark.data_source import HanzoPubSub
    except ImportError as error:
        raise UsageError(
            f"The data source needs the package {error.name}.",
            remedy="Install it: pip install 'hanzoai.pubsub[spark]'.",
        ) from error

    sources: Any = getattr(spark, "dataSource", None)
    if sources is None:
        raise InvalidOption(
            "This Spark has no Python data sources.",
            remedy="Use Spark 4.0 or later, or publish with foreach_partition.",
            field="spark",
        )
    if _is_stopped(spark):
        raise UsageError(
            "This Spark session was stopped.",
            remedy="Create another session with `SparkSession.builder.getOrCreate()`.",
        )
    context = _context(spark)
    if context is not None:
        _let_local_workers_run_this_python(context)
        _let_streams_find_this_zip(context)
    _activate(spark)
    try:
        sources.register(HanzoPubSub)
    except Exception as error:
        # Spark 4.0 rejects the registration of a source that it found itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _is_stopped(spark: Any) -> bool:
    of_connect: bool | None = getattr(spark, "is_stopped", None)
    if of_connect is not None:
        return of_connect
    context = getattr(spark, "sparkContext", None)
    return context is not None and context._jsc is None  # noqa: SLF001


def _activate(spark: Any) -> None:
    """Make a session the active one of this thread, which Spark does only for its first thread."""
    # Spark Connect needs no active session, and has no JVM here.
    with contextlib.suppress(Exception):
        jvm = spark._jvm  # noqa: SLF001
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def _context(spark: Any) -> Any:
    try:
        return spark.sparkContext
    except Exception:  # Spark Connect has none: its server chooses Python and paths.
        return None


def _let_local_workers_run_this_python(context: Any) -> None:
    """Set the workers' Python: without an activated environment, `python3` is another one."""
    named = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if named is None and str(context.master).startswith("local"):
        context.pythonExec = sys.executable


def _let_streams_find_this_zip(context: Any) -> None:
    """Put the zip of this package on the Python path of all of Spark's processes.

    Spark does not pass the files of `--py-files` to the process that plans a streaming read.
    """
    zipped = getattr(__spec__.loader, "archive", None)
    paths = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if zipped is not None and zipped not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*paths, zipped)))
