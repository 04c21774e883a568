"""Peers of the byte protocols, written from the wire format, without the product's code."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

BOUND = float(os.environ.get("FAULT_PATIENCE", "60"))
"""Maximum seconds to wait for an event; fewer with a planted fault, which may prevent it."""


class Peer:
    """A connection that reads and writes whole frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(BOUND):
            return await self.reader.readexactly(size)

    async def ended(self) -> bytes:
        """Return the data until the server closes."""
        async with asyncio.timeout(BOUND):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def number(self, size: int) -> int:
        return int.from_bytes(await self.read(size), "big")


class EventPeer(Peer):
    """`[length u16][topic][length u32][payload]` in both directions."""

    def event(self, topic: bytes, payload: bytes = b"") -> None:
        self.write(len(topic).to_bytes(2, "big") + topic)
        self.write(len(payload).to_bytes(4, "big") + payload)

    async def next(self) -> tuple[bytes, bytes]:
        topic = await self.read(await self.number(2))
        return topic, await self.read(await self.number(4))


class HubPeer(Peer):
    """Requests are `[opcode][length u32][body]`; answers and pushes are `[opcode]` and fields."""

    def request(self, opcode: int, body: bytes) -> None:
        self.write(bytes((opcode,)) + len(body).to_bytes(4, "big") + body)

    async def subscribe(self, *topics: bytes) -> tuple[int, int]:
        self.request(4, names(*topics))
        assert await self.read(1) == b"\x05"
        return await self.number(8), await self.number(4)

    async def add(self, id: int, *topics: bytes) -> int:
        self.request(7, id.to_bytes(8, "big") + names(*topics))
        assert await self.read(1) == b"\x08"
        return await self.number(4)

    async def remove(self, id: int, *topics: bytes) -> int:
        self.request(9, id.to_bytes(8, "big") + names(*topics))
        assert await self.read(1) == b"\x0a"
        return await self.number(4)

    async def publish(self, data: bytes, *topics: bytes) -> int:
        self.request(2, names(*topics) + len(data).to_bytes(4, "big") + data)
        assert await self.read(1) == b"\x03"
        return await self.number(4)

    async def pushed(self) -> tuple[bytes, bytes]:
        assert await self.read(1) == b"\x06"
        topic = await self.read(await self.number(4))
        return topic, await self.read(await self.number(4))


def names(*topics: bytes) -> bytes:
    """Encode topics as `[n u8]`, then `[length u8][topic]` each."""
    return bytes((len(topics),)) + b"".join(bytes((len(each),)) + each for each in topics)


@asynccontextmanager
async def events(
    url: str, topic: bytes | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[EventPeer]:
    """Connect to an event stream; with a topic, subscribe to it."""
    async with _opened(url, tls) as streams:
        peer = EventPeer(*streams)
        if topic is not None:
            peer.event(topic)
        yield peer


@asynccontextmanager
async def hub(url: str) -> AsyncGenerator[HubPeer]:
    """Connect a client of the hub protocol."""
    async with _opened(url) as streams:
        yield HubPeer(*streams)


@asynccontextmanager
async def _opened(
    url: str, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    _, _, path = url.partition("+unix:")
    if path:
        reader, writer = await asyncio.open_unix_connection(path)
    else:
        host, _, port = url.partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.close()


async def until(holds: object) -> None:
    """Wait until a condition of this process holds."""
    assert callable(holds)
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
