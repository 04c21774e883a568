"""Runs each use once with one version of Spark, and checks the messages on the server.

Runs with the Python of an environment that has this Spark and none of this project's tests. Prints
one JSON object per line: {"use": …, "ok": …, "problem": …}. See `versions.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

from hanzoai.pubsub.spark import (
    ARROW_SCHEMA,
    FORMAT,
    PubSubConfig,
    PubSubProgress,
    foreach_batch,
    foreach_partition,
    publish_arrow,
    register,
)

COUNT = 400
PATIENCE = 120
SLOW = 3.0
"""Seconds of a job: a Spark Connect server reports progress every two seconds."""
NUMBER = "cast(get_json_object(data, '$.n') AS INT)"


def slowly(seconds: float, batches: Iterable[Any]) -> Iterable[Any]:
    time.sleep(seconds)
    yield from batches


class Probe:
    def __init__(self, url: str, token_file: str, admin: str, *, connect: bool) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self.url, self.admin, self.connect = url, admin, connect
        self.options = {"url": url, "tokenFile": token_file}
        self.config = PubSubConfig(url, token_file=token_file)
        self.folder = Path(tempfile.mkdtemp(prefix="hanzo-pubsub-spark-"))
        builder: Any = SparkSession.builder
        builder = builder.remote("local[2]") if connect else builder.master("local[2]")
        for name, value in {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }.items():
            builder = builder.config(name, value)
        self.spark: Any = builder.getOrCreate()

    def rows(self, topic: str) -> Any:
        return self.spark.range(0, COUNT, 1, 2).selectExpr(
            f"'{topic}' topic", "to_json(named_struct('n', id)) data"
        )

    def stored(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            request = urllib.request.Request(
                f"{self.url}/v1/topics/{topic}/history?after={after}&limit=500",
                headers={"Authorization": f"Bearer {self.admin}"},
            )
            with urllib.request.urlopen(request) as answer:
                page = json.load(answer)
            found += page["messages"]
            if not page["has_more"]:
                return found
            after = found[-1]["seq"]

    def holds(self, topic: str) -> None:
        self.counted([message["data"]["n"] for message in self.stored(topic)])

    def counted(self, numbers: list[int]) -> None:
        if sorted(numbers) != list(range(COUNT)):
            raise AssertionError(f"{len(numbers)} rows, not each of {COUNT} once")

    def stream(self, topic: str, start: Callable[[Any], Any]) -> None:
        source = str(self.folder / topic)
        self.rows(topic).write.json(source)
        stream = self.spark.readStream.schema("topic STRING, data STRING").json(source)
        writer = stream.writeStream.option("checkpointLocation", f"{source}.checkpoint")
        query = start(writer.trigger(availableNow=True))
        if not query.awaitTermination(PATIENCE):
            raise AssertionError("the query did not end")
        self.holds(topic)

    # ------------------------------------------------------------ uses

    def sink_without_registration(self) -> None:
        self.rows("v.static").write.format(FORMAT).options(**self.options).mode("append").save()
        self.holds("v.static")

    def sink(self) -> None:
        register(self.spark)
        self.rows("v.sink").write.format(FORMAT).options(**self.options).mode("append").save()
        self.holds("v.sink")

    def stream_sink(self) -> None:
        self.stream(
            "v.stream", lambda writer: writer.format(FORMAT).options(**self.options).start()
        )

    def each_batch(self) -> None:
        publish = foreach_batch(self.config, "probe")
        self.stream("v.each", lambda writer: writer.foreachBatch(publish).start())

    def each_partition(self) -> None:
        self.rows("v.partition").foreachPartition(foreach_partition(self.config))
        self.holds("v.partition")

    def arrow(self) -> None:
        reported = (
            self.rows("v.arrow").mapInArrow(publish_arrow(self.config), ARROW_SCHEMA).collect()
        )
        if sum(row["rows"] for row in reported) != COUNT:
            raise AssertionError(f"told {reported}")
        self.holds("v.arrow")

    def source(self) -> None:
        self.rows("demo.v.read").foreachPartition(foreach_partition(self.config))
        found = self.spark.read.format(FORMAT).options(**self.options, topics="demo.v.read").load()
        self.counted([row["n"] for row in found.selectExpr(f"{NUMBER} n").collect()])

    def stream_source(self) -> None:
        self.rows("demo.v.from").foreachPartition(foreach_partition(self.config))
        reader = self.spark.readStream.format(FORMAT).options(**self.options, topics="demo.v.from")
        stream = reader.option("startingOffsets", "earliest").load()
        checkpoint = str(self.folder / "through")
        query = (
            stream.selectExpr("'v.to' topic", "data", "concat(topic, ':', seq) id")
            .writeStream.format(FORMAT)
            .options(**self.options, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(PATIENCE):
            raise AssertionError("the query did not end")
        self.holds("v.to")

    def stream_of_batches(self) -> None:
        rows = self.rows("demo.v.parts")
        reader = self.spark.readStream.format(FORMAT).options(**self.options, topics="demo.v.parts")
        query = (
            reader.option("startingOffsets", "earliest")
            .load()
            .selectExpr(
                "'v.parts' topic", "data"
            )  # by content: a repeated batch is published again
            .writeStream.format(FORMAT)
            .options(**self.options, checkpointLocation=str(self.folder / "parts"))
            .trigger(processingTime="0 seconds")
        )
        begin = 0
        running: Any = None

        def stored() -> bool:
            return len(self.stored("v.parts")) >= end

        for end in (COUNT // 2, COUNT):
            part = rows.where(f"{NUMBER} >= {begin} AND {NUMBER} < {end}")
            part.foreachPartition(foreach_partition(self.config))
            running = running or query.start()
            self.until(stored)
            begin = end
        time.sleep(SLOW)
        running.stop()
        self.holds("v.parts")

    def until(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > end:
                raise AssertionError("it did not happen in time")
            time.sleep(0.2)

    def progress(self) -> None:
        with PubSubProgress(self.spark, "v.progress", self.config):
            self.spark.range(0, 4, 1, 2).mapInArrow(partial(slowly, SLOW), "id LONG").count()
            self.stream(
                "v.watched", lambda writer: writer.format(FORMAT).options(**self.options).start()
            )
        types = {message["type"] for message in self.stored("v.progress")}
        wanted = {"spark.run.ended", "spark.job.ended", "spark.query.terminated"}
        if not wanted <= types:
            raise AssertionError(f"told only {sorted(types)}")


USES: dict[str, Callable[[Probe], None]] = {
    "sink, registered": Probe.sink,
    "sink, found by itself": Probe.sink_without_registration,
    "stream sink": Probe.stream_sink,
    "foreach_partition": Probe.each_partition,
    "foreach_batch": Probe.each_batch,
    "publish_arrow": Probe.arrow,
    "source": Probe.source,
    "source, stream": Probe.stream_source,
    "source, several batches": Probe.stream_of_batches,
    "PubSubProgress": Probe.progress,
}


def main(mode: str, *words: str) -> None:
    import pyspark

    environment = (os.environ[f"PROBE_{name}"] for name in ("URL", "TOKEN_FILE", "ADMIN"))
    probe = Probe(*environment, connect=mode == "connect")
    print(json.dumps({"version": pyspark.__version__, "mode": mode}), flush=True)
    for use, run in USES.items():
        if words and not any(word in use for word in words):
            continue
        problem = None
        try:
            partial(run, probe)()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[-600:]
        print(json.dumps({"use": use, "ok": problem is None, "problem": problem}), flush=True)
    probe.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
