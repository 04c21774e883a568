"""Count messages of many topics in windows of ten seconds, and publish the counts while they grow.

    export HANZO_PUBSUB_URL=http://127.0.0.1:8056 HANZO_PUBSUB_TOKEN=…
    python examples/spark/orders_live.py

Publish orders in another terminal, with the same variables:

    while sleep 0.3; do hanzo-pubsub publish demo.shops.berlin.orders --data '{"amount": 9}'; done

Open the server's address in a browser and watch `demo.**`: each shop has a topic,
`demo.dashboard.<shop>`, with its current window. `demo.jobs.orders` has the progress of the job.

`/tmp/orders-live` remembers which orders were read. A development server forgets its messages when
it stops: delete the folder then, or the job ends with `DataLossError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from hanzoai.pubsub.spark import PubSubConfig, PubSubProgress, foreach_batch, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def orders(spark: SparkSession, **server: str) -> DataFrame:
    """The orders of all shops, `demo.shops.<shop>.orders`: `{"amount": 12.5}`."""
    messages = (
        spark.readStream.format("hanzo-pubsub")
        .options(**server)
        .option("topicsPattern", "demo.shops.*.orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    return messages.select(
        F.split("topic", "[.]")[2].alias("shop"),
        F.get_json_object("data", "$.amount").cast("double").alias("amount"),
        "timestamp",
    )


def dashboard(orders: DataFrame, config: PubSubConfig, checkpoint: str) -> DataStreamWriter:
    """Orders and turnover of each shop and window, to `demo.dashboard.<shop>`."""
    counts = (
        orders.withWatermark("timestamp", "1 minute")
        .groupBy("shop", F.window("timestamp", "10 seconds"))
        .agg(F.count("*").alias("orders"), F.round(F.sum("amount"), 2).alias("turnover"))
    )
    messages = counts.select(
        F.concat(F.lit("demo.dashboard."), "shop").alias("topic"),
        F.lit("orders").alias("type"),
        F.struct(F.col("window.start").alias("since"), "orders", "turnover").alias("data"),
    )
    # Growing windows need the mode "update", which a Python sink has only in foreachBatch.
    return (
        messages.writeStream.foreachBatch(foreach_batch(config, "dashboard"))
        .queryName("orders")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
    )


if __name__ == "__main__":
    session = SparkSession.builder.appName("orders live").getOrCreate()  # type: ignore[attr-defined,unused-ignore]
    register(session)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    with PubSubProgress(session, "demo.jobs.orders", PubSubConfig()):
        writer = dashboard(orders(session), PubSubConfig(), "/tmp/orders-live")
        writer.trigger(processingTime="1 second").start().awaitTermination()
