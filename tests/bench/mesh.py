"""The mesh beside Redis pub/sub and Zenoh: one of three nodes publishes, two receive, in turns."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pubsub_server.backplanes.mesh import opening
from pubsub_server.settings.sources import load
from pubsub_server.shared.envelopes import data_of
from pubsub_server.shared.requests import Draft
from pubsub_server.shared.wall_clock import now_ms
from tests.bench.tables import measured, table
from tests.cluster.store import Store
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

    from pubsub_server.backplane import Entry
    from pubsub_server.backplanes.mesh.backplane import MeshBackplane
    from tests.bench.processes import Json

TOPIC = "demo.bench"
MARK = "demo.mark"
"""Each node subscribes to this topic; its messages show that all earlier ones have arrived."""
SYSTEMS = ("mesh", "redis", "zenoh")
LABELS = {"mesh": "mesh", "redis": "Redis pub/sub", "zenoh": "Zenoh"}
INTERESTED = (0, 1, 2, 4)
RATE = 1_000
"""Messages per second."""
PAD = "x" * 160
_PATIENCE = 60.0


def measure(*, quick: bool) -> Json:
    turns, messages = (1, 1_000) if quick else (3, 10_000)
    found: dict[str, list[Json]] = {name: [] for name in SYSTEMS}
    for _ in range(turns):
        for name in SYSTEMS:
            found[name].append(_run(name, messages))
    return {
        "rate": RATE,
        "systems": {
            name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            for name, runs in found.items()
        },
        "bytes": {
            "mesh": asyncio.run(_bytes()),
            "redis": asyncio.run(_bytes_of_redis()),
            "zenoh": asyncio.run(_bytes_of_zenoh()),
        },
    }


def render(run: Json) -> str:
    rows = [
        [LABELS[name], *(f"{each[key]:,.0f}" for key in ("cpu_us", "p50_us", "p99_us"))]
        for name, each in run["systems"].items()
    ]
    wire = [
        [LABELS[name], *(f"{found[str(n)]:.0f}" for n in INTERESTED)]
        for name, found in run["bytes"].items()
    ]
    return "\n".join(
        [
            "### Mesh",
            "",
            "Three processes on one machine: one publishes messages of about 200 bytes, "
            f"{run['rate']:,} per second, and two receive each of them. The [mesh](mesh.md) also "
            "keeps history, detects duplicates and writes the envelope; the others pass bytes. "
            "The CPU time is that of all processes, including Redis, per delivered message."
            f"{measured(run)}",
            "",
            table(["", "CPU, µs", "p50, µs", "p99, µs"], rows),
            "",
            "Bytes per publish between five nodes. The columns are the number of other nodes that "
            "have a subscriber. The mesh counts its own frames; proxies count the bytes of the "
            "others in both directions. Redis is a sixth program between the nodes. A message of "
            "the mesh contains its envelope.",
            "",
            table(["", *map(str, INTERESTED)], wire),
        ]
    )


# ---------------------------------------------------------------- three processes


def _run(system: str, messages: int) -> Json:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        store = Store("redis", Path(folder)) if system == "redis" else None
        loop = asyncio.new_event_loop()
        if store is not None:
            loop.run_until_complete(store.start())
            port = store.port
        ends: list[Connection] = []
        processes: list[Any] = []
        try:
            for role in ("publish", "receive", "receive"):
                ours, theirs = context.Pipe()
                process = context.Process(target=_node, args=(system, role, port, messages, theirs))
                process.start()
                ends.append(ours)
                processes.append(process)
                assert ours.poll(_PATIENCE)
                ours.recv()
            before = 0.0 if store is None else loop.run_until_complete(_cpu_of(store))
            for each in ends:
                each.send("go")
            results: list[Json] = []
            for each in ends:
                assert each.poll(_PATIENCE + messages / RATE)
                results.append(each.recv())
            server = 0.0 if store is None else loop.run_until_complete(_cpu_of(store)) - before
            for each in ends:
                each.send("end")
        finally:
            for process in processes:
                process.join(10)
                process.kill()
            if store is not None:
                loop.run_until_complete(store.end())
            loop.close()
    latencies = sorted(each for result in results for each in result["latencies"])
    cpu = server + sum(result["cpu"] for result in results)
    assert len(latencies) == 2 * messages
    return {
        "cpu_us": cpu / len(latencies) * 1e6,
        "p50_us": latencies[len(latencies) // 2] / 1e3,
        "p99_us": latencies[len(latencies) * 99 // 100] / 1e3,
    }


async def _cpu_of(store: Store) -> float:
    """CPU time in seconds."""
    reported: Any = await store.command("INFO", "cpu")
    lines = (reported.decode() if isinstance(reported, bytes) else str(reported)).splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return float(fields["used_cpu_sys"]) + float(fields["used_cpu_user"])


def _node(system: str, role: str, port: int, messages: int, control: Connection) -> None:
    asyncio.run(
        {"mesh": _mesh, "redis": _redis, "zenoh": _zenoh}[system](role, port, messages, control)
    )


async def _play(
    role: str,
    messages: int,
    control: Connection,
    publish: Callable[[str], Awaitable[None]],
    latencies: list[int],
) -> None:
    """Publish or receive, and report the latencies in ns and the CPU time in s."""
    loop = asyncio.get_running_loop()
    control.send("ready")
    await loop.run_in_executor(None, control.recv)
    cpu = time.process_time()
    if role == "publish":
        # The other nodes have subscribed before this one was started.
        await asyncio.sleep(0.5)
        start = loop.time()
        for n in range(messages):
            late = start + n / RATE - loop.time()
            if late > 0:
                await asyncio.sleep(late)
            await publish(f"{time.monotonic_ns():020d}{PAD}")
    else:
        async with asyncio.timeout(_PATIENCE + messages / RATE):
            while len(latencies) < messages:  # noqa: ASYNC110 - threads append, too
                await asyncio.sleep(0.05)
    control.send({"latencies": latencies, "cpu": time.process_time() - cpu})
    await loop.run_in_executor(None, control.recv)


async def _open(*peers: str, listen: str = "0") -> tuple[MeshBackplane, str]:
    settings = load(
        {"dev": True, "backplane": "mesh", "mesh_listen": listen, "mesh_peer": ",".join(peers)}
    )
    backplane, bound = await opening.open_mesh(settings, now_ms)
    return backplane, str(bound)


def _draft(data: str) -> Draft:
    return Draft(TOPIC, "note", f'"{data}"'.encode(), None, None, None)


async def _mesh(role: str, port: int, messages: int, control: Connection) -> None:
    first = role == "publish"
    address = f"127.0.0.1:{port}"
    backplane, _ = await (_open(listen=address) if first else _open(address))
    latencies: list[int] = []

    def deliver(entry: Entry) -> None:
        if not first:
            latencies.append(time.monotonic_ns() - int(data_of(entry.body)[1:21]))

    async def publish(data: str) -> None:
        backplane.publish([_draft(data)], ("service", "bench"), lambda results: None)

    backplane.start(deliver)
    if not first:
        backplane.join(TOPIC)
        settled = backplane.mesh.announce()
        if settled is not None:
            await settled
    await _play(role, messages, control, publish, latencies)
    await backplane.close()


async def _redis(role: str, port: int, messages: int, control: Connection) -> None:
    from redis.asyncio import Redis

    client: Any = Redis(port=port, protocol=3)
    latencies: list[int] = []

    async def publish(data: str) -> None:
        await client.publish(TOPIC, data)

    if role == "publish":
        await client.ping()
        await _play(role, messages, control, publish, latencies)
    else:
        listener = client.pubsub(ignore_subscribe_messages=True)
        await listener.subscribe(TOPIC)

        async def read() -> None:
            async for message in listener.listen():
                latencies.append(time.monotonic_ns() - int(message["data"][:20]))

        task = asyncio.ensure_future(read())
        await _play(role, messages, control, publish, latencies)
        task.cancel()
        await asyncio.wait([task])
        await listener.aclose()
    await client.aclose()


async def _zenoh(role: str, port: int, messages: int, control: Connection) -> None:
    # Only `make bench` installs it.
    api: Any = importlib.import_module("zenoh")
    config = api.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    where = "listen/endpoints" if role == "publish" else "connect/endpoints"
    config.insert_json5(where, f'["tcp/127.0.0.1:{port}"]')
    session = await asyncio.to_thread(api.open, config)
    latencies: list[int] = []
    name = TOPIC.replace(".", "/")

    async def publish(data: str) -> None:
        session.put(name, data)

    def take(sample: Any) -> None:
        latencies.append(time.monotonic_ns() - int(sample.payload.to_bytes()[:20]))

    if role == "receive":
        session.declare_subscriber(name, take)
    await _play(role, messages, control, publish, latencies)
    await asyncio.to_thread(session.close)


# ---------------------------------------------------------------- bytes


async def _bytes() -> Json:
    first, address = await _open()
    nodes = [first, *[(await _open(address))[0] for _ in range(4)]]
    for each in nodes:
        each.start(lambda entry: None)
    found: dict[str, float] = {}
    async with asyncio.timeout(_PATIENCE):
        for interested in INTERESTED:
            for each in nodes[1 : 1 + interested]:
                each.join(TOPIC)
            while sum(each.link is not None for each in first.mesh.wanting(TOPIC)) < interested:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            before = first.mesh.forwarded_bytes
            for _ in range(100):
                draft = _draft(f"{time.monotonic_ns():020d}{PAD}")
                first.publish([draft], ("service", "bench"), lambda results: None)
            found[str(interested)] = (first.mesh.forwarded_bytes - before) / 100
    await asyncio.gather(*(each.close() for each in nodes))
    return found


class _Counter:
    """A proxy that counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()
        self.bytes = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *ended: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, other = await asyncio.open_connection("127.0.0.1", self._target)
        for pair in ((reader, other), (back, writer)):
            task = asyncio.ensure_future(self._pump(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.bytes += len(data)
                writer.write(data)
        finally:
            writer.close()


async def _cost(
    counter: _Counter,
    publish: Callable[[str, str], Awaitable[None]],
    received: Callable[[], bool],
    messages: int = 100,
) -> float:
    """Bytes per message: those of messages followed by a mark, less those of the mark alone."""

    async def batch(count: int) -> int:
        before = counter.bytes
        for _ in range(count):
            await publish(TOPIC, f"{time.monotonic_ns():020d}{PAD}")
            # Publish one at a time: some systems merge messages that are published together.
            await asyncio.sleep(0.002)
        await publish(MARK, "mark")
        while not received():  # noqa: ASYNC110 - other threads receive, too
            await asyncio.sleep(0.01)
        return counter.bytes - before

    async with asyncio.timeout(_PATIENCE):
        await batch(0)
        return (await batch(messages) - await batch(0)) / messages


async def _bytes_of_redis() -> Json:
    from redis.asyncio import Redis

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store("redis", Path(folder))
        await store.start()
        try:
            for interested in INTERESTED:
                async with _Counter(store.port) as counter:
                    found[str(interested)] = await _redis_cost(Redis, counter, interested)
        finally:
            await store.end()
    return found


async def _redis_cost(redis: Any, counter: _Counter, interested: int) -> float:
    clients = [redis(port=counter.port, protocol=3) for _ in range(5)]
    marks: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    async def read(listener: Any) -> None:
        async for message in listener.listen():
            if message["channel"] == MARK.encode():
                marks.append(1)

    for number, client in enumerate(clients[1:]):
        listener = client.pubsub(ignore_subscribe_messages=True)
        await listener.subscribe(MARK, *([TOPIC] if number < interested else []))
        tasks.append(asyncio.ensure_future(read(listener)))
    expected = iter(range(len(tasks), 1_000, len(tasks)))
    due = [0]

    async def publish(topic: str, data: str) -> None:
        await clients[0].publish(topic, data)
        if topic == MARK:
            due[0] = next(expected)

    cost = await _cost(counter, publish, lambda: len(marks) >= due[0])
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for client in clients:
        await client.aclose()
    return cost


async def _bytes_of_zenoh() -> Json:
    # Only `make bench` installs it.
    api: Any = importlib.import_module("zenoh")
    found: dict[str, float] = {}
    for interested in INTERESTED:
        port = free_port()
        first = await asyncio.to_thread(_zenoh_session, api, "listen", port)
        async with _Counter(port) as counter:
            found[str(interested)] = await _zenoh_cost(api, first, counter, interested)
        await asyncio.to_thread(first.close)
    return found


def _zenoh_session(api: Any, where: str, port: int) -> Any:
    config = api.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    # Otherwise the other nodes would connect to each other and bypass the proxy.
    config.insert_json5("scouting/gossip/enabled", "false")
    config.insert_json5(f"{where}/endpoints", f'["tcp/127.0.0.1:{port}"]')
    return api.open(config)


async def _zenoh_cost(api: Any, first: Any, counter: _Counter, interested: int) -> float:
    others = [
        await asyncio.to_thread(_zenoh_session, api, "connect", counter.port) for _ in range(4)
    ]
    marks: list[int] = []

    def receive(sample: Any) -> None:
        marks.append(1)

    def ignore(sample: Any) -> None:
        pass

    for number, each in enumerate(others):
        each.declare_subscriber(MARK.replace(".", "/"), receive)
        if number < interested:
            each.declare_subscriber(TOPIC.replace(".", "/"), ignore)
    due = [0]

    async def publish(topic: str, data: str) -> None:
        if topic == MARK:
            due[0] = len(marks) + len(others)
        first.put(topic.replace(".", "/"), data)

    # Until all nodes have announced their subscriptions, marks reach only some of them.
    async with asyncio.timeout(_PATIENCE):
        while len(marks) % len(others) or not marks:
            marks.clear()
            first.put(MARK.replace(".", "/"), "mark")
            await asyncio.sleep(0.5)
    cost = await _cost(counter, publish, lambda: len(marks) >= due[0])
    for each in others:
        await asyncio.to_thread(each.close)
    return cost
