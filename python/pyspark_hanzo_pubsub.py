"""Spark imports every module named `pyspark_…` and takes its `DefaultSource`.

So `format("hanzo-pubsub")` works without `register`. One such module that raises hides the sources
of all others: this one never does.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(Exception):
    from hanzoai.pubsub.spark.data_source import HanzoPubSub as DefaultSource

    __all__ = ["DefaultSource"]
