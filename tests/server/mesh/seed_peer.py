"""A peer that supports only opcodes 1 to 6, without the product's code."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from tests.server.protocols.peers import BOUND

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class SeedPeer:
    """Frames `[opcode][length u32][body]`; those with another opcode are skipped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.skipped = 0
        self.pings = 0

    def write(self, opcode: int, body: bytes = b"") -> None:
        self.writer.write(bytes((opcode,)) + len(body).to_bytes(4, "big") + body)

    def subscribe(self, *topics: bytes) -> None:
        self.write(2, names(*topics))

    def unsubscribe(self, *topics: bytes) -> None:
        self.write(4, names(*topics))

    def forward(self, data: bytes, *topics: bytes) -> None:
        self.write(6, bytes((len(topics),)) + names(*topics) + len(data).to_bytes(4, "big") + data)

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame of the six opcodes; answer pings."""
        async with asyncio.timeout(BOUND):
            while True:
                opcode, body = await self.raw()
                if opcode > 6:
                    self.skipped += 1
                elif (opcode, body) == (1, b"ping"):
                    self.pings += 1
                    self.write(1, b"pong")
                else:
                    return opcode, body

    async def raw(self) -> tuple[int, bytes]:
        """Return the next frame of any opcode."""
        opcode = (await self.reader.readexactly(1))[0]
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return opcode, await self.reader.readexactly(size)

    async def expect(self, opcode: int) -> bytes:
        """Return the body of the next frame, which must have this opcode."""
        found, body = await self.frame()
        assert found == opcode, (found, body)
        return body

    async def ended(self) -> None:
        """Wait until the other side closes; discard data meanwhile."""
        async with asyncio.timeout(BOUND):
            with suppress(ConnectionError):
                while await self.reader.read(65_536):
                    pass

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def names(*topics: bytes) -> bytes:
    """Encode topics as `[length u8][topic]`."""
    return b"".join(bytes((len(topic),)) + topic for topic in topics)


@asynccontextmanager
async def seed_peer(url: str) -> AsyncGenerator[SeedPeer]:
    """Dial a node at the address in its ready line."""
    host, port = url.removeprefix("mesh://").rsplit(":", 1)
    peer = SeedPeer(*await asyncio.open_connection(host.strip("[]"), int(port)))
    try:
        yield peer
    finally:
        await peer.close()


@asynccontextmanager
async def seed_listener() -> AsyncGenerator[tuple[str, asyncio.Queue[SeedPeer]]]:
    """Run a listening peer; yield its address and a queue of connections."""
    peers: asyncio.Queue[SeedPeer] = asyncio.Queue()
    came: list[SeedPeer] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(SeedPeer(reader, writer))
        peers.put_nowait(came[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", peers
    finally:
        server.close()
        # A node reconnects, so the queue may still contain connections.
        for peer in came:
            peer.writer.transport.abort()
