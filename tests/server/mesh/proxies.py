"""TCP proxies in front of nodes: they identify dialers, split the network, and count forwards."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import msgspec

from pubsub_server.shared.accepting import stop_accepting
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

FORWARDS = (6, 11)


class Network:
    """All connections between nodes, by the ids of both.

    Attributes:
        forwards: Every forward: source, destination, topic, bytes including the frame.
        apart: Whether two nodes cannot reach each other.
    """

    def __init__(self) -> None:
        self.forwards: list[tuple[str, str, str, int]] = []
        self.apart: Callable[[str, str], bool] = lambda one, other: False
        self._open: dict[asyncio.Task[None], tuple[str, str]] = {}

    def split(self, apart: Callable[[str, str], bool]) -> None:
        """Close the connections between nodes that are now apart."""
        self.apart = apart
        for task, (one, other) in list(self._open.items()):
            if apart(one, other):
                task.cancel()

    def opened(self, task: asyncio.Task[None], one: str, other: str) -> None:
        self._open[task] = (one, other)
        task.add_done_callback(lambda done: self._open.pop(done, None))


class Proxy:
    """The address that other nodes dial instead of the node."""

    def __init__(self, network: Network) -> None:
        self.address = ""
        self.target = ""
        self._network = network
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        await stop_accepting(self._server)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        finally:
            # If the task is cancelled before its first step, it cannot close the writer.
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other: asyncio.StreamWriter | None = None
        try:
            host, port = self.target.rsplit(":", 1)
            back, other = await asyncio.open_connection(host, int(port))
            first, second = await _frame(reader), await _frame(back)
            one, two = (str(msgspec.msgpack.decode(each[5:])["node"]) for each in (first, second))
            if self._network.apart(one, two):
                return
            task = asyncio.current_task()
            assert task is not None
            self._network.opened(task, one, two)
            other.write(first)
            writer.write(second)
            pumps = [
                asyncio.ensure_future(self._pump(reader, other, one, two)),
                asyncio.ensure_future(self._pump(back, writer, two, one)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in pumps:
                    each.cancel()
                await asyncio.wait(pumps)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if other is not None:
                other.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one: str, two: str
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                if frame[0] in FORWARDS:
                    topic = str(msgspec.msgpack.decode(frame[5:])[0])
                    self._network.forwards.append((one, two, topic, len(frame)))
                writer.write(frame)
                await writer.drain()


class Relay:
    """An address in front of a node, whose dialers can lose the node without its noticing."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.target = ""
        self.held = asyncio.Event()
        self._cut = False
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._dialers: list[asyncio.StreamWriter] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Disconnect all dialers, and accept no others. The node's connections swallow its data."""
        self._cut = True
        for writer in self._dialers:
            writer.transport.abort()

    def mend(self) -> None:
        """Accept dialers again."""
        self._cut = False

    def hold(self) -> None:
        """Hold what the dialers send; sets `held` when something is."""
        self._open.clear()

    def release(self) -> None:
        """Send to the node what was held."""
        self._open.set()

    async def __aenter__(self) -> Self:
        host, port = self.address.split(":")
        self._server = await asyncio.start_server(self._accept, host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_accepting(self._server)
        for task in self._pumps:
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        host, port = self.target.split(":")
        back, other = await asyncio.open_connection(host, int(port))
        self._dialers.append(writer)
        self._writers += (writer, other)
        for pump in (self._pump(reader, other, holds=True), self._pump(back, writer, holds=False)):
            self._pumps.add(asyncio.ensure_future(pump))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, holds: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if holds and not self._open.is_set():
                    self.held.set()
                    await self._open.wait()
                if not writer.transport.is_closing():
                    writer.write(data)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big"))
