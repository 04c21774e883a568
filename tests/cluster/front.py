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


class Front:
    """Forwards bytes.

    Args:
        store: The first store to forward to.

    Attributes:
        swallows: The data that is silently discarded: nothing, all bytes, what the store sends, or
            the messages of channels. A connection that has lost some of what the store sends gets
            no more of it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._late: asyncio.Event | None = None
        self._held: frozenset[asyncio.StreamWriter] = frozenset()
        self.swallows: Literal["nothing", "all", "answers", "channels"] = "nothing"
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def turn(self, store: Store) -> None:
        """Forward to another store from now on, and close open connections."""
        self.store = store
        for writer in self._open:
            writer.transport.abort()

    def hold(self) -> asyncio.Event:
        """Hold what open connections send until the event is set; new ones are not held."""
        self._held, self._late = frozenset(self._open), asyncio.Event()
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
            listens = asyncio.Event()
            await asyncio.gather(
                self._pass(reader, onwards, listens), self._pass(there, writer, None, listens)
            )
            self._open -= {writer, onwards}
        writer.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        says: asyncio.Event | None,
        listens: asyncio.Event | None = None,
    ) -> None:
        """Forward the bytes of one direction.

        Args:
            reader: The source.
            writer: The destination.
            says: Set when the client subscribes to a channel.
            listens: Whether the client has subscribed to a channel.
        """
        drops_messages = drops_answers = False
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self._late is not None and says is not None and writer in self._held:
                    await self._late.wait()
                if says is not None and b"SSUBSCRIBE" in data:
                    says.set()
                drops_answers = drops_answers or (self.swallows == "answers" and says is None)
                if drops_answers or self.swallows == "all":
                    continue
                if self.swallows == "channels" and listens is not None and listens.is_set():
                    drops_messages = True
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
