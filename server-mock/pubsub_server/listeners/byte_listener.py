"""A listener of a byte protocol on TCP or a Unix socket."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from hanzoai.pubsub.network.unix_sockets import bind_unix
from pubsub_server.listeners.tls_server import BACKLOG, TlsServer
from pubsub_server.settings.addresses import Address
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.shared.own_addresses import own_hosts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from pubsub_server.listeners.byte_connections import ByteConnections


class ByteListener:
    """Accepts connections of one protocol on one address.

    Args:
        connections: What they share.
        session: Creates the protocol of a new connection.
    """

    def __init__(
        self, connections: ByteConnections, session: Callable[[], asyncio.Protocol]
    ) -> None:
        self.connections = connections
        self._session = session
        self._server: asyncio.Server | TlsServer | None = None

    async def start(self, address: Address, tls: ssl.SSLContext | None = None) -> Address:
        """Listen, and return the address.

        Args:
            address: TCP or a Unix socket. A socket file without a listener is replaced.
            tls: For TCP.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        loop = asyncio.get_running_loop()
        if address.path is not None:
            bound = bind_unix(os.fsencode(address.path), 0o600)
            self._server = await loop.create_unix_server(self._session, sock=bound, backlog=BACKLOG)
            return address
        if tls is None:
            self._server = await loop.create_server(
                self._session,
                await own_hosts(address.host, address.port),
                address.port,
                backlog=BACKLOG,
            )
        else:
            settings = self.connections.settings
            self._server = TlsServer(
                self._session,
                tls,
                settings,
                self.connections.handshakes,
                lambda: len(self.connections.open),
                seconds=settings.auth_deadline / 1000,
            )
            await self._server.listen(address.host, address.port)
        return Address(address.host, int(self._server.sockets[0].getsockname()[1]))

    async def stop_listening(self) -> None:
        """Stop accepting connections."""
        await stop_accepting(self._server)

    async def stop(self, seconds: float) -> None:
        """Wait until every connection has closed, for at most this long, and cut the rest."""
        await self.stop_listening()
        await self.connections.end(seconds)
