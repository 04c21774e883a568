"""What Spark's executors run in the benchmark, and a socket that accepts everything.

`python -m tests.bench.spark_peers` accepts connections and discards incoming data.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx

from hanzoai.pubsub.spark import PubSubConfig, publish_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BASELINES = {
    "one POST a row": ("posts", False),
    "Rows, JSON to a null socket": ("null", False),
    "Rows, batches": ("batches", False),
    "Arrow, JSON to a null socket": ("null", True),
    "Arrow, batches": ("batches", True),
}
SHARE_OF_POSTS = 40
"""The other ways send this many rows for each row that is posted alone."""
TOPICS = 1_000
NAMES = ("topic", "type", "data")
RESULT = "rows BIGINT, cpu DOUBLE, seconds DOUBLE"
"""The report of a task: the rows it sent, its CPU time and its duration."""
_BATCH = 500


@dataclass(frozen=True)
class Sending:
    """A way to send rows. Spark serialises it for the executors.

    Attributes:
        way: `null`, `posts` or `batches`.
        arrow: Whether rows arrive as Arrow batches.
        sink: Port of the socket that accepts everything.
        config: How to reach the server.
        token: Token of the server, for `posts`.
    """

    way: str
    arrow: bool
    sink: int
    config: PubSubConfig
    token: str

    def rows(self, partition: Iterable[Any]) -> Iterator[tuple[int, float, float]]:
        """For `rdd.mapPartitions`."""
        yield self._timed(partition)

    def batches(self, partition: Iterable[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        pyarrow: Any = import_module("pyarrow")
        rows, cpu, seconds = self._timed(partition)
        yield pyarrow.RecordBatch.from_pydict({"rows": [rows], "cpu": [cpu], "seconds": [seconds]})

    def _timed(self, partition: Iterable[Any]) -> tuple[int, float, float]:
        begin, cpu = time.perf_counter(), time.process_time()
        match self.way:
            case "null":
                count = _to_nowhere(_values(partition, arrow=self.arrow), self.sink)
            case "posts":
                count = _one_by_one(
                    _values(partition, arrow=self.arrow), self.config.base_url, self.token
                )
            case _:
                count = publish_partition(partition, self.config).rows
        return count, time.process_time() - cpu, time.perf_counter() - begin


def _values(partition: Iterable[Any], *, arrow: bool) -> Iterator[tuple[Any, ...]]:
    if not arrow:
        yield from partition
        return
    for batch in partition:
        yield from zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True)


def _to_nowhere(rows: Iterable[tuple[Any, ...]], port: int) -> int:
    """Encode each row as JSON and send 500 at a time to a socket that never answers."""
    count = 0
    texts: list[str] = []
    with socket.create_connection(("127.0.0.1", port)) as sink:
        for row in rows:
            texts.append(json.dumps(dict(zip(NAMES, row, strict=True))))
            if len(texts) == _BATCH:
                sink.sendall(",".join(texts).encode())
                count += len(texts)
                texts.clear()
        sink.sendall(",".join(texts).encode())
    return count + len(texts)


def _one_by_one(rows: Iterable[tuple[Any, ...]], url: str, token: str) -> int:
    """Send one request per row, on one connection."""
    count = 0
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
        for topic, kind, data in rows:
            answer = client.post(
                f"/v1/topics/{topic}/messages", json={"type": kind, "data": json.loads(data)}
            )
            answer.raise_for_status()
            count += 1
    return count


def _discard(connection: socket.socket) -> None:
    with connection:
        while connection.recv(1 << 20):
            pass


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(json.dumps({"port": server.getsockname()[1]}), flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_discard, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
