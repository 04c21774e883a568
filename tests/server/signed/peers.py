"""Peers of signed topics, written from the wire format, without the product's code."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.server.protocols.peers import BOUND

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = b"\1" * 32
OWNER = bytes.fromhex("1a642f0e3c3af545e7acbd38b07251b3990914f1")
ID = bytes.fromhex("0ce8095306af56dbf740006772ab425b05b0dbebbbf585cd640c645459865ced")
TOPIC = bytes.fromhex("06e30a8a93f7803c40830f7f4e9b372538e1f75ed5a88df3e73f90891a7a2e4e")
NAME = f"signed.{TOPIC.hex()}"
HELLO = bytes.fromhex(
    "71622ee7e80a78abed74ba551f9410fca8bcf9537d920ad9ce28677c45579a0201439124cae2d9b0c9698af54232025c"
    "18098eae1661a07b01d3fb6bbadd40ab1b050000000000000068656c6c6f"
)
EMPTY = bytes.fromhex(
    "932bc4fea451ad7aacb93de567e99d6c0eee6cc5112d43bb1d69875d2326a55450a7dbeb1ffca3d6e8da42deb9d0df71"
    "041b66082e1a7714fce26a96cce978b21b0000000000000000"
)
FORGED = HELLO[:-1] + b"!"
SUBSCRIBER = bytes.fromhex(
    "630a380a147075627375622d746f7069632d61646472657373122006e30a8a93f7803c40830f7f4e9b372538e1f75ed5"
    "a88df3e73f90891a7a2e4e0a100a0b7075627375622d6d6f64651201010a150a107075627375622d7265616477726974"
    "65120100"
)
"""The headers of a subscriber of this topic, captured from a real node."""


def _field(key: str, value: bytes) -> bytes:
    name = key.encode()
    inner = b"\x0a" + bytes((len(name),)) + name + b"\x12" + bytes((len(value),)) + value
    return b"\x0a" + bytes((len(inner),)) + inner


def headers(
    topic: bytes = TOPIC,
    *,
    mode: int = 1,
    writes: bool = False,
    owner: bytes = OWNER,
    id: bytes = ID,
) -> bytes:
    """Return the bytes that open a stream."""
    body = _field("pubsub-topic-address", topic) + _field("pubsub-mode", bytes((mode,)))
    body += _field("pubsub-readwrite", bytes((writes,)))
    if writes:
        body += _field("pubsub-gsoc-owner", owner) + _field("pubsub-gsoc-id", id)
    size = len(body)
    return (bytes((size & 127 | 128, size >> 7)) if size > 127 else bytes((size,))) + body


PUBLISHER = headers(writes=True)


class Stream:
    """One end of a stream between nodes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.opening = b""

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(BOUND):
            return await self.reader.readexactly(size)

    async def headers(self) -> bytes:
        """Read a headers message, and return it with its length."""
        size, head = 0, b""
        while True:
            byte = await self.read(1)
            size |= (byte[0] & 127) << 7 * len(head)
            head += byte
            if byte[0] < 128:
                return head + await self.read(size)

    async def ended(self) -> bytes:
        """Return the remaining data until the other side closes."""
        async with asyncio.timeout(BOUND):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def stream(url: str, opening: bytes = b"") -> AsyncGenerator[Stream]:
    """Open a stream to a broker."""
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    end = Stream(*await asyncio.open_connection(host, int(port)))
    end.write(opening)
    try:
        yield end
    finally:
        end.close()


class Broker:
    """A broker node: accepts streams; the test controls it."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.open: list[Stream] = []
        self.port = 0

    @property
    def peer(self) -> str:
        return f"/ip4/127.0.0.1/tcp/{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = Stream(reader, writer)
        self.open.append(end)
        self.streams.put_nowait(end)

    async def next(self) -> Stream:
        """Return the next stream after answering its headers; `opening` has its first bytes."""
        async with asyncio.timeout(BOUND):
            end = await self.streams.get()
        end.opening = await end.headers()
        end.write(b"\0")
        return end


@asynccontextmanager
async def literal_broker() -> AsyncGenerator[Broker]:
    broker = Broker()
    server = await asyncio.start_server(broker.accept, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for each in broker.open:
            each.close()
