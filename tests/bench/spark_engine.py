"""The work of a Spark task on its rows, without Spark: the same functions on the same rows.

Without the JVM and its pipes there is less noise. The result is the CPU time of the code that
encodes and sends.
"""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.spark import PubSubConfig
from tests.bench.processes import Json, cpu_seconds, interleave, worker
from tests.bench.servers import real_server
from tests.bench.spark_peers import BASELINES, NAMES, SHARE_OF_POSTS, TOPICS, Sending
from tests.bench.tables import met, table

if TYPE_CHECKING:
    from collections.abc import Mapping

ARROW_ROWS = 10_000
"""Rows per Arrow batch, Spark's default."""


def measure(*, quick: bool) -> Json:
    count, rounds = (10_000, 2) if quick else (20_000, 5)
    load = [round(os.getloadavg()[0], 2)]
    arrow, rows = _arrow(count), _rows(count)
    with (
        tempfile.TemporaryDirectory() as folder,
        worker("tests.bench.spark_peers") as sink,
        real_server(history_max_messages=count // TOPICS) as server,
    ):
        port = sink.read()["port"]
        file = Path(folder, "token")
        file.write_text(server.token, encoding="ascii")

        def run(name: str) -> Mapping[str, float]:
            way, as_arrow = BASELINES[name]
            # A new config is a new job with new message ids.
            config = PubSubConfig(server.http, token_file=str(file))
            sending = Sending(way, as_arrow, port, config, server.token)
            given = arrow if as_arrow else rows
            if way == "posts":
                given = rows[: count // SHARE_OF_POSTS]
            before = cpu_seconds(server.worker.pid)
            ((sent, cpu, seconds),) = sending.rows(given)
            used = cpu_seconds(server.worker.pid) - before
            return {
                "cpu_us": cpu / sent * 1e6,
                "per_second": sent / seconds,
                "server_us": used / sent * 1e6,
            }

        run("Arrow, batches")  # warm-up: the first use loads code
        found = interleave(list(BASELINES), rounds, run)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "messages": count,
        "posted": count // SHARE_OF_POSTS,
        "rounds": rounds,
        "load": [*load, round(os.getloadavg()[0], 2)],
        "baselines": found,
    }


def _values(number: int) -> tuple[str, str, str]:
    data = {
        "user": number % TOPICS,
        "score": number * 0.37,
        "rank": number,
        "label": "straightforward answer",
        "tags": ["a", "b"],
        "at": "2026-02-23T12:00:00Z",
    }
    return f"user.{number % TOPICS}.results", "result", json.dumps(data, separators=(",", ":"))


def _rows(count: int) -> list[Any]:
    from pyspark.sql import Row

    return [Row(**dict(zip(NAMES, _values(number), strict=True))) for number in range(count)]


def _arrow(count: int) -> list[Any]:
    pyarrow: Any = import_module("pyarrow")
    made: list[Any] = []
    for start in range(0, count, ARROW_ROWS):
        numbers = range(start, min(count, start + ARROW_ROWS))
        columns = list(zip(*map(_values, numbers), strict=True))
        made.append(pyarrow.RecordBatch.from_pydict(dict(zip(NAMES, columns, strict=True))))
    return made


# ---------------------------------------------------------------- the tables


def render(room: Json) -> str:
    found = {name: one["median"] for name, one in room["baselines"].items()}
    base = found["one POST a row"]
    rows = [
        [
            name.replace(" a row", " per row"),
            f"{one['cpu_us']:.2f}",
            f"{base['cpu_us'] / one['cpu_us']:.1f}",
            f"{one['cpu_us'] / found[_floor(name)]['cpu_us']:.2f}",
            f"{one['per_second']:,.0f}",
            "" if "null" in name else f"{one['server_us']:.1f}",
        ]
        for name, one in found.items()
    ]
    head = (
        "rows of a task",
        "CPU µs per row",
        "CPU of a POST ÷ this",
        "÷ null socket",
        "rows/s",
        "server's CPU µs per row",
    )
    batch = found["Arrow, batches"]
    cpu = base["cpu_us"] / batch["cpu_us"]
    ratio = batch["cpu_us"] / found["Arrow, JSON to a null socket"]["cpu_us"]
    return (
        "### Publishing from a task of Spark\n\n"
        f"Measured on {room['date']}. Load average: {room['load'][0]:.1f} at the start, "
        f"{room['load'][1]:.1f} at the end. One process without a JVM publishes "
        f"{room['messages']:,} rows, as Spark passes them to a task, with about 130 bytes of JSON "
        f"each to {TOPICS:,} topics ({room['posted']:,} rows where each row is a POST); medians of "
        f"{room['rounds']} rounds. CPU time is that of all threads of this process. The null "
        "socket receives the same rows, each as `json.dumps` of its columns, 500 at a time, and "
        "does not check, number or answer them. A busy machine lowers the rows per second."
        f"\n\n{table(head, rows)}\n\n"
        "Targets, by CPU time: Arrow batches at least 50 times better than one POST per row "
        f"({met(cpu >= 50)}: {cpu:.0f}), and at most 1.5 times the null socket "
        f"({met(ratio <= 1.5)}: {ratio:.2f})."
    )


def _floor(name: str) -> str:
    kind = "Arrow" if name.startswith("Arrow") else "Rows"
    return f"{kind}, JSON to a null socket"
