"""`format("hanzo-pubsub")` on the Python Data Source API of Spark 4.0 and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from hanzoai.pubsub.spark import sink, source
from hanzoai.pubsub.spark.traces import brief

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class HanzoPubSub(DataSource):
    """Topics of Hanzo PubSub as a source and a sink.

    Spark creates it on the driver and requests columns, readers and writers. The driver checks
    these, so a wrong option or column fails before a task runs.
    """

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return "hanzo-pubsub"

    @brief()
    def schema(self) -> str:
        """See `DataSource`: the columns of the source."""
        return source.checked_schema(self.options)

    @brief()
    def reader(self, schema: StructType) -> source.BatchSource:
        """See `DataSource`."""
        return source.BatchSource(source.planned(self.options, schema))

    def streamReader(self, schema: StructType) -> source.StreamSource:
        """See `DataSource`."""
        return source.StreamSource(self.options, schema)

    @brief()
    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchSink:
        """See `DataSource`."""
        return sink.BatchSink(sink.planned(self.options, schema, overwrite))

    @brief()
    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamSink:
        """See `DataSource`. Spark also passes the arguments by these names."""
        return sink.StreamSink(sink.planned(self.options, schema, overwrite))
