"""The set-up of each cluster test: a server, an audience, a job and its outcome."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pubsub_server.auth import dev_tokens
from tests.cluster.nodes import Node
from tests.http_client import http_client
from tests.spark.cluster.audience import Audience, audience

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from pubsub_server.auth.identity import Kind
    from tests.spark.cluster.driver import Driver, Plan

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
ROWS = 100_000 if SOAK else 8_000
PARTITIONS = 8 if SOAK else 4
TOPICS = 8
BATCH = 500 if SOAK else 50
"""Rows per request."""
PAD = 200
"""Bytes of each row in addition to its number."""
FLAGS = (
    *("--publish-rate-service", "1000000", "--publish-burst", "1000000"),
    *("--history-max-messages", "100000", "--send-queue-bytes", "268435456"),
    *("--log-level", "warning"),
)
_COUNTER = re.compile(r"^hanzo_pubsub_(\w+?)(?:_total)? ([0-9.e+]+)$", re.MULTILINE)
_REFUSED = re.compile(r"^hanzo_pubsub_http_requests_total\{.*status=\"401\"\} ([0-9.e+]+)$", re.M)


@dataclass
class Account:
    """The outcome of a job.

    Attributes:
        rows: Number of rows in the job.
        lost: Rows that were never received.
        twice: Repeated deliveries.
        suppressed: Repeated publishes that the server recognized.
        refused: Requests with an expired token.
        gaps: Gaps that the audience received, by reason.
        runs: Number of starts of the job.
        seconds: Duration.
    """

    rows: int
    lost: int = 0
    twice: int = 0
    suppressed: int = 0
    refused: int = 0
    gaps: dict[str, int] = field(default_factory=dict[str, int])
    runs: int = 0
    seconds: float = 0.0

    @property
    def fate(self) -> tuple[int, int]:
        """The number of lost rows and of repeated deliveries."""
        return self.lost, self.twice


@dataclass
class Scene:
    """One server and the topics of the job.

    Attributes:
        node: The server.
        key: Key that signs tokens.
        token_file: File from which executors read the token.
        topic: Common prefix of all topics.
        past: Counters of the server processes before a restart.
    """

    node: Node
    key: bytes
    token_file: Path
    topic: str
    past: list[str] = field(default_factory=list[str])

    @property
    def topics(self) -> list[str]:
        """The topics to which rows are published."""
        return [f"{self.topic}.{number}" for number in range(TOPICS)]

    @property
    def url(self) -> str:
        """URL of the HTTP API."""
        return str(self.node.ready["http"])

    def options(self, **more: str) -> dict[str, str]:
        """Options of the sink."""
        return {
            "url": self.url,
            "tokenFile": str(self.token_file),
            **more,
        }

    def job(self, kind: str, rows: int = ROWS, **more: Any) -> dict[str, Any]:
        """Return the job in the format of the driver's program."""
        return {
            "kind": kind,
            "rows": rows,
            "partitions": PARTITIONS,
            "topic": self.topic,
            "topics": TOPICS,
            "pad": PAD,
            "options": self.options(batchSize=str(BATCH)),
            **more,
        }

    async def restart(self, number: int = signal.SIGTERM) -> None:
        """Stop the server with a signal, and start it again on the same ports."""
        self.past.append(await self._metrics())
        await self.node.restart(number)

    async def _metrics(self) -> str:
        async with http_client(trust_env=False) as client:
            return (await client.get(f"{self.url}/metrics")).raise_for_status().text

    async def play(
        self,
        driver: Driver,
        job: Mapping[str, Any],
        marks: Plan,
    ) -> Account:
        """Run a job with an audience; return the outcome."""
        token = dev_tokens.mint(self.key, "audience", kind="admin")
        async with audience(self.node.ready["ws"], self.url, token, self.topics) as subscriber:
            begin = time.perf_counter()
            runs = await driver.run(job, marks, lambda row: subscriber.received[row] > 0)
            seconds = time.perf_counter() - begin
            await subscriber.receive_all()
            return self._account(subscriber, job["rows"], runs, seconds, await self._metrics())

    def _account(
        self, subscriber: Audience, rows: int, runs: int, seconds: float, metrics: str
    ) -> Account:
        texts = [*self.past, metrics]
        suppressed = sum(
            float(value)
            for text in texts
            for name, value in _COUNTER.findall(text)
            if name == "duplicates"
        )
        refused = sum(float(value) for text in texts for value in _REFUSED.findall(text))
        account = Account(
            rows,
            subscriber.lost(rows),
            subscriber.twice(),
            int(suppressed),
            int(refused),
            dict(Counter(gap.reason for gap in subscriber.gaps)),
            runs,
            round(seconds, 1),
        )
        sys.stdout.write(f"\n{self.topic}: {account}\n")
        return account


@asynccontextmanager
async def scene(
    folder: Path, name: str, *flags: str, kind: Kind = "service"
) -> AsyncGenerator[Scene]:
    """Run a separate server, with a token of this kind for executors."""
    key_file = folder / "dev.key"
    key = dev_tokens.load_key(key_file)
    token_file = folder / "token"
    token_file.write_text(dev_tokens.mint(key, "spark", kind=kind))
    node = Node("server", folder, "--dev-key-file", str(key_file), *FLAGS, *flags)
    await node.start()
    try:
        yield Scene(node, key, token_file, f"jobs.{name}")
    finally:
        if node.running:
            await node.end(signal.SIGKILL)
