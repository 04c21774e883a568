"""The cost of a message that is published on one node and delivered on others, over Redis."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.bench.connections import AT_ONCE, redis_server, served
from tests.bench.crowd import END
from tests.bench.processes import Json, Worker, cpu_seconds, worker
from tests.bench.tables import table
from tests.bench.wire import Connection, masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.servers import Server

BURSTS = (50, 1)
"""Maximum number of messages in transit."""
SUBSCRIBERS = (1, 10, 100, 1_000)
"""Subscribers of one topic on one node."""
SESSIONS = 50
"""Topics with one subscriber each. The publisher uses them in turn."""
CONTENT = "x" * 150
SILENCE = 10.0
"""Time limit in seconds."""


def measure(*, quick: bool) -> Json:
    load = [round(os.getloadavg()[0], 2)]
    messages = 1_000 if quick else 4_000
    cases = [(1, 1, count) for count in SUBSCRIBERS] + [(1, SESSIONS, 1)]
    cases += [(2, 1, 1), (2, 1, 10), (2, SESSIONS, 1)]
    points: list[Json] = []
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        nodes = [stack.enter_context(served(redis_url=redis[0])) for _ in range(3)]
        for case in cases:
            points += _case(nodes, redis, case, messages)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "load": [*load, round(os.getloadavg()[0], 2)],
        "points": points,
    }


def _case(
    nodes: Sequence[tuple[Server, str]],
    redis: tuple[str, int],
    case: tuple[int, int, int],
    messages: int,
) -> Iterator[Json]:
    """The measurements for a number of receiving nodes, topics, and subscribers of each."""
    listening, topics, subscribers = case
    delivering = nodes[1 : 1 + listening]
    pids = [*(server.worker.pid for server, _ in (nodes[0], *delivering)), redis[1]]
    name = "demo.crossing" + "-".join(map(str, case))
    with ExitStack() as stack:
        crowds = [stack.enter_context(worker("tests.bench.crowd")) for _ in delivering]
        for crowd, (server, key) in zip(crowds, delivering, strict=True):
            reported = crowd.ask(
                do="open", port=urlsplit(server.ws).port, source="127.0.0.1", key=key, first=0,
                count=topics * subscribers, at_once=AT_ONCE, name=name, members=subscribers,
                presence=False,
            )  # fmt: skip
            if "error" in reported:
                raise RuntimeError(reported["error"])
        road = Road(nodes[0][0], delivering[0][0], [f"{name}.{n}" for n in range(topics)], crowds)
        for burst in BURSTS:
            count = max(500, min(messages, messages * 20 // subscribers) // (1 + 4 // burst))
            road.travel(count // 10, burst)
            used, traffic = [*map(cpu_seconds, pids)], _traffic(redis[0])
            sent = road.travel(count, burst)
            spent = [
                (cpu_seconds(pid) - cpu) / sent * 1e6 for pid, cpu in zip(pids, used, strict=True)
            ]
            yield {
                "listening": listening,
                "topics": topics,
                "subscribers": subscribers,
                "burst": burst,
                # All messages of one read are delivered in one write per connection.
                "channels": min(topics, burst) / burst,
                "writes": (min(topics, burst) * subscribers + 1) / burst,
                "deliveries": subscribers + 1,
                "publishing_us": spent[0],
                "delivering_us": spent[1],
                "redis_us": spent[-1],
                **{way: (total - traffic[way]) / sent for way, total in _traffic(redis[0]).items()},
            }
        road.close()


class Road:
    """From a publisher on one node to a subscriber on another, which receives all messages."""

    def __init__(
        self, near: Server, far: Server, topics: Sequence[str], crowds: Sequence[Worker]
    ) -> None:
        self._publisher = Connection(near.ws, near.token)
        self._end = Connection(far.ws, far.token)
        for topic in topics:
            self._end.subscribe(topic)
        self._topics = topics
        self._crowds = crowds
        self._reported_at = time.monotonic()

    def travel(self, count: int, burst: int) -> int:
        """Send messages to the topics in turn, one burst after the previous one has arrived.

        Returns:
            The number sent. On each topic, every subscriber waits for the last message.
        """
        for crowd in self._crowds:
            crowd.ask(do="drain")
        topics = self._topics
        for start in range(0, count, burst):
            places = range(start, min(start + burst, count))
            self._send([(topics[place % len(topics)], CONTENT) for place in places])
        for start in range(0, len(topics), burst):
            self._send([(topic, END.decode()) for topic in topics[start : start + burst]])
        for crowd in self._crowds:
            answer = crowd.read()
            if "error" in answer:
                raise RuntimeError(answer["error"])
        return count + len(topics)

    def _send(self, messages: Sequence[tuple[str, str]]) -> None:
        if time.monotonic() - self._reported_at > SILENCE:
            # The server cuts a client that never sends anything.
            self._reported_at = time.monotonic()
            self._end.send({"type": "ping"})
        frames = [_frame(topic, content) for topic, content in messages]
        self._publisher.socket.sendall(b"".join(frames))
        for _ in frames:
            self._publisher.until("published")
        for _ in frames:
            self._end.until("message")

    def close(self) -> None:
        """Close the connections."""
        self._publisher.close()
        self._end.close()


def _frame(topic: str, content: str) -> bytes:
    data = {"content": content, "index": 42}
    message = {"topic": topic, "type": "token", "data": data}
    return masked(json.dumps({"type": "publish", "ref": "7", "message": message}).encode())


def _traffic(url: str) -> Mapping[str, int]:
    """Bytes that Redis has read and written."""
    output = subprocess.run(
        ["redis-cli", "-s", url.removeprefix("unix://"), "info", "stats"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = dict(line.split(":") for line in output.stdout.split() if ":" in line)
    return {
        "redis_in": int(found["total_net_input_bytes"]),
        "redis_out": int(found["total_net_output_bytes"]),
    }


# ---------------------------------------------------------------- the table


def render(room: Json) -> str:
    head = ["subscribers per topic and node, topics", "delivering nodes", "messages per burst",
            "CPU µs per message: publishing node", "each delivering node", "Redis",
            "bytes to Redis", "bytes from Redis"]  # fmt: skip
    rows = [
        [
            f"{point['subscribers']:,}, {point['topics']}",
            str(point["listening"]),
            str(point["burst"]),
            f"{point['publishing_us']:.0f}",
            f"{point['delivering_us']:.0f}",
            f"{point['redis_us']:.0f}",
            f"{point['redis_in']:.0f}",
            f"{point['redis_out']:.0f}",
        ]
        for point in room["points"]
    ]
    return (
        "### From node to node\n\n"
        f"Measured on {room['date']}. Load average: {room['load'][0]:.1f} at the start, "
        f"{room['load'][1]:.1f} at the end. One node accepts and acknowledges messages of about "
        "250 bytes, and one or two other nodes deliver them over Redis. The next burst starts when "
        "the previous one is delivered. Each node has one additional subscriber, which receives "
        f"everything.\n\n{table(head, rows)}"
    )
