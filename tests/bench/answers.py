"""The table at the top of `docs/performance.md`: the results that most readers look for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.processes import Json


def answers(run: Json) -> str:
    """Return the table; questions that the run does not answer are left out."""
    questions = {
        "latency": _latency,
        "receive": _receive,
        "typescript": _typescript,
        "publish": _publish,
        "fanout": _fanout,
        "connections": _connections,
    }
    rows = [show(run[room]) for room, show in questions.items() if room in run]
    return "\n".join(["| question | result | details |", "|---|---|---|", *rows])


def _receive(room: Json) -> str:
    rates = {name: found["median"]["per_second"] for name, found in room["baselines"].items()}
    return (
        "| how many messages one Python program receives | "
        f"{_thousands(rates['hanzoai.pubsub'])} per second; "
        f"{_thousands(rates['hanzoai.pubsub[speed]'])} with the extra `speed` | "
        "[receiving](#receiving-in-python) |"
    )


def _publish(room: Json) -> str:
    found = []
    for flight, meaning in (("32", "with 32 in flight"), ("1", "one at a time")):
        python = room["Python"][flight]["hanzoai.pubsub"]["median"]["per_second"]
        node = room["TypeScript"][flight]["@hanzoai/pubsub"]["median"]["per_second"]
        rates = f"Python {_thousands(python)} per second, Node {_thousands(node)}"
        found.append(f"{meaning}: {rates}")
    return (
        "| how many messages one program publishes, each acknowledged | "
        f"{'; '.join(found)} | [publishing](#publishing) |"
    )


def _latency(room: Json) -> str:
    times = [
        f"{found['median']['p50_ms']:.1f} ms to {int(number):,}"
        for number, found in room["subscribers"].items()
    ]
    return (
        "| how long a message takes to its subscribers (median) | "
        f"{', '.join(times)} subscribers | [publish to delivery](#publish-to-delivery) |"
    )


def _fanout(room: Json) -> str:
    costs = room["sizes"]["1000"]["baselines"]["hanzo-pubsub serve"]["median"]
    return (
        "| what a delivery costs the server, with 1,000 subscribers | "
        f"{costs['1']:.1f} µs of CPU; {costs['8']:.2f} µs with 8 messages at a time | "
        "[fan-out](#fan-out), [what doubling costs](#what-doubling-costs) |"
    )


def _connections(room: Json) -> str:
    kib = {name: found["median"]["kib"] for name, found in room["single"]["baselines"].items()}
    held = room["held"]
    return (
        "| what an idle connection with presence takes | "
        f"{kib['memory']:.1f} KiB of the server; {held['connections']:,} connections use "
        f"{held['idle_cores'] * 100:.1f} % of a core | "
        "[idle connections](#idle-connections-with-presence) |"
    )


def _typescript(room: Json) -> str:
    received = room["receive"]["baselines"]["@hanzoai/pubsub, for await"]["median"]["per_second"]
    return (
        "| how many messages one TypeScript program receives | "
        f"{_thousands(received)} per second in Node | "
        "[the TypeScript client](#the-typescript-client) |"
    )


def _thousands(rate: float) -> str:
    """A rate with three digits that count."""
    return f"{round(rate, -3 if rate >= 100_000 else -2):,.0f}"
