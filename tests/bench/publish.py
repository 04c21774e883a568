"""A client's cost of an acknowledged publish, in Python and in Node, beside other clients."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.bench.processes import ROOT, Json, interleave, worker
from tests.bench.publishers import BASELINES
from tests.bench.tables import measured, met, rounds_of, spread, table

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOWS = (32, 1)
"""Unanswered publishes at a time."""

NODE = {
    "ws + JSON, answers by ref": "hip56",
    "@hanzoai/pubsub": "hip56",
    "centrifuge-js": "centrifugo",
    "nats.js, request": "nats",
}
LANGUAGES = {
    "Python": ("websockets + json, answers by ref", "hanzoai.pubsub"),
    "TypeScript": ("ws + JSON, answers by ref", "@hanzoai/pubsub"),
}
"""The minimal loop of each language, and the SDK."""
MESSAGES = {"Python": 15_000, "TypeScript": 60_000}
"""Publishes of each client. Node compiles the code of a client during the first thousands."""
QUICK = {"Python": 5_000, "TypeScript": 12_000}
"""The same for a quick run. TypeScript clients are measured during the second half."""
TO_BARE = 1.3
SECONDS = 100
"""Time limit for all rounds of one table, in seconds. A busy machine does fewer rounds."""


def measure(*, quick: bool) -> Json:
    messages = QUICK if quick else MESSAGES
    rounds = 2 if quick else 5
    node = shutil.which("node")
    room: Json = {"messages": messages, "rounds": rounds, "Python": {}, "TypeScript": {}}
    if node:
        subprocess.run([node, "js/build.mjs"], cwd=ROOT, check=True)
    for window in WINDOWS:
        python = {name: protocol for name, (protocol, _) in BASELINES.items()}
        room["Python"][window] = _rounds(
            ("tests.bench.publishers",), python, messages["Python"], window, rounds
        )
        if node:
            script = (node, "tests/bench/node/publishers.mjs")
            room["TypeScript"][window] = _rounds(
                script, NODE, messages["TypeScript"], window, rounds
            )
    return room


def _rounds(
    client: tuple[str, ...], baselines: Mapping[str, str], count: int, window: int, rounds: int
) -> Json:
    def run(name: str) -> Mapping[str, float]:
        with worker("tests.bench.answerers", baselines[name]) as server:
            port = server.read()["port"]
            with worker(*client, name, str(port), str(count), str(window)) as publisher:
                return publisher.read()

    return interleave(list(baselines), rounds, run, SECONDS)


# ---------------------------------------------------------------- the page


def render(room: Json) -> str:
    """The tables of both languages."""
    parts = [
        "### Publishing\n\n"
        f"Each Python client publishes {room['messages']['Python']:,} messages, and each "
        f"TypeScript client {room['messages']['TypeScript']:,}: Node compiles a client while it "
        "publishes the first thousands. Each call returns when the server has acknowledged the "
        "message (NATS: request and reply, as JetStream does it). "
        "Either 32 messages are in flight, or one. The table shows the CPU time of all threads of "
        f"the client's process after the first tenth of the messages: {rounds_of(room)}, with the "
        "minimum and maximum in brackets. The last two columns divide it by that of the named "
        f"client.{measured(room)}"
    ]
    for language, (bare, ours) in LANGUAGES.items():
        if room[language]:
            parts.append(_table(room[language], bare, ours))
            parts.append(_verdict(room[language], bare, ours))
    return "\n\n".join(parts)


def _table(found: Json, bare: str, ours: str) -> str:
    rows: list[list[str]] = []
    for window, baselines in found.items():
        floor = baselines[bare]["median"]["cpu_us"]
        own = baselines[ours]["median"]["cpu_us"]
        for name, one in baselines.items():
            cost = one["median"]["cpu_us"]
            rows.append(
                [
                    name,
                    str(window),
                    spread(cost, one["values"]["cpu_us"], 1),
                    f"{one['median']['per_second']:,.0f}",
                    f"{cost / floor:.2f}",
                    f"{cost / own:.2f}",
                ]
            )
    head = ["client", "in flight", "CPU µs per publish", "publishes/s", "÷ bare loop", f"÷ {ours}"]
    return table(head, rows)


def _verdict(found: Json, bare: str, ours: str) -> str:
    ratios: list[str] = []
    for window, baselines in found.items():
        cost = {name: one["median"]["cpu_us"] for name, one in baselines.items()}
        ratio = cost[ours] / cost[bare]
        peers = min(value for name, value in cost.items() if not name.startswith((bare, ours)))
        ratios.append(
            f"With {window} in flight, the first is {met(ratio <= TO_BARE)} ({ratio:.2f}), and the "
            f"second is {met(cost[ours] < peers)}: the cheapest peer costs "
            f"{peers / cost[ours]:.2f} times as much."
        )
    return (
        f"Targets: at most {TO_BARE} times the bare loop, and less than every peer. "
        f"{' '.join(ratios)}"
    )
