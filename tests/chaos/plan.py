"""The plan of a run: the clients, their publishes, and the faults with their times.

A plan depends only on a seed and a topology. It can be written to JSON and read from it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from tests.simulation.prng import Random

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Topology: TypeAlias = Literal["memory", "workers", "redis", "redis-aof", "redis-slow", "mesh"]
"""`redis-slow` is `redis-aof` with late and lost answers of Redis, and clients that change
subscriptions.
`mesh` has no fault that separates its nodes, because they may then lose messages.
"""
TOPOLOGIES: Final[tuple[Topology, ...]] = get_args(Topology)
Kind: TypeAlias = Literal["python", "typescript", "socket", "stream", "roamer", "http"]
"""The SDKs, raw readers of WebSockets and event streams, a raw reader that changes its
subscriptions, and a raw HTTP publisher.
"""
Json: TypeAlias = dict[str, Any]

SECONDS: Final = 9.0
MIXED: Final = ("team.blue.mixed0", "team.blue.mixed1", "team.blue.mixed2")
FRESH: Final = tuple(f"team.blue.fresh{number}" for number in range(12))
PATTERN: Final = "team.blue.*"
BRISK: Final[Json] = {"node_heartbeat": 500, "node_timeout": 2_000, "presence_grace": 1_500}
USUAL: Final[Json] = {"node_heartbeat": 2_000, "node_timeout": 8_000, "presence_grace": 5_000}
PATIENT: Final[Json] = USUAL | {"feed_timeout": 40_000}
LINK_FAULTS: Final = ("reset", "reset", "cut", "one_way", "flap_calls", "flap_calls")
"""Faults of the link between a node and a slow Redis; a repeated one is more frequent."""
MESHED: Final[Json] = {"mesh_ack_timeout": 5_000, "mesh_linger": 120_000}
"""A node does not give up another one that is stopped for seconds, and stays subscribed for clients
that are disconnected.
"""


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    Attributes:
        name: Name of the client, which is also the user of its token.
        kind: Kind of the client.
        topics: Topics to subscribe to; empty for a client that only publishes. A roamer has these
            at the end.
        node: Index of the node that it connects to.
        transport: Transport of an SDK: `auto` or `sse`.
        arrives: Seconds of the run at which it connects; 0 connects before the run.
        insider: Whether the client belongs to the organization that may read `team.blue.**`.
        restless: Seconds of the run until which a raw reader reconnects by itself, and a roamer
            also changes its subscriptions.
    """

    name: str
    kind: Kind
    topics: tuple[str, ...] = ()
    node: int = 0
    transport: str = "auto"
    arrives: float = 0.0
    insider: bool = True
    restless: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """Messages that one client publishes to one topic.

    Attributes:
        by: The client that publishes.
        topic: The topic.
        first: Seconds of the run at which the first burst is published.
        every: Seconds between two bursts.
        count: Number of bursts.
        burst: Messages per burst; they are published without waiting for each other.
        size: Characters of padding in each payload.
    """

    by: str
    topic: str
    first: float
    every: float
    count: int
    burst: int = 1
    size: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: Seconds of the run at which it starts.
        kind: On a network or link: `cut` (FIN), `reset` (RST), `flap` (repeated RST), `refuse`,
            `blackhole` (open connections stay dead), `stall`, `one_way` (only data from the target
            waits) or `trickle`. On a link also `lag` and `blackhole_feed`, see `Wire`, and
            `flap_calls` (`flap` of the connections that do not listen to channels). On a process:
            `stop` (SIGSTOP), `kill`, `term`. On the store also `flush`. On a client also `move` to
            another node.
        on: A client, `nodeN`, `linkN` (from node N to Redis), `worker`, `bus`, `store`, or `*`.
        lasts: Seconds until it is undone.
        to: The target node of `move`.
        name: Name by which other faults refer to this one.
        behind: Publication or fault that must be over before this fault starts.
        beyond: Fault that must be over before this fault is undone.
    """

    at: float
    kind: str
    on: str
    lasts: float = 0.0
    to: int = 0
    name: str = ""
    behind: str = ""
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run.

    Attributes:
        seed: The seed from which it was drawn.
        topology: The topology of the servers.
        seconds: Duration of publishes and faults.
        settings: Settings of the server.
        store: `redis` or `valkey`.
        clients: All clients.
        streams: The messages that they publish.
        faults: The faults in the order in which they start.
    """

    seed: int
    topology: Topology
    seconds: float
    settings: Json = field(default_factory=dict[str, Any])
    store: str = "redis"
    clients: tuple[Client, ...] = ()
    streams: tuple[Stream, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return 1 if self.topology in {"memory", "workers"} else 2

    @property
    def durable(self) -> bool:
        """Whether Redis has all acknowledged messages after a restart."""
        return self.topology in {"redis-aof", "redis-slow"}

    def only(self, kept: Collection[int]) -> Plan:
        """Return the same plan with only the faults at these indices."""
        faults = tuple(fault for n, fault in enumerate(self.faults) if n in kept)
        return replace(self, faults=faults)

    def to_json(self) -> Json:
        """Convert the plan to JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Plan:
        """Read a plan from JSON."""
        fields: Json = dict(given)
        clients: list[Json] = [
            {**one, "topics": tuple(one.get("topics", ()))} for one in given["clients"]
        ]
        fields["clients"] = tuple(Client(**one) for one in clients)
        fields["streams"] = tuple(Stream(**one) for one in given["streams"])
        fields["faults"] = tuple(Fault(**one) for one in given["faults"])
        return cls(**fields)


def draw(seed: int, topology: Topology) -> Plan:
    """Draw the plan of a seed."""
    return _Drawing(seed, topology).plan()


class _Drawing:
    def __init__(self, seed: int, topology: Topology) -> None:
        self._random = Random(seed * 8 + TOPOLOGIES.index(topology))
        self._seed = seed
        self._topology: Topology = topology
        self._redis = topology.startswith("redis")
        self._nodes = 1 if topology in {"memory", "workers"} else 2

    def _pick(self, *options: Any) -> Any:
        return options[self._random.below(len(options))]

    def _between(self, low: float, high: float) -> float:
        return round(low + (high - low) * self._random.below(1_000) / 1_000, 2)

    def plan(self) -> Plan:
        slow = self._topology == "redis-slow"
        # The node that loses only the connection on which it listens.
        cut_off = self._random.below(2) if slow and self._random.below(4) == 0 else None
        clients = self._roaming(cut_off) if slow else self._clients()
        streams = self._mixed_streams() if slow else self._streams(clients)
        settings = (PATIENT if cut_off is not None else self._pick(BRISK, BRISK, USUAL)) | {
            "history_max_messages": 1_000 if slow else self._pick(1_000, 1_000, 40)
        }
        if self._topology == "mesh":
            settings |= MESHED
        store = self._pick("redis", "valkey")
        disturbed = [one for one in clients if one.kind != "http"]
        if cut_off is not None:
            faults = self._blackholed_feed(cut_off)
        else:
            faults = self._slow(disturbed) if slow else self._faults(disturbed)
        # Faults that start late get their full duration.
        seconds = max([SECONDS, *(fault.at + fault.lasts for fault in faults)])
        return Plan(
            seed=self._seed,
            topology=self._topology,
            seconds=round(seconds, 2),
            settings=settings,
            store=store,
            clients=clients,
            streams=streams,
            faults=faults,
        )

    # ------------------------------------------------------------ clients

    def _clients(self) -> tuple[Client, ...]:
        found: list[Client] = []

        def add(kind: Kind, *topics: str, **more: Any) -> None:
            name = f"{kind}{sum(one.kind == kind for one in found)}"
            node = self._random.below(self._nodes)
            found.append(Client(name, kind, topics, node, **more))

        sdks: tuple[Kind, Kind] = ("python", "typescript")
        for kind in sdks:
            add(kind, "team.blue.busy", "team.blue.calm", self._fresh())
            add(kind, self._pick("team.blue.*", "team.**", "**.calm"))
            add(kind, self._fresh(), "team.blue.busy", transport=self._pick("auto", "sse"))
            late = self._between(0.5, SECONDS - 2)
            add(kind, "team.blue.busy", self._fresh(), arrives=late)
        for _ in range(2):
            add("socket", "team.blue.busy", self._fresh())
            add("stream", self._pick("team.blue.busy", self._fresh()))
        add("socket", "team.blue.calm", arrives=self._between(0.5, SECONDS - 2))
        add("socket", "team.*.busy", "team.blue.calm", insider=False)
        add("python", "team.**", insider=False)
        add("http")
        return tuple(found)

    def _roaming(self, cut_off: int | None) -> tuple[Client, ...]:
        found: list[Client] = []

        def add(kind: Kind, *topics: str, node: int, restless: float = 0.0) -> None:
            name = f"{kind}{sum(one.kind == kind for one in found)}"
            found.append(Client(name, kind, topics, node, restless=restless))

        # No client keeps a topic for the whole run: a node opens and forgets them. In half of the
        # runs, one keeps a pattern: it must receive what arrives while the replay of another fails.
        steady = self._pick(0, 1, None, None)
        for number in range(10):
            node = number % 2
            topics = self._pick((PATTERN,), MIXED[:2], (PATTERN, MIXED[0]), (MIXED[1], FRESH[0]))
            restless = self._between(3, SECONDS - 1)
            if cut_off is None and number == steady:
                topics, restless = (PATTERN,), 0.0
            if cut_off is not None:
                # The clients of this node watch all others. These settle before the node
                # receives their messages.
                restless = 0.0 if node == cut_off else 2.0
                topics = (PATTERN,) if node == cut_off else topics
            add("roamer", *topics, node=node, restless=restless)
        for number in range(2):
            topic = self._pick(*FRESH)
            add("stream", topic, node=number, restless=self._between(3, SECONDS - 1))
        add("python", node=0)
        add("typescript", node=1)
        add("http", node=0)
        return tuple(found)

    def _fresh(self) -> str:
        return f"team.blue.fresh{self._random.below(4)}"

    def _streams(self, clients: Sequence[Client]) -> tuple[Stream, ...]:
        writers = [
            one.name
            for one in clients
            if one.insider and one.arrives == 0 and one.kind in {"python", "typescript", "http"}
        ]
        found: list[Stream] = []
        for topic, every in (("team.blue.busy", 0.15), ("team.blue.calm", 0.6)):
            for by in {self._pick(*writers): None, self._pick(*writers): None}:
                count = int(SECONDS / every)
                size = self._pick(0, 20, 2_000)
                found.append(
                    Stream(
                        by, topic, self._between(0, every), every, count, self._pick(1, 1, 3), size
                    )
                )
        for number in range(4):
            # A topic of which some subscribers have received no message when the fault starts.
            first = self._between(0.5, SECONDS - 1.5)
            every = self._between(0.3, 2.5)
            count = max(1, min(4, int((SECONDS - first) / every)))
            by = self._pick(*writers)
            found.append(Stream(by, f"team.blue.fresh{number}", first, every, count))
        outsider = next(one.name for one in clients if not one.insider and one.kind == "python")
        found.append(Stream(outsider, "team.blue.busy", self._between(0.5, 4), 2.0, 2))
        return tuple(found)

    def _mixed_streams(self) -> tuple[Stream, ...]:
        found: list[Stream] = []
        for topic in MIXED:
            for by in ("python0", "typescript0"):
                every = self._between(0.15, 0.6)
                burst = self._pick(1, 1, 3)
                first = self._between(0, every)
                found.append(Stream(by, topic, first, every, int(SECONDS / every), burst))
        for topic in FRESH:
            by = self._pick("python0", "typescript0", "http0")
            first = self._between(0.3, SECONDS - 3)
            every = self._between(0.2, 1.0)
            found.append(Stream(by, topic, first, every, self._pick(1, 1, 3)))
        return tuple(found)

    # ------------------------------------------------------------ faults

    def _slow(self, clients: Sequence[Client]) -> tuple[Fault, ...]:
        """Delay the answers of Redis for the whole run, and interrupt connections for a moment."""
        found: list[Fault] = []
        for _ in range(8 + self._random.below(12)):
            on = self._pick("link0", "link1", "link0", "link1", "link*", "store", "client")
            if on == "client":
                name = self._pick(*clients).name
                kind = self._pick("cut", "reset", "move")
                found.append(Fault(self._when(), kind, name, to=self._random.below(2)))
            else:
                kind = "stop" if on == "store" else self._pick(*LINK_FAULTS)
                lasts = 0.0 if kind in {"reset", "cut"} else self._between(0.05, 1.0)
                found.append(Fault(self._when(lasts), kind, on, lasts))
        if self._random.below(6) == 0:
            found += self._process(clients)
        seconds = max([SECONDS, *(fault.at + fault.lasts for fault in found)])
        found.append(Fault(0.1, "lag", "link*", round(seconds - 0.1, 2)))
        return tuple(sorted(found, key=lambda one: one.at))

    def _blackholed_feed(self, node: int) -> tuple[Fault, ...]:
        """Disconnect a node from the channels of Redis.

        This lasts longer than the margin of its search for missed changes of presence. With a
        shorter `feed_timeout`, its clients would leave and get new snapshots.
        """
        lasts = self._between(13.0, 13.5)
        return (
            Fault(0.1, "lag", "link*", SECONDS),
            Fault(self._between(0.3, 0.6), "blackhole_feed", f"link{node}", lasts),
        )

    def _faults(self, clients: Sequence[Client]) -> tuple[Fault, ...]:
        scenes: list[Callable[[Sequence[Client]], list[Fault]]] = [self._network]
        if self._topology == "mesh":
            scenes += [self._network, self._pause]
        else:
            scenes += [self._process, self._lonely]
        if self._topology == "workers":
            scenes += [self._worker, self._worker]
        if self._redis:
            scenes += [self._link, self._link, self._store, self._moving, self._parted]
        found: list[Fault] = []
        for _ in range(1 + self._random.below(3)):
            found += self._pick(*scenes)(clients)
        return tuple(sorted(found, key=lambda one: one.at))

    def _when(self, lasts: float = 0.0) -> float:
        return self._between(0.3, max(0.6, SECONDS - 1.0 - lasts))

    def _network(self, clients: Sequence[Client]) -> list[Fault]:
        """Disturb the networks of some clients."""
        found: list[Fault] = []
        for _ in range(1 + self._random.below(4)):
            on = "*" if self._random.below(4) == 0 else self._pick(*clients).name
            kind = self._pick(
                *("cut", "reset", "flap", "refuse", "blackhole", "stall", "trickle", "one_way"),
            )
            lasts = 0.0 if kind in {"cut", "reset"} else self._between(0.1, 4.0)
            found.append(Fault(self._when(lasts), kind, on, lasts))
            if kind in {"cut", "reset"}:
                # Repeat the reset, so that one of them hits an answer in transit.
                for _ in range(self._random.below(5)):
                    found.append(Fault(self._when(), kind, on))
        return found

    def _process(self, clients: Sequence[Client]) -> list[Fault]:
        """Stop, kill or restart a node."""
        on = f"node{self._random.below(self._nodes)}"
        kind = self._pick("stop", "stop", "kill", "term")
        lasts = self._between(5.9, 7.5) if kind == "stop" else self._between(0.1, 3.0)
        if kind == "stop" and self._random.below(3) == 0:
            lasts = self._between(0.2, 3.0)
        return [Fault(self._when(lasts), kind, on, lasts)]

    def _pause(self, clients: Sequence[Client]) -> list[Fault]:
        """Stop a node for a moment."""
        on, lasts = f"node{self._random.below(self._nodes)}", self._between(0.2, 3.0)
        return [Fault(self._when(lasts), "stop", on, lasts)]

    def _worker(self, clients: Sequence[Client]) -> list[Fault]:
        """Stop or kill a worker, or the bus of the workers."""
        on = self._pick("worker", "worker", "bus")
        kind = self._pick("stop", "kill")
        lasts = (
            self._pick(self._between(0.1, 3.0), self._between(5.9, 7.5)) if kind == "stop" else 0
        )
        return [Fault(self._when(lasts), kind, on, lasts)]

    def _link(self, clients: Sequence[Client]) -> list[Fault]:
        """Disturb the links between nodes and Redis."""
        on = self._pick("link0", "link1", "link*")
        kind = self._pick(
            *("reset", "flap", "cut", "refuse", "blackhole", "stall", "trickle", "one_way"),
        )
        if kind in {"cut", "reset"}:
            return [Fault(self._when(), kind, on) for _ in range(1 + self._random.below(8))]
        lasts = self._between(0.2, 7.0)
        return [Fault(self._when(lasts), kind, on, lasts)]

    def _store(self, clients: Sequence[Client]) -> list[Fault]:
        """Stop, restart or empty Redis."""
        kind = self._pick("stop", "kill", "kill", "term", "flush")
        lasts = 0.0 if kind == "flush" else self._between(0.05, 4.0)
        return [Fault(self._when(lasts), kind, "store", lasts)]

    def _empty(self, at: float) -> Fault:
        """Return the fault that makes this topology lose its data."""
        if self._topology == "memory":
            return Fault(at, "kill", "node0", self._between(0.1, 1.5))
        if self._topology == "workers":
            return Fault(at, "kill", "bus")
        if self._topology == "redis-aof":
            return Fault(at, "flush", "store")
        return Fault(at, "kill", "store", self._between(0.05, 1.0))

    def _lonely(self, clients: Sequence[Client]) -> list[Fault]:
        """Disconnect some clients while the store loses its data."""
        away = {self._pick(*clients).name: None for _ in range(3)}
        lasts = self._between(1.5, 4.0)
        at = self._when(lasts)
        return [
            *(Fault(at, "refuse", name, lasts) for name in away),
            self._empty(round(at + self._between(0.6, 1.3), 2)),
        ]

    def _moving(self, clients: Sequence[Client]) -> list[Fault]:
        """Move clients to another node, then make the store lose its data."""
        to = self._random.below(2)
        at = self._when(2.0)
        moving = [one for one in clients if one.node != to] or list(clients)
        return [
            *(Fault(at, "move", one.name, to=to) for one in moving),
            self._empty(round(at + self._between(0.1, 1.2), 2)),
        ]

    def _parted(self, clients: Sequence[Client]) -> list[Fault]:
        """Let clients reconnect while their node cannot reach Redis."""
        node = self._random.below(2)
        lasts = self._between(2.5, 6.9)
        at = self._when(lasts)
        kind = self._pick("refuse", "blackhole", "stall")
        away = [one for one in clients if one.node == node and one.kind in {"stream", "python"}]
        return [
            *(Fault(at, "refuse", one.name, 1.0) for one in away),
            Fault(round(at + 0.5, 2), kind, f"link{node}", lasts),
        ]
