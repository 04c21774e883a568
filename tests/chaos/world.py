"""The servers of a run: store, nodes and the networks between them, with faults of processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from pubsub_server.auth import dev_tokens
from tests import forked
from tests.chaos.networks import HOST, Network
from tests.chaos.records import Loss
from tests.cluster.store import Store
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.chaos.plan import Fault, Plan

START_WITHIN: Final = 180.0
END_WITHIN: Final = 30.0
AGAIN_AFTER: Final = 0.2
LOOK_AGAIN_AFTER: Final = 0.02
RULES: Final = {
    "rules": [
        {
            "pattern": "team.<org_id>.**",
            "require": {"org_membership": "<org_id>"},
            "publish": True,
        }
    ]
}
FLAGS: Final = (
    *("--log-level", "warning", "--presence-timeout", "6s", "--server-ping-interval", "2s"),
    *("--sse-keepalive", "1s", "--publish-rate-service", "10000", "--publish-rate-user", "10000"),
    *("--drain-timeout", "2s", "--drain-spread", "200ms"),
)
DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always")


class Node:
    """One server, with the workers and the bus that it starts.

    Args:
        name: Name of the log.
        folder: Folder of the log.
        *flags: Options of the command line.
    """

    def __init__(self, name: str, folder: Path, *flags: str) -> None:
        self.ws_port, self.http_port = free_port(), free_port()
        self._log = folder / f"{name}.log"
        self._flags = flags
        self._process: forked.Server | None = None

    async def start(self) -> None:
        """Start the server, and wait until it accepts connections; retry if it cannot reach Redis.

        Raises:
            TimeoutError: The server does not start.
        """
        async with asyncio.timeout(START_WITHIN):
            while not await self._start():
                await self.end(signal.SIGKILL)
                await asyncio.sleep(AGAIN_AFTER)

    async def _start(self) -> bool:
        ports = ("--ws-port", str(self.ws_port), "--http-port", str(self.http_port))
        with self._log.open("ab") as log:
            self._process = await forked.serve("--dev", *ports, *self._flags, stderr=log)
        return b'"ready"' in await self._process.stdout.readline()

    @property
    def pids(self) -> list[int]:
        """The ids of its processes; the server's own id is first."""
        if self._process is None or self._process.returncode is not None:
            return []
        return [self._process.pid, *_children(self._process.pid)]

    async def end(self, number: signal.Signals) -> None:
        """Stop the server; kill the processes that are left after `END_WITHIN`."""
        process, self._process = self._process, None
        if process is None:
            return
        pids = [] if process.returncode is not None else [process.pid, *_children(process.pid)]
        _signal(pids[:1], number)
        try:
            async with asyncio.timeout(END_WITHIN):
                await process.wait()
        except TimeoutError:
            _signal(pids, signal.SIGKILL)
            await process.wait()
        except forked.ForksGone:
            # It was killed. The next start of a server, or the end of the run, raises the error.
            return


class World:
    """The processes of one run.

    Args:
        plan: The plan of the run.
        folder: Folder for their files.
        now: Returns the seconds since the start of the run.

    Attributes:
        losses: The times at which the store lost its data.
        links: Networks from each node to Redis.
    """

    def __init__(self, plan: Plan, folder: Path, now: Callable[[], float]) -> None:
        self.losses: list[Loss] = []
        self.links: list[Network] = []
        self.nodes: list[Node] = []
        self._plan = plan
        self._folder = folder
        self._now = now
        self._store: Store | None = None
        # Faults of the same process happen one after the other.
        self._locks = {name: asyncio.Lock() for name in ("node0", "node1", "store", "bus")}
        self._key = dev_tokens.load_key(folder / "dev.key")

    async def __aenter__(self) -> Self:
        plan, folder = self._plan, self._folder
        rules = folder / "rules.yaml"
        rules.write_text(json.dumps(RULES), encoding="utf-8")
        flags = [*FLAGS, "--rules", str(rules), "--dev-key-file", str(folder / "dev.key")]
        for name, value in plan.settings.items():
            flags += [f"--{name.replace('_', '-')}", str(value)]
        try:
            if plan.topology.startswith("redis"):
                await self._join(flags)
            elif plan.topology == "mesh":
                self._mesh(flags)
            elif plan.topology == "workers":
                flags += ["--workers", "2"]
                self.nodes.append(Node("node0", folder, *flags))
            else:
                self.nodes.append(Node("node0", folder, *flags))
            await asyncio.gather(*(node.start() for node in self.nodes))
            if plan.topology == "mesh":
                await asyncio.gather(*map(_met, self.nodes))
        except BaseException:
            await self._end()
            raise
        return self

    async def _join(self, flags: list[str]) -> None:
        durable = self._plan.durable
        options = DURABLE if durable else ()
        self._store = Store(self._plan.store, self._folder / "store", *options)
        await self._store.start()
        for number in range(self._plan.nodes):
            link = Network(self._store.port)
            await link.start()
            self.links.append(link)
            url = ("--redis-url", f"redis://127.0.0.1:{link.ports[0]}", "--redis-shards", "4")
            more = ("--redis-durable",) if durable else ()
            self.nodes.append(Node(f"node{number}", self._folder, *flags, *url, *more))

    def _mesh(self, flags: list[str]) -> None:
        listen, other = free_port(), free_port()
        for number in range(self._plan.nodes):
            ports = ("--mesh-listen", str(listen), "--mesh-peer", f"{HOST}:{other}")
            node = Node(f"node{number}", self._folder, *flags, "--backplane", "mesh", *ports)
            self.nodes.append(node)
            listen, other = other, listen

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        for node in self.nodes:
            # Workers drain when their supervisor is gone; don't wait for that.
            pids = node.pids
            await node.end(signal.SIGKILL)
            _signal(pids[1:], signal.SIGKILL)
        for link in self.links:
            await link.end()
        if self._store is not None:
            await self._store.end()

    def token(self, user: str, *, insider: bool = True, admin: bool = False) -> str:
        """Create a token for a client of this run."""
        orgs = ("blue" if insider else "red",)
        return dev_tokens.mint(self._key, user, kind="admin" if admin else "user", orgs=orgs)

    def ports(self, node: int) -> list[int]:
        """Return the ports of a node: WebSocket, then HTTP."""
        return [self.nodes[node].ws_port, self.nodes[node].http_port]

    # ------------------------------------------------------------ faults of processes

    async def suffer(self, fault: Fault) -> None:
        """Apply a fault to a node, worker, bus, store or link until it is undone.

        Raises:
            ValueError: There is no such fault.
        """
        match fault.on:
            case "store":
                async with self._locks["store"]:
                    await self._store_suffers(fault)
            case "worker" | "bus":
                async with self._locks["bus"]:
                    await self._child_suffers(fault)
            case on if on.startswith("link"):
                links = self.links if on == "link*" else [self.links[int(on[4:])]]
                undone = partial(asyncio.sleep, fault.lasts)
                await asyncio.gather(*(link.suffer(fault.kind, undone) for link in links))
            case on:
                async with self._locks[on]:
                    await self._node_suffers(self.nodes[int(on[4:])], fault)

    async def _node_suffers(self, node: Node, fault: Fault) -> None:
        alone = not self._plan.topology.startswith("redis")
        if fault.kind == "stop":
            # Stop all processes of the server for this time.
            await _pause(node.pids, fault.lasts)
            return
        begun = self._now()
        await node.end(signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
        await asyncio.sleep(fault.lasts)
        await node.start()
        if alone:
            self.losses.append(Loss(begun, self._now()))

    async def _child_suffers(self, fault: Fault) -> None:
        wanted = b"--worker" if fault.on == "worker" else b"unixsocket:"
        pids = sorted(pid for pid in self.nodes[0].pids[1:] if wanted in _command(pid))
        if not pids:
            return
        if fault.kind == "stop":
            await _pause(pids[:1], fault.lasts)
            return
        begun = self._now()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)
        if fault.on == "bus":
            await self._replaced(pids[0])
            self.losses.append(Loss(begun, self._now()))

    async def _replaced(self, bus: int) -> None:
        """Wait until the server has started a new bus that accepts connections."""
        async with asyncio.timeout(START_WITHIN):
            while True:
                for pid in self.nodes[0].pids[1:]:
                    address = _address(pid)
                    if pid != bus and address and await _answers(address):
                        return
                await asyncio.sleep(LOOK_AGAIN_AFTER)

    async def _store_suffers(self, fault: Fault) -> None:
        store = self._store
        assert store is not None
        if fault.kind == "stop":
            store.stall()
            try:
                await asyncio.sleep(fault.lasts)
            finally:
                store.go_on()
            return
        begun = self._now()
        if fault.kind == "flush":
            await store.command("FLUSHALL")
        else:
            await store.end(signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
            await asyncio.sleep(fault.lasts)
            await store.start()
        if fault.kind == "flush" or not self._plan.durable:
            self.losses.append(Loss(begun, self._now()))


async def _met(node: Node) -> None:
    """Wait until a node of a mesh is connected to the other one."""
    url = f"http://{HOST}:{node.http_port}/metrics"
    async with asyncio.timeout(START_WITHIN), httpx.AsyncClient(trust_env=False) as http:

        async def connected() -> bool:
            return "hanzo_pubsub_mesh_peers 1." in (await http.get(url)).text

        await until(connected)


async def _pause(pids: list[int], seconds: float) -> None:
    """Stop some processes with SIGSTOP, and continue them."""
    _signal(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(each) for each in listed.split()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _address(pid: int) -> str | None:
    """Return the socket of a bus; None for another process."""
    _, found, address = _command(pid).strip(b"\0 ").partition(b"unixsocket:")
    return address.decode() if found else None


async def _answers(address: str) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(address)
    except OSError:
        return False
    writer.close()
    return True


def logs(folder: Path) -> dict[str, Any]:
    """Return the output of each node."""
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.log"))}
