"""Tables of one run, for `docs/performance.md`."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import (
    connections,
    crossing,
    curve,
    fanout,
    http,
    latency,
    mesh,
    publish,
    small_streams,
    sp,
    spark,
    spark_engine,
    token_bytes,
    token_streams,
    typescript,
)
from tests.bench.answers import answers
from tests.bench.processes import ROOT
from tests.bench.tables import measured, met, table

if TYPE_CHECKING:
    from tests.bench.processes import Json

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ANSWERS = "<!-- answers: begin -->", "<!-- answers: end -->"
PACKAGES = ("websockets", "pydantic", "httpx", "uvloop", "orjson", "nats-py", "centrifuge-python")
TO_BARE = 1.1
"""Target: the cost of receiving, divided by that of a bare loop."""


def machine() -> Json:
    """Describe the machine and software of the run, without names that identify the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def render(run: Json) -> str:
    """Return the generated part of the page."""
    rooms = {
        "receive": _receive,
        "publish": publish.render,
        "latency": latency.render,
        "latency-large": latency.render_large,
        "connecting": _connecting,
        "fanout": fanout.render,
        "fanout-large": fanout.render_large,
        "http": http.render,
        "curve": curve.render,
        "memory": _memory,
        "connections": connections.render,
        "crossing": crossing.render,
        "typescript": typescript.render,
        "sp": sp.render,
        "mesh": mesh.render,
        "small-streams": small_streams.render,
        "token-streams": token_streams.render,
        "token-bytes": token_bytes.render,
        "spark": spark.render,
        "spark-engine": spark_engine.render,
    }
    where = run["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in where["packages"].items())
    kind = "A quick run" if run["quick"] else "A run"
    sentence = (
        f"{kind} of {run['date']} on {where['cores']} shared cores ({where['cpu']}), "
        f"{where['memory_gib']} GiB, {where['system']}, Python {where['python']}; {packages}. "
        f"Load average: {run['load'][0]:.1f} at the start, {run['load'][1]:.1f} at the end; the "
        "run itself adds 2. A busy machine increases latencies, and CPU times only slightly."
    )
    parts = [show(run[room]) for room, show in rooms.items() if room in run]
    return "\n\n".join([sentence, *parts])


def write(run: Json) -> None:
    """Write the tables between the marks of the page, and draw its picture."""
    if "curve" in run:
        curve.draw(run["curve"])
    text = PAGE.read_text(encoding="utf-8")
    for (begin, end), written in ((ANSWERS, answers(run)), ((BEGIN, END), render(run))):
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{written}\n\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")


def _receive(room: Json) -> str:
    medians = {name: found["median"] for name, found in room["baselines"].items()}
    floor = medians["websockets, counting only"]["cpu_us"]
    bare = medians["websockets + json.loads"]["cpu_us"]
    ours = medians["hanzoai.pubsub"]["cpu_us"]
    rows = [
        [
            name,
            f"{found['cpu_us']:.2f}",
            f"{found['per_second']:,.0f}",
            f"{found['cpu_us'] / floor:.2f}",
            f"{found['cpu_us'] / ours:.2f}",
        ]
        for name, found in medians.items()
    ]
    peers = min(medians[n]["cpu_us"] for n in ("nats-py + json.loads", "centrifuge-python"))
    verdict = (
        f"Target: at most {TO_BARE} times `websockets` with `json.loads` "
        f"({met(ours / bare <= TO_BARE)}: {ours / bare:.2f}), and less than "
        f"nats-py and centrifuge-python ({met(ours < peers)}: the cheaper of the two costs "
        f"{peers / ours:.2f} times as much)."
    )
    if "hanzoai.pubsub[speed]" in medians:
        rate = {name: found["per_second"] for name, found in medians.items()}
        more = rate["hanzoai.pubsub[speed]"] / rate["hanzoai.pubsub"]
        reached = f"{met(more >= 3)}: {more:.2f}"
        verdict += f" With the extra `speed`, at least three times the rate ({reached})."
        if most := rate.get("picows + msgspec"):
            verdict += (
                " A bare loop of its two libraries, which only decodes, reaches "
                f"{most / rate['hanzoai.pubsub']:.2f} times the rate."
            )
    head = ["client", "CPU µs per message", "messages/s", "÷ counting", "÷ hanzoai.pubsub"]
    return (
        "### Receiving in Python\n\n"
        f"{room['messages']:,} back-to-back messages of about 250 bytes; every client except "
        "the first decodes the JSON of each and reads a field of it. CPU time of the client's "
        "process; "
        f"medians of {room['rounds']} rounds.{measured(room)}\n\n{table(head, rows)}\n\n{verdict}"
    )


def _connecting(room: Json) -> str:
    targets = {"connect": (100, "H-161"), "replay": (200, "H-164")}
    rows: list[list[str]] = []
    for name, found in room["baselines"].items():
        target, statement = targets[name.split(",")[0]]
        median = found["median"]
        rows.append(
            [
                name,
                f"{median['p50_ms']:.2f}",
                f"{median['p99_ms']:.2f}",
                f"{target} ms ({statement}): {met(median['p99_ms'] < target)}",
            ]
        )
    head = ["operation and client", "p50 ms", "p99 ms", "target for p99"]
    return (
        "### Connecting and replaying\n\n"
        "*Connect* is the time from dialing to `subscribed`. *Replay* is the time to receive "
        f"{room['replayed']} messages from history. Each operation runs {room['times']} times per "
        f"round, in {room['rounds']} rounds.\n\n{table(head, rows)}"
    )


def _memory(room: Json) -> str:
    rows = [
        [name, f"{found['median']['kib']:.1f}", f"{found['median']['handshake_cpu_us']:.0f}"]
        for name, found in room["baselines"].items()
    ]
    head = ["server", "KiB per connection", "CPU µs to accept, authenticate, subscribe"]
    return (
        "### Idle connections\n\n"
        f"Growth of the server's resident memory with {room['connections']:,} connections. Each "
        "connection is authenticated and subscribed; the bare servers don't authenticate."
        f"\n\n{table(head, rows)}"
    )
