"""The cost of publishing from Spark, beside one request per row and a socket that never answers.

One Spark with two task slots, the Python processes of its executors, and the server share the
machine. The CPU time is that of the Python process that runs a task, with all threads, from its
first row to the last answer. It includes neither the JVM nor the server.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.spark import FORMAT, PubSubConfig
from tests.bench.processes import ROOT, Json, cpu_seconds, interleave, worker
from tests.bench.servers import real_server
from tests.bench.spark_peers import BASELINES, RESULT, SHARE_OF_POSTS, TOPICS, Sending
from tests.bench.tables import met, table

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

FORMATS = ("the sink", "the source")


def measure(*, quick: bool) -> Json:
    count, rounds = (10_000, 1) if quick else (30_000, 2)
    load = [round(os.getloadavg()[0], 2)]
    settings = {"history_max_messages": count // TOPICS, "max_batch_bytes": 8 << 20}
    with (
        tempfile.TemporaryDirectory() as folder,
        _session() as spark,
        worker("tests.bench.spark_peers") as sink,
    ):
        port = sink.read()["port"]
        frames = {
            (rows, partitions): _rows(spark, rows, partitions)
            for rows in (count, count // SHARE_OF_POSTS)
            for partitions in (1, 2)
        }
        with real_server(**settings) as server:
            # Spark's processes get the environment of the time at which Spark starts.
            file = Path(folder, "token")
            file.write_text(server.token, encoding="ascii")
            options = {"url": server.http, "tokenFile": str(file)}

            def run(name: str) -> Mapping[str, float]:
                before = cpu_seconds(server.worker.pid)
                if name in FORMATS:
                    found = _format(spark, name, frames[count, 2], options, count)
                    rows = count
                else:
                    plain, _, partitions = name.rpartition(", ")
                    way, arrow = BASELINES[plain]
                    rows = count // SHARE_OF_POSTS if way == "posts" else count
                    # A new config is a new job with new message ids.
                    config = PubSubConfig(server.http, token_file=str(file))
                    sending = Sending(way, arrow, port, config, server.token)
                    found = _send(frames[rows, int(partitions[0])], sending, rows)
                used = cpu_seconds(server.worker.pid) - before
                return {**found, "server_us": used / rows * 1e6}

            names = [f"{name}, {n}" for n in ("1 partition", "2 partitions") for name in BASELINES]
            for name in (*names[-len(BASELINES) :], *FORMATS):  # warm-up: first use loads code
                run(name)
            found = interleave([*names, *FORMATS], rounds, run)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "spark": _version(),
        "messages": count,
        "posted": count // SHARE_OF_POSTS,
        "rounds": rounds,
        "load": [*load, round(os.getloadavg()[0], 2)],
        "baselines": found,
    }


def _version() -> str:
    import pyspark

    return str(pyspark.__version__)


@contextmanager
def _session() -> Generator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Executors import this package, too.
    paths = [str(ROOT), str(ROOT / "python"), str(ROOT / "server-mock")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def _rows(spark: Any, count: int, partitions: int) -> Any:
    frame = spark.range(0, count, 1, partitions).selectExpr(
        f"concat('user.', id % {TOPICS}, '.results') topic",
        "'result' type",
        """to_json(named_struct('user', id % 1000, 'score', id * 0.37D, 'rank', id,
           'label', 'straightforward answer', 'tags', array('a', 'b'),
           'at', '2026-02-23T12:00:00Z')) data""",
    )
    frame = frame.cache()
    frame.count()
    return frame


def _send(frame: Any, sending: Sending, count: int) -> Mapping[str, float]:
    if sending.arrow:
        reported = frame.mapInArrow(sending.batches, RESULT).collect()
    else:
        reported = frame.rdd.mapPartitions(sending.rows).collect()
    if sum(each[0] for each in reported) != count:
        raise RuntimeError(f"{reported} is not {count} rows")
    return {
        "cpu_us": sum(each[1] for each in reported) / count * 1e6,
        "per_second": count / max(each[2] for each in reported),
    }


def _format(
    spark: Any, name: str, frame: Any, options: Mapping[str, str], count: int
) -> Mapping[str, float]:
    begin = time.perf_counter()
    if name == "the sink":
        frame.write.format(FORMAT).options(**options).mode("append").save()
    else:
        reader = spark.read.format(FORMAT).options(**options)
        reader = reader.option("topicsPattern", "user.*.results").option("minPartitions", 2)
        reader.load().write.format("noop").mode("overwrite").save()
    return {"per_second": count / (time.perf_counter() - begin)}


# ---------------------------------------------------------------- the tables


def render(room: Json) -> str:
    found = room["baselines"]
    rows: list[list[str]] = []
    for partitions in ("1 partition", "2 partitions"):
        for name in BASELINES:
            one = found[f"{name}, {partitions}"]["median"]
            base = found[f"one POST a row, {partitions}"]["median"]
            floor = found[f"{_floor(name)}, {partitions}"]["median"]
            rows.append(
                [
                    f"{name.replace(' a row', ' per row')}, {partitions}",
                    f"{one['per_second']:,.0f}",
                    f"{one['per_second'] / base['per_second']:.1f}",
                    f"{one['cpu_us']:.2f}",
                    f"{base['cpu_us'] / one['cpu_us']:.1f}",
                    f"{one['cpu_us'] / floor['cpu_us']:.2f}",
                    "" if "null" in name else f"{one['server_us']:.1f}",
                ]
            )
    head = (
        "from executors",
        "rows/s",
        "rate ÷ rate of POSTs",
        "CPU µs per row",
        "CPU of a POST ÷ this",
        "÷ null socket",
        "server's CPU µs per row",
    )
    return (
        "### Publishing from Spark\n\n"
        f"Measured on {room['date']} with Spark {room['spark']} and two task slots. Load average: "
        f"{room['load'][0]:.1f} at the start, {room['load'][1]:.1f} at the end. A job publishes "
        f"{room['messages']:,} rows with about 130 bytes of JSON each to {TOPICS:,} topics "
        f"({room['posted']:,} rows where each row is a POST); medians of {room['rounds']} rounds. "
        "CPU time is that of the Python process that runs the task. The null socket receives the "
        "same rows, each as `json.dumps` of its columns, 500 at a time, and does not check, number "
        f"or answer them.\n\n{table(head, rows)}\n\n{_verdict(found)}"
    )


def _floor(name: str) -> str:
    kind = "Arrow" if name.startswith("Arrow") else "Rows"
    return f"{kind}, JSON to a null socket"


def _verdict(found: Json) -> str:
    def median(name: str) -> Json:
        one: Json = found[f"{name}, 1 partition"]["median"]
        return one

    post, batch = median("one POST a row"), median("Arrow, batches")
    floor = median("Arrow, JSON to a null socket")
    rate = batch["per_second"] / post["per_second"]
    cpu = post["cpu_us"] / batch["cpu_us"]
    ratio = batch["cpu_us"] / floor["cpu_us"]
    formats = {name: found[name]["median"]["per_second"] for name in FORMATS}
    return (
        "Targets with one partition: Arrow batches at least 50 times better than one POST per row "
        f"(client CPU {met(cpu >= 50)}: {cpu:.0f}; rows per second {met(rate >= 50)}: {rate:.0f}, "
        f"because the server's {batch['server_us']:.0f} µs per row use the same cores), and at "
        f"most 1.5 times the CPU of the null socket ({met(ratio <= 1.5)}: {ratio:.2f}).\n\n"
        'Whole jobs with two partitions, including planning: `write.format("hanzo-pubsub")` '
        f'{formats["the sink"]:,.0f} rows/s, `read.format("hanzo-pubsub")` of all topics '
        f"{formats['the source']:,.0f} rows/s."
    )
