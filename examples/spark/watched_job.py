"""Let people watch a long job: its stages and tasks are messages on a topic.

    export HANZO_PUBSUB_URL=http://127.0.0.1:8056 HANZO_PUBSUB_TOKEN=…
    python examples/spark/watched_job.py

Open the server's address in a browser and watch `demo.jobs.nightly`.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from hanzoai.pubsub.spark import PubSubConfig, PubSubProgress

TOPIC = "demo.jobs.nightly"


def work(spark: SparkSession, rows: int) -> int:
    """A slow job in two stages, with 24 and 4 tasks."""
    numbers = spark.range(0, rows, 1, 24).selectExpr("id % 5000 AS key", "sqrt(id) * sin(id) AS x")
    return numbers.repartition(4, "key").groupBy("key").avg("x").count()


def main(spark: SparkSession, rows: int) -> None:
    """Run the job and publish its progress."""
    with PubSubProgress(spark, TOPIC, PubSubConfig()) as progress:
        print(f"{work(spark, rows):,} keys")
    print(f"{progress.stats.published} messages on {TOPIC}")


if __name__ == "__main__":
    session = (
        SparkSession.builder.appName("nightly")  # type: ignore[attr-defined,unused-ignore]
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    main(session, int(sys.argv[1]) if len(sys.argv) > 1 else 20_000_000)
    session.stop()
