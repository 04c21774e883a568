"""The WebSocket listener, HIP-56 port 8057."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pubsub_server.listeners.tls_server import BACKLOG, TlsServer
from pubsub_server.listeners.websocket.protocol import CLOSE_SECONDS, SocketProtocol
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.shared.own_addresses import own_hosts

if TYPE_CHECKING:
    import ssl

    from pubsub_server.listeners.websocket.connections import SocketConnections


class WebSocketListener:
    """Accepts sockets on one port.

    Args:
        connections: What they share.
    """

    def __init__(self, connections: SocketConnections) -> None:
        self.connections = connections
        self._server: asyncio.Server | TlsServer | None = None

    async def start(self, tls: ssl.SSLContext | None = None) -> int:
        """Listens, and returns the port.

        Raises:
            OSError: The port is in use, or the address does not belong to this machine.
        """
        settings = self.connections.settings
        reuse_port = settings.workers > 1
        if tls is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: SocketProtocol(self.connections),
                await own_hosts(settings.host, settings.ws_port),
                settings.ws_port,
                backlog=BACKLOG,
                reuse_port=reuse_port or None,
            )
        else:
            self._server = TlsServer(
                lambda: SocketProtocol(self.connections),
                tls,
                settings,
                self.connections.handshakes,
                lambda: len(self.connections.open),
                seconds=settings.auth_deadline / 1000,
                shutdown_seconds=CLOSE_SECONDS,
            )
            await self._server.listen(settings.host, settings.ws_port, reuse_port=reuse_port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop_listening(self) -> None:
        """Stops accepting connections."""
        await stop_accepting(self._server)

    async def stop(self, seconds: float) -> None:
        """Waits until every connection has closed, for at most this long, and cuts the rest."""
        await self.stop_listening()
        await self.connections.end(seconds)
