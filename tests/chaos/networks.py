"""TCP proxies that faults act on: between a client and its node, and between a node and Redis."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

from tests.cluster.store import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

SLICE: Final = 48
SLICE_EVERY: Final = 0.01
FLAP_EVERY: Final = 0.04
CHUNK: Final = 65_536
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: the connection ends with RST, and what was not sent is thrown away."""
HOST: Final = "127.0.0.1"


class _Connection:
    """Both ends of a connection that passes through."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self.dead = False

    def close(self) -> None:
        """Both ends get FIN."""
        for writer in self.writers:
            writer.close()

    def reset(self) -> None:
        """Both ends get RST."""
        for writer in self.writers:
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


class Wire:
    """One port that leads to another.

    Args:
        target: Port that it leads to.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self._server: asyncio.Server | None = None
        # Bound, and not listening: the port refuses connections, and stays ours.
        self._held_port: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # How many faults of a kind are in force: they may overlap.
        self._refusing = self._swallowing = self._trickling = 0
        self._held = {True: 0, False: 0}
        self._open = {True: asyncio.Event(), False: asyncio.Event()}
        for event in self._open.values():
            event.set()

    async def start(self) -> None:
        """Take connections."""
        self._release_port()
        self._server = await asyncio.start_server(self._serve, HOST, self.port, backlog=512)

    async def end(self) -> None:
        """Cut everything."""
        if self._server is not None:
            self._server.close()
        self._release_port()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def used(self) -> bool:
        """Whether a connection passes through that is not dead."""
        return any(not each.dead and len(each.writers) > 1 for each in self._connections)

    # ------------------------------------------------------------ faults

    def cut(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()

    def reset(self) -> None:
        """Reset every connection."""
        for connection in list(self._connections):
            connection.reset()

    async def refuse(self, on: bool) -> None:
        """Reset every connection, and refuse new ones until it is undone."""
        self._refusing += 1 if on else -1
        if on and self._refusing == 1 and self._server is not None:
            self._server.close()
            self._server = None
            self._hold_port()
            self.reset()
        elif not self._refusing and self._server is None:
            await self.start()

    def _hold_port(self) -> None:
        held = self._held_port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Another process may have been faster.
        with contextlib.suppress(OSError):
            held.bind((HOST, self.port))

    def _release_port(self) -> None:
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def blackhole(self, on: bool) -> None:
        """Swallow what passes; connections of that time stay dead without notice."""
        self._swallowing += 1 if on else -1
        if on:
            for connection in self._connections:
                connection.dead = True

    def stall(self, on: bool) -> None:
        """Hold what passes either way; it arrives when this is undone."""
        for inwards in self._held:
            self._hold(inwards, on)

    def deafen(self, on: bool) -> None:
        """Hold what comes back; it arrives when this is undone."""
        self._hold(False, on)

    def trickle(self, on: bool) -> None:
        """Pass a few bytes at a time."""
        self._trickling += 1 if on else -1

    def _hold(self, inwards: bool, on: bool) -> None:
        self._held[inwards] += 1 if on else -1
        if self._held[inwards]:
            self._open[inwards].clear()
        else:
            self._open[inwards].set()

    # ------------------------------------------------------------ passing on

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_both(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step closes nothing.
        task.add_done_callback(lambda _: writer.close())

    async def _pass_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        connection.dead = self._swallowing > 0
        self._connections.add(connection)
        try:
            if connection.dead:
                while await reader.read(CHUNK):
                    pass
                return
            await self._open[True].wait()
            there, onwards = await asyncio.open_connection(HOST, self.target)
            connection.writers.append(onwards)
            await asyncio.gather(
                self._pass(connection, reader, onwards, inwards=True),
                self._pass(connection, there, writer, inwards=False),
            )
        except OSError:
            connection.reset()
        finally:
            self._connections.discard(connection)
            connection.close()

    async def _pass(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        inwards: bool,
    ) -> None:
        try:
            while data := await reader.read(CHUNK):
                await self._open[inwards].wait()
                if connection.dead:
                    continue
                if self._trickling:
                    await self._trickle(data, writer)
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            connection.reset()
        if not connection.dead:
            with contextlib.suppress(OSError):
                writer.close()

    async def _trickle(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(data), SLICE):
            if not self._trickling:
                writer.write(data[start:])
                break
            writer.write(data[start : start + SLICE])
            await writer.drain()
            await asyncio.sleep(SLICE_EVERY)
        await writer.drain()


class Network:
    """What one client, or one node towards Redis, has between itself and the others.

    Args:
        *targets: Ports that it leads to.
    """

    def __init__(self, *targets: int) -> None:
        self.wires = [Wire(target) for target in targets]

    @property
    def ports(self) -> list[int]:
        """Ports to connect to, in the order of the targets."""
        return [wire.port for wire in self.wires]

    async def start(self) -> None:
        """Take connections."""
        for wire in self.wires:
            await wire.start()

    async def end(self) -> None:
        """Cut everything."""
        await asyncio.gather(*(wire.end() for wire in self.wires))

    def move(self, targets: Iterable[int]) -> None:
        """Lead elsewhere from now on; what is open is cut."""
        for wire, target in zip(self.wires, targets, strict=True):
            wire.target = target
            wire.cut()

    async def suffer(self, kind: str, undone: Callable[[], Awaitable[object]]) -> None:
        """One fault, until it is undone.

        Args:
            kind: What it is.
            undone: Done when it shall be undone; called once.

        Raises:
            ValueError: There is no such fault.
        """
        if kind == "flap":
            await self._flap(undone)
            return
        for wire in self.wires:
            await _set(wire, kind, on=True)
        try:
            await undone()
        finally:
            if kind not in {"cut", "reset"}:
                for wire in self.wires:
                    await _set(wire, kind, on=False)

    async def _flap(self, undone: Callable[[], Awaitable[object]]) -> None:
        """Reset every connection soon after it was opened."""

        async def resetting() -> None:
            while True:
                for wire in self.wires:
                    wire.reset()
                await asyncio.sleep(FLAP_EVERY)

        task = asyncio.get_running_loop().create_task(resetting())
        try:
            await undone()
        finally:
            task.cancel()


async def _set(wire: Wire, kind: str, *, on: bool) -> None:
    match kind:
        case "cut":
            wire.cut()
        case "reset":
            wire.reset()
        case "refuse":
            await wire.refuse(on)
        case "blackhole":
            wire.blackhole(on)
        case "stall":
            wire.stall(on)
        case "deafen":
            wire.deafen(on)
        case "trickle":
            wire.trickle(on)
        case _:
            raise ValueError(f"there is no fault {kind}")
