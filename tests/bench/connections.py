"""Idle connections with presence: cost per connection, connections per second, and maximum."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hanzoai.pubsub.generated.defaults import LIMITS
from pubsub_server.auth.dev_tokens import load_key
from tests.bench.processes import Json, Worker, cpu_seconds, interleave, resident_kib, worker
from tests.bench.servers import real_server
from tests.bench.tables import met, table

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from tests.bench.servers import Server

BACKPLANES = ("memory", "Redis")
WARM = 200
"""Connections opened before the measurement, so that shared memory is already allocated."""
AT_ONCE = 64
"""Connections that one client process opens at the same time."""
WANTED = 95_000
SETTLE = 2.0
"""Time limit in seconds."""
PING = LIMITS.server_ping_interval / 1000
"""Seconds between two pings of the server, its default."""


def measure(*, quick: bool) -> Json:
    load = [round(os.getloadavg()[0], 2)]
    room: Json = {
        "date": datetime.now(UTC).date().isoformat(),
        "single": _single(500, 1, 1) if quick else _single(5_000, 2, 2),
        "held": _held(2, 1_000, 1) if quick else _held(5, 19_000, 4),
    }
    room["load"] = [*load, round(os.getloadavg()[0], 2)]
    return room


# ---------------------------------------------------------------- one process


def _single(connections: int, rounds: int, turns: int) -> Json:
    def run(backplane: str) -> Mapping[str, float]:
        with ExitStack() as stack:
            flags: dict[str, object] = {}
            redis = 0
            if backplane == "Redis":
                flags["redis_url"], redis = stack.enter_context(redis_server())
            server, key = stack.enter_context(served(**flags))
            crowd = stack.enter_context(worker("tests.bench.crowd"))
            _open(crowd, server, key, 0, WARM)
            pid = server.worker.pid
            pids = [pid, redis] if redis else [pid]
            before = [(resident_kib(pid), cpu_seconds(pid)) for pid in pids]
            opened = _open(crowd, server, key, WARM, connections)
            # Of the server, and of Redis if there is one.
            grown, used = [0.0, 0.0], [0.0, 0.0]
            for place, (process, (kib, cpu)) in enumerate(zip(pids, before, strict=True)):
                grown[place] = (resident_kib(process) - kib) / connections
                used[place] = (cpu_seconds(process) - cpu) / connections * 1e6
            idle = _idle([crowd], [pid], turns)
        return {
            "kib": grown[0],
            "redis_kib": grown[1],
            "accept_cpu_us": used[0],
            "accept_redis_cpu_us": used[1],
            "accept_per_second": connections / opened["seconds"],
            "p99_ms": opened["p99_ms"],
            "idle_cpu_us": idle["cpu_us"],
        }

    return {
        "connections": connections,
        "rounds": rounds,
        "baselines": interleave(BACKPLANES, rounds, run),
    }


# ---------------------------------------------------------------- many, over several processes


def _held(processes: int, each: int, turns: int) -> Json:
    """Several servers, each with its own process of clients."""
    with ExitStack() as stack:
        servers = [stack.enter_context(served(auth_deadline=60_000)) for _ in range(processes)]
        crowds = [stack.enter_context(worker("tests.bench.crowd")) for _ in servers]
        pids = [server.worker.pid for server, _ in servers]
        before = sum(map(resident_kib, pids))
        kernel = _kernel_kib()
        cpu = sum(map(cpu_seconds, pids))
        begin = time.monotonic()
        with ThreadPoolExecutor(processes) as threads:
            asked = [
                threads.submit(_open, crowd, server, key, 0, each, number + 1)
                for number, (crowd, (server, key)) in enumerate(zip(crowds, servers, strict=True))
            ]
            opened = [ask.result() for ask in asked]
        seconds = time.monotonic() - begin
        count = processes * each
        used = sum(map(cpu_seconds, pids)) - cpu
        grown = sum(map(resident_kib, pids)) - before
        idle = _idle(crowds, pids, turns)
        return {
            "processes": processes,
            "connections": count,
            "kib": grown / count,
            "kernel_kib": (_kernel_kib() - kernel) / count,
            "accept_per_second": count / seconds,
            "accept_cpu_us": used / count * 1e6,
            "p99_ms": max(each["p99_ms"] for each in opened),
            **{f"idle_{name}": value for name, value in idle.items()},
        }


def _idle(crowds: Sequence[Worker], pids: Sequence[int], turns: int) -> Json:
    """The cost of the connections while only pings are sent, for some pings per connection."""
    # First wait until the work of the last connections is done.
    _everybody(crowds, SETTLE)
    cpu = sum(map(cpu_seconds, pids))
    begin = time.monotonic()
    reported = _everybody(crowds, PING * turns)
    seconds = time.monotonic() - begin
    used = sum(map(cpu_seconds, pids)) - cpu
    connections, pings = (sum(each[name] for each in reported) for name in ("open", "pings"))
    if min(each["least"] for each in reported) < turns - 1:
        raise RuntimeError("a connection was not pinged in time")
    return {
        "seconds": seconds,
        "pings": pings,
        "cores": used / seconds,
        "cpu_us": used / seconds / connections * 1e6,
        "ping_cpu_us": used / pings * 1e6,
    }


def _everybody(crowds: Sequence[Worker], seconds: float) -> list[Json]:
    with ThreadPoolExecutor(len(crowds)) as threads:
        asked = [threads.submit(crowd.ask, do="idle", seconds=seconds) for crowd in crowds]
        return [ask.result() for ask in asked]


def _open(crowd: Worker, server: Server, key: str, first: int, count: int, source: int = 1) -> Json:
    reported = crowd.ask(
        do="open",
        port=urlsplit(server.ws).port,
        source=f"127.0.0.{source}",
        key=key,
        first=first,
        count=count,
        at_once=AT_ONCE,
    )
    if "error" in reported:
        raise RuntimeError(reported["error"])
    return reported


# ---------------------------------------------------------------- servers


@contextmanager
def served(**settings: object) -> Generator[tuple[Server, str]]:
    """The server, and the key that signs its tokens."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dev.key"
        key = load_key(file).decode()
        with real_server(dev_key_file=file, max_connections=100_000, **settings) as server:
            yield server, key


@contextmanager
def redis_server() -> Generator[tuple[str, int]]:
    """A Redis without persistence: its URL and its process."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is not installed (apt-get install redis-server)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "redis.sock"
        flags = f"--port 0 --unixsocket {path} --save --appendonly no".split()
        child = subprocess.Popen([program, *flags], stdout=subprocess.DEVNULL, cwd=folder)
        try:
            deadline = time.monotonic() + 20
            while not path.exists():
                if child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("redis-server does not start")
                time.sleep(0.01)
            yield f"unix://{path}", child.pid
        finally:
            child.terminate()
            child.wait()


def _kernel_kib() -> int:
    """Memory that the kernel has allocated for itself, including sockets, on the whole machine."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":") for line in lines)
    return int(found["Slab"].split()[0])


# ---------------------------------------------------------------- the tables


def render(room: Json) -> str:
    single, held = room["single"], room["held"]
    head = ["presence in", "KiB per connection", "CPU µs to accept one", "accepted per second",
            "p99 ms", "CPU µs per second, idle"]  # fmt: skip
    rows = [
        [
            name,
            f"{found['median']['kib']:.1f}",
            f"{found['median']['accept_cpu_us']:.0f}",
            f"{found['median']['accept_per_second']:,.0f}",
            f"{found['median']['p99_ms']:.0f}",
            f"{found['median']['idle_cpu_us']:.2f}",
        ]
        for name, found in single["baselines"].items()
    ]
    worst = max(found["median"]["kib"] for found in single["baselines"].values())
    return (
        "### Idle connections with presence\n\n"
        f"Measured on {room['date']}. Load average: {room['load'][0]:.1f} at the start, "
        f"{room['load'][1]:.1f} at the end. Every connection has its own token and user, and is a "
        "member of a topic that it shares with one other connection. The server pings each "
        f"connection every {PING:.0f} s, and each answers. One server process accepts "
        f"{single['connections']:,} connections, {AT_ONCE} at the same time; medians of "
        f"{single['rounds']} rounds. Memory is the growth of the server's resident memory.\n\n"
        f"{table(head, rows)}\n\n"
        f"Target: at most 6 KB (5.86 KiB) per connection ({met(worst <= 6000 / 1024)}: "
        f"{worst:.1f} KiB).\n\n{_holding(held)}"
    )


def _holding(held: Json) -> str:
    rows = [
        ["memory of the servers, KiB per connection", f"{held['kib']:.1f}"],
        ["memory of the kernel for both ends, KiB per connection", f"{held['kernel_kib']:.0f}"],
        [
            "connections accepted per second, clients on the same cores",
            f"{held['accept_per_second']:,.0f}",
        ],
        ["CPU µs to accept one", f"{held['accept_cpu_us']:.0f}"],
        ["answered pings per second", f"{held['idle_pings'] / held['idle_seconds']:,.0f}"],
        ["idle: CPU of all servers together, cores", f"{held['idle_cores']:.3f}"],
        ["idle: CPU µs per ping and answer", f"{held['idle_ping_cpu_us']:.1f}"],
    ]
    each = held["connections"] // held["processes"]
    cores = held["idle_cpu_us"] * WANTED / 1e6
    bound = "" if each < 19_000 else ", because the machine allows 20,000 open files per process"
    verdict = f"{met(cores < 0.1)}: {cores:.1%}"
    if held["connections"] < WANTED:
        verdict += f", calculated from {held['connections']:,}"
    return (
        f"{held['connections']:,} connections on {held['processes']} server processes, with the "
        f"clients in {held['processes']} further processes: {each:,} per process{bound}. Presence "
        f"is in memory. The connections are idle for {held['idle_seconds']:.0f} s.\n\n"
        f"{table(['', 'measured'], rows)}\n\n"
        f"Target: {WANTED:,} idle connections use less than 10 % of a core ({verdict})."
    )
