"""The end of accepting connections, in which none gets lost."""

from __future__ import annotations

import asyncio


async def stop_accepting(server: asyncio.Server | None) -> None:
    """Close a listening socket.

    asyncio makes a transport of a connection a turn of the loop after accepting it. Where the
    server has been closed in between it fails, tells no one, and leaves the client hanging on a
    socket that nothing reads. So nothing is accepted any more first, and the server is closed when
    what was accepted has its transport.

    Args:
        server: None has nothing to close.
    """
    if server is None:
        return
    loop = asyncio.get_running_loop()
    for socket in server.sockets:
        loop.remove_reader(socket.fileno())
    await asyncio.sleep(0)
    server.close()
