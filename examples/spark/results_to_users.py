"""Publish each row of a table to the topic of its user.

    export HANZO_PUBSUB_URL=http://127.0.0.1:8056 HANZO_PUBSUB_TOKEN=…
    python examples/spark/results_to_users.py

The token must be that of a service, because users may not publish to the topics of others. If you
run it again, nothing is published twice, because the rows have ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from hanzoai.pubsub.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def results(spark: SparkSession) -> DataFrame:
    """A sample table: 1,000 results of 50 users."""
    return spark.range(1000).selectExpr(
        "concat('u', id % 50) AS user_id", "id AS result_id", "round(rand(7) * 100) AS score"
    )


def publish(table: DataFrame, **server: str) -> None:
    """Publish each row to `user.<id>.results`. `server` adds connection options."""
    messages = table.select(
        F.concat(F.lit("user."), "user_id", F.lit(".results")).alias("topic"),
        F.lit("result").alias("type"),
        F.to_json(F.struct("result_id", "score")).alias("data"),
        F.concat(F.lit("nightly-2026-02-23-"), "result_id").alias("id"),
    )
    messages.write.format("hanzo-pubsub").options(**server).mode("append").save()


if __name__ == "__main__":
    session = SparkSession.builder.appName("results to users").getOrCreate()  # type: ignore[attr-defined,unused-ignore]
    register(session)
    publish(results(session))
    session.stop()
