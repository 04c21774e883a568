"""Latency from publish to delivery: at fixed loads, near the maximum load, and beside C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.bench import peers
from tests.bench.dialects import Publisher, content, publication
from tests.bench.processes import Json, interleave, worker
from tests.bench.servers import NO_TIMEOUTS, real_server
from tests.bench.tables import measured, met, rounds_of, table
from tests.bench.wire import Connection

if TYPE_CHECKING:
    from tests.bench.processes import Worker
    from tests.bench.servers import Server

TOPIC = "demo.latency"
WARM_UP = 10
LOADS = {1: 100, 100: 100, 1_000: 10}
"""Messages per second, by number of subscribers."""
SATURATED = 1_000
"""Subscribers for the load that is a share of the maximum."""
SHARE = 0.8
BURST = 8
WARM_BURSTS = 2
MANY = 10_000
MANY_EVERY = 0.6
"""Seconds between two messages to many subscribers."""
SECONDS = 70
"""Time limit for all rounds of a kind of load, in seconds. A busy machine does fewer rounds."""
LIMIT_MS = 50
TO_C = 1.3
HEAD = (
    "subscribers",
    "messages/s",
    "p50 ms",
    "p99 ms",
    "p99 ÷ target",
    f"p99 < {LIMIT_MS} ms (H-160)",
)


def measure(*, quick: bool) -> Json:
    """Measure fixed loads."""
    seconds, rounds = (2, 1) if quick else (6, 3)

    def run(name: str) -> dict[str, float]:
        subscribers = int(name)
        return _run(subscribers, LOADS[subscribers], LOADS[subscribers] * seconds)

    found = interleave([*map(str, LOADS)], rounds, run, SECONDS)
    done = len(found["1"]["values"]["p99_ms"])
    return {"rounds": done, "loads": LOADS, "subscribers": found}


def measure_large(*, quick: bool) -> Json:
    """Measure near the maximum load, and with many subscribers beside C."""
    seconds, rounds = (2, 1) if quick else (4, 3)

    def saturated(name: str) -> dict[str, float]:
        del name
        return _saturated(seconds)

    def many(name: str) -> dict[str, float]:
        with peers.start(name) as server, worker("tests.bench.readers") as readers:
            _open(readers, server, MANY)
            return _paced(server, readers, 1 / MANY_EVERY, 3, 10)

    found = interleave([peers.OURS], rounds, saturated, SECONDS)
    names = peers.present((peers.OURS, peers.EPOLL, peers.NATS))
    return {
        "rounds": len(found[peers.OURS]["values"]["p99_ms"]),
        "saturated": found,
        "many": interleave(names, 1 if quick else rounds, many, SECONDS),
    }


def _open(readers: Worker, server: Server, subscribers: int) -> None:
    where = {"url": server.ws, "token": server.token, "dialect": server.dialect}
    readers.ask(do="open", **where, topics=[TOPIC], count=subscribers)


def _run(subscribers: int, rate: float, messages: int) -> dict[str, float]:
    with real_server(**NO_TIMEOUTS) as server, worker("tests.bench.readers") as readers:
        _open(readers, server, subscribers)
        return _paced(server, readers, rate, WARM_UP, messages)


def _saturated(seconds: float) -> dict[str, float]:
    """The maximum rate in bursts, then the latency at a share of it."""
    with real_server(**NO_TIMEOUTS) as server, worker("tests.bench.readers") as readers:
        _open(readers, server, SATURATED)
        publisher = Publisher(server.dialect, server.ws, server.token, TOPIC)
        frame = publication(server.dialect, TOPIC, content(TOPIC))
        bursts = round(12 * seconds)
        readers.ask(do="latency", messages=(bursts + WARM_BURSTS) * BURST, skip=BURST)
        begin = time.monotonic()
        for burst in range(bursts + WARM_BURSTS):
            if burst <= WARM_BURSTS:
                begin = time.monotonic()
            publisher.send(frame * BURST)
            publisher.back(BURST)
        _answer(readers)
        rate = bursts * BURST / (time.monotonic() - begin)
        publisher.close()
        found = _paced(server, readers, SHARE * rate, WARM_UP, round(SHARE * rate * seconds))
    return {"rate": rate, **found}


def _paced(
    server: Server, readers: Worker, rate: float, warm_up: int, messages: int
) -> dict[str, float]:
    publisher: Publisher | Connection
    if server.dialect == "nats":
        publisher = Publisher(server.dialect, server.ws, server.token, f"{TOPIC}.other")
    else:
        publisher = Connection(server.ws, server.token)
    text = content(TOPIC)
    readers.ask(do="latency", messages=messages + warm_up, skip=warm_up)
    begin = time.monotonic()
    for n in range(messages + warm_up):
        pause = begin + n / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        stamp = time.monotonic_ns()
        publisher.socket.sendall(publication(server.dialect, TOPIC, text, stamp=stamp))
    answer = _answer(readers)
    publisher.close()
    return {name: float(answer[name]) for name in ("p50_ms", "p99_ms", "max_ms")}


def _answer(readers: Worker) -> Json:
    answer = readers.read()
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


# ---------------------------------------------------------------- the page


def render(room: Json) -> str:
    """The table of the fixed loads."""
    rows = [
        _row(int(subscribers), room["loads"][subscribers], found["median"])
        for subscribers, found in room["subscribers"].items()
    ]
    return (
        "### Publish to delivery\n\n"
        "Time from the call that publishes on a WebSocket until each subscriber has read the "
        f"frame, all on one machine; {rounds_of(room)}.{measured(room)}"
        f"\n\n{table(HEAD, rows)}"
    )


def render_large(room: Json) -> str:
    """The tables of the high loads and of many subscribers."""
    best = room["saturated"][peers.OURS]["median"]
    rate = SHARE * best["rate"]
    return (
        "### Publish to delivery, near the limit\n\n"
        f"As above, at {SHARE:.0%} of {best['rate']:,.0f} messages/s, the highest rate that "
        f"publisher, server and readers sustained together in bursts of {BURST}; "
        f"{rounds_of(room)}.{measured(room)} If more processes are ready than there are cores, "
        "most of these times are waits for a core."
        f"\n\n{table(HEAD, [_row(SATURATED, rate, best)])}\n\n{_many(room)}"
    )


def _row(subscribers: int, rate: float, median: Json) -> list[str]:
    return [
        f"{subscribers:,}",
        f"{rate:,.0f} ({rate * subscribers:,.0f} deliveries)",
        f"{median['p50_ms']:.2f}",
        f"{median['p99_ms']:.2f}",
        f"{median['p99_ms'] / LIMIT_MS:.1%}",
        met(median["p99_ms"] < LIMIT_MS),
    ]


def _many(room: Json) -> str:
    medians = {name: found["median"] for name, found in room["many"].items()}
    turns = len(room["many"][peers.OURS]["values"]["p99_ms"])
    rows = [
        [name, f"{found['p50_ms']:.0f}", f"{found['p99_ms']:.0f}"]
        for name, found in medians.items()
    ]
    note = ""
    if peers.EPOLL in medians:
        ratio = medians[peers.OURS]["p99_ms"] / medians[peers.EPOLL]["p99_ms"]
        note = (
            f"\n\nTarget: a p99 of at most {TO_C} times that of the loop in C "
            f"({met(ratio <= TO_C)}: {ratio:.2f})."
        )
    return (
        f"With {MANY:,} subscribers and one message every {MANY_EVERY} s, "
        f"{rounds_of({'rounds': turns})}. The writes of one message take a large part of this "
        "time in every language.\n\n" + table(["server", "p50 ms", "p99 ms"], rows) + note
    )
