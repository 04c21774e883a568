"""Stops accepting connections without losing any."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Server(Protocol):
    """Listens on sockets, such as `asyncio.Server`."""

    @property
    def sockets(self) -> Sequence[Any]:
        """The listening sockets."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


async def stop_accepting(server: Server | None) -> None:
    """Close a listening socket.

    asyncio creates the transport of a connection one turn of the loop after accepting it. If the
    server is closed in between, this fails silently, and the client waits on a socket that nothing
    reads. So first stop accepting, then close the server when every accepted connection has its
    transport.

    Args:
        server: The server; None does nothing.
    """
    if server is None:
        return
    loop = asyncio.get_running_loop()
    for socket in server.sockets:
        loop.remove_reader(socket.fileno())
    await asyncio.sleep(0)
    server.close()
