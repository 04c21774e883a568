"""`format("hanzo-pubsub")` on the Python Data Source API of Spark 4.0 and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from hanzoai.pubsub.spark.sink import BatchSink, StreamSink, planned

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class HanzoPubSub(DataSource):
    """Topics of Hanzo PubSub as a sink.

    Spark makes it on the driver and asks it for a writer, which is checked there: what is wrong
    with options or columns is said before a task runs.
    """

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return "hanzo-pubsub"

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """See `DataSource`."""
        return BatchSink(planned(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """See `DataSource`. Spark gives the arguments by these names, too."""
        return StreamSink(planned(self.options, schema, overwrite))
