"""Memory of the server per idle connection that is authenticated and subscribed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.processes import Json, cpu_seconds, interleave, resident_kib, worker
from tests.bench.servers import peer_server, real_server

if TYPE_CHECKING:
    from collections.abc import Mapping

PEERS = {"websockets, bare": "broadcast", "asyncio transports, bare": "joined"}
BASELINES = ("hanzo-pubsub serve", *PEERS)


def measure(*, quick: bool) -> Json:
    connections, rounds = (500, 1) if quick else (5_000, 3)

    def run(name: str) -> Mapping[str, float]:
        kind = PEERS.get(name)
        start = real_server() if kind is None else peer_server(kind)
        with start as server, worker("tests.bench.readers") as readers:
            where = {"url": server.ws, "token": server.token}
            # The first connections allocate shared memory.
            readers.ask(do="open", **where, topics=["demo.idle.first"], count=100)
            before = resident_kib(server.worker.pid)
            cpu = cpu_seconds(server.worker.pid)
            readers.ask(do="open", **where, topics=["demo.idle"], count=connections)
            used = cpu_seconds(server.worker.pid) - cpu
            grown = resident_kib(server.worker.pid) - before
        return {"kib": grown / connections, "handshake_cpu_us": used / connections * 1e6}

    return {
        "connections": connections,
        "rounds": rounds,
        "baselines": interleave(BASELINES, rounds, run),
    }
