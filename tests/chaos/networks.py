"""TCP proxies on which faults act: between a client and its node, or between a node and Redis."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from typing import TYPE_CHECKING, Final

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

SLICE: Final = 48
SLICE_EVERY: Final = 0.01
FLAP_EVERY: Final = 0.04
LATE: Final = 0.2
"""Maximum seconds by which `lag` delays data."""
LATE_ONE_IN: Final = 2
LISTENS: Final = b"SSUBSCRIBE"
"""The command of Redis that listens to a channel."""
CHUNK: Final = 65_536
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER value: the connection ends with RST, and unsent data is discarded."""
HOST: Final = "127.0.0.1"


class _Connection:
    """Both ends of a proxied connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self.dead = False
        # Whether it has subscribed to a channel of Redis.
        self.listens = False

    def close(self) -> None:
        """Send FIN to both ends."""
        for writer in self.writers:
            writer.close()

    def reset(self) -> None:
        """Send RST to both ends."""
        for writer in self.writers:
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


class Wire:
    """Forwards one port to another.

    Args:
        target: The port to forward to.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self._listener: socket.socket | None = None
        # Accepted, and not yet in a task.
        self._accepted: set[socket.socket] = set()
        # Bound without listening: the port refuses connections, and remains reserved.
        self._held_port: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Number of active faults of each kind, because faults may overlap.
        self._refusing = self._swallowing = self._trickling = self._lagging = (
            self._swallowing_feed
        ) = 0
        self._held = {True: 0, False: 0}
        self._open = {True: asyncio.Event(), False: asyncio.Event()}
        for event in self._open.values():
            event.set()

    async def start(self) -> None:
        """Start accepting connections."""
        self._release_port()
        # A server of asyncio that closes forgets the connections that it is just accepting: they
        # stay open until the garbage collector finds them.
        listener = self._listener = socket.create_server((HOST, self.port), backlog=512)
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def end(self) -> None:
        """Stop accepting, and close every connection."""
        self._stop_accepting()
        self._release_port()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for accepted in self._accepted:
            accepted.close()

    def _stop_accepting(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()

    @property
    def used(self) -> bool:
        """Whether there is a connection that is not dead."""
        return any(not each.dead and len(each.writers) > 1 for each in self._connections)

    # ------------------------------------------------------------ faults

    def cut(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()

    def reset(self, *, calls: bool = False) -> None:
        """Reset every connection; with `calls`, only those that do not listen."""
        for connection in list(self._connections):
            if not (calls and connection.listens):
                connection.reset()

    async def refuse(self, on: bool) -> None:
        """Reset every connection, and refuse new ones until the fault is undone."""
        self._refusing += 1 if on else -1
        if on and self._refusing == 1 and self._listener is not None:
            self._stop_accepting()
            self._hold_port()
            self.reset()
        elif not self._refusing and self._listener is None:
            await self.start()

    def _hold_port(self) -> None:
        held = self._held_port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Another process may have bound the port first.
        with contextlib.suppress(OSError):
            held.bind((HOST, self.port))

    def _release_port(self) -> None:
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def blackhole(self, on: bool) -> None:
        """Discard all data. Connections that are open meanwhile stay dead, without a FIN or RST."""
        self._swallowing += 1 if on else -1
        if on:
            for connection in self._connections:
                connection.dead = True

    def stall(self, on: bool) -> None:
        """Hold the data of both directions; deliver it when the fault is undone."""
        for inwards in self._held:
            self._hold(inwards, on)

    def one_way(self, on: bool) -> None:
        """Hold the data from the target; deliver it when the fault is undone."""
        self._hold(False, on)

    def trickle(self, on: bool) -> None:
        """Forward a few bytes at a time."""
        self._trickling += 1 if on else -1

    def lag(self, on: bool) -> None:
        """Delay some data of connections that do not listen, each by its own time.

        A call is then performed or answered later than calls and messages of other connections.
        """
        self._lagging += 1 if on else -1

    def blackhole_feed(self, on: bool) -> None:
        """Do to connections that listen what `blackhole` does to all."""
        self._swallowing_feed += 1 if on else -1
        if on:
            for connection in self._connections:
                connection.dead |= connection.listens

    def _hold(self, inwards: bool, on: bool) -> None:
        self._held[inwards] += 1 if on else -1
        if self._held[inwards]:
            self._open[inwards].clear()
        else:
            self._open[inwards].set()

    # ------------------------------------------------------------ forwarding

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:  # the client has left
            return
        self._accepted.add(accepted)
        task = asyncio.get_running_loop().create_task(self._pass_both(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_both(self, accepted: socket.socket) -> None:
        self._accepted.discard(accepted)
        reader, writer = await asyncio.open_connection(sock=accepted)
        connection = _Connection(writer)
        if self._refusing:  # accepted just before
            connection.reset()
            return
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
                if inwards and LISTENS in data:
                    connection.listens = True
                    connection.dead |= self._swallowing_feed > 0
                if self._lagging and not connection.listens and not random.randrange(LATE_ONE_IN):
                    await asyncio.sleep(LATE * random.random())
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
    """The network between one client and its node, or between one node and Redis.

    Args:
        *targets: The ports to forward to.
    """

    def __init__(self, *targets: int) -> None:
        self.wires = [Wire(target) for target in targets]

    @property
    def ports(self) -> list[int]:
        """Ports to connect to, in the order of the targets."""
        return [wire.port for wire in self.wires]

    async def start(self) -> None:
        """Start accepting connections."""
        for wire in self.wires:
            await wire.start()

    async def end(self) -> None:
        """Stop accepting, and close every connection."""
        await asyncio.gather(*(wire.end() for wire in self.wires))

    def move(self, targets: Iterable[int]) -> None:
        """Forward to other ports from now on, and close open connections."""
        for wire, target in zip(self.wires, targets, strict=True):
            wire.target = target
            wire.cut()

    async def suffer(self, kind: str, undone: Callable[[], Awaitable[object]]) -> None:
        """Apply one fault until it is undone.

        Args:
            kind: Kind of the fault.
            undone: Called once; its result is awaited before the fault is undone.

        Raises:
            ValueError: The fault is unknown.
        """
        if kind in {"flap", "flap_calls"}:
            await self._flap(undone, calls=kind == "flap_calls")
            return
        for wire in self.wires:
            await _set(wire, kind, on=True)
        try:
            await undone()
        finally:
            if kind not in {"cut", "reset"}:
                for wire in self.wires:
                    await _set(wire, kind, on=False)

    async def _flap(self, undone: Callable[[], Awaitable[object]], *, calls: bool) -> None:
        """Reset every connection soon after it opens; with `calls`, only those that do not listen.

        Calls to Redis, such as a replay, then fail while its messages still arrive.
        """

        async def resetting() -> None:
            while True:
                for wire in self.wires:
                    wire.reset(calls=calls)
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
        case "one_way":
            wire.one_way(on)
        case "trickle":
            wire.trickle(on)
        case "lag":
            wire.lag(on)
        case "blackhole_feed":
            wire.blackhole_feed(on)
        case _:
            raise ValueError(f"there is no fault {kind}")
