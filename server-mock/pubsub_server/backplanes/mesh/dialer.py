"""Opens connections to the known addresses of other nodes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from typing import TYPE_CHECKING, Final

from pubsub_server.settings.addresses import parse_node_address
from pubsub_server.shared.failure_texts import system_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.backplanes.mesh.link import Link
    from pubsub_server.backplanes.mesh.members import Members
    from pubsub_server.tasks import Tasks

_LOG: Final = logging.getLogger(__name__)


class Dialer:
    """Dials the addresses that are due.

    Args:
        members: The known addresses.
        tasks: Runs one task per attempt.
        linked: Whether there is a connection with a node.
        connection: Creates the protocol of a connection to an address.
        failed: Called after an attempt that reached no node.
        tls: Of the connections; None for plaintext.
        seconds: Timeout of an attempt.
    """

    def __init__(
        self,
        members: Members,
        tasks: Tasks,
        *,
        linked: Callable[[str], bool],
        connection: Callable[[str], Link],
        failed: Callable[[], None],
        tls: ssl.SSLContext | None,
        seconds: float,
    ) -> None:
        self._members = members
        self._tasks = tasks
        self._linked = linked
        self._connection = connection
        self._failed = failed
        self._tls = tls
        self._seconds = seconds
        self._reported: set[str] = set()
        self._loop = asyncio.get_running_loop()

    def dial_due(self) -> None:
        """Start the attempts that are due."""
        for address in self._members.due(self._linked, self._loop.time()):
            self._tasks.spawn(self._dial(address))

    async def _dial(self, address: str) -> None:
        try:
            where = parse_node_address(address)
            async with asyncio.timeout(self._seconds):
                found = await self._loop.getaddrinfo(
                    where.host, where.port, type=socket.SOCK_STREAM
                )
                # A host name can resolve to several nodes.
                host, port = secrets.choice(found)[4][:2]
                assert isinstance(host, str)
                assert isinstance(port, int)
                await self._loop.create_connection(
                    lambda: self._connection(address),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname="" if self._tls is not None else None,
                )
                self._reported.discard(address)
        except (OSError, ValueError) as error:
            # ValueError: a peer may report a text that is not an address.
            self._report(address, error)
            self._members.dialed(address, None, self._loop.time())
            self._failed()

    def _report(self, address: str, error: OSError | ValueError) -> None:
        """Log the first failure in a row. An address that a peer reported may be outdated."""
        silent = isinstance(error, TimeoutError) and error.errno is None
        text = "no answer in time" if silent else system_text(error) or str(error)
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            text = "it does not use TLS; check that both nodes use mesh_tls_cert, or neither"
        level = logging.DEBUG
        if self._members.configured(address) and address not in self._reported:
            self._reported.add(address)
            level = logging.WARNING
        _LOG.log(level, "mesh: cannot reach %s: %s; trying again", address, text)
