"""How the cost of a publish grows with subscribers, topics, patterns and payload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import chart
from tests.bench.dialects import END, ENVELOPE_BYTES, content, publication
from tests.bench.processes import ROOT, Json, cpu_seconds, interleave, worker
from tests.bench.servers import NO_TIMEOUTS, real_server
from tests.bench.tables import measured, rounds_of, table
from tests.bench.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.bench.processes import Worker
    from tests.bench.servers import Server

CHART = ROOT / "docs" / "assets" / "cost-curve.svg"
FEW = 10
"""Subscribers of the topic while another quantity is doubled."""
POINTS = {
    "subscribers": tuple(2**n for n in range(11)),
    "topics": tuple(2**n for n in range(11)),
    "patterns": tuple(2**n for n in range(11)),
    "bytes": tuple(250 * 2**n for n in range(8)),
}
TITLES = {
    "subscribers": "of one topic",
    "topics": "with one subscriber each, published to in turn",
    "patterns": f"of others, beside {FEW} subscribers of the topic",
    "bytes": f"of an envelope, to {FEW} subscribers",
}
SECONDS = 120
"""Time limit for all rounds in seconds. A busy machine does fewer rounds."""
PATTERNS_EACH = 200
"""Patterns of one connection."""


def measure(*, quick: bool) -> Json:
    publishes, rounds = (25, 1) if quick else (100, 3)

    def run(axis: str) -> Mapping[str, float]:
        with real_server(**NO_TIMEOUTS) as server, worker("tests.bench.readers") as readers:
            return {str(point): cost for point, cost in AXES[axis](server, readers, publishes)}

    found = interleave([*AXES], rounds, run, SECONDS)
    rounds = len(next(iter(found["subscribers"]["values"].values())))
    return {"rounds": rounds, "publishes": publishes, "axes": found}


class _Publisher:
    """Publishes one message at a time and waits for the answer. Has no subscriptions."""

    def __init__(self, server: Server, readers: Worker) -> None:
        self._server = server
        self._readers = readers
        self._connection = Connection(server.ws, server.token)

    def cost(self, topics: list[str], size: int, publishes: int) -> float:
        """CPU µs of the server per publish, over the topics in turn."""
        frames = [publication("hanzo", each, content(each, size), ref="1") for each in topics]
        self._readers.ask(do="drain")
        for topic in topics:
            self._send(publication("hanzo", topic, content(topic, size), ref="1"))
        before = cpu_seconds(self._server.worker.pid)
        for n in range(publishes):
            self._send(frames[n % len(frames)])
        used = cpu_seconds(self._server.worker.pid) - before
        for topic in topics:
            self._send(publication("hanzo", topic, END.decode(), ref="1"))
        answer = self._readers.read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return used / publishes * 1e6

    def _send(self, frame: bytes) -> None:
        self._connection.socket.sendall(frame)
        self._connection.until("published")


def _open(server: Server, readers: Worker, topics: list[str], count: int) -> None:
    readers.ask(do="open", url=server.ws, token=server.token, topics=topics, count=count)


def _subscribers(server: Server, readers: Worker, publishes: int) -> Iterator[tuple[int, float]]:
    publisher, opened = _Publisher(server, readers), 0
    for point in POINTS["subscribers"]:
        _open(server, readers, ["demo.curve"], point - opened)
        opened = point
        # With few subscribers the cost is small, so more messages are needed to measure it.
        times = publishes * 4 if point <= 64 else publishes
        yield point, publisher.cost(["demo.curve"], ENVELOPE_BYTES, times)


def _topics(server: Server, readers: Worker, publishes: int) -> Iterator[tuple[int, float]]:
    publisher, names = _Publisher(server, readers), list[str]()
    for point in POINTS["topics"]:
        added = [f"demo.curve.t{number}" for number in range(len(names), point)]
        _open(server, readers, added, len(added))
        names += added
        yield point, publisher.cost(names, ENVELOPE_BYTES, max(publishes * 4, point))


def _patterns(server: Server, readers: Worker, publishes: int) -> Iterator[tuple[int, float]]:
    publisher, held = _Publisher(server, readers), 0
    _open(server, readers, ["demo.curve"], FEW)
    holder = Connection(server.ws, server.token)
    for point in POINTS["patterns"]:
        for number in range(held, point):
            if number % PATTERNS_EACH == 0:
                holder = Connection(server.ws, server.token)
            holder.subscribe(f"demo.*.p{number}.**")
        held = point
        yield point, publisher.cost(["demo.curve"], ENVELOPE_BYTES, publishes * 4)


def _payload(server: Server, readers: Worker, publishes: int) -> Iterator[tuple[int, float]]:
    publisher = _Publisher(server, readers)
    _open(server, readers, ["demo.curve"], FEW)
    for point in POINTS["bytes"]:
        yield point, publisher.cost(["demo.curve"], point, publishes * 2)


AXES: dict[str, Callable[[Server, Worker, int], Iterator[tuple[int, float]]]] = {
    "subscribers": _subscribers,
    "topics": _topics,
    "patterns": _patterns,
    "bytes": _payload,
}


# ---------------------------------------------------------------- the page


def render(room: Json) -> str:
    """The table of this room; `draw` makes its picture."""
    rows: list[list[str]] = []
    for axis, title in TITLES.items():
        median = room["axes"][axis]["median"]
        points = list(median)
        first, middle, last = points[0], points[len(points) // 2], points[-1]
        rows.append(
            [
                f"{axis} {title}",
                *(f"{median[each]:.0f} at {int(each):,}" for each in (first, middle, last)),
                f"{(median[last] / median[middle]) ** (1 / (len(points) // 2)):.2f}",
            ]
        )
    head = ["what is doubled", "smallest", "middle", "largest", "factor per doubling, upper half"]
    return (
        "### What doubling costs\n\n"
        "CPU time of `hanzo-pubsub serve`, in µs, for one acknowledged publish with all its "
        f"deliveries, one publish at a time; {rounds_of(room)}.{measured(room)}\n\n"
        f"![CPU of a publish over subscribers, topics, patterns and payload]"
        f"(assets/{CHART.name})\n\n{table(head, rows)}"
    )


def draw(room: Json) -> None:
    """Write the picture of this room."""
    panels = {
        f"{axis} {title}": [
            (float(point), cost) for point, cost in room["axes"][axis]["median"].items()
        ]
        for axis, title in TITLES.items()
    }
    CHART.write_text(chart.panels("CPU µs of one publish", panels), encoding="utf-8")
