"""One address in front of a store, like a virtual IP or a proxy: another store may take over.

It can also disturb connections like a network: reset them, or discard their data.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.cluster.store import Store

MESSAGE: Final = re.compile(rb">3\r\n\$8\r\nsmessage\r\n\$\d+\r\n[^\r]*\r\n\$\d+\r\n[^\r]*\r\n")
"""A message of a channel, as the store sends it."""


class _Connection:
    """What a client has done on its connection."""

    def __init__(self) -> None:
        self.listens = False
        self.unanswered = False


class Front:
    """Forwards bytes.

    Args:
        store: The first store to forward to.

    Attributes:
        swallows: The data that is silently discarded: nothing, all bytes, or the messages of
            channels.
        unanswered: Discard what the store sends on each connection whose client has sent these
            bytes; `None` for no connection.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._late = asyncio.Event()
        self._to_hold: bytes | None = None
        self._held: asyncio.StreamWriter | None = None
        self.swallows: Literal["nothing", "all", "channels"] = "nothing"
        self.unanswered: bytes | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def turn(self, store: Store) -> None:
        """Forward to another store from now on, and close open connections."""
        self.store = store
        for writer in self._open:
            writer.transport.abort()

    def hold(self, word: bytes) -> asyncio.Event:
        """Hold the next request that contains these bytes until the event is set.

        This also holds later requests on its connection, but not a repetition on another one.
        """
        self._to_hold, self._held, self._late = word, None, asyncio.Event()
        return self._late

    def reset(self) -> None:
        """Reset open connections, in both directions."""
        for writer in self._open:
            sock = writer.get_extra_info("socket")
            # With a linger time of 0, closing sends a reset.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def end(self) -> None:
        """Close all connections."""
        self.turn(self.store)
        await asyncio.gather(*self._tasks)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, onwards = await asyncio.open_connection("127.0.0.1", self.store.port)
            self._open |= {writer, onwards}
            connection = _Connection()
            await asyncio.gather(
                self._pass_requests(reader, onwards, connection),
                self._pass_answers(there, writer, connection),
            )
            self._open -= {writer, onwards}
        writer.close()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self._to_hold is not None and self._to_hold in data:
                    self._to_hold, self._held = None, writer
                if self._held is writer:
                    await self._late.wait()
                connection.listens |= b"SSUBSCRIBE" in data
                connection.unanswered |= self.unanswered is not None and self.unanswered in data
                if self.swallows != "all":
                    writer.write(data)
                    await writer.drain()
        writer.close()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        drops_messages = False
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if connection.unanswered or self.swallows == "all":
                    continue
                drops_messages |= self.swallows == "channels" and connection.listens
                if drops_messages:
                    data = MESSAGE.sub(b"", data)
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def front(store: Store) -> AsyncGenerator[Front]:
    """Run an address in front of this store."""
    one = Front(store)
    server = await asyncio.start_server(one.serve, "127.0.0.1", one.port)
    try:
        yield one
    finally:
        server.close()
        await one.end()
