"""One address in front of a store, as a virtual IP or a proxy is: another store may take over."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.cluster.store import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.cluster.store import Store


class Front:
    """Passes bytes on.

    Args:
        store: To this one first.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def turn(self, store: Store) -> None:
        """To another from now on; what is open is cut."""
        self.store = store
        for writer in self._open:
            writer.transport.abort()

    async def end(self) -> None:
        """Cut all."""
        self.turn(self.store)
        await asyncio.gather(*self._tasks)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, onwards = await asyncio.open_connection("127.0.0.1", self.store.port)
            self._open |= {writer, onwards}
            await asyncio.gather(_pass(reader, onwards), _pass(there, writer))
            self._open -= {writer, onwards}
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def front(store: Store) -> AsyncGenerator[Front]:
    """An address that leads to this store."""
    one = Front(store)
    server = await asyncio.start_server(one.serve, "127.0.0.1", one.port)
    try:
        yield one
    finally:
        server.close()
        await one.end()
