"""An SP peer written from the wire format, and the URLs of every transport."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

HELLO_PUB = bytes.fromhex("0053500000200000")
HELLO_SUB = bytes.fromhex("0053500000210000")
PLAIN = ("tcp", "ipc", "abstract", "ws")
TRANSPORTS = (*PLAIN, "tls+tcp", "wss")

_names = itertools.count()


def url(scheme: str, folder: Path) -> str:
    """Return a free address to listen at."""
    name = f"sp-{folder.name}-{next(_names)}"
    return {
        "ipc": f"ipc://{folder}/{name}",
        "abstract": f"abstract://{name}",
        "ws": "ws://127.0.0.1:0/feed",
        "wss": "wss://localhost:0/feed",
        "tls+tcp": "tls+tcp://localhost:0",
    }.get(scheme, f"{scheme}://127.0.0.1:0")


class Bare:
    """A stream connection on which the test writes and reads raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, target: str, tls: ssl.SSLContext | None = None) -> Self:
        if target.startswith("ipc://"):
            return cls(*await asyncio.open_unix_connection(target.removeprefix("ipc://")))
        parts = urlsplit(target)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, ssl=tls))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(60):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Return all data until the other side closes."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""
