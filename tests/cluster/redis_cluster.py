"""A real Redis Cluster for one test, which can kill its servers and move its slots."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.crc import key_slot

from tests.cluster.store import Store
from tests.cluster.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

SLOTS = 16_384
PRIMARIES = 3
NODE_TIMEOUT = 3_000
"""Milliseconds after which the servers consider another one failed.

On a busy machine, a server may get no CPU time for more than a second.
"""


class Cluster:
    """Three primaries, and a replica of the first.

    Args:
        kind: See `Store`.
        folder: Folder for their files.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.servers = [
            Store(
                kind,
                folder / str(number),
                *("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT)),
                *("--cluster-port", str(free_port()), "--cluster-require-full-coverage", "no"),
                # An election waits for at most a second, and a replica is always eligible.
                *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            )
            for number in range(PRIMARIES + 1)
        ]
        self.url = self.servers[0].url
        self.ids: list[str] = []

    async def start(self) -> None:
        """Start it, and wait until it has all slots and its replica."""
        for server in self.servers:
            server.folder.mkdir(parents=True)
        await asyncio.gather(*(server.start() for server in self.servers))
        self.ids = [(await server.command("CLUSTER", "MYID")).decode() for server in self.servers]
        share = -(-SLOTS // PRIMARIES)
        for number, server in enumerate(self.servers[:PRIMARIES]):
            last = min(SLOTS, (number + 1) * share) - 1
            await server.command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        roles: dict[str, tuple[str, str]] = dict.fromkeys(self.ids, ("master", "-"))
        # A server forgets another one that does not finish the handshake in time.
        while True:
            await self._meet()
            with suppress(TimeoutError):
                async with asyncio.timeout(NODE_TIMEOUT / 1000):
                    await self._agree(roles)
                    break
        for server in self.servers:
            await until(partial(self._is_up, server), True)
        await self.replica.command("CLUSTER", "REPLICATE", self.ids[0])
        await until(self._replicating, True)
        # A primary ignores a hand-over that a server requests before it knows its replica.
        roles[self.ids[PRIMARIES]] = ("slave", self.ids[0])
        await self._agree(roles)

    @property
    def replica(self) -> Store:
        """The replica of the first primary."""
        return self.servers[PRIMARIES]

    async def end(self) -> None:
        """Stop all servers."""
        await asyncio.gather(*(server.end() for server in self.servers))

    async def owner(self, key: str) -> int:
        """Return the number of the server that has this key, in the view of most servers."""
        slot = key_slot(key.encode())
        for start, end, primary, *_ in await self.servers[1].command("CLUSTER", "SLOTS"):
            if start <= slot <= end:
                return self.ids.index(primary[2].decode())
        raise AssertionError(f"nobody has slot {slot}")

    @asynccontextmanager
    async def moving(self, key: str, to: int) -> AsyncGenerator[None]:
        """Start to move the slot of a key to another primary; finish at the end of the context."""
        slot, source = key_slot(key.encode()), self.servers[await self.owner(key)]
        target = self.servers[to]
        await target.command(
            "CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[self.servers.index(source)]
        )
        await source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[to])
        yield
        while keys := await source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            await source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for server in (target, source, *self.servers[:PRIMARIES]):
            await server.command("CLUSTER", "SETSLOT", slot, "NODE", self.ids[to])

    async def hand_over(self) -> None:
        """Make the replica take over; connections to the former primary stay open."""
        await self.replica.command("CLUSTER", "FAILOVER")
        await self.promoted()

    async def promoted(self) -> None:
        """Wait until the replica has taken over the slots of the first primary."""
        await until(self._promoted, True)

    def report(self) -> str:
        """Return the end of the log of each server."""
        return "\n".join(
            "\n".join([f"Server {number} ({id}):", *server.last_lines(20)])
            for number, (id, server) in enumerate(zip(self.ids, self.servers, strict=False))
        )

    async def _promoted(self) -> bool:
        for start, _, primary, *_ in await self.servers[1].command("CLUSTER", "SLOTS"):
            if start == 0:
                return bool(primary[2].decode() == self.ids[PRIMARIES])
        return False

    async def _meet(self) -> None:
        """Introduce the other servers to the first one."""
        for server in self.servers[1:]:
            port, bus = server.port, server.option("--cluster-port")
            await self.servers[0].command("CLUSTER", "MEET", "127.0.0.1", port, bus)

    async def _agree(self, roles: dict[str, tuple[str, str]]) -> None:
        """Wait until all servers see these roles, and no failure."""
        for server in self.servers:
            await until(partial(self._roles, server), roles)

    async def _roles(self, server: Store) -> dict[str, tuple[str, str]]:
        """Return the flags and the primary of each server, in the view of one."""
        lines = (await server.command("CLUSTER", "NODES")).decode().splitlines()
        fields = [line.split(" ") for line in lines]
        return {
            id: (flags.removeprefix("myself,"), primary) for id, _, flags, primary, *_ in fields
        }

    async def _is_up(self, server: Store) -> bool:
        output = (await server.command("CLUSTER", "INFO")).decode()
        return "cluster_state:ok" in output and f"cluster_slots_assigned:{SLOTS}" in output

    async def _replicating(self) -> bool:
        output: Any = (await self.replica.command("INFO", "replication")).decode()
        return "master_link_status:up" in output


@asynccontextmanager
async def redis_cluster(kind: str, folder: Path) -> AsyncGenerator[Cluster]:
    """Run a cluster, and stop it at the end of the context."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(kind, folder)
        stack.push_async_callback(cluster.end)
        try:
            async with asyncio.timeout(60):
                await cluster.start()
            yield cluster
        except BaseException as error:
            error.add_note(cluster.report())
            raise
