"""`python -m tests.bench scale`: what a million connections need, calculated from measured costs.

With `--keep` it writes the tables of `docs/scale.md` and its picture.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from tests.bench import areas, simulator
from tests.bench.capacity import BUSY, Costs, Workload, fit, listeners, plan
from tests.bench.processes import ROOT
from tests.bench.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.processes import Json

PAGE: Final = ROOT / "docs" / "scale.md"
PICTURE: Final = ROOT / "docs" / "assets" / "scale.svg"
BEGIN, END = "<!-- calculated: begin -->", "<!-- calculated: end -->"
SEED: Final = 56
PER_NODE: Final = 50_000
"""Connections per process: HIP-56 gives 50,000 to 100,000."""
MILLION: Final = 1_000_000
WORKLOADS: Final = (
    Workload("300,000 idle connections", 300_000, 0, 2),
    Workload("a million idle connections", MILLION, 0, 2),
    Workload("… 50,000 published", MILLION, 50_000, 2),
    Workload("… 250,000 published, 500,000 delivered", MILLION, 250_000, 2),
    Workload("… the same, published 20 at a time", MILLION, 250_000, 2, 20),
    Workload("… 500,000 published 20 at a time", MILLION, 500_000, 2, 20),
)
SHAPE: Final = ("burst", "channels", "writes", "deliveries")
HORIZON: Final = 180.0
TRAFFIC_SECONDS: Final = 0.1


def tables(results: Json) -> str:
    """Format all tables for the terminal."""
    costs = fit(results)
    parts = [
        "### Unit costs\n\n" + _costs(costs),
        "### Accuracy of the model\n\nEach value is the calculated cost divided by the measured "
        "one; 1.00 is exact.\n\n" + _checks(results, costs),
        "### What a cluster needs\n\nA node has one core. Each row that begins with `…` has a "
        "million connections. CPU columns are cores of all nodes together.\n\n" + _plans(costs),
        "### Simulated traffic\n\n*Burst* is the average number of messages that a loop handles "
        "in one turn.\n\n" + _simulated(costs),
        "### Loss of a node\n\n" + _storms(costs),
        "### The figures of HIP-56\n\n" + _hip56(costs),
    ]
    return "\n\n".join(parts)


def write(results: Json) -> None:
    """Write the page and its picture."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{after}", encoding="utf-8")
    PICTURE.write_text(draw(fit(results)), encoding="utf-8")


# ---------------------------------------------------------------- tables


def _costs(costs: Costs) -> str:
    rows = [
        ["an idle connection with presence: server, kernel, Redis",
         f"{costs.memory:.1f} + {costs.kernel:.1f} + {costs.redis_memory:.1f} KiB"],
        ["the pings of an idle connection", f"{costs.idle:.2f} µs per second"],
        ["to accept a connection: server, Redis",
         f"{costs.accept:.0f} + {costs.accept_redis:.0f} µs"],
        ["publishing: each turn of the event loop, each message",
         f"{costs.publish_turn:.0f} + {costs.publish:.0f} µs"],
        ["delivering: each turn of the event loop, each topic, each message, each write, "
         "each delivery",
         f"{costs.deliver_turn:.0f} + {costs.channel:.0f} + {costs.receive:.0f} + "
         f"{costs.write:.1f} + {costs.deliver:.2f} µs"],
        ["Redis: each call, each message, each further node that receives it",
         f"{costs.redis_call:.0f} + {costs.redis_message:.0f} + {costs.redis_listener:.1f} µs"],
        ["traffic per message: to Redis, from Redis to each node",
         f"{costs.to_redis:.0f} + {costs.from_redis:.0f} bytes"],
    ]  # fmt: skip
    return table(["", "measured"], rows)


def checks(results: Json, costs: Costs) -> Iterator[tuple[str, float, float]]:
    """Measured values and the model's: name, measured, calculated."""
    for point in results["crossing"]["points"]:
        where = (
            f"{point['deliveries'] - 1:,} of a topic, bursts of {point['burst']}, "
            f"{point['listening']} listening"
        )
        if point["channels"] * point["burst"] > 1:
            where += ", many topics"
        estimate = costs.delivering(*(point[name] for name in SHAPE))
        yield f"delivering: {where}", point["delivering_us"], estimate
        yield f"publishing: {where}", point["publishing_us"], costs.publishing(point["burst"])
        redis = costs.redis(point["burst"], point["listening"])
        yield f"Redis: {where}", point["redis_us"], redis
    held = results["connections"]["held"]
    one = results["connections"]["single"]["baselines"]["memory"]["median"]
    count = held["connections"]
    yield f"{count:,} idle: cores", held["idle_cores"], count * one["idle_cpu_us"] / 1e6
    yield f"{count:,} idle: memory", held["kib"], one["kib"]
    yield f"{count:,} idle: to accept one", held["accept_cpu_us"], one["accept_cpu_us"]


def _checks(results: Json, costs: Costs) -> str:
    groups: dict[str, list[float]] = {}
    for name, measured, calculated in checks(results, costs):
        group = name if " idle:" in name else name.partition(":")[0]
        groups.setdefault(group, []).append(calculated / measured)
    rows = [
        [name, str(len(ratios)), f"{min(ratios):.2f}", f"{max(ratios):.2f}"]
        for name, ratios in groups.items()
    ]
    return table(["calculated ÷ measured", "points", "minimum", "maximum"], rows)


def _plans(costs: Costs) -> str:
    head = ["load per second", "nodes", "CPU idle", "CPU publishing", "CPU delivering",
            "GiB, server + kernel", "Redis shards", "CPU Redis", "Gbit/s to clients",
            "Gbit/s to and from Redis"]  # fmt: skip
    rows: list[list[str]] = []
    for work in WORKLOADS:
        needs = plan(work, costs, per_node=PER_NODE)
        rows.append(
            [
                work.name,
                f"{needs.nodes:,}",
                f"{needs.cores_idle:.1f}",
                f"{needs.cores_publishing:.1f}",
                f"{needs.cores_delivering:.1f}",
                f"{needs.memory:.1f} + {needs.kernel:.1f}",
                f"{needs.shards:,}",
                f"{needs.cores_redis:.1f}",
                f"{needs.out:.2f}",
                f"{needs.between:.2f}",
            ]
        )
    return table(head, rows)


def simulated(costs: Costs) -> Iterator[tuple[Workload, int, simulator.Traffic]]:
    """The workloads with messages, simulated with the planned number of nodes."""
    for work in WORKLOADS:
        if work.published:
            nodes = plan(work, costs, per_node=PER_NODE).nodes
            yield work, nodes, simulator.run(work, costs, nodes, TRAFFIC_SECONDS, SEED)


def _simulated(costs: Costs) -> str:
    head = ["load per second", "nodes", "burst", "cores", "busiest node", "p50 ms", "p99 ms"]
    rows = [
        [
            work.name,
            f"{nodes:,}",
            f"{found.burst:.1f}",
            f"{found.cores + work.connections * costs.idle / 1e6:.1f}",
            f"{found.busiest + work.connections * costs.idle / 1e6 / nodes:.0%}",
            f"{found.late[0]:.1f}",
            f"{found.late[1]:.1f}",
        ]
        for work, nodes, found in simulated(costs)
    ]
    return table(head, rows)


def storms(costs: Costs) -> Iterator[tuple[str, simulator.Storm]]:
    """Losses of one node."""
    for total, nodes in ((300_000, 3), (MILLION, 20), (MILLION, 53)):
        lost = total // nodes
        name = f"{total:,} on {nodes} nodes"
        yield name, simulator.storm(lost, nodes - 1, costs.accept / BUSY, SEED, None, HORIZON)
        if nodes == 20:
            spread = simulator.Manners(spread=30.0)
            reported = simulator.storm(lost, nodes - 1, costs.accept / BUSY, SEED, spread)
            yield f"{name}, over 30 s", reported


def _storms(costs: Costs) -> str:
    head = ["connections and nodes", "clients of the lost node", "half reconnected, s",
            "99 % reconnected, s", "all reconnected, s", "attempts per client",
            "longest queue of a node"]  # fmt: skip
    rows = [
        [
            name,
            f"{found.clients:,}",
            *(_when(found, share) for share in (0.5, 0.99, 1.0)),
            f"{found.attempts / found.clients:.2f}",
            f"{found.longest:,}",
        ]
        for name, found in storms(costs)
    ]
    return table(head, rows)


def _hip56(costs: Costs) -> str:
    hundred = 100_000
    process, kernel = (kib * hundred / 2**20 for kib in (costs.memory, costs.kernel))
    delivering_nodes = listeners(3, 2)
    message = costs.publishing(1) + delivering_nodes * costs.delivering(
        1, 1, 2 / delivering_nodes, 2 / delivering_nodes
    )
    shard = BUSY * 1e6 / costs.redis(20, 2)
    history = MILLION / 2 * 100 * 250 / 2**30
    storm_seconds = hundred * costs.accept / 1e6 / 2
    rows = [
        ["a million connections on 3 nodes of up to 100,000",
         "Three nodes of 100,000 hold 300,000. You need 10 such nodes and a spare one, or better "
         "20 nodes of 50,000."],
        ["100,000 connections in 512 MB",
         f"The process needs {process:.2f} GiB, and the kernel {kernel:.2f} GiB for sockets, which "
         "count against the limit of a container. Give it 1.5 GiB."],
        ["one CPU per node", f"Pings alone use {hundred * costs.idle / 1e6:.0%} of it."],
        ["500,000 messages per second on 3 nodes",
         "This leaves 6 µs per message. A message that is published alone to two subscribers costs "
         f"the nodes {message:.0f} µs, mostly for loop turns that batches would share."],
        ["3 Redis shards",
         f"At {BUSY:.0%} of a core and 20 messages per call, one shard handles {shard:,.0f} "
         f"messages per second and three handle {3 * shard:,.0f}. 500,000 need "
         f"{500_000 / shard:.0f} shards."],
        ["256 MB of Redis, `allkeys-lru`",
         f"Presence of a million clients needs {MILLION * costs.redis_memory / 2**20:.1f} GiB, and "
         f"100 messages of 250 bytes on each of 500,000 topics need at least {history:.0f} GiB. "
         "Redis evicts what does not fit, including presence and positions."],
        ["one of 3 nodes lost",
         "Each of the other two gets 150,000 connections, and needs a whole core for "
         f"{storm_seconds:.0f} s to accept them, but a client waits only 5 s."],
    ]  # fmt: skip
    return "\n".join(
        ["| HIP-56 | calculated |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)]
    )


def _when(found: simulator.Storm, share: float) -> str:
    """The time by which this share of the clients was back."""
    place = ceil(found.clients * share) - 1
    return f"{found.back[place]:.1f}" if place < len(found.back) else "not in 3 min"


# ---------------------------------------------------------------- the picture


def draw(costs: Costs) -> str:
    """Cores by messages published, and the share of clients that are back over time."""
    rates = [step * 25_000 for step in range(21)]
    needs = [plan(Workload("", MILLION, rate, 2, 20), costs, per_node=PER_NODE) for rate in rates]
    layers = {
        "idle": [each.cores_idle for each in needs],
        "publishing": [each.cores_publishing for each in needs],
        "delivering": [each.cores_delivering for each in needs],
        "Redis": [each.cores_redis for each in needs],
    }
    lines = {
        name: [
            (found.back[place], place / found.clients)
            for place in range(0, len(found.back), max(1, len(found.back) // 300))
        ]
        for name, found in storms(costs)
    }
    return areas.page(
        [
            areas.layers(
                "Cores used, a million connections",
                "thousand messages published per second, 20 at a time, two subscribers each",
                [rate / 1000 for rate in rates],
                layers,
            ),
            areas.curves("Clients reconnected after the loss of a node", "seconds", lines),
        ]
    )
