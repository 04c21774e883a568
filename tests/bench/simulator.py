"""A cluster in virtual time, from a seed: messages through its nodes, and the loss of a node.

Nodes are event loops: what arrives during one turn is handled in the next. So the size of bursts
results from the load, and so does the latency of messages. This module does no I/O.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from tests.bench.processes import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.capacity import Costs, Workload

CROSSING: Final = 300e-6
"""Seconds that a message travels to Redis and on to a node, without processing."""

ABANDONED: Final = 0.3
"""Share of the cost of accepting a client that is spent even if the client has given up: the
handshake, without token and subscription. An assumption."""


@dataclass(slots=True)
class Node:
    """The counters of one node.

    Attributes:
        published: Messages that it accepted.
        received: Messages from Redis.
        delivered: Messages to its connections.
        turns: Turns of its loop in which it received something.
        busy: Seconds of CPU.
    """

    published: int = 0
    received: int = 0
    delivered: int = 0
    turns: int = 0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The result of a run with messages.

    Attributes:
        seconds: Virtual duration.
        published: Messages.
        delivered: Messages to connections.
        crossed: Messages from Redis to nodes.
        nodes: The counters of each node.
        redis_busy: Seconds of CPU of all shards.
        late: Milliseconds from publish until written, p50 and p99.
    """

    seconds: float
    published: int
    delivered: int
    crossed: int
    nodes: Sequence[Node]
    redis_busy: float
    late: tuple[float, float]

    @property
    def burst(self) -> float:
        """Average number of messages that a node receives per turn."""
        return self.crossed / max(1, sum(node.turns for node in self.nodes))

    @property
    def cores(self) -> float:
        """CPU of all nodes, for messages."""
        return sum(node.busy for node in self.nodes) / self.seconds

    @property
    def busiest(self) -> float:
        """Share of its core that the busiest node uses."""
        return max(node.busy for node in self.nodes) / self.seconds


def run(work: Workload, costs: Costs, nodes: int, seconds: float, seed: int) -> Traffic:
    """Simulate messages for some seconds. Each member of a topic is on a random node.

    Args:
        work: The workload. The messages per read result from the simulation.
        costs: The measured costs.
        nodes: Number of nodes.
        seconds: Virtual duration.
        seed: Seed of the random generator.
    """
    random = Random(seed)
    # The share of the core that pings use is not available for messages.
    share = 1 - work.connections * costs.idle / 1e6 / nodes
    if share <= 0:
        raise ValueError(f"{nodes} nodes do not even keep {work.connections:,} connections")
    made = [Node() for _ in range(nodes)]
    taken: list[list[float]] = [[] for _ in range(nodes)]
    count = round(work.published * seconds)
    for first in range(0, count, work.batch):
        size = min(work.batch, count - first)
        taken[int(random.random() * nodes)] += [random.random() * seconds] * size
    coming: list[list[tuple[float, float, int]]] = [[] for _ in range(nodes)]
    crossed, calls = 0, 0
    for node, times in zip(made, taken, strict=True):
        times.sort()
        node.published = len(times)
        for left, batch in _turns(times, costs.publish_turn, costs.publish, share):
            calls += 1
            node.busy += (costs.publish_turn + costs.publish * len(batch)) / 1e6
            for begin in batch:
                places: dict[int, int] = {}
                for _ in range(work.members):
                    place = int(random.random() * nodes)
                    places[place] = places.get(place, 0) + 1
                crossed += len(places)
                for place, members in places.items():
                    coming[place].append((left + CROSSING, begin, members))
    late: list[float] = []
    delivered = 0
    for node, arrivals in zip(made, coming, strict=True):
        arrivals.sort()
        node.received = len(arrivals)
        at, free = 0, 0.0
        while at < len(arrivals):
            free = max(free, arrivals[at][0])
            first = at
            while at < len(arrivals) and arrivals[at][0] <= free:
                at += 1
            members = sum(arrival[2] for arrival in arrivals[first:at])
            node.delivered += members
            node.turns += 1
            spent = costs.deliver_turn + (costs.channel + costs.receive) * (at - first)
            spent += (costs.write + costs.deliver) * members
            node.busy += spent / 1e6
            free += spent / 1e6 / share
            late += [(free - arrival[1]) * 1000 for arrival in arrivals[first:at]]
        delivered += node.delivered
    redis = costs.redis_call * calls + costs.redis_message * count
    redis += costs.redis_listener * max(0, crossed - count)
    return Traffic(
        seconds,
        count,
        delivered,
        crossed,
        made,
        redis / 1e6,
        (percentile(late, 0.5), percentile(late, 0.99)) if late else (0.0, 0.0),
    )


def _turns(
    times: Sequence[float], turn: float, each: float, share: float
) -> list[tuple[float, Sequence[float]]]:
    """Yield what a loop handles at once, and the time at which it has finished."""
    done: list[tuple[float, Sequence[float]]] = []
    at, free = 0, 0.0
    while at < len(times):
        free = max(free, times[at])
        first = at
        while at < len(times) and times[at] <= free:
            at += 1
        free += (turn + each * (at - first)) / 1e6 / share
        done.append((free, times[first:at]))
    return done


# ---------------------------------------------------------------- a node is lost


@dataclass(frozen=True, slots=True)
class Storm:
    """How clients reconnect to the remaining nodes.

    Attributes:
        clients: Clients that were disconnected.
        back: Seconds after the loss at which each client was connected again, in order.
        attempts: Connections that they opened.
        given_up: Attempts that the client ended because they took too long.
        out: Clients that were not connected when the simulation ended.
        longest: Longest queue of clients at a node.
    """

    clients: int
    back: Sequence[float]
    attempts: int
    given_up: int
    out: int
    longest: int


@dataclass(frozen=True, slots=True)
class Manners:
    """How clients reconnect; the defaults of the SDKs.

    Attributes:
        base: Upper bound of the first delay in seconds. It doubles with each attempt.
        cap: Maximum upper bound of a delay in seconds.
        unhurried: Seconds. A delay is at most the square of the outage so far, divided by this.
        patience: Time limit of an attempt in seconds.
        spread: Seconds over which the node disconnects its clients; 0 for a node that is killed.
    """

    base: float = 1.0
    cap: float = 30.0
    unhurried: float = 160.0
    patience: float = 5.0
    spread: float = 0.0


@dataclass(slots=True)
class _Door:
    free: float = 0.0
    waiting: list[float] = field(default_factory=list[float])


def storm(
    clients: int,
    nodes: int,
    accept: float,
    seed: int,
    manners: Manners | None = None,
    horizon: float = 600.0,
) -> Storm:
    """Simulate the loss of a node, whose clients reconnect to the others.

    Args:
        clients: Clients of the lost node.
        nodes: Number of remaining nodes.
        accept: CPU µs of an otherwise idle core to accept one client.
        seed: Seed of the random generator.
        manners: How the clients reconnect.
        horizon: Seconds after which the simulation ends. If clients give up faster than the nodes
            accept them, it would never end by itself.
    """
    manners = manners or Manners()
    random = Random(seed)
    events: list[tuple[float, int, int, float]] = []
    for client in range(clients):
        cut = random.random() * manners.spread
        events.append((cut + random.random() * manners.base, client, 0, cut))
    heapq.heapify(events)
    doors = [_Door() for _ in range(nodes)]
    back: list[float] = []
    attempts = given_up = longest = 0
    while events:
        now, client, attempt, cut = heapq.heappop(events)
        if now > horizon:
            break
        attempts += 1
        door = doors[int(random.random() * nodes)]
        while door.waiting and door.waiting[0] <= now:
            heapq.heappop(door.waiting)
        begin = max(now, door.free)
        done = begin + accept / 1e6
        stays = done - now <= manners.patience
        # A node handles connections in order, including those whose client has given up.
        door.free = done if stays else begin + accept * ABANDONED / 1e6
        heapq.heappush(door.waiting, door.free)
        longest = max(longest, len(door.waiting))
        if stays:
            back.append(done)
            continue
        given_up += 1
        failed = now + manners.patience
        growing = max(2 * manners.base, (failed - cut) ** 2 / manners.unhurried)
        bound = min(manners.cap, manners.base * 2 ** (attempt + 1), growing)
        heapq.heappush(events, (failed + random.random() * bound, client, attempt + 1, cut))
    back.sort()
    return Storm(clients, back, attempts, given_up, clients - len(back), longest)
