"""The resources that a cluster needs, calculated from measured costs. Without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.defaults import LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.processes import Json

BUSY: Final = 0.6
"""Share of a core, of a node or of a shard, that a plan uses."""
PACKET: Final = 66
"""Bytes of Ethernet, IP and TCP headers per write."""
FRAME: Final = 290
"""Bytes of a delivered message: an envelope of about 250 bytes in its frame."""
PING: Final = LIMITS.server_ping_interval / 1000
"""Seconds between two pings of the server, its default."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs. CPU in µs, memory in KiB, traffic in bytes.

    Attributes:
        memory: Memory of the server per idle connection with presence.
        kernel: Memory of the kernel per socket of such a connection.
        redis_memory: Memory of Redis per such connection.
        idle: CPU per second and idle connection.
        accept: CPU of the server to accept a connection.
        accept_redis: CPU of Redis to accept a connection.
        publish_turn: CPU of the publishing node per read from its clients.
        publish: CPU of the publishing node per message in that read.
        deliver_turn: CPU of a node with subscribers per read from Redis.
        channel: CPU of that node per topic in the read.
        receive: CPU of that node per message in the read.
        write: CPU of that node per connection that it writes to.
        deliver: CPU of that node per message and connection.
        redis_call: CPU of Redis per call of a publishing node.
        redis_message: CPU of Redis per message in the call, with one receiving node.
        redis_listener: CPU of Redis per message and additional receiving node.
        to_redis: Traffic per message from the publishing node to Redis.
        from_redis: Traffic per message from Redis to each receiving node.
    """

    memory: float
    kernel: float
    redis_memory: float
    idle: float
    accept: float
    accept_redis: float
    publish_turn: float
    publish: float
    deliver_turn: float
    channel: float
    receive: float
    write: float
    deliver: float
    redis_call: float
    redis_message: float
    redis_listener: float
    to_redis: float
    from_redis: float

    def delivering(self, burst: float, channels: float, writes: float, deliveries: float) -> float:
        """CPU per message of a node with subscribers.

        Args:
            burst: Messages per read from Redis.
            channels: Topics per message.
            writes: Connections written to, per message.
            deliveries: Connections that receive a message.
        """
        return (
            self.deliver_turn / burst
            + self.channel * channels
            + self.receive
            + self.write * writes
            + self.deliver * deliveries
        )

    def publishing(self, burst: float) -> float:
        """CPU of the publishing node per message."""
        return self.publish_turn / burst + self.publish

    def redis(self, burst: float, listeners: float) -> float:
        """CPU of Redis per message."""
        return self.redis_call / burst + self.redis_message + self.redis_listener * (listeners - 1)


def fit(results: Json) -> Costs:
    """Derive the costs from the results of the rooms `connections` and `crossing`."""
    points: list[Json] = results["crossing"]["points"]
    held: Json = results["connections"]["held"]
    alone: Json = results["connections"]["single"]["baselines"]["memory"]["median"]
    single: Json = results["connections"]["single"]["baselines"]["Redis"]["median"]
    near = [point for point in points if point["listening"] == 1]
    publish_turn, publish = _turns(near, "publishing_us")
    redis_call, redis_message = _turns(near, "redis_us")
    rows = [(1 / p["burst"], p["channels"], 1.0, p["writes"], float(p["deliveries"])) for p in near]
    turn, channel, receive, write, deliver = _least_squares(
        rows, [p["delivering_us"] for p in near]
    )
    one = {way: median(p[way] for p in near if p["burst"] > 1) for way in WAYS}
    more = {way: _of_another(points, way) for way in WAYS}
    return Costs(
        memory=single["kib"],
        kernel=held["kernel_kib"] / 2,
        redis_memory=single["redis_kib"],
        # A node's heartbeats to Redis are not a cost of its connections.
        idle=alone["idle_cpu_us"],
        accept=single["accept_cpu_us"],
        accept_redis=single["accept_redis_cpu_us"],
        publish_turn=publish_turn,
        publish=publish,
        deliver_turn=turn,
        channel=channel,
        receive=receive,
        write=write,
        deliver=deliver,
        redis_call=redis_call,
        redis_message=redis_message,
        redis_listener=max(0.0, more["redis_us"]),
        to_redis=one["redis_in"],
        from_redis=more["redis_out"],
    )


WAYS: Final = ("redis_us", "redis_in", "redis_out")


def _of_another(points: Sequence[Json], way: str) -> float:
    """The cost per burst of one more receiving node, with everything else equal."""
    found = {(p["listening"], p["topics"], p["subscribers"]): p for p in points if p["burst"] > 1}
    differences: list[float] = [
        point[way] - found[1, topics, subscribers][way]
        for (listening, topics, subscribers), point in found.items()
        if listening > 1
    ]
    return median(differences)


def _turns(points: Sequence[Json], name: str) -> tuple[float, float]:
    """The cost of a turn, and the additional cost of each message."""
    many, one = (
        median(p[name] for p in points if (p["burst"] == 1) is alone) for alone in (False, True)
    )
    burst = max(p["burst"] for p in points)
    turn = max(0.0, (one - many) / (1 - 1 / burst))
    return turn, many - turn / burst


def _least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Non-negative factors that minimise the sum of squared relative errors."""
    left = list(range(len(rows[0])))
    while True:
        scaled = [[row[n] / value for n in left] for row, value in zip(rows, values, strict=True)]
        matrix = [
            [sum(row[i] * row[j] for row in scaled) for j in range(len(left))]
            + [sum(row[i] for row in scaled)]
            for i in range(len(left))
        ]
        found = _solve(matrix)
        least = min(found)
        if least >= 0:
            factors = dict(zip(left, found, strict=True))
            return [factors.get(n, 0.0) for n in range(len(rows[0]))]
        # A negative factor cannot be distinguished from 0.
        del left[found.index(least)]


def _solve(matrix: list[list[float]]) -> list[float]:
    """Solve linear equations by elimination; the last column is the right side."""
    size = len(matrix)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / matrix[column][column]
                matrix[row] = [
                    a - factor * b for a, b in zip(matrix[row], matrix[column], strict=True)
                ]
    return [matrix[n][size] / matrix[n][n] for n in range(size)]


# ---------------------------------------------------------------- a plan


@dataclass(frozen=True, slots=True)
class Workload:
    """The load of a cluster.

    Attributes:
        name: Name in the tables.
        connections: Open connections. Each is a member of one topic.
        published: Messages per second, on all topics.
        members: Connections per topic, each of which receives every message of the topic.
        batch: Messages of different topics that a publisher sends at once.
    """

    name: str
    connections: int
    published: float
    members: int
    batch: int = 1

    @property
    def delivered(self) -> float:
        """Messages per second that have a receiver."""
        return self.published * self.members


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources that a workload needs on all nodes together.

    Attributes:
        nodes: Server processes, one core each.
        cores_idle: Cores for idle connections.
        cores_publishing: Cores that accept messages.
        cores_delivering: Cores that deliver messages.
        memory: GiB of the processes.
        kernel: GiB of the kernel for the sockets.
        shards: Redis processes, one core each.
        cores_redis: Cores of Redis.
        redis_memory: GiB of presence in Redis, without history.
        out: Gbit/s to clients.
        between: Gbit/s between nodes and Redis.
    """

    nodes: int
    cores_idle: float
    cores_publishing: float
    cores_delivering: float
    memory: float
    kernel: float
    shards: int
    cores_redis: float
    redis_memory: float
    out: float
    between: float


def listeners(nodes: int, members: float) -> float:
    """Average number of nodes with at least one member, if members connect to random nodes."""
    return nodes * (1 - float((1 - 1 / nodes) ** members))


def plan(work: Workload, costs: Costs, *, per_node: int) -> Needs:
    """Return the smallest cluster for a workload.

    Args:
        work: The workload.
        costs: The measured costs.
        per_node: Maximum connections per node.
    """
    nodes = max(1, ceil(work.connections / per_node))
    while True:
        needs = _needs(work, costs, nodes)
        busy = needs.cores_idle + needs.cores_publishing + needs.cores_delivering
        if busy <= nodes * BUSY:
            return needs
        nodes = max(nodes + 1, ceil(busy / BUSY))


def _needs(work: Workload, costs: Costs, nodes: int) -> Needs:
    delivering_nodes = listeners(nodes, work.members)
    here = work.members / delivering_nodes
    # At the load of a plan, a node mostly receives one message per read.
    delivering = costs.delivering(1, 1, here, here)
    redis = work.published * costs.redis(work.batch, delivering_nodes) / 1e6
    packets = work.delivered * (FRAME + PACKET) + work.connections / PING * (2 + PACKET)
    between = work.published * (costs.to_redis + delivering_nodes * costs.from_redis)
    return Needs(
        nodes=nodes,
        cores_idle=work.connections * costs.idle / 1e6,
        cores_publishing=work.published * costs.publishing(work.batch) / 1e6,
        cores_delivering=work.published * delivering_nodes * delivering / 1e6,
        memory=work.connections * costs.memory / 2**20,
        kernel=work.connections * costs.kernel / 2**20,
        shards=max(1, ceil(redis / BUSY)),
        cores_redis=redis,
        redis_memory=work.connections * costs.redis_memory / 2**20,
        out=packets * 8 / 1e9,
        between=between * 8 / 1e9,
    )
