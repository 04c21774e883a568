"""The cost of the TypeScript SDK beside other clients, in Node and, if installed, in Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.bench.processes import ROOT, Json, interleave, percentile, worker
from tests.bench.servers import real_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECEIVERS = {
    "ws, counting only": "hip56",
    "ws + JSON.parse": "hip56",
    "@hanzoai/pubsub, for await": "hip56",
    "@hanzoai/pubsub, onMessage": "hip56",
    "centrifuge-js": "centrifugo",
    "nats.js, for await": "nats",
    "nats.js, callback": "nats",
}
PAGES = {"WebSocket + JSON.parse": "hip56", "@hanzoai/pubsub, for await": "hip56"}
PACKAGES = ("ws", "centrifuge", "@nats-io/transport-node")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TO_BARE = 1.1
"""Target: the cost of receiving, divided by that of a bare loop."""


def measure(*, quick: bool) -> Json:
    node = _program("node")
    subprocess.run([node, "js/build.mjs"], cwd=ROOT, check=True)
    count, rounds = (20_000, 3) if quick else (500_000, 7)
    load = [round(os.getloadavg()[0], 2)]
    room: Json = {
        "date": datetime.now(UTC).date().isoformat(),
        "node": _version(node),
        "packages": {name: _package(name) for name in PACKAGES},
        "receive": _rounds("receivers", RECEIVERS, count, rounds),
    }
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser:
        found = _rounds("browser", PAGES, 5_000 if quick else 50_000, 2 if quick else 5)
        room["browser"] = {"version": _version(browser), **found}
        room["handover"] = _handover(5 if quick else 20)
    room["load"] = [*load, round(os.getloadavg()[0], 2)]
    return room


def _rounds(clients: str, baselines: Mapping[str, str], count: int, rounds: int) -> Json:
    node = _program("node")

    def run(name: str) -> Mapping[str, float]:
        with worker("tests.bench.blasters", baselines[name], str(count)) as server:
            port = server.read()["port"]
            script = f"tests/bench/node/{clients}.mjs"
            with worker(node, script, name, str(port), str(count)) as client:
                return client.read()

    found = interleave(list(baselines), rounds, run)
    return {"messages": count, "rounds": rounds, "baselines": found}


def _handover(turns: int) -> Json:
    with real_server() as server:
        script = "tests/bench/node/handover.mjs"
        with worker(_program("node"), script, server.ws, server.token, str(turns)) as tabs:
            found = tabs.read()
    return {
        "turns": turns,
        **{
            name: {"p50_ms": percentile(values, 0.5), "p99_ms": percentile(values, 0.99)}
            for name, values in found.items()
        },
    }


def _program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise RuntimeError(f"{name} is not on PATH; `make setup` says what is needed")
    return found


def _version(program: str) -> str:
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return output.stdout.split(" built", maxsplit=1)[0].strip().lstrip("v")


def _package(name: str) -> str:
    places = [ROOT / "tests" / "bench" / "node", ROOT]
    manifests = (place / "node_modules" / name / "package.json" for place in places)
    manifest = next(path for path in manifests if path.exists())
    return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])


# ---------------------------------------------------------------- the tables


def render(room: Json) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in room["packages"].items())
    text = (
        "### The TypeScript client\n\n"
        f"Measured on {room['date']} with Node {room['node']}; {packages}. Load average: "
        f"{room['load'][0]:.1f} at the start, {room['load'][1]:.1f} at the end; the run itself "
        "adds 2. The tables show the CPU time of all threads of the measured process after the "
        "first tenth of the messages: medians, with the minimum and maximum of all rounds in "
        f"brackets. The last two columns divide it by that of the named client."
        f"\n\n{_receiving(room['receive'])}"
    )
    if "browser" not in room:
        return text
    return f"{text}\n\n{_browsing(room['browser'])}\n\n{_handing_over(room['handover'])}"


def _receiving(found: Json) -> str:
    cost = _costs(found)
    floor, best = cost["ws + JSON.parse"], cost["@hanzoai/pubsub, for await"]
    centrifuge = cost["centrifuge-js"]
    ways = {
        way: cost[f"nats.js, {theirs}"] / cost[f"@hanzoai/pubsub, {way}"]
        for way, theirs in (("for await", "for await"), ("onMessage", "callback"))
    }
    compared = "; ".join(f"`{way}` {_met(ratio > 1)}: {ratio:.2f}" for way, ratio in ways.items())
    verdict = (
        f"Target: at most {TO_BARE} times `ws` with `JSON.parse` "
        f"({_met(best <= TO_BARE * floor)}: {best / floor:.2f}), and less than "
        f"centrifuge-js ({_met(best < centrifuge)}: it costs {centrifuge / best:.2f} times as "
        f"much) and the same way to read of nats.js ({compared}). The client reads whole texts "
        "without the parser of `ws`. NATS uses plain TCP without WebSocket frames: `ws` with "
        "`JSON.parse` alone already takes "
        f"{floor / cost['nats.js, callback']:.2f} times as long as the callback of nats.js."
    )
    return (
        f"Receiving in Node: {found['messages']:,} back-to-back messages of about 250 bytes. All "
        "clients except the first decode the JSON of each message, read one field and check the "
        f"order; {found['rounds']} rounds.\n\n"
        f"{_table(found, 'ws + JSON.parse', '@hanzoai/pubsub, for await')}\n\n{verdict}"
    )


def _browsing(found: Json) -> str:
    return (
        f"Receiving in {found['version']}, headless: {found['messages']:,} messages; "
        f"{found['rounds']} rounds. The CPU time is that of the page's process, including "
        "compilation. Most of it is the work of the browser for each frame.\n\n"
        f"{_table(found, 'WebSocket + JSON.parse', '@hanzoai/pubsub, for await')}"
    )


def _handing_over(found: Json) -> str:
    delays, usual = found["delays"], found["usual"]
    return (
        "Tabs that share a connection: a message is published every 4 ms, and the tab that holds "
        f"the connection is closed {found['turns']} times while three other tabs read. No tab "
        "loses, repeats or reorders a message. The message that waits longest during a takeover "
        f"arrives after {delays['p50_ms']:.0f} ms (p50 of all takeovers and tabs; p99 "
        f"{delays['p99_ms']:.0f} ms). Between takeovers, a message arrives after "
        f"{usual['p50_ms']:.0f} ms (p99 {usual['p99_ms']:.0f} ms)."
    )


def _costs(found: Json) -> dict[str, float]:
    return {name: one["median"]["cpu_us"] for name, one in found["baselines"].items()}


def _table(found: Json, floor: str, ours: str) -> str:
    cost = _costs(found)
    head: Sequence[str] = ("client", "CPU µs per message", "messages/s", f"÷ {floor}", f"÷ {ours}")
    lines = [head, ("---", *["--:"] * (len(head) - 1))]
    for name, one in found["baselines"].items():
        values = one["values"]["cpu_us"]
        lines.append(
            (
                name,
                f"{cost[name]:.2f} ({min(values):.2f} to {max(values):.2f})",
                f"{one['median']['per_second']:,.0f}",
                f"{cost[name] / cost[floor]:.2f}",
                f"{cost[name] / cost[ours]:.2f}",
            )
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _met(met: bool) -> str:
    return "met" if met else "**missed**"
